"""Response of the app while results arrive: ``python bench/live.py [--seconds 12]``.

A synthetic recording of 512 nodes (bench/synthetic.py) is played on a real pseudo-terminal, 2,000 results per second.
Meanwhile the cursor moves, and each key is awaited until the screen names its row. A key that was lost would never be
seen.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bars import held
from synthetic import write
from terminal import Terminal

RATE = 2000
BAR = 50.0
#: The same over a slow link: a frame of 16 kB takes half a second there.
SLOW_BAR = 1500.0
#: Nodes of the recording, and of that over a slow link.
NODES = 512, 64
_DOWN, _UP, _CORNER = b"\x1b[B", b"\x1b[A", b"\x1b[1;5H\x1b[H"
#: Texts that must be drawn meanwhile, so that their cost is part of the result: suspects wait for their second test; a
#: block of nodes has its worst pair beside it.
_PARTS = (b" GPU pairs", b"WORST PAIR")


def child(path: Path) -> None:
    from fabtui.screen.context import ScreenSettings
    from fabtui.screen.launch import run_app
    from fabtui.session.feeds.replay import ReplayFeed

    run_app(lambda: ReplayFeed(path, 1.0), ScreenSettings(title=path.name, colors="24"))


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
        self.missing -= {part for part in self.missing if part in text}
        self._tail = text[-100:]
        return new


def name_of(row: int) -> bytes:
    return f"n00{row} > n000".encode() if row else b"within n000"


def watch(path: Path, seconds: float, kbit: float = 0.0) -> int:
    """Move the cursor up and down the first rows for some seconds; print what keys took, return 1 for a missed bar.

    ``kbit``: rate of the link to the terminal in kbit/s, 0 for any.
    """
    terminal = Terminal([__file__, "--child", str(path)], rate=kbit * 125)
    rest, patience, bar = ((0.3, 1.0), 10.0, SLOW_BAR) if kbit else ((0.02, 0.15), 2.0, BAR)
    # The legend comes with the grid.
    terminal.until(b"row ", 60)
    # The cursor starts on the worst cell.
    os.write(terminal.fd, b"2" + _CORNER)
    terminal.until(name_of(0), 60)
    screen = Seen(terminal, _PARTS)
    time.sleep(1.0)
    waits, lost, row, step = [], 0, 0, 1
    cpu, began = terminal.cpu, time.perf_counter()
    while time.perf_counter() - began < seconds:
        pause = time.perf_counter() + random.uniform(*rest)
        while time.perf_counter() < pause:
            screen.read(0.01)
        step = 1 if row == 0 else -1 if row == 5 else step
        row += step
        sent, seen = time.perf_counter(), b""
        os.write(terminal.fd, _DOWN if step > 0 else _UP)
        while name_of(row) not in seen and time.perf_counter() - sent < patience:
            seen += screen.read(0.05)
        if name_of(row) in seen:
            waits.append((time.perf_counter() - sent) * 1000)
        else:
            lost += 1
    cpu = (terminal.cpu - cpu) / (time.perf_counter() - began)
    os.write(terminal.fd, b"q")
    terminal.settle(0.2)
    os.write(terminal.fd, b"y")
    terminal.end()
    waits.sort()
    middle, most, late = waits[len(waits) // 2], waits[-1], waits[len(waits) * 95 // 100]
    what = f"{NODES[kbit > 0]} nodes, {RATE} results/s{f', {kbit:g} kbit/s' if kbit else ''}"
    print(
        f"{what}: key to frame median {middle:.1f}, 95 % {late:.1f}, most {most:.1f} ms "
        f"(bar {bar:g} {held(late, bar)}); {len(waits)} keys, {lost} lost; {cpu:.0%} of a core"
    )
    if screen.missing:
        print(f"NOT DRAWN: {b', '.join(sorted(screen.missing)).decode()}")
    return int(late > bar)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=12.0, help="how long it is watched (12)")
    parser.add_argument("--kbit", type=float, default=0.0, help="rate of the link to the terminal (any)")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "synthetic-512.jsonl.gz"
        write(recording, NODES[args.kbit > 0], int(RATE * (args.seconds + 60)), RATE)
        return watch(recording, args.seconds, args.kbit)


if __name__ == "__main__":
    sys.exit(main())
