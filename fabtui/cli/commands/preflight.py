"""``fabtui preflight``: inspect the nodes without tests and report faults and differences."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fabtui.cli.commands.run import interrupted_code, print_problems, run_until_signal
from fabtui.cli.options_from_args import output_path, request_from
from fabtui.cli.write_outputs import print_lines, recording_line, write_each, write_first
from fabtui.config.file import read_config
from fabtui.diagnosis.preflight.rules import FOUND, Preflight, preflight
from fabtui.errors import InputError
from fabtui.export.atomic_write import write_atomically
from fabtui.export.preflight import csv_text, json_text, read_earlier
from fabtui.model.facts.compare import Earlier, changes_since
from fabtui.model.session_model import Model
from fabtui.report.preflight import print_preflight
from fabtui.report.progress import Progress
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import SessionOptions
from fabtui_node.registry import PREFLIGHT

_STDOUT = "-"
_FORMATS = ("json", "csv")
#: Options with another meaning than in a session.
_OWN = (*_FORMATS, "all", "baseline", "quiet", "ascii")


def execute(args: argparse.Namespace) -> int:
    """Run a preflight; return the exit code.

    Raises:
        InputError: The arguments are not valid, or an output could not be written.
    """
    given = vars(args)
    outputs = _outputs(given)
    options = _options(args)
    earlier = read_earlier(Path(given["baseline"]).expanduser()) if "baseline" in given else None
    return asyncio.run(_session(options, outputs, earlier, given))


def _outputs(given: dict[str, Any]) -> dict[str, Path | None]:
    """Return the paths of JSON and CSV, None for standard output."""
    found = {name: None if given[name] == _STDOUT else output_path(given, name) for name in _FORMATS if name in given}
    if len(found) == len(_FORMATS) and found["json"] == found["csv"]:
        raise InputError("--json and --csv name the same destination; name a file for one of them")
    return found


def _options(args: argparse.Namespace) -> SessionOptions:
    config = read_config(args)
    print_problems(config)
    given = {name: value for name, value in vars(args).items() if name not in _OWN}
    request = request_from(argparse.Namespace(**given), config)
    # All light probes; each node skips those that it has no hardware for.
    return replace(request.options, probes=PREFLIGHT, preflight_only=True)


async def _session(
    options: SessionOptions, outputs: dict[str, Path | None], earlier: Earlier | None, given: dict[str, Any]
) -> int:
    feed = LiveFeed(options)
    progress = Progress(sys.stderr, quiet="quiet" in given)
    progress.watch(feed)
    interrupted = await run_until_signal(feed)
    progress.end()
    found = preflight(feed.model)
    changed = None if earlier is None else changes_since(earlier, found.table)

    def report(lines: list[str]) -> None:
        if _STDOUT not in [given.get(name) for name in _FORMATS]:
            if options.record:
                lines.append(recording_line(options.record, feed.recording_stopped))
            everything, plain = "all" in given, "ascii" in given
            print_preflight(feed.model, found, changed, given.get("baseline", ""), everything, plain)
            print_lines(lines)

    write_first(_write(feed.model, found, outputs), report)
    if interrupted is not None:
        return interrupted_code(interrupted)
    return FOUND if changed is not None and changed.any else found.exit_code


def _write(model: Model, found: Preflight, outputs: dict[str, Path | None]) -> Iterator[str]:
    """Write JSON and CSV; see `write_each`."""

    def put(text: str, path: Path) -> None:
        write_atomically(path, lambda file: file.write(text.encode("utf-8", "backslashreplace")))

    def files() -> Iterator[tuple[Path, Callable[[Path], None]]]:
        for name, path in outputs.items():
            text = json_text(model, found) if name == "json" else csv_text(found)
            if path is None:
                sys.stdout.write(text)
            else:
                yield path, partial(put, text)

    return write_each(files())
