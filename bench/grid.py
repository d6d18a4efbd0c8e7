"""What the grid costs, on a real pseudo-terminal: ``python bench/grid.py [--quick]``.

For each size: CPU of a full repaint in which every cell in sight is new, of 10,000 cells that change within one frame,
of scrolling by a row; bytes of a healthy frame; and in one run beside it the same with Textual's DataTable and with a
grid that draws its lines as Textual documents it, a style for each cell. Then, of the whole app: key to first byte,
first frame, bytes and CPU while idle. CPU is process time, all of Textual's work and its writer thread included; the
best of several runs, as other work on the machine only ever adds to it. bench/live.py does it while results come in.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pty
import random
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Awaitable, Callable
from fcntl import ioctl
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

WIDTH, HEIGHT = 120, 40
SIZES = (16, 64, 1024, 4096)
UPDATES = 10_000


# -- the child: an app on the pseudo-terminal -------------------------------------------------------------------------


def synthetic_source(count: int, *, halves: bool = False) -> Any:
    """A source of random cells, most of them good; it stands in for a model where only drawing is to be measured."""
    from fabtui.screen.axis import Axis, Seat
    from fabtui.screen.gridlayout import NUMBER_WIDTH, Shape
    from fabtui.screen.levels import Glyphs, Slot, cell_text

    glyphs = Glyphs(plain=False)
    palette = bytes([Slot.GOOD] * 6 + [Slot.FAIR, Slot.LOW, Slot.SLOW, Slot.FAILED])

    class Synthetic:
        def __init__(self) -> None:
            self.shape = Shape(condensed=halves)
            self.rows = self.columns = Axis(
                [Seat(f"n{at // 8:03}", f"n{at // 8:03}", str(at % 8), at, at % 8 == 0, False) for at in range(count)]
            )
            self.slots = bytearray([Slot.GOOD]) * (count * count + 4096)
            self.shift = 0
            self.tables: dict[int, list[str]] = {}

        def mix(self) -> None:
            """Give cells different verdicts."""
            block = bytes(random.choices(palette, k=4093))
            self.slots = bytearray(block * (count * count // 4093 + 3))[: count * count + 4096]

        def shuffle(self) -> None:
            """Make every cell another one, at no cost."""
            self.shift = (self.shift + 1009) % 4096

        def table(self, width: int) -> list[str]:
            known = self.tables.get(width)
            if known is None:
                number = "351" if width > 3 else ""
                known = self.tables[width] = [cell_text(slot, number, width, glyphs) for slot in range(18)]
            return known

        def row(self, row: int, first: int, last: int, width: int) -> tuple[bytearray, list[str] | None]:
            begin = row * count + self.shift
            slots = self.slots[begin + first : begin + last]
            if width < NUMBER_WIDTH:
                return slots, None
            table = self.table(width)
            return slots, [table[slot] for slot in slots]

        def cell(self, row: int, column: int, width: int) -> tuple[int, str]:
            slot = self.slots[row * count + column + self.shift]
            return slot, self.table(width)[slot]

        def below(self, row: int, column: int, width: int) -> list[str]:
            return []

    return Synthetic()


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


def grid_child(count: int, frames: int, *, halves: bool = False) -> dict[str, Any]:
    """Measure our grid alone."""
    from textual.app import App, ComposeResult

    from fabtui.screen.grid import GridView
    from fabtui.screen.levels import Glyphs
    from fabtui.screen.theming import ramp_of, read_theme

    found: dict[str, Any] = {}
    source = synthetic_source(count, halves=halves)
    grid = GridView(source, Glyphs(plain=False))

    class Bench(App[None]):
        def compose(self) -> ComposeResult:
            yield grid

        def on_mount(self) -> None:
            from rich.color import ColorSystem

            self.register_theme(read_theme("dark").to_textual())
            self.theme = "dark"
            grid.paint_with(ramp_of("dark", True, "24"), ColorSystem.TRUECOLOR)
            grid.focus()
            self.run_worker(self.measure())

        async def drawn(self) -> None:
            done = asyncio.Event()
            self.call_after_refresh(done.set)
            await done.wait()

        async def measure(self) -> None:
            await asyncio.sleep(0.3)
            written = count_writes(self)
            grid.redraw()
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
            done = asyncio.Event()
            self.call_after_refresh(done.set)
            await done.wait()

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
            done = asyncio.Event()
            self.call_after_refresh(done.set)
            await done.wait()

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


def memory() -> float:
    """Return the most memory that this process had, in MB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def count_writes(app: Any) -> Callable[[], int]:
    """Count what goes to the terminal; the function returned gives the bytes since it was called last."""
    total = 0
    writer = app._driver._writer_thread
    write = writer.write

    def counted(data: str) -> None:
        nonlocal total
        total += len(data.encode())
        write(data)

    writer.write = counted

    def taken() -> int:
        nonlocal total
        before, total = total, 0
        return before

    return taken


