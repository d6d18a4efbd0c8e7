"""The apps of ours that bench/grid.py puts on a pseudo-terminal: the grid alone, and everything around it."""

from __future__ import annotations

import asyncio
import random
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from grid import UPDATES

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


async def until_drawn(app: Any) -> None:
    """Wait until an app has drawn what is to be drawn."""
    done = asyncio.Event()
    app.call_after_refresh(done.set)
    await done.wait()


async def cpu_of(frames: int, prepare: Callable[[], object], drawn: Callable[[], Awaitable[None]]) -> float:
    """Return the least CPU milliseconds a frame over many short runs; ``prepare`` is part of the frame."""
    best = float("inf")
    run = min(10, frames)
    for _ in range(max(1, 5 * frames // run)):
        began = time.process_time()
        for _ in range(run):
            prepare()
            await drawn()
        best = min(best, (time.process_time() - began) / run * 1000)
    return best


def memory() -> float:
    """Return the most memory that this process had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def track_frames(app: Any) -> Callable[[], int]:
    """Track frames written to the terminal; the result returns the bytes of the largest since its last call."""
    largest = 0
    writer = app._driver._writer_thread
    write = writer.write

    def tracked(data: str) -> None:
        nonlocal largest
        largest = max(largest, len(data.encode()))
        write(data)

    writer.write = tracked

    def taken() -> int:
        nonlocal largest
        before, largest = largest, 0
        return before

    return taken


def synthetic_source(count: int, *, halves: bool = False) -> Any:
    """A source of random cells, most of them good; it stands in for a model where only drawing is to be measured."""
    from fabtui.presentation.cell_levels import CellStyle, Glyphs, cell_text
    from fabtui.screen.grid.axis import Axis, AxisEntry
    from fabtui.screen.grid.cells import share_bar
    from fabtui.screen.grid.layout import ENDPOINTS

    glyphs = Glyphs(plain=False)
    palette = bytes([CellStyle.GOOD] * 6 + [CellStyle.FAIR, CellStyle.LOW, CellStyle.SLOW, CellStyle.FAILED])

    class Synthetic:
        line_names = ()

        def __init__(self) -> None:
            self.shape = ENDPOINTS._replace(condensed=halves)
            self.rows = self.columns = Axis(
                [
                    AxisEntry(f"n{at // 8:03}", f"n{at // 8:03}", str(at % 8), at, at % 8 == 0, False)
                    for at in range(count)
                ]
            )
            self.slots = bytearray([CellStyle.GOOD]) * (count * count + 4096)
            self.shift = 0
            self.tables: dict[int, list[tuple[int, str]]] = {}
            self.lines: dict[int, list[str]] = {}

        def mix(self) -> None:
            """Give cells different verdicts."""
            block = bytes(random.choices(palette, k=4093))
            self.slots = bytearray(block * (count * count // 4093 + 3))[: count * count + 4096]

        def shuffle(self) -> None:
            """Change every cell, at no cost."""
            self.shift = (self.shift + 1009) % 4096

        def table(self, width: int) -> list[tuple[int, str]]:
            known = self.tables.get(width)
            if known is None:
                number = "351" if width > 3 else ""
                known = self.tables[width] = [(slot, cell_text(slot, number, width, glyphs)) for slot in range(18)]
            return known

        def row(self, row: int, first: int, last: int, width: int) -> list[tuple[int, str]]:
            begin, table = row * count + self.shift, self.table(width)
            return [table[slot] for slot in self.slots[begin + first : begin + last]]

        def cell(self, row: int, column: int, width: int) -> tuple[int, str]:
            return self.table(width)[self.slots[row * count + column + self.shift]]

        def below(self, row: int, column: int, width: int, most: int) -> list[str]:
            known = self.lines.get(width)
            if known is None:
                lines = [share_bar(0.97, width - 2, glyphs), "97 %", "P2P", "2 tests"]
                known = self.lines[width] = [f"{line:^{width}}" for line in lines]
            return known[:most]

    return Synthetic()


def grid_child(count: int, frames: int, *, halves: bool = False) -> dict[str, Any]:
    """Measure our grid alone."""
    from textual.app import App, ComposeResult
    from textual.screen import Screen

    from fabtui.presentation.cell_levels import Glyphs
    from fabtui.screen.grid.widget import GridView
    from fabtui.screen.themes import ramp_of, read_theme, textual_theme

    found: dict[str, Any] = {}
    source = synthetic_source(count, halves=halves)
    grid = GridView(source, Glyphs(plain=False))

    class OneColor(Screen[None]):
        # As the app's own.
        BLANK = True

    class Bench(App[None]):
        def get_default_screen(self) -> Screen[None]:
            return OneColor()

        def compose(self) -> ComposeResult:
            yield grid

        def on_mount(self) -> None:
            from rich.color import ColorSystem

            self.register_theme(textual_theme(read_theme("dark")))
            self.theme = "dark"
            grid.paint_with(ramp_of("dark", True, "24"), ColorSystem.TRUECOLOR)
            grid.focus()
            self.run_worker(self.measure())

        async def drawn(self) -> None:
            await until_drawn(self)

        async def measure(self) -> None:
            await asyncio.sleep(0.3)
            written = track_frames(self)
            grid.refresh()
            await self.drawn()
            found["healthy_bytes"] = written()

            def nothing() -> None:
                grid.refresh()

            def repaint() -> None:
                grid.reread()

            def shuffled() -> None:
                source.shuffle()
                grid.reread()

            def updates() -> None:
                grid.update_cells(changes)

            source.mix()
            changes = {(random.randrange(count), random.randrange(count)) for _ in range(UPDATES)}
            found["clean"] = await cpu_of(frames, nothing, self.drawn)
            found["repaint"] = await cpu_of(frames, shuffled, self.drawn)
            written()
            source.shuffle()
            repaint()
            await self.drawn()
            found["random_bytes"] = written()

            def changed() -> None:
                source.shuffle()
                updates()

            found["updates"] = await cpu_of(frames, changed, self.drawn)
            if count > 64:
                grid.move_to(count // 2, count // 2)
                await self.drawn()
                found["scroll"] = await cpu_of(frames, lambda: grid.action_move(1, 0), self.drawn)
            found["memory"] = memory()
            self.exit()

    Bench().run()
    return found


def app_child(nodes: int) -> dict[str, Any]:
    """Run the whole app on a model, to be watched from outside."""
    from fabtui.screen.context import ScreenSettings
    from fabtui.screen.launch import run_app

    def make_feed() -> Any:
        from tests.screen.fakefeed import FakeFeed, big_sweep

        story = big_sweep(nodes, 8)
        story.end(0)
        return FakeFeed(story.events)

    run_app(make_feed, ScreenSettings(title=f"n[000-{nodes - 1:03}]", colors="24"))
    return {}


def model_child(nodes: int, frames: int) -> dict[str, Any]:
    """Measure frames of the whole app over a real model."""
    from fabtui.model.events import Measured
    from fabtui.screen.app import FabricApp
    from fabtui.screen.context import ScreenSettings
    from tests.screen.fakefeed import FakeFeed, big_sweep

    story = big_sweep(nodes, 8)
    feed = FakeFeed(story.events)
    found: dict[str, Any] = {}

    class Bench(FabricApp):
        async def drawn(self) -> None:
            await until_drawn(self)

        async def measure(self) -> None:
            # Until findings, map and panel have settled.
            await asyncio.sleep(2.0)
            written = track_frames(self)
            self.screen.refresh()
            await self.drawn()
            found["healthy_bytes"] = written()
            pairs = story.ordered_pairs()[:1000]
            batch = [Measured(time=story.now, measurements=story.good(*pair)[:1]) for pair in pairs]
            for one in batch:
                feed.model.apply(one)
            self.main.draw()
            await self.drawn()

            def frame() -> None:
                self.main.draw()

            costs = []
            for _ in range(max(3, frames // 10)):
                for one in batch:
                    feed.model.apply(one)
                began = time.process_time()
                frame()
                await self.drawn()
                costs.append((time.process_time() - began) * 1000)
            found["thousand_results"] = min(costs)
            self.exit(0)

    app = Bench(lambda: feed, ScreenSettings(title="bench", colors="24"))
    app.call_later(lambda: app.run_worker(app.measure()))
    app.run()
    return found
