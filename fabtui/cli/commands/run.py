"""``fabtui run``: a session without a screen."""

from __future__ import annotations

import argparse

from fabtui.cli.foreground import as_text
from fabtui.cli.options_from_args import request_from
from fabtui.config.file import read_config
from fabtui.config.values import seconds

HELP = """\
Run a session without a screen: progress goes to stderr, a summary to stdout.

examples:
  fabtui run --nodes n060,n061 --csv pairs.csv
  fabtui run --nodes @rack1 --probes p2p --bytes 64M --quiet && echo fabric ok
  fabtui run --nodes n060,n061 --collectives all --sizes 1M-1G:4 --table collectives.csv
  fabtui run --nodes n060,n061 --ab NCCL_IB_DISABLE=0,1
  fabtui run --nodes n060,n061 --pair 'n060:3>n061:5' --probes p2p
  fabtui run --nodes @rack1 --confirm          also test what the findings blame
  fabtui run --nodes @rack1 --watch 3600       find a pair that fails now and then
  fabtui run --nodes n060,n061 --text          every layer, for screen readers and logs
  fabtui run --lab 2x4 --lab-fault 'n000:1>n001:2=drop'

exit codes: 0 everything ok; 1 a test was slow, failed or timed out, or a finding is bad;
2 bad usage or input; 3 something could not be tested; 130 interrupted (what was measured until
then is written)
"""

#: Longest time of ``--watch`` (s): 30 days.
_MAX_WATCH = 30 * 86400.0


def execute(args: argparse.Namespace) -> int:
    """Run a session to its end; return the exit code."""
    config = read_config(args)
    request = request_from(args, config)
    watch = seconds(args.watch, "--watch", 1.0, _MAX_WATCH) if "watch" in args else 0.0
    return as_text(args, config, request, watch, every_layer="text" in args)
