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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from synthetic import write  # noqa: E402
from terminal import Terminal  # noqa: E402

RATE = 2000
BAR = 50.0
H200 = ROOT / "recordings" / "h200x8-lab-2x4-faults.jsonl.gz"
_DOWN, _UP = b"\x1b[B", b"\x1b[A"


class Repeated:
    """A recording as a feed, whose results come again and again once it is over.

    Args:
        path: The recording.
        rate: Results a second.
    """

    can_test = False

    def __init__(self, path: Path, rate: float) -> None:
        from fabtui.model.events import SessionEnd
        from fabtui.model.recording import read_events
        from fabtui.model.session_model import Model

        self.model = Model()
        self.badges: list[str] = [f"RECORDING {path.name}, repeated"]
        self._events = [event for event in read_events(path) if not isinstance(event, SessionEnd)]
        self._rate = rate
        self._listeners: list[Callable[[], None]] = []
        self._closed = False

    def listen(self, changed: Callable[[], None]) -> None:
        """Have ``changed`` called after each batch."""
        self._listeners.append(changed)

    async def run(self) -> None:
        """Play it, then its results over and over."""
        for event in self._events:
            self.model.apply(event)
        from fabtui.model.events import Measured

        results = [event for event in self._events if isinstance(event, Measured)]
        began, done = time.monotonic(), 0
        while not self._closed:
            while done < (time.monotonic() - began) * self._rate:
                event = random.choice(results)
                self.model.apply(event)
                done += len(event.measurements)
            for changed in self._listeners:
                changed()
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Stop."""
        self._closed = True

    async def retest(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Do nothing."""

    async def sweep(self) -> None:
        """Do nothing."""

    def pause(self, on: bool) -> None:
        """Do nothing."""

    def watch(self, on: bool) -> None:
        """Do nothing."""


def child(path: Path) -> None:
    """Run the app on a recording."""
    from fabtui.screen.launch import run_app
    from fabtui.screen.settings import ScreenSettings
    from fabtui.session.feeds.replay import ReplayFeed

    def make_feed() -> Any:
        return Repeated(path, RATE) if path == H200 else ReplayFeed(path, 1.0)

    run_app(make_feed, ScreenSettings(title=path.name, colors="24"))


def watch(path: Path, size: tuple[int, int], seconds: float, names: Callable[[int], bytes]) -> dict[str, Any]:
    """Move the cursor up and down the first rows for some seconds.

    Args:
        path: The recording.
        size: Characters across and lines.
        seconds: How long.
        names: Text of the screen when the cursor is on a row.
    """
    terminal = Terminal([__file__, "--child", str(path)], size)
    terminal.until(names(0), 60)
    time.sleep(1.0)
    waits, lost, row, step = [], 0, 0, 1
    cpu, began = terminal.cpu, time.perf_counter()
    while time.perf_counter() - began < seconds:
        pause = time.perf_counter() + random.uniform(0.02, 0.15)
        while time.perf_counter() < pause:
            terminal.read(0.01)
        step = 1 if row == 0 else -1 if row == 5 else step
        row += step
        sent, seen = time.perf_counter(), b""
        os.write(terminal.fd, _DOWN if step > 0 else _UP)
        while names(row) not in seen and time.perf_counter() - sent < 2.0:
            seen += terminal.read(0.05)
        if names(row) in seen:
            waits.append((time.perf_counter() - sent) * 1000)
        else:
            lost += 1
    cpu = (terminal.cpu - cpu) / (time.perf_counter() - began)
    os.write(terminal.fd, b"q")
    terminal.settle(0.2)
    os.write(terminal.fd, b"y")
    terminal.end()
    return {"waits": sorted(waits), "lost": lost, "cpu": cpu * 100}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=12.0, help="how long each is watched (12)")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        big = Path(folder) / "synthetic-512.jsonl.gz"
        write(big, 512, int(RATE * (given.seconds + 60)), RATE)

        def blocks(row: int) -> bytes:
            return f"n00{row} > n000".encode() if row else b"within n000"

        cases = (
            ("8 x H200", H200, (120, 40), lambda row: f"n00{row // 4}:{row % 4} > n000:1".encode()),
            ("512 nodes, 4,096 endpoints", big, (120, 40), blocks),
            ("the same, 250x70", big, (250, 70), blocks),
        )
        for name, path, size, names in cases:
            found = watch(path, size, given.seconds, names)
            waits = found["waits"]
            middle, most, late = waits[len(waits) // 2], waits[-1], waits[len(waits) * 95 // 100]
            held = "holds" if late <= BAR else "MISSED"
            print(
                f"{name:28} {RATE} results/s: key to frame median {middle:.1f}, 95 % {late:.1f}, most {most:.1f} ms "
                f"(bar {BAR:g} {held}); {len(waits)} keys, {found['lost']} lost; {found['cpu']:.0f} % of a core"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
