"""Processes of jobs on this node: those whose launcher has given them a rank."""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import IO, Any, Dict, List, Optional, Tuple

from fabtui_node.system import sysfs

#: Variables with the rank of a process, by launcher: torchrun, Slurm, Open MPI, PMI.
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
#: Programs that start the process of a rank and inherit its variables.
_WRAPPERS = ("sh", "bash", "dash", "zsh", "env", "nice", "timeout", "numactl", "srun", "slurmstepd", "mpirun")
#: Words in the command lines of programs that start the ranks of a node, and give each its RANK.
_LAUNCHERS = ("torchrun", "torch.distributed", "torch/distributed", "deepspeed", "accelerate")
#: Where RAS listens, as a process of another user may name it: no name that is looked up, no port of the system.
_LOOPBACK = re.compile(
    r"(?:localhost|127\.0\.0\.1|\[::1\]):(?:[1-9][0-9]{4}|102[4-9]|10[3-9][0-9]|1[1-9][0-9]{2}|[2-9][0-9]{3})"
)
_TICK = float(os.sysconf("SC_CLK_TCK"))
#: Maximum number of processes that are listed, and of descriptors of one.
MOST, _DESCRIPTORS = 256, 65_536


def find(proc: str = "/proc", job: str = "") -> List[Dict[str, Any]]:
    """Return the processes of jobs that this user may inspect, by process id; with ``job`` none of other jobs of Slurm.

    Each has ``pid``, ``rank``, ``name``, ``state`` (``R``, ``S``, ``D``, ``T`` for stopped). ``ras`` is the address in
    NCCL_RAS_ADDR, of another user's process only one of this machine, or None; ``helpers`` are the processes of the
    rank below it. Processes with the same rank start each other: a shell, the rank, its data loaders. The first Python
    of them is listed, else the first other than a wrapper.
    """
    ranked: Dict[int, Dict[str, Any]] = {}
    sides = set()
    for name in sysfs.names(proc):
        environ = variables(sysfs.text(proc, name, "environ", limit=1 << 18)) if name.isdecimal() else {}
        rank = next((number for key in _RANKS if (number := sysfs.to_integer(environ.get(key))) is not None), None)
        fields = _stat(sysfs.text(proc, name, "stat"))
        if rank is None or fields is None or fields["state"] == "Z" or is_of_another(environ, job):
            continue
        cmdline = sysfs.text(proc, name, "cmdline") or ""
        if _is_fabtui(cmdline):
            # The node side itself or its controller, in a step of the job or in a container with a rank.
            sides.add(int(name))
        program = os.path.basename(sysfs.real(proc, name, "exe") or fields["name"])
        ranked[int(name)] = dict(
            fields,
            rank=rank,
            ras=_ras(environ.get("NCCL_RAS_ADDR"), int(name), proc),
            program=program,
            own="RANK" in environ,
            elastic="TORCHELASTIC_RUN_ID" in environ,
            launches=any(word in cmdline for word in _LAUNCHERS),
        )
    _drop_launchers(ranked)
    first = [pid for pid in ranked if not sides.intersection(_above(pid, ranked)) and _is_first(pid, ranked)][:MOST]
    helpers: Dict[int, List[int]] = {pid: [] for pid in first}
    for pid in ranked:
        for above in _line(pid, ranked)[1:]:
            if above in helpers:
                helpers[above].append(pid)
    kept = ("rank", "name", "state", "ras")
    return [{"pid": pid, "helpers": helpers[pid], **{key: ranked[pid][key] for key in kept}} for pid in first]


def owner(pid: int, proc: str = "/proc") -> Optional[Tuple[int, int]]:
    """Return user and group of a process, None if it is gone or has several (a set-user-ID program)."""
    lines = (sysfs.text(proc, str(pid), "status") or "").splitlines()
    ids = [set(line.split()[1:]) for name in ("Uid:", "Gid:") for line in lines if line.startswith(name)]
    if len(ids) != 2 or not all(len(numbers) == 1 and min(numbers).isdecimal() for numbers in ids):
        return None
    return int(min(ids[0])), int(min(ids[1]))


def is_own(pid: int, proc: str = "/proc") -> bool:
    """Return True for a process of this user.

    What others' processes name in their environment is not opened or loaded: root would do it for them.
    """
    ids = owner(pid, proc)
    return ids is not None and ids[0] == os.geteuid()


def open_own(path: str) -> IO[bytes]:
    """Open a file that a process of this user names; one that is not a regular file of this user raises OSError."""
    # A FIFO would wait for a writer.
    opener = lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # noqa: E731
    file = open(path, "rb", opener=opener)  # noqa: SIM115 - the caller closes it
    about = os.fstat(file.fileno())
    if stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid():
        return file
    file.close()
    raise PermissionError(errno.EPERM, "it is not a regular file, or belongs to another user")


def _ras(address: Optional[str], pid: int, proc: str) -> Optional[str]:
    if address is None or _LOOPBACK.fullmatch(address) or is_own(pid, proc):
        return address
    return None


def _drop_launchers(found: Dict[int, Dict[str, Any]]) -> None:
    """Remove the launchers of a node (torchrun), which have the rank of their step; its ranks have others."""
    for pid, one in list(found.items()):
        for above in _above(pid, found)[1:] if one["own"] else []:
            launcher = found.get(above)
            if launcher is not None and not launcher["own"] and (one["elastic"] or launcher["launches"]):
                del found[above]


