"""fabtui: see a GPU fabric live, every GPU against every GPU, over plain SSH.

The names here are loaded on first use, so that ``import fabtui`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fabtui.version import __version__

if TYPE_CHECKING:
    from fabtui.export.frames import Frames, SnapshotFrame, load_snapshot
    from fabtui.importers.load import load

__all__ = ["Frames", "SnapshotFrame", "__version__", "load", "load_snapshot"]


def __getattr__(name: str) -> Any:
    if name in ("load", "Frames"):
        from fabtui.importers import load

        return getattr(load, name)
    if name in ("load_snapshot", "SnapshotFrame"):
        from fabtui.export import frames

        return getattr(frames, name)
    raise AttributeError(f"module 'fabtui' has no attribute {name!r}")
