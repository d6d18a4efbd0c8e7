"""CPU of recordings: ``python bench/recordings.py [--nodes 64]``.

A synthetic recording of all pairs goes through ``replay --text``, ``report`` and ``diff``, and is read to its end. The
app that replays it goes to its end (``% 100%``), up to the frame that shows the end. The bar is a multiple of the CPU
of reading the same files as JSON, both measured in one run.
"""

import argparse
import asyncio
import contextlib
import gzip
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import synthetic
from bars import held

from fabtui.cli.main import main as fabtui
from fabtui.importers.session import replayed
from fabtui.screen.context import ScreenSettings
from fabtui.screen.launch import prepare
from fabtui.session.feeds.replay import ReplayFeed

#: Maximum multiple of the CPU of reading a file as JSON.
BAR = 12.0


def cpu(run: Callable[[], object]) -> float:
    """Return the CPU (s) of a run, whose standard output is dropped."""
    start = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        run()
    return time.process_time() - start


def as_json(path: Path) -> None:
    with gzip.open(path) as lines:
        for line in lines:
            json.loads(line)


async def seek(path: Path) -> float:
    """Return the CPU (s) of a seek of the app to the end of a recording, up to the frame that shows the end."""
    # Textual reads its settings when it is imported.
    prepare(ScreenSettings())
    from fabtui.screen.app import FabricApp
    from fabtui.screen.session_actions import seek_to

    feed, ended = ReplayFeed(path, 1.0), asyncio.Event()
    feed.listen(lambda: ended.set() if feed.model.exit_code is not None else None)
    app = FabricApp(lambda: feed, ScreenSettings(title=path.name, colors="24"))
    async with app.run_test(size=(120, 40)) as pilot:
        while feed.playback is None or feed.playback.length is None:
            await pilot.pause(0.05)
        feed.pause(True)
        start = time.process_time()
        seek_to(app, "100%")
        await ended.wait()
        app.main.draw()
        await pilot.pause()
        return time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=64, help="nodes of eight GPUs, a power of two (64)")
    given = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        path, page = Path(folder, "pairs.jsonl.gz"), str(Path(folder, "page.html"))
        synthetic.write(path, given.nodes)
        name = str(path)
        runs: dict[str, tuple[int, Callable[[], object]]] = {
            "read to the end": (1, lambda: replayed(path)),
            "replay --text": (1, lambda: fabtui(["replay", name, "--text"])),
            "report": (1, lambda: fabtui(["report", name, "-o", page])),
            "diff": (2, lambda: fabtui(["diff", name, name])),
        }
        measured: dict[str, tuple[int, Callable[[], float]]] = {
            what: (files, partial(cpu, run)) for what, (files, run) in runs.items()
        }
        measured["seek to 100 %"] = (1, lambda: asyncio.run(seek(path)))
        for what, (files, measure) in measured.items():
            before = cpu(lambda: as_json(path))
            took = measure()
            plain = files * (before + cpu(lambda: as_json(path))) / 2
            ratio = took / plain
            missed += ratio > BAR
            bar = f"bar {BAR:.0f} {held(ratio, BAR)}"
            print(f"{what:16} {took:6.1f} s of CPU, {ratio:5.1f} x JSON of {files} ({bar})", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