def app_child(nodes: int) -> dict[str, Any]:
    """Run the whole app on a model, to be watched from outside."""
    from fabtui.screen.run import run_app
    from fabtui.screen.settings import ScreenSettings

    def make_feed() -> Any:
        from tests.screen.fakefeed import FakeFeed, big_sweep

        story = big_sweep(nodes, 8)
        story.end(0)
        return FakeFeed(story.events)

    run_app(make_feed, ScreenSettings(title=f"n[000-{nodes - 1:03}]", colors="24"))
    return {}


def model_child(nodes: int, frames: int) -> dict[str, Any]:
    """Measure frames of the whole app over a real model."""
    from fabtui.fabric.events import Kind, event
    from fabtui.screen.app import FabricApp
    from fabtui.screen.settings import ScreenSettings
    from tests.screen.fakefeed import FakeFeed, big_sweep

    story = big_sweep(nodes, 8)
    feed = FakeFeed(story.events)
    found: dict[str, Any] = {}

    class Bench(FabricApp):
        async def drawn(self) -> None:
            done = asyncio.Event()
            self.call_after_refresh(done.set)
            await done.wait()

        async def measure(self) -> None:
            # Until findings, map and panel have settled.
            await asyncio.sleep(2.0)
            written = count_writes(self)
            self.screen.refresh()
            await self.drawn()
            found["healthy_bytes"] = written()
            pairs = story.ordered_pairs()[:1000]
            batch = [
                event(Kind.MEASURED, time=story.now, measurements=[m.to_json() for m in story.good(*pair)[:1]])
                for pair in pairs
            ]
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


def child(args: argparse.Namespace) -> None:
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
    # Frames follow each other at once, so that what is measured is work and not waking up.
    os.environ["TEXTUAL_FPS"] = "2000"
    kinds: dict[str, Callable[[], dict[str, Any]]] = {
        "grid": lambda: grid_child(args.count, args.frames),
        "halves": lambda: grid_child(args.count, args.frames, halves=True),
        "table": lambda: table_child(args.count, args.frames),
        "plain": lambda: plain_child(args.count, args.frames),
        "model": lambda: model_child(args.count, args.frames),
        "app": lambda: app_child(args.count),
    }
    found = kinds[args.child]()
    if args.out:
        Path(args.out).write_text(json.dumps(found))


# -- the parent: the other end of the pseudo-terminal ------------------------------------------------------------------


