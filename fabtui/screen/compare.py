"""The baseline of the layer `change`: read in a thread once the screen is there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp


async def take_baseline(app: FabricApp, path: Path) -> None:
    """Read a baseline and show it.

    Raises:
        InputError: The file is none.
    """
    from fabtui.session.feeds.baseline import read_baseline

    app.model.baseline = await asyncio.to_thread(read_baseline, path)
    app.main.draw()
