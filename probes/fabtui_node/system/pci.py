"""How near two devices are on the PCI tree, from the real paths of their sysfs folders."""

from __future__ import annotations

import itertools
import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from fabtui_node.system import sysfs

# Nearest first, in the words of ``nvidia-smi topo``.
DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")

_ADDRESS = re.compile("[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]", re.ASCII | re.IGNORECASE)
_ROOT = re.compile("pci[0-9a-f]{4,8}:[0-9a-f]{2}", re.ASCII | re.IGNORECASE)


class Device(NamedTuple):
    """A device on the PCI tree.

    Attributes:
        path: Real path of its sysfs folder, None if unknown.
        numa: Its NUMA node, None if unknown.
        rank: Of two equally near NICs, the one with the higher rank is preferred (active before down, fast before
            slow).
    """

    path: Optional[str]
    numa: Optional[int] = None
    rank: Tuple[float, ...] = ()


def chain(path: Optional[str]) -> List[str]:
    """Return the PCI part of a real path: the host bridge, each bridge, the device; empty if it has none."""
    parts = (path or "").split("/")
    start = next((index for index, part in enumerate(parts) if _ROOT.fullmatch(part)), None)
    if start is None:
        return []
    found = [parts[start]]
    for part in parts[start + 1 :]:
        if not _ADDRESS.fullmatch(part):
            break
        found.append(part)
    return found


def address(path: Optional[str]) -> Optional[str]:
    """Return the PCI address in a real path; a virtio device has that of the card below it."""
    found = chain(path)
    return found[-1] if len(found) > 1 else None


def _shared(first: List[str], second: List[str]) -> int:
    """Return how deep the common part of two chains goes."""
    pairs = zip(first, second)  # noqa: B905 - Python 3.8 knows no strict=
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


def distance(one: Device, other: Device) -> Optional[str]:
    """Return how near two devices are.

    ``PIX``: at most one bridge (a switch) between them; ``PXB``: several; ``PHB``: the host bridge; ``NODE``: the NUMA
    node; ``SYS``: farther. None if either path is unknown.
    """
    first, second = chain(one.path), chain(other.path)
    if not first or not second:
        return None
    common = _shared(first, second)
    if common == 0:
        same = one.numa is not None and one.numa == other.numa
        return "NODE" if same else "SYS"
    if common == 1:
        return "PHB"
    # Below the last common bridge, each way down is the switch's port and then the device.
    return "PIX" if len(first) - common <= 2 and len(second) - common <= 2 else "PXB"


def closest(gpus: Dict[str, Device], nics: Dict[str, Device]) -> Dict[str, Tuple[Optional[str], Optional[str]]]:
    """Return (nearest NIC, distance) for each GPU, (None, None) where nothing is known.

    The deepest common ancestor wins, then the distance, then the NIC's rank. What is still equal is shared out: where
    several GPUs have the same nearest NICs, as two of each behind one switch, the first GPU gets the first NIC and so
    on.
    """
    choices: Dict[str, List[str]] = {}
    for name, gpu in gpus.items():
        scores = {}
        for nic in sorted(nics, key=sysfs.natural):
            far = distance(gpu, nics[nic])
            if far is not None:
                depth = _shared(chain(gpu.path), chain(nics[nic].path))
                scores[nic] = (-DISTANCES.index(far), depth, nics[nic].rank)
        best = max(scores.values()) if scores else None
        choices[name] = [nic for nic, score in scores.items() if score == best]
    result: Dict[str, Tuple[Optional[str], Optional[str]]] = {}
    served: Dict[Tuple[str, ...], int] = {}
    for name in sorted(gpus, key=sysfs.natural):
        group = tuple(choices[name])
        if not group:
            result[name] = (None, None)
            continue
        turn = served.get(group, 0)
        served[group] = turn + 1
        nic = group[turn % len(group)]
        result[name] = (nic, distance(gpus[name], nics[nic]))
    return result
