"""``fabtui ras``: ask NCCL's RAS service on the nodes of a running job who is behind."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
from typing import Any, NamedTuple

from fabtui.cli.job_options import job_options, notice
from fabtui.errors import InputError
from fabtui.importers.formats.nccl_ras import FORMATS, report_of, values_of
from fabtui.importers.result import Result
from fabtui.importers.sources import Source
from fabtui.jobs.ras_answer import answer
from fabtui.report.imported_output import text_of
from fabtui.report.tables import takes_unicode
from fabtui.sanitize import clean, one_line
from fabtui.session.one_probe import Reply, replies
from fabtui_node.parsers.base import Notes
from fabtui_node.probes.job.ras import endpoint

#: Exit codes: a rank is behind; no node gave a report.
BEHIND, NO_REPORT = 1, 3
#: Time (s) for the reports, without the time between them.
_DEADLINE = 60.0
_LONGEST_WAIT = 600.0
_OWN = ("address", "wait", "json", "ascii")


class _Asked(NamedTuple):
    """The reports of a node, the latest last."""

    node: str
    address: str
    texts: list[str]
    stopped: str


def execute(args: argparse.Namespace) -> int:
    """Ask; print who is behind; return the exit code.

    Raises:
        InputError: The arguments are not valid.
    """
    given = vars(args)
    address, wait = str(given.get("address", "")), _wait(given)
    if address and endpoint(address) is None:
        raise InputError(f"--address: {address!r} is not HOST:PORT; for example localhost:28028 or [::1]:28028")
    arguments = {"address": address, "wait": wait}
    found = asyncio.run(replies(job_options(args, _OWN), "ras", arguments, _DEADLINE + wait, _reported, notice))
    asked = next((one for reply in found if (one := _asked(reply)) is not None), None)
    if asked is None:
        return _no_report(found, "json" in given)
    return _print(asked, given)


def _wait(given: dict[str, Any]) -> float:
    try:
        wait = float(given.get("wait", "5"))
    except ValueError:
        wait = -1.0
    if not 0 <= wait <= _LONGEST_WAIT:
        raise InputError(f"--wait: {given['wait']!r} is not a number of seconds from 0 to {_LONGEST_WAIT:.0f}")
    return wait


def _reported(reply: Reply) -> bool:
    return _asked(reply) is not None


def _asked(reply: Reply) -> _Asked | None:
    """Return the reports in the answer of a node, None if there is none."""
    texts: dict[int, list[str]] = {}
    address = ""
    for part in reply.parts:
        number, text = part.get("report"), part.get("text")
        if number in (0, 1) and isinstance(text, str):
            texts.setdefault(number, []).append(text)
            address = str(part.get("address", ""))[:300]
    complete = reply.value.get("reports") if reply.value else None
    whole = ["".join(texts[number]) for number in sorted(texts)]
    # Of a report that was cut off by the deadline there may be parts.
    whole = whole[: complete if isinstance(complete, int) else 0]
    return _Asked(reply.node, address, whole, _stopped(reply)) if whole else None


def _print(asked: _Asked, given: dict[str, Any]) -> int:
    notes = Notes()
    latest = report_of(asked.texts[-1], notes)
    found = answer(latest, report_of(asked.texts[0], Notes()) if len(asked.texts) > 1 else None)
    if asked.stopped:
        found.sentences.append(asked.stopped)
    form = FORMATS[0]
    result = Result(
        Source(f"{asked.node} {asked.address}", ""),
        form.name,
        form.title,
        {**found.values(), **values_of(latest)},
        dict(form.units),
        notes.warnings,
        notes.unknown,
        [],
    )
    unicode = takes_unicode(sys.stdout)
    if "json" in given:
        print(json.dumps(result.as_json(), ensure_ascii=not unicode, allow_nan=False))
    else:
        limited = sys.stdout.isatty() or "COLUMNS" in os.environ
        width = shutil.get_terminal_size().columns if limited else 10_000
        sys.stdout.write(text_of(result, width, plain="ascii" in given or not unicode))
    return BEHIND if found.hangs else 0


def _no_report(found: list[Reply], as_json: bool) -> int:
    """Print why no node gave a report, and what to do."""
    lines: list[tuple[str, str, str]] = []
    for reply in found:
        if reply.value is None:
            lines.append((reply.node, reply.problem, reply.hint))
            continue
        problems = reply.value.get("problems")
        for problem in problems if isinstance(problems, list) else []:
            if isinstance(problem, dict):
                lines.append((reply.node, str(problem.get("text", "")), _hint(reply, str(problem.get("kind", "")))))
    if as_json:
        rows = [{"node": node, "problem": clean(text), "next": clean(hint) or None} for node, text, hint in lines]
        print(json.dumps({"kind": "nccl-ras", "values": {"answer": None, "problems": rows}}))
        return NO_REPORT
    for node, text, hint in lines:
        print(f"{one_line(node)}: {one_line(text, 500)}" + (f"; {one_line(hint, 500)}" if hint else ""))
    return NO_REPORT


def _processes(reply: Reply) -> list[dict[str, Any]]:
    """Return the processes with a rank on a node."""
    processes = (reply.value or {}).get("processes")
    return [one for one in processes if isinstance(one, dict)] if isinstance(processes, list) else []


def _stopped(reply: Reply) -> str:
    """Return which processes with a rank are stopped on a node, or nothing."""
    stopped = [str(one.get("pid")) for one in _processes(reply) if one.get("state") in ("T", "t")]
    if not stopped:
        return ""
    return f"stopped (state T) on {reply.node}: process {', '.join(stopped[:8])}; kill -CONT lets it go on"


def _hint(reply: Reply, kind: str) -> str:
    """Return what to do about a service that gives no report."""
    if stopped := _stopped(reply):
        return stopped
    rows = _processes(reply)
    if kind == "refused":
        jobs = f"{len(rows)} processes with a rank run there" if rows else "no process with a rank is visible there"
        return f"{jobs}; RAS needs NCCL 2.24 and a communicator, and is off with NCCL_RAS_ENABLE=0"
    if kind == "silent":
        return "next, on the node: ps -eo pid,stat,wchan:32,args shows stopped (T) processes"
    return ""
