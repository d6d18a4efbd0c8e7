"""The grids that ours is measured beside, over cells of the same kind; see bench/grid.py."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from framecost import UPDATES, cpu_of, memory, until_drawn


def plain_child(count: int, frames: int) -> dict[str, Any]:
    """Measure a grid that draws each line when it is asked for it, as Textual documents it."""
    from rich.segment import Segment
    from rich.style import Style
    from textual.app import App, ComposeResult
    from textual.geometry import Size
    from textual.scroll_view import ScrollView
    from textual.strip import Strip

    colors = ["#005f87", "#5f5f87", "#6c6c6c", "#ffaf00", "#ff87d7"]
    cells = [bytearray(random.choices(range(5), (6, 1, 1, 1, 1), k=count)) for _ in range(count)]
    found: dict[str, Any] = {}

    class PlainGrid(ScrollView):
        def on_mount(self) -> None:
            self.virtual_size = Size(2 * count, count)

        def render_line(self, y: int) -> Strip:
            x, top = self.scroll_offset
            if top + y >= count:
                return Strip.blank(self.size.width, self.rich_style)
            segments = [Segment(f"{level:>2}", Style(color="white", bgcolor=colors[level])) for level in cells[top + y]]
            return Strip(segments).crop_extend(x, x + self.size.width, self.rich_style)

    grid = PlainGrid()

    class Bench(App[None]):
        def compose(self) -> ComposeResult:
            yield grid

        def on_mount(self) -> None:
            self.run_worker(self.measure())

        async def drawn(self) -> None:
            await until_drawn(self)

        async def measure(self) -> None:
            await asyncio.sleep(0.3)

            def updates() -> None:
                for _ in range(UPDATES):
                    cells[random.randrange(count)][random.randrange(count)] = random.randrange(5)
                grid.refresh()

            found["repaint"] = await cpu_of(max(1, frames // 4), grid.refresh, self.drawn)
            found["updates"] = await cpu_of(max(1, frames // 4), updates, self.drawn)
            found["memory"] = memory()
            self.exit()

    Bench().run()
    return found


def table_child(count: int, frames: int) -> dict[str, Any]:
    """Measure Textual's DataTable with the same cells."""
    from rich.text import Text
    from textual.app import App, ComposeResult
    from textual.coordinate import Coordinate
    from textual.widgets import DataTable

    found: dict[str, Any] = {}
    styles = ["on #174a82", "on #3b5d80", "on #646d78", "on #f0a030", "on #ff74b8"]
    texts = [Text(f"{number:>2}", style=style) for number, style in enumerate(styles * 4)]
    table: DataTable[Text] = DataTable(cell_padding=0, zebra_stripes=False)

    class Bench(App[None]):
        def compose(self) -> ComposeResult:
            yield table

        def on_mount(self) -> None:
            table.add_columns(*[str(at % 8) for at in range(count)])
            for at in range(count):
                table.add_row(*random.choices(texts, k=count), label=f"n{at // 8:03}:{at % 8}")
            self.run_worker(self.measure())

        async def drawn(self) -> None:
            await until_drawn(self)

        async def measure(self) -> None:
            await asyncio.sleep(0.5)

            def updates() -> None:
                for _ in range(UPDATES):
                    at = Coordinate(random.randrange(count), random.randrange(count))
                    table.update_cell_at(at, random.choice(texts))

            found["repaint"] = found["updates"] = await cpu_of(max(1, frames // 20), updates, self.drawn)
            found["memory"] = memory()
            self.exit()

    Bench().run()
    return found
