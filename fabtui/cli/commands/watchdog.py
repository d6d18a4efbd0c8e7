"""``fabtui watchdog``: watch a running job until it ends, and report each time that it hangs; see `hang`."""

from __future__ import annotations

import argparse
import asyncio

from fabtui.cli.commands.hang import HangCommand, HangSettings, hang_options
from fabtui.cli.printing import is_plain
from fabtui.config.values import seconds
from fabtui.errors import InputError
from fabtui.exit_status import INTERRUPTED
from fabtui.session.options import USUAL_IDLE

HELP = """\
Watch a running job until it ends; report each time that it hangs or is held up, and which rank is behind.

examples:
  fabtui watchdog 4711                         a job of Slurm: its logs, its nodes, NCCL RAS
  fabtui watchdog --nodes n060,n061 --logs '/scratch/me/run7/*.log'
  fabtui watchdog 4711 --on-hang 'mail -s "$FABTUI_FINDING" me@site < "$FABTUI_REPORT"'
  fabtui watchdog 4711 --once || scancel 4711  end after the first hang

It is `fabtui hang --wait` for the whole job. The command gets FABTUI_JOB, FABTUI_NODES, FABTUI_FINDING and
FABTUI_REPORT (a JSON file). fabtui itself changes nothing: it prints commands, and runs none of them.

exit codes: 0 the job has ended and did not hang; 1 it hung; 2 bad usage or input; 3 nothing of it could be read;
130 interrupted
"""

_LONGEST = 86400.0


def execute(args: argparse.Namespace) -> int:
    """Watch until the job ends; return the exit code."""
    given = vars(args)
    idle = seconds(given.get("idle", str(USUAL_IDLE)), "--idle", 1.0, _LONGEST)
    every = seconds(given.get("every", "0.5"), "--every", 0.5, 600.0)
    settings = HangSettings(
        wait=True,
        once="once" in given,
        command=str(given.get("on_hang", "")),
        as_json="json" in given,
        unicode=not is_plain(given),
        every=every,
    )
    options, query = hang_options(args)
    if "," in options.job:
        raise InputError("one job at a time; each job has its own logs")
    if query is not None:
        query = query._replace(idle=idle)
    try:
        return asyncio.run(HangCommand(options, query, settings).run())
    except KeyboardInterrupt:
        return INTERRUPTED