def _is_fabtui(cmdline: str) -> bool:
    """Return True for the command line of the node side or of the controller."""
    words = cmdline.split("\0")[:8]
    return "fabtui_node" in cmdline or "fabtui" in [os.path.basename(word) for word in words]


def _above(pid: int, found: Dict[int, Dict[str, Any]]) -> List[int]:
    """Return a process and all those above it that have a rank: what the node side starts has the rank of its step."""
    line = [pid]
    while line[-1] in found and found[line[-1]]["parent"] not in line:
        line.append(found[line[-1]]["parent"])
    return line


def _is_first(pid: int, found: Dict[int, Dict[str, Any]]) -> bool:
    """Return whether a process is the first Python of its rank, or the first program without a Python below it."""
    line = _line(pid, found)
    python = [one for one in line if _is_python(found[one])]
    if python:
        return python[-1] == pid
    below = any(pid in _line(one, found) for one in found if _is_python(found[one]))
    programs = [one for one in line if found[one]["program"] not in _WRAPPERS]
    return not below and bool(programs) and programs[-1] == pid


def _line(pid: int, found: Dict[int, Dict[str, Any]]) -> List[int]:
    line = [pid]
    parent = found[pid]["parent"]
    while parent in found and found[parent]["rank"] == found[pid]["rank"] and parent not in line:
        line.append(parent)
        parent = found[parent]["parent"]
    return line


def _is_python(one: Dict[str, Any]) -> bool:
    return str(one["program"]).startswith("python")


def is_of_another(environ: Dict[str, str], job: str) -> bool:
    """Return True for the environment of another job of Slurm than ``job``, of which there may be several (``1,2``)."""
    own = environ.get("SLURM_JOB_ID")
    if not job or own is None:
        return False
    array = "%s_%s" % (environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID"))
    names = {own, array, environ.get("SLURM_HET_JOB_ID"), environ.get("SLURM_ARRAY_JOB_ID")}
    return not names.intersection(name.partition("+")[0] for name in job.split(","))


def state(pid: int, proc: str = "/proc") -> Optional[str]:
    """Return the state of a process (``R``, ``S``, ``D``, ``T``, ``Z``), None if it is gone."""
    fields = _stat(sysfs.text(proc, str(pid), "stat"))
    return None if fields is None else str(fields["state"])


def processor_time(*folder: str) -> Optional[Tuple[str, float]]:
    """Return state and processor time (s) of a process or a thread, given its folder; None if it is gone."""
    fields = _fields(*folder)
    if len(fields) < 13 or not (fields[11].isdecimal() and fields[12].isdecimal()):
        return None
    return fields[0], (int(fields[11]) + int(fields[12])) / _TICK


def moved_bytes(pid: int, proc: str = "/proc") -> Tuple[Optional[int], Optional[int]]:
    """Return the bytes that a process has read and written, and those that went to storage; None if unknown."""
    lines = (sysfs.text(proc, str(pid), "io") or "").splitlines()
    values = dict(line.split(": ", 1) for line in lines if ": " in line)
    numbers = [sysfs.to_integer(values.get(name)) for name in ("rchar", "wchar", "write_bytes")]
    known = [number for number in numbers[:2] if number is not None]
    return (sum(known) if known else None), numbers[2]


def held_sockets(pid: int, proc: str = "/proc") -> Optional[List[int]]:
    """Return the inodes of the sockets that a process holds; None if they may not be read."""
    try:
        names = os.listdir(os.path.join(proc, str(pid), "fd"))[:_DESCRIPTORS]
    except OSError:
        return None
    links = (link_of(proc, str(pid), "fd", name) for name in names)
    return [int(link[8:-1]) for link in links if link.startswith("socket:[") and link[8:-1].isdecimal()]


def link_of(*path: str) -> str:
    """Return where a link of the kernel leads, "" if it may not be read."""
    try:
        return os.readlink(os.path.join(*path))
    except OSError:
        return ""


def _fields(*folder: str) -> List[str]:
    """Return the fields behind the name in the ``stat`` of a process or a thread."""
    return (sysfs.text(*folder, "stat") or "").rpartition(")")[2].split()


def age(pid: int, proc: str = "/proc") -> Optional[float]:
    """Return how long (s) ago a process started, or None."""
    fields = _fields(proc, str(pid))
    uptime = (sysfs.text(proc, "uptime") or "").split()
    # Field 22 of the line: the start in clock ticks since boot.
    started = sysfs.to_integer(fields[19]) if len(fields) > 19 else None
    try:
        return None if started is None else max(0.0, float(uptime[0]) - started / _TICK)
    except (IndexError, ValueError):
        return None


def variables(text: Optional[str]) -> Dict[str, str]:
    pairs = [entry.partition("=") for entry in (text or "").split("\0")]
    return {name: value for name, equals, value in pairs if equals}


def _stat(text: Optional[str]) -> Optional[Dict[str, Any]]:
    """Return name, state and parent of ``/proc/PID/stat``; the name is in parentheses and may contain any."""
    start, end = (text or "").find("("), (text or "").rfind(")")
    fields = (text or "")[end + 1 :].split()
    if start < 0 or end < start or len(fields) < 2 or not fields[1].isdecimal():
        return None
    return {
        "name": (text or "")[start + 1 : end][: os.sysconf("SC_PAGESIZE")],
        "state": fields[0],
        "parent": int(fields[1]),
    }
