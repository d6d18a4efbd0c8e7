"""Resource limits of the login, and those that keep ranks from starting or running."""

from __future__ import annotations

import resource
from typing import Any, Dict, List, Optional, Tuple

Limits = Dict[str, Dict[str, Optional[int]]]

NAMES = ("memlock", "nofile", "as", "cpu", "nproc")
_GIB = 1 << 30
#: Minimum address space (GiB) for PyTorch on CPUs, and with CUDA, which reserves much of it.
ENOUGH_SPACE, ENOUGH_FOR_CUDA = 8, 64
#: Minimum numbers of open files and of threads for one rank host with a few peers.
ENOUGH_FILES, ENOUGH_THREADS = 64, 512


def read() -> Limits:
    """Return ``{"soft", "hard"}`` of each of `NAMES`: -1 is unlimited, None unknown; in bytes, seconds or numbers."""
    limits: Limits = {}
    for name in NAMES:
        try:
            pair = resource.getrlimit(getattr(resource, "RLIMIT_" + name.upper()))
        except (AttributeError, OSError, ValueError):
            limits[name] = {"soft": None, "hard": None}
        else:
            soft, hard = (-1 if limit == resource.RLIM_INFINITY else limit for limit in pair)
            limits[name] = {"soft": soft, "hard": hard}
    return limits


def tight(limits: Any, gpus: bool) -> List[Tuple[str, str]]:
    """Return name and description of the limits that ranks do not work with, from an unvalidated value of `read`."""
    soft: Dict[str, float] = {}
    for name in NAMES:
        one = limits.get(name) if isinstance(limits, dict) else None
        value = one.get("soft") if isinstance(one, dict) else None
        if isinstance(value, (int, float)) and value >= 0:
            soft[name] = value
    problems = []
    space, files, threads = soft.get("as"), soft.get("nofile"), soft.get("nproc")
    if space is not None and space / _GIB < (ENOUGH_FOR_CUDA if gpus else ENOUGH_SPACE):
        text = "%.3g GiB of address space (ulimit -v): PyTorch and CUDA need more" % (space / _GIB)
        problems.append(("as", text))
    if files is not None and files < ENOUGH_FILES:
        problems.append(("nofile", "%d open files (ulimit -n): libraries cannot be loaded" % files))
    if "cpu" in soft:
        problems.append(("cpu", "%d s of processor time (ulimit -t): ranks are killed then" % soft["cpu"]))
    if threads is not None and threads < ENOUGH_THREADS:
        problems.append(("nproc", "%d processes and threads of the user (ulimit -u): ranks start many" % threads))
    return problems


def explain(limits: Any = None, gpus: bool = False) -> str:
    """Return the limits that ranks do not work with, as the end of an error message, or ""; None: of this process."""
    problems = tight(read() if limits is None else limits, gpus)
    return "; this login is limited to " + ", ".join(text for _, text in problems) if problems else ""
