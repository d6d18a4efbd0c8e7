"""Processes of jobs on this node: those whose launcher has given them a rank."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from fabtui_node.system import sysfs

#: Variables with the rank of a process, by launcher: torchrun, Slurm, Open MPI, PMI.
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_SHELLS = ("sh", "bash", "dash", "zsh", "srun", "slurmstepd", "mpirun", "orted", "prted")
#: Maximum number of processes that are listed.
MOST = 256


def find(proc: str = "/proc") -> List[Dict[str, Any]]:
    """Return the processes of jobs that this user may inspect, by process id.

    Each has ``pid``, ``rank``, ``name``, ``state`` (``R``, ``S``, ``D``, ``T`` for stopped) and ``ras``, the address in
    NCCL_RAS_ADDR or None. Children with the rank of their parent, such as data loaders, are left out.
    """
    found: Dict[int, Dict[str, Any]] = {}
    parents: Dict[int, int] = {}
    for name in sysfs.names(proc):
        if not name.isdecimal() or len(found) >= MOST:
            continue
        environ = variables(sysfs.text(proc, name, "environ", limit=1 << 18))
        rank = next((number for key in _RANKS if (number := sysfs.to_integer(environ.get(key))) is not None), None)
        fields = _stat(sysfs.text(proc, name, "stat"))
        if rank is None or fields is None or fields["name"] in _SHELLS or fields["state"] == "Z":
            continue
        parents[int(name)] = fields["parent"]
        found[int(name)] = {
            "pid": int(name),
            "rank": rank,
            "name": fields["name"],
            "state": fields["state"],
            "ras": environ.get("NCCL_RAS_ADDR"),
        }
    return [one for pid, one in found.items() if found.get(parents[pid], {}).get("rank", -1) != one["rank"]]


def variables(text: Optional[str]) -> Dict[str, str]:
    """Return the variables of a process environment."""
    pairs = [entry.partition("=") for entry in (text or "").split("\0")]
    return {name: value for name, equals, value in pairs if equals}


def _stat(text: Optional[str]) -> Optional[Dict[str, Any]]:
    """Return name, state and parent of ``/proc/PID/stat``; the name stands in parentheses and may contain any."""
    start, end = (text or "").find("("), (text or "").rfind(")")
    fields = (text or "")[end + 1 :].split()
    if start < 0 or end < start or len(fields) < 2 or not fields[1].isdecimal():
        return None
    return {
        "name": (text or "")[start + 1 : end][: os.sysconf("SC_PAGESIZE")],
        "state": fields[0],
        "parent": int(fields[1]),
    }
