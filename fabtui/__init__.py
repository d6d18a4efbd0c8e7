"""fabtui: see a GPU fabric live, every GPU against every GPU, over plain SSH.

The names here are loaded on first use, so that ``import fabtui`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fabtui.export.dataframe import SnapshotFrame, load_snapshot

__all__ = ["SnapshotFrame", "__version__", "load_snapshot"]

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name in ("load_snapshot", "SnapshotFrame"):
        from fabtui.export import dataframe

        return getattr(dataframe, name)
    raise AttributeError(f"module 'fabtui' has no attribute {name!r}")
