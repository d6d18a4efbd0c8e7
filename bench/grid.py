"""Cost of the grid on a real pseudo-terminal: ``python bench/grid.py [--quick]``.

For each size: CPU of a full repaint in which every visible cell is new, of 10,000 cells that change within one frame,
of scrolling by a row; bytes of a healthy frame. A frame of Textual with nothing new in it takes 0.5 to 0.9 ms. Then, of
the whole app: key to first byte, first frame (its bar is in bench/startup.py), bytes and CPU while idle. CPU is process
time, including all of Textual's work and its writer thread. The best of several runs counts, because other work on the
machine only adds to it. bench/live.py measures it under load.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bars import held
from terminal import HEIGHT, WIDTH, Terminal, keep_compiled

SIZES = (8, 16, 64, 1024, 4096)
#: Bar for the bytes of a healthy frame.
HEALTHY_BYTES = 16 << 10
#: Cells that change within one frame.
UPDATES = 10_000


def child(args: argparse.Namespace) -> None:
    """Be one of the apps."""
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
    # Frames follow each other at once, so that what is measured is work and not waking up.
    os.environ["TEXTUAL_FPS"] = "2000"
    # Read by Textual when it is loaded.
    from gridapps import app_child, grid_child, model_child

    kinds: dict[str, Callable[[], dict[str, Any]]] = {
        "grid": lambda: grid_child(args.count, args.frames),
        "halves": lambda: grid_child(args.count, args.frames, halves=True),
        "model": lambda: model_child(args.count, args.frames),
        "app": lambda: app_child(args.count),
    }
    found = kinds[args.child]()
    if args.out:
        Path(args.out).write_text(json.dumps(found))


def measured(kind: str, count: int, frames: int) -> dict[str, Any]:
    """Run a child on a pseudo-terminal and return what it measured."""
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
        firsts.append(terminal.until(b"starting", 20))
        if turn == 0:
            terminal.until(b"usual", 60)
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
    for count in (64,) if args.quick else SIZES:
        found = measured("grid", count, frames)
        print(f"N {count:5}  full repaint  {verdict(found['repaint'], 2.0)}")
        print(f"         {UPDATES} updates {verdict(found['updates'], 4.0)}")
        if "scroll" in found:
            print(f"         scroll a row  {verdict(found['scroll'], 2.0)}")
        print(
            f"         nothing new {found['clean']:.2f}, random frame {found['random_bytes']} B, "
            f"memory {found['memory']:.0f} MB"
        )
        print(f"         healthy frame {verdict(found['healthy_bytes'], HEALTHY_BYTES)}")
    halves = measured("halves", 512, frames)
    print(f"two rows a line, N 512: full repaint {halves['repaint']:.2f} ms, healthy frame {halves['healthy_bytes']} B")
    whole = measured("model", 8, frames)
    print(f"app over a model of 64: frame after 1,000 results {whole['thousand_results']:.2f} ms")
    print(f"frame of the whole app  {verdict(whole['healthy_bytes'], HEALTHY_BYTES)}")
    with tempfile.TemporaryDirectory() as folder:
        keep_compiled(folder)
        seen = watch_app(2)
    print(f"first frame, ms         {seen['first_frame']:8.2f}")
    print(
        f"key to first byte, ms   {verdict(seen['key'], 50)}  (least {seen['key_best']:.2f}, CPU {seen['key_cpu']:.2f})"
    )
    print(f"idle for 10 s, bytes    {verdict(seen['idle'], 0)}")
    print(f"idle, % of a core       {verdict(seen['cpu'], 0.5)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
