"""Probe ``job``: a running job on one node: new lines of its log files, its GPUs, its ranks and the node's addresses.

It reads only: files of the patterns that it is given, NVML, and ``/proc``. A part of the answer is a part of a file.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Optional, Tuple

from fabtui_node.probes.network import interfaces
from fabtui_node.probes.nvidia import nvml
from fabtui_node.registry import Emit, ProbeSpec, Value
from fabtui_node.system import job_processes, log_files, sysfs

#: Maximum number of bytes of all files in one answer, and of a file that is new.
MOST_BYTES = 256 * 1024
_MAX_PROCESSES = 64
_MOST_VARIABLES = 100


def run(args: Value, emit: Emit, deadline: float, proc: str = "/proc") -> Value:
    """Read what is new in the files of ``patterns`` and ``outputs``, of which ``known`` has path, inode and offset.

    Slurm names ``outputs``: those of a job of another user have to belong to that user, its ``owner``. With
    ``visible``, hidden files are not read.

    The value has ``now`` (this node's clock), ``ranks`` of the job ``job`` (``rank``, ``pid``, ``state``),
    ``addresses`` and ``problems``. It has ``gpus`` or ``gpu_problem``; memory is in bytes, ``power`` in W.
    ``variables`` has the values of the variables of the ranks that begin with ``prefixes``, by name.
    """
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    asked = nvml.NvmlTask(lambda library: gpus(library, setting))
    known = {str(path): log_files.Known(int(inode), int(offset)) for path, inode, offset in args.get("known") or []}
    problems = _read_logs(args, known, emit, log_files.Search(deadline / 2))
    ranks = job_processes.find(proc, str(args.get("job") or ""))
    value: Dict[str, Any] = {
        "now": time.time(),
        "ranks": [{name: one[name] for name in ("rank", "pid", "state")} for one in ranks],
        "problems": problems[:16],
    }
    prefixes = tuple(str(one) for one in args.get("prefixes") or ())
    if prefixes:
        value["variables"] = variables([one["pid"] for one in ranks], prefixes, proc)
    if args.get("addresses"):
        value["addresses"] = _addresses(deadline / 4)
    value["gpus"], value["gpu_problem"] = asked.result(deadline / 2)
    return value


def _read_logs(args: Value, known: Dict[str, log_files.Known], emit: Emit, search: log_files.Search) -> List[str]:
    """Emit the new parts of logs; return what was not read."""
    owner, visible = args.get("owner"), args.get("visible") is True
    own = log_files.Access(None, visible)
    theirs = log_files.Access(owner if isinstance(owner, int) else None, visible)
    places = [(name, search.find([str(one) for one in args.get(name) or []])) for name in ("patterns", "outputs")]
    problems = [] if search.problem is None else [search.problem]
    seen: Dict[str, None] = {}
    total = sum(len(paths) for _, paths in places)
    for name, paths in places:
        fresh = [path for path in paths if path not in seen]
        seen.update(dict.fromkeys(fresh))
        share = MOST_BYTES * len(paths) // max(total, 1)
        access = own if name == "patterns" else theirs
        parts, more = log_files.read(fresh, known, log_files.Budget(share, share), access)
        for part in parts:
            emit(part)
        problems += more
    return problems


def variables(pids: List[int], prefixes: Tuple[str, ...], proc: str = "/proc") -> Dict[str, List[str]]:
    """Return the values of the variables of processes that begin with prefixes, each once."""
    found: Dict[str, Dict[str, None]] = {}
    for pid in pids:
        environ = job_processes.variables(sysfs.text(proc, str(pid), "environ", limit=1 << 18))
        for name, text in environ.items():
            if name.startswith(prefixes) and (name in found or len(found) < _MOST_VARIABLES):
                found.setdefault(name[:64], {}).setdefault(text[:200])
    return {name: sorted(values) for name, values in found.items()}


def _addresses(deadline: float) -> List[str]:
    addresses = [entry["address"] for nic in interfaces.read([]) for entry in nic["addresses"]]
    return [address for address in addresses if not address.startswith(("127.", "::1", "fe80:"))][:64]


def gpus(library: Any, setting: Optional[str]) -> List[Dict[str, Any]]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` (``setting``) leaves visible; unknown values are None."""
    handles, uuids = nvml.devices(library)
    rows: List[Dict[str, Any]] = []
    for at, instance in nvml.visible_devices(setting, uuids):
        handle = nvml.ask(library.nvmlDeviceGetHandleByUUID, instance) if instance else handles[at]
        if handle is None:
            continue
        memory = nvml.ask(library.nvmlDeviceGetMemoryInfo, handle)
        used = nvml.ask(library.nvmlDeviceGetUtilizationRates, handle)
        power = nvml.number(nvml.ask(library.nvmlDeviceGetPowerUsage, handle))
        running = nvml.ask(library.nvmlDeviceGetComputeRunningProcesses, handle)
        rows.append(
            {
                "index": len(rows),
                "utilization": nvml.number(getattr(used, "gpu", None)),
                "memory": nvml.number(getattr(memory, "total", None)),
                "memory_used": nvml.number(getattr(memory, "used", None)),
                "power": None if power is None else power / 1000.0,
                "processes": None if running is None else len(running[:_MAX_PROCESSES]),
            }
        )
    return rows


PROBE = ProbeSpec(
    name="job",
    title="log files, GPUs and ranks of a running job",
    phase="job",
    passive=True,
    needs="log files on the node or visible there; for GPUs the NVIDIA driver",
    gives="new lines of the logs; use, memory and power of the GPUs; ranks; addresses",
    run=run,
)
