"""Probe ``flight``: flight recorder dumps of running ranks, asked for through PyTorch's FIFO.

A rank with ``TORCH_NCCL_DEBUG_INFO_PIPE_FILE=STEM`` has a FIFO ``STEM<rank>.pipe``; a byte in it makes the rank write
its dump to a file, as it does after a timeout, and continue. Without ``write`` the probe only lists the ranks.
"""

from __future__ import annotations

import base64
import os
import stat
import time
import zlib
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from fabtui_node.registry import Emit, ProbeSpec, Value
from fabtui_node.system import job_processes, sysfs

#: Variables with the beginning of the names of dumps, the newest first.
_PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
#: Beginnings of the names where no variable is set: today's below the cache folder, and the one before 2.9.
_IN_CACHE, _BEFORE = "torch/comm_lib_trace_rank_", "/tmp/nccl_trace_rank_"
#: Maximum size (bytes) of a dump, and of a piece of it before it is compressed.
MOST_BYTES = 64 << 20
_PIECE = 256 << 10
#: A dump is complete if its size does not change for this time (s).
_SETTLED = 0.5
_POLL = 0.1

_OF_ANOTHER = "it belongs to another user, whose files are not opened"

#: Size and time of change of a file.
_Version = Optional[Tuple[int, int]]


class Rank(NamedTuple):
    """A rank with its FIFO and the files that its dump may go to, as seen from this process.

    Files that a process of another user names are not opened: it has no FIFO and no files here.
    """

    rank: int
    pid: int
    root: str
    pipe: str
    files: Tuple[str, ...]


def ranks(proc: str = "/proc", job: str = "", *, with_pipe: bool = True) -> List[Rank]:
    """Return the ranks on this node that have a FIFO, or all of them."""
    listed = []
    for one in job_processes.find(proc, job):
        pid = one["pid"]
        environ = job_processes.variables(sysfs.text(proc, str(pid), "environ", limit=1 << 18))
        stem = environ.get(_PIPE, "")
        if stem or not with_pipe:
            # A container may have another root.
            root = os.path.join(proc, str(pid), "root")
            own = job_processes.is_own(pid, proc)
            files = tuple("%s%d" % (prefix, one["rank"]) for prefix in prefixes(environ)) if own else ()
            listed.append(Rank(one["rank"], pid, root, "%s%d.pipe" % (stem, one["rank"]) if own else "", files))
    return listed


def prefixes(environ: Dict[str, str]) -> List[str]:
    """Return the beginnings of the names of dumps, by the environment of a rank."""
    named = [environ[name] for name in _PREFIXES if environ.get(name)]
    if named:
        return named[:1]
    home = environ.get("XDG_CACHE_HOME") or (os.path.join(environ["HOME"], ".cache") if environ.get("HOME") else "")
    return [*([os.path.join(home, _IN_CACHE)] if home else []), _BEFORE]


def run(args: Value, emit: Emit, deadline: float, proc: str = "/proc") -> Value:
    """List the ranks with a FIFO; with ``write``, make them write their dumps ``within`` seconds, which come as parts.

    Each of ``ranks`` has ``rank``, ``pid``, ``pipe`` and, after ``write``, ``file`` or ``problem``. A part has the
    ``rank`` and a piece of ``text``: a zlib stream in base64. ``without``: how many ranks have no such FIFO. With
    ``existing``, dumps that are there already come instead, and nothing is written.
    """
    job = str(args.get("job") or "")
    if args.get("existing") is True:
        return _existing(emit, proc, job)
    listening = ranks(proc, job)
    listed = [{"rank": one.rank, "pid": one.pid, "pipe": one.pipe} for one in listening]
    value = {"ranks": listed, "without": len(job_processes.find(proc, job)) - len(listening)}
    if args.get("write") is not True:
        return value
    within = args.get("within")
    end = time.monotonic() + (min(within, deadline) if isinstance(within, (int, float)) else deadline / 2)
    before = {one: [_version(one.root + path) for path in one.files] for one in listening}
    problems = {one: trigger(one.root + one.pipe) if one.pipe else _OF_ANOTHER for one in listening}
    written = _written({one: before[one] for one in listening if not problems[one]}, end)
    for one, row in zip(listening, listed):  # noqa: B905 - Python 3.8 knows no strict=
        path = written.get(one)
        problem = problems[one] or (_no_dump(one, proc) if path is None else _send(emit, one.rank, one.root + path))
        row.update({"problem": problem} if problem else {"file": path})
    return value


