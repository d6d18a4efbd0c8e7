"""Summaries that launchers print when a job failed: torchrun, mpirun, prterun and DeepSpeed."""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import plain_lines

_MOST = 10_000
# torchrun: a block for each failure, of which one is the root cause.
_FAILED = re.compile(r"\s{0,4}(\S{1,200}) FAILED\s*")
_ROOT = re.compile(r"\s{0,4}Root Cause \(first observed failure\):\s*")
_INDEX = re.compile(r"\s{0,4}\[(\d{1,7})\]:\s*")
_FIELD = re.compile(r"\s{1,8}(time|host|rank|exitcode|error_file|traceback)\s*:\s?(.{0,400})")
_RANK = re.compile(r"(-?\d{1,7})(?: \(local_rank: (\d{1,5})\))?")
_EXIT = re.compile(r"(-?\d{1,5})(?: \(pid: (\d{1,10})\))?")
# mpirun and prterun: one process that ended first.
_NOTICED = re.compile(
    r"(?:mpirun|mpiexec|prterun|prun|orterun) noticed that process rank (\d{1,7}) with PID (\d{1,10}) on node "
    r"(\S{1,253}) exited on\s{1,4}signal (\d{1,3})"
)
_DETECTED = re.compile(r"\[\[?[\w,-]{1,80}\]?,(\d{1,7})\]\s{1,8}Exit code:\s{1,8}(\d{1,5})")
# DeepSpeed: each process that ended.
_EXITS = re.compile(r"exits with return code = (-?\d{1,5})")


def _new(**known: Any) -> dict[str, Any]:
    names = ("rank", "local_rank", "host", "pid", "exit_code", "signal", "time", "traceback")
    return {**dict.fromkeys(names), "first": None, **known}


def _field(failure: dict[str, Any], name: str, text: str) -> None:
    """Keep a line of a failure of torchrun; a negative exit code is a signal."""
    if name == "rank" and (rank := _RANK.match(text)):
        failure.update(rank=int(rank[1]), local_rank=None if rank[2] is None else int(rank[2]))
    elif name == "exitcode" and (ended := _EXIT.match(text)):
        failure.update(_ended(int(ended[1])), pid=None if ended[2] is None else int(ended[2]))
    elif name in ("host", "time", "traceback"):
        failure[name] = text.strip()[:300] or None


def _ended(code: int) -> dict[str, Any]:
    return {"signal": -code, "exit_code": None} if code < 0 else {"exit_code": code, "signal": None}


def parse(text: str) -> Reading:
    """Return the ``program`` and its ``failures``: rank, host, pid, exit code or signal, and which came ``first``."""
    notes = Notes()
    program = None
    failures: list[dict[str, Any]] = []
    root = False
    for line in plain_lines(text):
        if failed := _FAILED.fullmatch(line):
            program, root = failed[1], False
        elif _ROOT.fullmatch(line):
            root = True
        elif _INDEX.fullmatch(line) and len(failures) < _MOST:
            failures.append(_new(first=root))
        elif failures and (field := _FIELD.fullmatch(line)):
            _field(failures[-1], field[1], field[2])
        elif (exits := _EXITS.search(line)) and len(failures) < _MOST:
            failures.append(_new(**_ended(int(exits[1]))))
    for noticed in _NOTICED.finditer(text):
        rank, pid, host, signal = noticed.groups()
        failures.append(_new(rank=int(rank), pid=int(pid), host=host, signal=int(signal), first=True))
    failures += [_new(rank=int(one[1]), exit_code=int(one[2]), first=True) for one in _DETECTED.finditer(text)]
    for one in failures:
        if one["first"]:
            where = f" on {one['host']}" if one["host"] else ""
            how = f"signal {one['signal']}" if one["signal"] is not None else f"exit code {one['exit_code']}"
            notes.warn(f"rank {one['rank']}{where} failed first: {how}; its own output has the reason")
    if not failures:
        notes.warn("no process that failed is named")
    return notes.reading({"program": program, "failures": failures})


FORMATS = [
    Format(
        "launcher",
        "summaries of torchrun, mpirun and DeepSpeed: which process failed first",
        first_of(
            (0.58, r"^Root Cause \(first observed failure\):|^\s{1,8}exitcode\s{1,4}: -?\d{1,5} \(pid: "),
            (0.58, r"(?:mpirun|mpiexec|prterun|prun|orterun) (?:noticed that process|detected that one or more)"),
            (0.55, r"sigkill_handler\].{0,300}exits with return code = -?\d"),
        ),
        parse,
        log=True,
        aliases="torchrun|mpirun|deepspeed-launcher",
        errors=True,
    )
]
