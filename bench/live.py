"""Response of the app while results arrive: ``python bench/live.py [--seconds 12]``.

Two recordings are played on a real pseudo-terminal, each at 2,000 results per second: the one of eight H200, whose
results are repeated, and a synthetic one of 512 nodes (bench/synthetic.py). Meanwhile the cursor moves, and each key is
awaited until the screen names its pair. A key that was lost would never be seen.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bars import held  # noqa: E402
from synthetic import write  # noqa: E402
from terminal import Terminal  # noqa: E402

from fabtui.model.events import Measured, PhaseStart, SessionEnd, Watching  # noqa: E402
from fabtui.model.measurement import Measurement, Verdict  # noqa: E402
from fabtui.model.recording import read_events  # noqa: E402
from fabtui.model.session_model import Model  # noqa: E402
from fabtui.session.feeds.base import Feed  # noqa: E402

RATE = 2000
BAR = 50.0
H200 = ROOT / "tests" / "samples" / "sessions" / "h200x8-lab-2x4-faults.jsonl.gz"
#: Maximum number of results of a turn of the event loop.
_BATCH = 60
_DOWN, _UP, _CORNER = b"\x1b[B", b"\x1b[A", b"\x1b[1;5H\x1b[H"


class Case(NamedTuple):
    """A terminal to watch.

    Attributes:
        size: Characters across and lines.
        names: Text of the screen when the cursor is on a row.
        parts: Texts that must be drawn meanwhile, so that their cost is part of the result.
        start: Keys from the corner of the grid to the first of these rows.
    """

    name: str
    size: tuple[int, int]
    names: Callable[[int], bytes]
    parts: Sequence[bytes]
    start: bytes = b""


class Watched(Feed):
    """A recording as a feed that watches: its results come again and again, with other values, at the time of the day.

    Args:
        path: The recording.
        rate: Results a second.
    """

    can_test = True

    def __init__(self, path: Path, rate: float) -> None:
        self.model = Model()
        self.badges: list[str] = [f"RECORDING {path.name}, repeated"]
        self._events = [event for event in read_events(path) if not isinstance(event, SessionEnd)]
        self._rate = rate
        self._listeners: list[Callable[[], None]] = []
        self._closed = False
        #: Results per second until now.
        self.reached = 0.0

    def listen(self, changed: Callable[[], None]) -> None:
        """Have ``changed`` called after each batch."""
        self._listeners.append(changed)

    async def run(self) -> None:
        """Play it, then its results over and over."""
        for event in self._events:
            self.model.apply(event)
        results = [one for event in self._events if isinstance(event, Measured) for one in event.measurements]
        start = self.model.now
        self.model.apply(Watching(on=True, time=start))
        self.model.apply(PhaseStart(name="watch", total=0, time=start))
        began, done = time.monotonic(), 0
        while not self._closed:
            wanted = int((time.monotonic() - began) * self._rate) - done
            # A machine that cannot keep up gets fewer results, rather than a screen that stands still.
            for _ in range(min(wanted, _BATCH)):
                again = self._vary(random.choice(results), start + done / self._rate)
                self.model.apply(Measured(time=again.time, measurements=[again]))
                done += 1
            for changed in self._listeners:
                changed()
            self.reached = done / (time.monotonic() - began)
            await asyncio.sleep(0.01)

    @staticmethod
    def _vary(one: Measurement, when: float) -> Measurement:
        """Return a result with a value beside the recorded one; one in a thousand is bad."""
        if one.value is None or one.verdict is not Verdict.OK:
            return replace(one, time=when)
        share = 0.3 if random.random() < 0.001 else random.gauss(1, 0.01)
        return replace(one, time=when, value=one.value * share)

    async def close(self) -> None:
        """Stop."""
        self._closed = True


def child(path: Path, out: Path) -> None:
    """Run the app on a recording; write the results per second that it took to ``out``."""
    from fabtui.screen.context import ScreenSettings
    from fabtui.screen.launch import run_app
    from fabtui.session.feeds.replay import ReplayFeed

    feeds: list[Feed] = []

    def make_feed() -> Feed:
        feeds.append(Watched(path, RATE) if path == H200 else ReplayFeed(path, 1.0))
        return feeds[0]

    run_app(make_feed, ScreenSettings(title=path.name, colors="24"))
    out.write_text(str(getattr(feeds[0], "reached", RATE)))


class Seen:
    """A terminal whose output is searched for texts that must have been drawn."""

    def __init__(self, terminal: Terminal, wanted: Sequence[bytes]) -> None:
        self.terminal = terminal
        self.missing = set(wanted)
        self._tail = b""

    def read(self, timeout: float) -> bytes:
        """Return what is written within ``timeout`` seconds."""
        new = self.terminal.read(timeout)
        text = self._tail + new
        self.missing -= {one for one in self.missing if one in text}
        self._tail = text[-100:]
        return new


def watch(path: Path, case: Case, seconds: float, out: Path) -> dict[str, Any]:
    """Move the cursor up and down the first rows for some seconds."""
    names = case.names
    terminal = Terminal([__file__, "--child", str(path), "--out", str(out)], case.size)
    # The legend comes with the grid.
    terminal.until(b"row ", 60)
    # The cursor starts on the worst cell.
    os.write(terminal.fd, b"2" + _CORNER + case.start)
    terminal.until(names(0), 60)
    screen = Seen(terminal, case.parts)
    time.sleep(1.0)
    waits, lost, row, step = [], 0, 0, 1
    cpu, began = terminal.cpu, time.perf_counter()
    while time.perf_counter() - began < seconds:
        pause = time.perf_counter() + random.uniform(0.02, 0.15)
        while time.perf_counter() < pause:
            screen.read(0.01)
        step = 1 if row == 0 else -1 if row == 5 else step
        row += step
        sent, seen = time.perf_counter(), b""
        os.write(terminal.fd, _DOWN if step > 0 else _UP)
        while names(row) not in seen and time.perf_counter() - sent < 2.0:
            seen += screen.read(0.05)
        if names(row) in seen:
            waits.append((time.perf_counter() - sent) * 1000)
        else:
            lost += 1
    cpu = (terminal.cpu - cpu) / (time.perf_counter() - began)
    os.write(terminal.fd, b"q")
    terminal.settle(0.2)
    os.write(terminal.fd, b"y")
    terminal.end()
    reached = float(out.read_text()) if out.exists() else 0.0
    return {"waits": sorted(waits), "lost": lost, "cpu": cpu * 100, "missing": screen.missing, "reached": reached}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=12.0, help="how long each is watched (12)")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.out)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        big = Path(folder) / "synthetic-512.jsonl.gz"
        write(big, 512, int(RATE * (given.seconds + 60)), RATE)

        def blocks(row: int) -> bytes:
            return f"n00{row} > n000".encode() if row else b"within n000"

        def pair(row: int) -> bytes:
            return f"n00{row // 4}:{row % 4} > n000:1".encode()

        # Verdict line, findings, and of the session that watches both graphs.
        pairs = (b" pairs are bad", b" of usual", b"THIS PAIR", b"trend ", b"bad ")
        # Suspects wait for their second test; a block of nodes has its worst pair beside it.
        many = (b" GPU pairs", b"WORST PAIR")
        cases = (
            (H200, Case("8 x H200", (120, 40), pair, pairs, b"\x1b[C")),
            (big, Case("512 nodes, 4,096 endpoints", (120, 40), blocks, many)),
            (big, Case("the same, 250x70", (250, 70), blocks, many)),
        )
        for number, (path, case) in enumerate(cases):
            found = watch(path, case, given.seconds, Path(folder) / f"{number}.out")
            waits = found["waits"]
            middle, most, late = waits[len(waits) // 2], waits[-1], waits[len(waits) * 95 // 100]
            print(
                f"{case.name:28} {found['reached']:.0f} results/s: key to frame median {middle:.1f}, "
                f"95 % {late:.1f}, most {most:.1f} ms (bar {BAR:g} {held(late, BAR)}); "
                f"{len(waits)} keys, {found['lost']} lost; {found['cpu']:.0f} % of a core"
            )
            if found["missing"]:
                print(f"{'':28} NOT DRAWN: {b', '.join(sorted(found['missing'])).decode()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
