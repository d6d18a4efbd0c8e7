"""Rank host: the process that owns a node's endpoints. The driver of its GPUs starts before all else is imported."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any, Dict

from fabtui_node.ranks.nccl.driver_start import driver_start


def main(config: Dict[str, Any]) -> None:
    """Serve the controller until it hangs up; never returns.

    ``fd`` is an inherited connected stream socket that carries protocol frames. The optional ``engine`` is loaded
    before the ``init`` that will name it.
    """
    if config.get("engine") == "nccl":
        # Its engine meets the same error, and reports it.
        with contextlib.suppress(OSError):
            driver_start()
    # Compiling what it imports takes 0.1 s.
    importlib.import_module("fabtui_node.ranks.rank_dispatcher").main(config)
