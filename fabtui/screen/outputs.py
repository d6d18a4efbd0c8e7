"""What the app writes when a key is pressed: a CSV of what was measured, a picture of the screen."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fabtui.errors import InputError
from fabtui.sanitize import one_line

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp


async def write_snapshot(app: FabricApp) -> None:
    """Write a CSV snapshot of what is known, and tell where it went."""
    from fabtui.export.csv import write_csv

    path = app.settings.csv or Path(time.strftime("fabtui-%Y%m%dT%H%M%SZ.csv", time.gmtime()))
    try:
        rows = await asyncio.to_thread(write_csv, app.model, path)
    except (InputError, OSError) as error:
        app.tell(f"the CSV could not be written: {one_line(str(error), 300)}", bad=True)
    else:
        app.tell(f"{rows} rows written to {one_line(str(path), 300)}")


def write_picture(app: FabricApp) -> None:
    """Write the screen as it is as an SVG picture, and tell where it went."""
    name = time.strftime("fabtui-%Y%m%dT%H%M%SZ.svg", time.gmtime())
    try:
        path = app.save_screenshot(name)
    except OSError as error:
        app.tell(f"the screenshot could not be written: {one_line(str(error), 300)}", bad=True)
    else:
        app.tell(f"screenshot written to {path}")
