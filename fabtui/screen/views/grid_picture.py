"""The grid as pictures, an SVG and a PNG in the working folder."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from fabtui.errors import InputError
from fabtui.export.atomic_write import write_bytes
from fabtui.pictures.matrix import matrix_scene
from fabtui.pictures.png import png
from fabtui.pictures.svg import svg
from fabtui.sanitize import one_line
from fabtui.screen.context import context_of
from fabtui.screen.views.main import MainScreen


async def write_picture(main: MainScreen) -> None:
    """Write the layer that the grid shows, with the endpoints and in the order of its columns, and report the files."""
    context, layer = context_of(main), main.source.layer
    shown = main.scope.shown()
    seats = dict.fromkeys(seat.number for axis in (shown.columns, shown.rows) for seat in axis.seats)
    numbers = [number for number in seats if number is not None]
    if not numbers:
        context.notify("no node has reported endpoints yet: there is no grid to draw", severity="warning")
        return
    stem = time.strftime(f"fabtui-%Y%m%dT%H%M%SZ-{layer}", time.gmtime())
    whole = shown.axis.of_nodes_alone

    def write() -> None:
        scene = matrix_scene(
            context.model, layer, "value" if layer.spec.better else "verdict", None if whole else numbers
        )
        for suffix, data in ((".svg", svg(scene).encode()), (".png", png(scene))):
            write_bytes(Path(stem + suffix), data)

    try:
        await asyncio.to_thread(write)
    except (InputError, OSError) as error:
        context.notify(f"the picture could not be written: {one_line(str(error), 300)}", severity="warning")
    except RuntimeError:
        # A dictionary grew while the other thread went through it.
        context.notify("results came in while the grid was drawn; try again, or pause first", severity="warning")
    else:
        context.notify(f"pictures written to {stem}.svg and .png")
