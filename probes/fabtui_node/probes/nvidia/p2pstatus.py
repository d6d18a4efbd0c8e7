"""What GPUs can do to each other's memory, asked from NVML: a process less for each question than ``nvidia-smi``."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from fabtui_node.parsers.nvidia.topo import CAPABILITIES, able
from fabtui_node.probes.nvidia.nvml import ask, number, words

#: NVML's numbers of what can be asked, in the order of `CAPABILITIES`.
_INDEXES = {name: index for index, name in enumerate(CAPABILITIES.values())}
#: NVML's answers in the words of ``nvidia-smi topo -p2p``.
_WORDS = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS", 6: "U"}


def read(library: Any) -> Dict[str, Any]:
    """Return ``{"uuids": [...], "tables": {"read": {"columns", "rows", "cells", "bad", "p2p", "complete"}}}``.

    All GPUs are in it, by the driver's numbers. A capability of which the driver knows nothing is missing.
    """
    count = number(ask(library.nvmlDeviceGetCount)) or 0
    handles = [ask(library.nvmlDeviceGetHandleByIndex, at) for at in range(count)]
    uuids = [None if handle is None else words(ask(library.nvmlDeviceGetUUID, handle)) for handle in handles]
    names = ["GPU%d" % at for at in range(count)]
    tables = {}
    for name, index in _INDEXES.items():
        cells = [[_word(library, one, other, index) for other in handles] for one in handles]
        for at in range(count):
            cells[at][at] = "X"
        if any(word not in (None, "X") for row in cells for word in row):
            tables[name] = table(names, cells)
    return {"uuids": uuids, "tables": tables}


def _word(library: Any, one: Any, other: Any, index: int) -> Optional[str]:
    if one is None or other is None or one is other:
        return None
    status = number(ask(getattr(library, "nvmlDeviceGetP2PStatus", None), one, other, index))
    return None if status is None else _WORDS.get(status, "U")


def table(names: List[str], cells: List[List[Optional[str]]]) -> Dict[str, Any]:
    """Return a table in the form in which `nvidia_topo` gives what nvidia-smi prints."""
    found: Dict[str, Any] = {"columns": names, "rows": list(names), "cells": cells}
    found["complete"] = bool(names) and all(word is not None for row in cells for word in row)
    found["bad"], found["p2p"] = able(names, names, cells, found["complete"])
    return found