class Terminal:
    """A process on a pseudo-terminal, and all it writes.

    Args:
        arguments: The program to run with Python and its arguments.
        size: Characters across and lines.
    """

    def __init__(self, arguments: list[str], size: tuple[int, int] = (WIDTH, HEIGHT)) -> None:
        self.began = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
            ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
            os.execv(sys.executable, [sys.executable, *arguments])

    @property
    def cpu(self) -> float:
        """Seconds of CPU that the threads of the process have used."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def read(self, timeout: float) -> bytes:
        """Return what is written within ``timeout`` seconds, at once when something comes; b"" for nothing."""
        ready, _, _ = select.select([self.fd], [], [], timeout)
        if not ready:
            return b""
        try:
            return os.read(self.fd, 1 << 20)
        except OSError:
            return b""

    def until(self, what: bytes, timeout: float) -> float:
        """Return the seconds since the start at which some bytes were seen."""
        seen = b""
        end = time.perf_counter() + timeout
        while time.perf_counter() < end:
            seen += self.read(0.2)
            if what in seen:
                return time.perf_counter() - self.began
        raise TimeoutError(f"{what!r} was not seen; the last was {seen[-300:]!r}")

    def quiet(self, seconds: float) -> int:
        """Return how many bytes come in some seconds."""
        end = time.perf_counter() + seconds
        count = 0
        while (left := end - time.perf_counter()) > 0:
            count += len(self.read(left))
        return count

    def settle(self, seconds: float = 0.4) -> None:
        """Wait until nothing was written for some time."""
        while self.read(seconds):
            pass

    def key(self, keys: bytes) -> float:
        """Return the milliseconds from a key to the first byte after it."""
        began = time.perf_counter()
        os.write(self.fd, keys)
        self.read(2.0)
        return (time.perf_counter() - began) * 1000

    def end(self) -> None:
        """Wait for the process, ending it if it does not end."""
        deadline = time.perf_counter() + 5
        while time.perf_counter() < deadline:
            self.read(0.05)
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                os.close(self.fd)
                return
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def measured(kind: str, count: int, frames: int) -> dict[str, Any]:
    """Run a child on a pseudo-terminal and return what it measured."""
    import tempfile

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
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def watch_app(nodes: int) -> dict[str, Any]:
    """Start the whole app several times and watch it from outside."""
    firsts, keys, idle, cpu, key_cpu = [], [], 0, 0.0, 0.0
    for turn in range(3):
        terminal = Terminal([__file__, "--child", "app", "--count", str(nodes)])
        firsts.append(terminal.until(b"fabtui", 20))
        if turn == 0:
            terminal.until(b"median", 60)
            terminal.settle(1.2)
            before = terminal.cpu
            for _ in range(10):
                for arrow in (b"\x1b[B", b"\x1b[C", b"\x1b[A", b"\x1b[D"):
                    keys.append(terminal.key(arrow))
                    terminal.settle(0.05)
            key_cpu = (terminal.cpu - before) / len(keys) * 1000
            terminal.settle(1.5)
            before = terminal.cpu
            idle = terminal.quiet(10.0)
            cpu = (terminal.cpu - before) / 10.0
        else:
            terminal.settle(0.6)
        os.write(terminal.fd, b"q")
        terminal.end()
    return {
        "first_frame": min(firsts) * 1000,
        "key": sorted(keys)[len(keys) // 2],
        "key_best": min(keys),
        "key_cpu": key_cpu,
        "idle": idle,
        "cpu": cpu * 100,
    }


def verdict(value: float, bar: float) -> str:
    """Return how a value stands to its bar."""
    return f"{value:8.2f}  bar {bar:g}  {'holds' if value <= bar else 'MISSED'}"


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
    ours: dict[int, dict[str, Any]] = {}
    print(f"{WIDTH}x{HEIGHT}, truecolor, CPU ms a frame; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for count in (64,) if args.quick else SIZES:
        found = ours[count] = measured("grid", count, frames)
        print(f"N {count:5}  full repaint {verdict(found['repaint'], 1.0)}")
        print(f"         {UPDATES} updates {verdict(found['updates'], 2.0)}")
        if "scroll" in found:
            print(f"         scroll a row  {verdict(found['scroll'], 2.0)}")
        print(
            f"         nothing new {found['clean']:.2f}, random frame {found['random_bytes']} B, "
            f"memory {found['memory']:.0f} MB"
        )
        print(f"         healthy frame {verdict(found['healthy_bytes'], 8192)}")
    halves = measured("halves", 512, frames)
    print(f"two rows a line, N 512: full repaint {halves['repaint']:.2f} ms, healthy frame {halves['healthy_bytes']} B")
    for kind, name in (("table", "DataTable"), ("plain", "plain lines")):
        other = measured(kind, 64, frames)
        print(f"{name}, N 64, beside ours of the same run:")
        for what in ("repaint", "updates", "memory"):
            unit = "MB" if what == "memory" else "ms"
            print(f"         {what:8} {other[what]:7.2f} {unit}, {other[what] / ours[64][what]:.1f} x ours")
    whole = measured("model", 8, frames)
    print(f"app over a model of 64: frame after 1,000 results {whole['thousand_results']:.2f} ms")
    print(f"frame of the whole app  {verdict(whole['healthy_bytes'], 8192)}")
    seen = watch_app(2)
    print(f"first frame, ms         {verdict(seen['first_frame'], 250)}")
    print(
        f"key to first byte, ms   {verdict(seen['key'], 5)}  (least {seen['key_best']:.2f}, CPU {seen['key_cpu']:.2f})"
    )
    print(f"idle for 10 s, bytes    {verdict(seen['idle'], 0)}")
    print(f"idle, % of a core       {verdict(seen['cpu'], 0.2)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
