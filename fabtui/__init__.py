"""fabtui: see a GPU fabric live, every GPU against every GPU, over plain SSH.

The names here are loaded on first use, so that ``import fabtui`` costs nothing.
"""

from __future__ import annotations

from fabtui.version import __version__

# `typing` takes as long as the rest of ``fabtui --version``, and nothing of it is needed at run time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
