"""Probe ``pulse``: small signs that the ranks of a job on this node do something: traffic, and bytes of files."""

from __future__ import annotations

from typing import Any, Dict, Optional

from fabtui_node.probes import counters
from fabtui_node.registry import Emit, ProbeSpec, Value
from fabtui_node.system import job_processes, sysfs

#: Counters of RDMA ports count words of four bytes.
_WORD = 4


def run(args: Value, emit: Emit, deadline: float, proc: str = "/proc", root: str = "/sys") -> Value:
    """Read how much was transferred so far, each None if unknown.

    ``traffic``: bytes over RDMA ports, interfaces and NVLinks. ``files``: bytes that the ranks have read and written,
    pipes included. ``age`` (s): how long the oldest of them runs. ``ranks``: how many there are, in ``states``.
    """
    processes = job_processes.find(proc, str(args.get("job") or ""))
    ages = [age for one in processes if (age := job_processes.age(one["pid"], proc)) is not None]
    counted = [number for one in processes if (number := file_bytes(one["pid"], proc)) is not None]
    states: Dict[str, int] = {}
    for one in processes:
        states[one["state"]] = states.get(one["state"], 0) + 1
    return {
        "traffic": traffic(counters.run({}, emit, deadline, root)),
        "files": sum(counted) if counted else None,
        "age": max(ages) if ages else None,
        "ranks": len(processes),
        "states": states,
    }


def traffic(value: Dict[str, Any]) -> Optional[int]:
    """Return the bytes in a value of the probe ``counters``, None if it has no counter of traffic."""
    found = []
    for port in value["hca"].values():
        found += [_WORD * port[name] for name in ("port_rcv_data", "port_xmit_data") if name in port]
    for counts in [*value["net"].values(), *(gpu.get("all", {}) for gpu in value["nvlink"].values())]:
        found += [counts[name] for name in ("rx_bytes", "tx_bytes") if name in counts]
    return sum(found) if found else None


def file_bytes(pid: int, proc: str = "/proc") -> Optional[int]:
    """Return the bytes that a process has read and written, None if that may not be read."""
    lines = (sysfs.text(proc, str(pid), "io") or "").splitlines()
    values = dict(line.split(": ", 1) for line in lines if ": " in line)
    numbers = [sysfs.to_integer(values.get(name)) for name in ("rchar", "wchar")]
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


PROBE = ProbeSpec(
    name="pulse",
    title="traffic of a node and file use of the ranks on it",
    phase="job",
    passive=True,
    needs="nothing; for file use the same user as the ranks",
    gives="bytes over NICs, RDMA ports and NVLinks so far; bytes that ranks read and wrote; age and number of ranks",
    run=run,
)
