"""``fabtui preflight``: inspect the nodes without tests and report faults and differences."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fabtui.cli.commands.run import interrupted_code, played
from fabtui.cli.options_from_args import print_problems, request_from
from fabtui.cli.outputs import recording_line
from fabtui.cli.printing import TEXT_FORMATS, print_lines, text_outputs, write_first, write_texts
from fabtui.config.file import ConfigFile, read_config
from fabtui.diagnosis.diagnosis import Evidence, diagnose
from fabtui.diagnosis.finding import Severity
from fabtui.diagnosis.preflight.environment import expectations
from fabtui.exit_status import BAD
from fabtui.export.preflight import csv_text, json_text, read_earlier
from fabtui.model.facts.compare import Earlier, changes_since
from fabtui.paths import user_path
from fabtui.report.preflight import print_preflight
from fabtui.report.progress import Progress
from fabtui.session.options import SessionOptions
from fabtui_node.registry import PREFLIGHT

HELP = """\
Inspect the nodes with all light probes, without starting ranks, and report faults and outliers.

examples:
  fabtui preflight --nodes 'n[060-067]'
  fabtui preflight --hostfile hosts --all
  fabtui preflight --nodes @rack1 --json before.json
  fabtui preflight --nodes @rack1 --baseline before.json
  fabtui preflight --nodes @rack1 --expect gpus='8 x H200' --fail-on bad
  fabtui preflight --nodes @rack1 --csv - | column -s, -t | less -S

exit codes: 0 no findings (notes do not count); 1 a fault, a difference or a change (see --fail-on);
2 bad usage or input; 3 something could not be inspected; 130 interrupted
"""


def execute(args: argparse.Namespace) -> int:
    given = vars(args)
    outputs = text_outputs(given)
    expectations(given.get("expect", ()))
    config = read_config(args)
    print_problems(config)
    options = preflight_options(args, config)
    earlier = read_earlier(user_path(given["baseline"])) if "baseline" in given else None
    return asyncio.run(_session(options, outputs, earlier, given))


def preflight_options(args: argparse.Namespace, config: ConfigFile) -> SessionOptions:
    given = {name: value for name, value in vars(args).items() if name not in TEXT_FORMATS}
    request = request_from(argparse.Namespace(**given), config)
    # All light probes; each node skips those that it has no hardware for.
    return replace(request.options, probes=PREFLIGHT, preflight_only=True)


async def _session(
    options: SessionOptions, outputs: dict[str, Path | None], earlier: Earlier | None, given: dict[str, Any]
) -> int:
    if options.origin and "quiet" not in given:
        print(options.origin, file=sys.stderr)
    feed, interrupted = await played(options, Progress(sys.stderr, quiet="quiet" in given))
    preflight = diagnose(Evidence(feed.model, expected=expectations(given.get("expect", ())))).preflight
    changed = None if earlier is None else changes_since(earlier, preflight.table)

    def report(lines: list[str]) -> None:
        if None not in outputs.values():
            if options.record:
                lines.append(recording_line(options.record, feed.recording_stopped))
            everything, plain = "all" in given, "ascii" in given
            print_preflight(feed.model, preflight, changed, given.get("baseline", ""), everything, plain)
            print_lines(lines)

    texts = {"json": partial(json_text, feed.model, preflight), "csv": partial(csv_text, preflight)}
    write_first(write_texts(texts, outputs), report)
    if interrupted is not None:
        return interrupted_code(interrupted)
    least = Severity(given.get("fail_on", Severity.WARN))
    return BAD if changed is not None and changed.any else preflight.code_from(least)
