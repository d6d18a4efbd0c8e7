"""Draws the pictures of the manual from recordings: `python docs/make_images.py [NAME ...]`.

Those of a large fabric are drawn from a recording that `bench/synthetic.py` makes up, marked as such; all others
from the sessions on four H200s in `recordings/`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rich.segment import Segment
from screen_svg import screen_of, still

from fabtui.config.options import DEMO
from fabtui.screen.app import FabricApp
from fabtui.screen.context import ScreenSettings
from fabtui.session.feeds.replay import ReplayFeed

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
IMAGES = HERE / "images"
RECORDING = ROOT / "recordings" / f"{DEMO}.jsonl.gz"
#: A running job that hangs.
JOB = ROOT / "recordings" / "job-h200x4-stopped.jsonl.gz"
#: Nodes of eight GPUs in the synthetic fabric.
LARGE = 64


class Picture(NamedTuple):
    """A picture: the keys that lead to it, from the end of the recording on."""

    keys: tuple[str, ...]
    size: tuple[int, int] = (120, 36)
    large: bool = False
    theme: str | None = None
    recording: Path = RECORDING


#: Picture of a page, which a browser draws.
REPORT = "report"
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
#: The cursor is on the worst pair.
BAD = ("2",)
PICTURES = {
    "grid": Picture(BAD),
    "fabric": Picture(BAD, large=True),
    "endpoints": Picture((*BAD, "plus"), large=True),
    "node-pair": Picture((*BAD, "plus")),
    "pair": Picture((*BAD, "enter")),
    "node": Picture(("n",), (120, 50)),
    "nodes": Picture(("t",), large=True),
    "worst": Picture(("2",), (60, 15)),
    "findings": Picture(("F",), (120, 27)),
    "preflight": Picture(("P",), (120, 18)),
    "jump": Picture((*BAD, "ctrl+o")),
    "help": Picture(("question_mark",), (120, 44)),
    "light": Picture(BAD, (120, 26), theme="light"),
    "high-contrast": Picture(BAD, (120, 26), theme="high-contrast"),
    "mono": Picture(BAD, (120, 26), theme="mono"),
    "hang": Picture(("J",), (120, 26), recording=JOB),
}


async def until(app: FabricApp, pilot: Any, what: Callable[[], bool], seconds: float) -> None:
    """Wait until something is so."""
    for _ in range(int(seconds / 0.1)):
        if what():
            return
        await pilot.pause(0.1)
    raise SystemExit(f"not reached within {seconds:.0f} s")


async def settled(app: FabricApp, pilot: Any) -> None:
    """Wait for the end of the recording, and for its findings."""
    await until(app, pilot, lambda: app.feed is not None and app.model.exit_code is not None, 300)
    await until(app, pilot, lambda: app.main.findings is not None and app.main.findings.known, 300)
    await pilot.pause(0.5)


async def at_rest(app: FabricApp, pilot: Any) -> list[list[Segment]]:
    """Return the screen once it has all findings and no longer changes."""
    before: list[list[Segment]] = []
    for _ in range(1200):
        await pilot.pause(0.5)
        screen = screen_of(app)
        text = "".join(segment.text for line in screen for segment in line)
        ended = app.findings.final or app.job() is not None
        if screen == before and ended and "SO FAR" not in text:
            return screen
        before = screen
    raise SystemExit("the screen does not come to rest")


async def drawn(picture: Picture, recording: Path) -> str:
    """Play a recording, press the keys, and return the picture."""
    title = f"n[000-{LARGE - 1}]" if picture.large else "n000" if picture.recording == JOB else "n[000-001]"
    settings = ScreenSettings(title=title, colors="24", theme=picture.theme)
    app = FabricApp(lambda: ReplayFeed(recording), settings)
    async with app.run_test(size=picture.size) as pilot:
        await settled(app, pilot)
        for key in picture.keys:
            await pilot.press(key)
            await pilot.pause(0.3)
        return still(await at_rest(app, pilot), "fabtui")


def draw_report(path: Path) -> None:
    """Draw the top of the report of the recording with a headless Chromium."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise SystemExit(f"the picture report needs a browser: {', '.join(BROWSERS)}")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        subprocess.run([sys.executable, "-m", "fabtui", "report", RECORDING, "-o", page], cwd=ROOT, check=False)
        options = ["--headless", "--disable-gpu", "--hide-scrollbars", "--window-size=820,940"]
        options += ["--no-sandbox"] if os.geteuid() == 0 else []
        subprocess.run([browser, *options, f"--screenshot={path}", page.as_uri()], check=True, capture_output=True)


def use_one_clock() -> None:
    """Show the same times on every machine."""
    os.environ["TZ"] = "UTC"
    time.tzset()


async def main(names: list[str]) -> None:
    """Draw pictures by their names; none: all."""
    unknown = [name for name in names if name not in (*PICTURES, REPORT)]
    if unknown:
        raise SystemExit(f"no picture {unknown[0]!r}; there are {', '.join((*PICTURES, REPORT))}")
    if not names or REPORT in names:
        draw_report(IMAGES / f"{REPORT}.png")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "synthetic.jsonl.gz"
        for name in [name for name in names if name != REPORT] if names else PICTURES:
            if PICTURES[name].large and not made.exists():
                sys.path.insert(0, str(ROOT / "bench"))
                from synthetic import write

                write(made, LARGE)
            path = IMAGES / f"{name}.svg"
            path.write_text(
                await drawn(PICTURES[name], made if PICTURES[name].large else PICTURES[name].recording),
                encoding="utf-8",
            )
            print(path)


if __name__ == "__main__":
    use_one_clock()
    asyncio.run(main(sys.argv[1:]))
