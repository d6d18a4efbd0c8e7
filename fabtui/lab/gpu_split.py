"""Distribution of this machine's GPUs over the nodes of a lab."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path


def visible_gpus(dev: Path = Path("/dev")) -> list[str]:
    """Return what ``CUDA_VISIBLE_DEVICES`` may name here, one text per GPU; blocks for a moment.

    A list in the environment is respected: the user may have been given only these GPUs.
    """
    count = _nvml_count()
    if count is None:
        count = sum(1 for entry in dev.glob("nvidia*") if re.fullmatch(r"nvidia[0-9]+", entry.name))
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return [str(index) for index in range(count)]
    names = [name.strip() for name in given.split(",") if name.strip() not in ("", "-1")]
    return names if count else []


def _nvml_count() -> int | None:
    try:
        import pynvml
    except ImportError:
        return None
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        try:
            return int(pynvml.nvmlDeviceGetCount())
        finally:
            pynvml.nvmlShutdown()
    return None


def divide(gpus: Sequence[str], endpoints: Sequence[int]) -> tuple[list[list[str]], str | None]:
    """Return the GPUs of each node, and a note for the user if there are none.

    Either every endpoint of the lab is a GPU, or none is: mixed endpoints cannot be compared.

    Args:
        gpus: All GPUs.
        endpoints: The number of endpoints of each node.
    """
    wanted = sum(endpoints)
    if len(gpus) < wanted:
        found = f"{len(gpus)} GPU{'s' * (len(gpus) != 1)}" if gpus else "no GPU"
        note = f"this machine has {found}, the lab {wanted} endpoint{'s' * (wanted != 1)}: using CPU ranks"
        return [[] for _ in endpoints], note
    shares, start = [], 0
    for count in endpoints:
        shares.append(list(gpus[start : start + count]))
        start += count
    return shares, None
