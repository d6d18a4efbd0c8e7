"""Cost of the grid on a real pseudo-terminal: ``python bench/grid.py [--quick]``.

For each size: CPU of a full repaint in which every visible cell is new, and of 10,000 cells that change within one
frame; bytes of a healthy frame. Then, of the whole app: bytes of a healthy frame, bytes and CPU while idle. CPU is
process time, including all of Textual's work and its writer thread. The best of several runs counts, because other work
on the machine only adds to it. bench/startup.py measures the first frame, bench/live.py keys under load.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bars import held
from terminal import HEIGHT, WIDTH, Terminal

SIZES = (64, 1024, 4096)
#: Bar for the bytes of a healthy frame.
HEALTHY_BYTES = 16 << 10
#: Cells that change within one frame.
UPDATES = 10_000
#: Nodes of eight GPUs of the whole app: one whose frame is measured, and one that is idle.
NODES, IDLE_NODES = 8, 2


# -- the apps, each in a process of its own; Textual reads its environment when it is imported ------------------------


def child(args: argparse.Namespace) -> None:
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
    # Frames follow each other at once, so that what is measured is work and not waking up.
    os.environ["TEXTUAL_FPS"] = "2000"
    if args.child == "idle":
        idle_child()
    else:
        costs = grid_child(args.count, args.frames) if args.child == "grid" else model_child()
        Path(args.out).write_text(json.dumps(costs))


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


def track_frames(app: Any) -> Callable[[], int]:
    """Track frames written to the terminal; the result returns the bytes of the largest until now."""
    largest = 0
    writer = app._driver._writer_thread
    write = writer.write

    def tracked(data: str) -> None:
        nonlocal largest
        largest = max(largest, len(data.encode()))
        write(data)

    writer.write = tracked
    return lambda: largest


def synthetic_source(count: int) -> Any:
    """A source of random cells, most of them good; it stands in for a model where only drawing is to be measured."""
    from fabtui.presentation.cell_levels import CellStyle, Glyphs, cell_text
    from fabtui.screen.grid.axis import Axis, AxisEntry
    from fabtui.screen.grid.cells import share_bar
    from fabtui.screen.grid.layout import ENDPOINTS

    glyphs = Glyphs(plain=False)
    palette = bytes([CellStyle.GOOD] * 6 + [CellStyle.FAIR, CellStyle.LOW, CellStyle.SLOW, CellStyle.FAILED])

    class Synthetic:
        line_names = ()
        shape = ENDPOINTS

        def __init__(self) -> None:
            names = [(f"n{at // 8:03}", at) for at in range(count)]
            entries = [AxisEntry(name, name, str(at % 8), at, at % 8 == 0, False) for name, at in names]
            self.rows = self.columns = Axis(entries)
            self.slots = bytearray([CellStyle.GOOD]) * (count * count + 4096)
            self.shift = 0
            self.tables: dict[int, list[tuple[int, str]]] = {}
            self.lines: dict[int, list[str]] = {}

        def mix(self) -> None:
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


def grid_child(count: int, frames: int) -> dict[str, float]:
    from rich.color import ColorSystem
    from textual.app import App, ComposeResult
    from textual.screen import Screen

    from fabtui.presentation.cell_levels import Glyphs
    from fabtui.screen.grid.widget import GridView
    from fabtui.screen.themes import ramp_of, read_theme, textual_theme

    costs: dict[str, float] = {}
    source = synthetic_source(count)
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
            costs["healthy_bytes"] = written()
            source.mix()
            changes = {(random.randrange(count), random.randrange(count)) for _ in range(UPDATES)}

            def shuffled() -> None:
                source.shuffle()
                grid.reread()

            def changed() -> None:
                source.shuffle()
                grid.update_cells(changes)

            costs["repaint"] = await cpu_of(frames, shuffled, self.drawn)
            costs["updates"] = await cpu_of(frames, changed, self.drawn)
            self.exit()

    Bench().run()
    return costs


def idle_child() -> None:
    """Run the whole app on a model, to be watched from outside."""
    from fabtui.screen.context import ScreenSettings
    from fabtui.screen.launch import run_app

    def make_feed() -> Any:
        from tests.screen.fakefeed import FakeFeed, big_sweep

        story = big_sweep(IDLE_NODES, 8)
        story.end(0)
        return FakeFeed(story.events)

    run_app(make_feed, ScreenSettings(title=f"n[000-{IDLE_NODES - 1:03}]", colors="24"))


def model_child() -> dict[str, float]:
    from fabtui.screen.app import FabricApp
    from fabtui.screen.context import ScreenSettings
    from tests.screen.fakefeed import FakeFeed, big_sweep

    feed = FakeFeed(big_sweep(NODES, 8).events)
    costs: dict[str, float] = {}

    class Bench(FabricApp):
        async def measure(self) -> None:
            # Until findings, map and panel have settled.
            await asyncio.sleep(2.0)
            written = track_frames(self)
            self.screen.refresh()
            await until_drawn(self)
            costs["healthy_bytes"] = written()
            self.exit(0)

    app = Bench(lambda: feed, ScreenSettings(title="bench", colors="24"))
    app.call_later(lambda: app.run_worker(app.measure()))
    app.run()
    return costs


# -- watching them ----------------------------------------------------------------------------------------------------


def measured(kind: str, count: int, frames: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        terminal = Terminal(
            [__file__, "--child", kind, "--count", str(count), "--frames", str(frames), "--out", str(out)]
        )
        shown = b""
        deadline = time.perf_counter() + 300
        while not out.exists() and time.perf_counter() < deadline:
            shown = (shown + terminal.read(0.1))[-4000:]
            if os.waitid(os.P_PID, terminal.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                break
        terminal.end()
        if not out.exists():
            raise RuntimeError(f"{kind} {count} measured nothing: {shown.decode(errors='replace')[-1500:]}")
        costs: dict[str, float] = json.loads(out.read_text())
        return costs


def watch_idle() -> tuple[int, float]:
    """Return the bytes that the idle app writes in 10 s, and its share of a core in percent."""
    terminal = Terminal([__file__, "--child", "idle"])
    terminal.until(b"usual", 60)
    terminal.settle(1.5)
    before = terminal.cpu
    written = terminal.quiet(10.0)
    share = (terminal.cpu - before) / 10.0 * 100
    os.write(terminal.fd, b"q")
    terminal.end()
    return written, share


def verdict(value: float, bar: float) -> str:
    return f"{value:8.2f}  bar {bar:g}  {held(value, bar)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer frames, N = 64 alone")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=64, help=argparse.SUPPRESS)
    parser.add_argument("--frames", type=int, default=60, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args)
        return 0
    frames = 15 if args.quick else 60
    print(f"{WIDTH}x{HEIGHT}, truecolor, CPU ms a frame; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for count in SIZES[:1] if args.quick else SIZES:
        costs = measured("grid", count, frames)
        print(f"N {count:5}  full repaint  {verdict(costs['repaint'], 2.0)}")
        print(f"         {UPDATES} updates {verdict(costs['updates'], 4.0)}")
        print(f"         healthy frame {verdict(costs['healthy_bytes'], HEALTHY_BYTES)}")
    whole = measured("model", NODES, frames)
    print(f"frame of the whole app  {verdict(whole['healthy_bytes'], HEALTHY_BYTES)}")
    written, share = watch_idle()
    print(f"idle for 10 s, bytes    {verdict(written, 0)}")
    print(f"idle, % of a core       {verdict(share, 0.5)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
