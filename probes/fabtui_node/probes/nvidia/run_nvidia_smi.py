"""Names of GPUs: PCI addresses, and the GPUs that CUDA can see."""

from __future__ import annotations

import re
from typing import List, Optional, Sequence, Tuple


def bus_id(text: Optional[str]) -> Optional[str]:
    """Return a PCI address as sysfs writes it: ``00000000:0A:00.0`` is ``0000:0a:00.0``."""
    found = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", (text or "").strip().lower(), re.ASCII)
    if not found:
        return text
    domain = found.group(1)
    while len(domain) > 4 and domain.startswith("0"):
        domain = domain[1:]
    return domain + ":" + found.group(2)


def visible_devices(setting: Optional[str], uuids: Sequence[Optional[str]]) -> List[Tuple[int, Optional[str]]]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves visible, in its order.

    As CUDA does: unset means all; the list ends at the first entry that names no GPU (``-1``, an unknown UUID, an index
    out of range); a UUID may be shortened as long as it is not ambiguous; a GPU named twice makes the list invalid, and
    nothing is visible.

    Args:
        setting: The variable's value, None when it is unset.
        uuids: The UUID of each GPU in NVML's order, None where unknown.

    Returns:
        For each visible device, the GPU's index in NVML's order and None; or -1 and the name of a MIG instance, which
        only NVML can turn into its GPU.
    """
    if setting is None:
        return [(index, None) for index in range(len(uuids))]
    chosen: List[Tuple[int, Optional[str]]] = []
    for entry in (word.strip() for word in setting.split(",")):
        if entry.startswith("MIG-"):
            device: Tuple[int, Optional[str]] = (-1, entry)
        else:
            index = _index(entry, uuids)
            if index is None:
                break
            device = (index, None)
        if device in chosen:
            return []
        chosen.append(device)
    return chosen


def _index(entry: str, uuids: Sequence[Optional[str]]) -> Optional[int]:
    if re.fullmatch("[0-9]{1,4}", entry, re.ASCII):
        return int(entry) if int(entry) < len(uuids) else None
    if not entry.lower().startswith("gpu-"):
        return None
    named = [index for index, uuid in enumerate(uuids) if uuid and uuid.lower().startswith(entry.lower())]
    return named[0] if len(named) == 1 else None