def _existing(emit: Emit, proc: str, job: str) -> Dict[str, Any]:
    """Send the dumps that the ranks have written since they started, such as dumps of PyTorch's watchdog."""
    rows = []
    for one in ranks(proc, job, with_pipe=False):
        age = job_processes.age(one.pid, proc)
        for path in one.files if age is not None else ():
            version = _version(one.root + path)
            if version is not None and version[0] and version[1] / 1e9 >= time.time() - (age or 0.0):
                problem = _send(emit, one.rank, one.root + path)
                more = {"problem": problem} if problem else {"file": path}
                rows.append({"rank": one.rank, "pid": one.pid, "pipe": one.pipe, **more})
                break
    return {"ranks": rows, "without": 0}


def trigger(path: str) -> Optional[str]:
    """Write a byte into a FIFO without waiting for its reader; return the problem if that is not possible."""
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        return "cannot open its FIFO: %s" % (error.strerror or error)
    try:
        about = os.fstat(pipe)
        if not stat.S_ISFIFO(about.st_mode) or about.st_uid not in (os.geteuid(), 0):
            return "its FIFO is another file, or that of another user"
        os.write(pipe, b"1")
    except OSError as error:
        return "cannot write into its FIFO: %s" % (error.strerror or error)
    finally:
        os.close(pipe)
    return None


def _version(path: str) -> _Version:
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_size, about.st_mtime_ns


def _written(before: Dict[Rank, List[_Version]], end: float) -> Dict[Rank, str]:
    seen: Dict[str, Tuple[_Version, float]] = {}
    files: Dict[Rank, str] = {}
    while len(files) < len(before):
        now = time.monotonic()
        for one in before.keys() - files.keys():
            for path, old in zip(one.files, before[one]):  # noqa: B905 - Python 3.8 knows no strict=
                version = _version(one.root + path)
                if version is None or version == old or not version[0]:
                    continue
                known, since = seen.setdefault(path, (version, now))
                if known != version:
                    seen[path] = (version, now)
                elif now - since >= _SETTLED:
                    files[one] = path
        if now >= end:
            break
        time.sleep(_POLL)
    return files


def _no_dump(one: Rank, proc: str) -> str:
    state = job_processes.state(one.pid, proc)
    if state in ("T", "t"):
        return "it wrote no dump: the process is stopped (state T)"
    if state is None:
        return "it wrote no dump: the process has ended"
    return "it wrote no dump in time, at %s" % " or ".join(one.files)


def _send(emit: Emit, rank: int, path: str) -> Optional[str]:
    """Send a dump in parts; return the problem if it cannot be read."""
    packer = zlib.compressobj(1)
    try:
        with job_processes.open_own(path) as file:
            if os.fstat(file.fileno()).st_size > MOST_BYTES:
                return "its dump is over %d MiB; read it on the node" % (MOST_BYTES >> 20)
            while piece := file.read(_PIECE):
                _emit(emit, rank, packer.compress(piece))
        _emit(emit, rank, packer.flush())
    except OSError as error:
        return "cannot read its dump: %s" % (error.strerror or error)
    return None


def _emit(emit: Emit, rank: int, data: bytes) -> None:
    if data:
        emit({"rank": rank, "text": base64.b64encode(data).decode("ascii")})


PROBE = ProbeSpec(
    name="flight",
    title="flight recorder dumps of running ranks, through PyTorch's FIFO",
    phase="job",
    needs="PyTorch with TORCH_NCCL_DEBUG_INFO_PIPE_FILE and TORCH_FR_BUFFER_SIZE in the environment of the ranks",
    gives="the last collectives, sends and receives of each rank",
    run=run,
)
