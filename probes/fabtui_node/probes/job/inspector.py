"""Probe ``inspector``: the latest collectives in the files that NCCL's Inspector writes for the ranks on this node.

The folder is named by ``NCCL_INSPECTOR_DUMP_DIR`` of the ranks' environment. It has a file per process,
``HOST-pidPID.log``, and may be shared by all nodes. The ends of the files are read; nothing is written.
"""

from __future__ import annotations

import os
import re
import stat
import time
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.lines import json_value
from fabtui_node.parsers.nccl import inspector_records
from fabtui_node.registry import Emit, ProbeSpec, Value
from fabtui_node.system import job_processes, sysfs

#: Maximum number of files that are read, bytes at the end of each, and names of a folder that are looked at.
_MOST_FILES, _TAIL, _MOST_NAMES = 16, 128 << 10, 16_384
#: Maximum number of collectives of a communicator in an answer.
_RECENT = 96
#: Age (s) from which a file is of an earlier job.
_OLD = 120.0
_NAME = re.compile(r"(.{1,255})-pid(\d{1,10})\.(?:log|jsonl?)", re.ASCII)


def run(args: Value, emit: Emit, deadline: float, proc: str = "/proc") -> Value:
    """Read the ends of the files of the ranks of ``job``.

    ``folders``: those that the ranks name. ``ranks``: a row for each communicator of a process, with ``communicator``,
    ``rank`` and ``size`` in it, ``name``, ``pid`` and ``operations``: name, bytes, number and duration (us) of the
    latest collectives. ``problems``: why files were not read.
    """
    end = time.monotonic() + deadline * 0.8
    folders: Dict[str, List[int]] = {}
    problems: List[str] = []
    for one in job_processes.find(proc, str(args.get("job") or "")):
        if not job_processes.is_own(one["pid"], proc):
            problems.append("rank %s belongs to another user, whose files are not read" % one["rank"])
        elif (folder := _folder(one["pid"], proc)) is not None:
            folders.setdefault(folder, []).append(one["pid"])
    ranks: List[Dict[str, Any]] = []
    for folder, pids in folders.items():
        try:
            paths = _files(folder, pids, proc)
        except OSError as error:
            problems.append("%s: %s" % (folder, error.strerror or error))
            continue
        for pid, path in paths:
            if time.monotonic() > end:
                problems.append("no time was left")
                break
            ranks += _rows(path, pid)
    return {"folders": list(folders)[:_MOST_FILES], "ranks": ranks, "problems": problems[:_MOST_FILES]}


def _folder(pid: int, proc: str) -> Optional[str]:
    """Return the folder that the environment of a process names, as this node sees it; None without one."""
    environ = job_processes.variables(sysfs.text(proc, str(pid), "environ", limit=1 << 18))
    named = environ.get("NCCL_INSPECTOR_DUMP_DIR")
    if not named:
        return None
    named = os.path.expanduser(named)
    if not os.path.isabs(named):
        named = os.path.join(sysfs.real(proc, str(pid), "cwd") or "/", named)
    # In a container it is not the folder with this name here.
    inside = os.path.join(proc, str(pid), "root", named.lstrip("/"))
    return inside if os.path.isdir(inside) else named


def _files(folder: str, pids: List[int], proc: str) -> List[Any]:
    """Return process and path of the files of some ranks that are still written."""
    numbers = {number: pid for pid in pids for number in _numbers(pid, proc)}
    own = os.uname().nodename
    files = []
    with os.scandir(folder) as entries:
        for entry in [one for one, _ in zip(entries, range(_MOST_NAMES))]:  # noqa: B905 - Python 3.8
            match = _NAME.fullmatch(entry.name)
            pid = numbers.get(int(match[2])) if match else None
            if pid is None or match is None:
                continue
            about = entry.stat()
            if stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and time.time() - about.st_mtime <= _OLD:
                # Other nodes may have a process of the same number.
                files.append((match[1].partition(".")[0] != own.partition(".")[0], -about.st_mtime, pid, entry.path))
    named = any(not other for other, _, _, _ in files)
    return [(pid, path) for other, _, pid, path in sorted(files) if not (named and other)][:_MOST_FILES]


def _numbers(pid: int, proc: str) -> List[int]:
    """Return the numbers of a process: here, and in its container."""
    for line in (sysfs.text(proc, str(pid), "status") or "").splitlines():
        if line.startswith("NSpid:"):
            return [int(word) for word in line.split()[1:] if word.isdecimal()] or [pid]
    return [pid]


def _rows(path: str, pid: int) -> List[Dict[str, Any]]:
    try:
        with job_processes.open_own(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL))
            lines = file.read(_TAIL).decode("utf-8", "replace").split("\n")
    except OSError:
        return []
    # The first line is probably cut, and the last one is being written.
    values = [value for line in lines[size > _TAIL : -1] for value in [json_value(line)] if isinstance(value, dict)]
    rows: Dict[Any, Dict[str, Any]] = {}
    for one in inspector_records.operations(values):
        if one is None or one.kind != "coll" or one.source not in (None, "kernel_gpu"):
            continue
        row = rows.setdefault(
            (one.communicator, one.rank),
            {
                "communicator": one.communicator,
                "rank": one.rank,
                "size": one.ranks,
                "name": one.name,
                "pid": pid,
                "operations": [],
            },
        )
        row["operations"].append([one.operation, one.size, one.serial, one.time])
    for row in rows.values():
        del row["operations"][:-_RECENT]
    return list(rows.values())


PROBE = ProbeSpec(
    name="inspector",
    title="latest collectives in the files of NCCL's Inspector",
    phase="job",
    passive=True,
    needs="ranks with the Inspector, and NCCL_INSPECTOR_DUMP_DIR in their environment",
    gives="duration of the latest collectives of each rank",
    run=run,
)
