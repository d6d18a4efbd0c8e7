"""Draws the films of the manual, from the first results to the cause: `python docs/make_animation.py [NAME ...]`.

The keys are pressed in replays of sessions in `recordings/`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from make_images import IMAGES, RECORDING, ROOT, at_rest, settled, until, use_one_clock
from screen_svg import Frame, animation, screen_of

from fabtui.screen.app import FabricApp
from fabtui.screen.context import ScreenSettings
from fabtui.session.feeds.replay import ReplayFeed

SIZE = (104, 32)


class Scene(NamedTuple):
    """Frame of the animation: the keys or the place in the recording before it, its duration (s) and its caption."""

    do: str | float
    seconds: float
    caption: str
    #: Names of the keys as the picture shows them.
    key: str = ""


class Film(NamedTuple):
    """An animation: its title, the recording, the name that the session has, the scenes, and the first keys."""

    title: str
    recording: Path
    session: str
    story: tuple[Scene, ...]
    keys: tuple[str, ...] = ()


TROUBLE = (
    Scene(0.45, 2.5, "Two nodes, four H200: every GPU is tested against every GPU."),
    Scene(0.6, 1.5, "The grid fills while the sweep runs."),
    Scene(0.7, 2, "The grid fills while the sweep runs. Slow pairs are tested again, alone."),
    Scene(1.0, 6, "The first line has the verdict. The cursor is on the worst pair, wrong data."),
    Scene("right_square_bracket", 4, "The next finding: evidence, cause, and the command to type.", "]"),
    Scene("F", 6, "All findings, the worst first. Enter runs a step on its node.", "F"),
    Scene("escape", 1.5, "Back on the grid.", "Esc"),
    Scene("enter", 7, "The pair: both directions, the cause, the path, the neighbours.", "Enter"),
    Scene("e", 4, "All results go into a CSV file, for pandas or a ticket.", "e"),
    Scene("escape", 3, "Two minutes, and the path between two GPUs is named.", "Esc"),
)
#: Shares of the recording of `fabtui demo cable`, 37 s.
CABLE = (
    Scene(0.20, 3, "fabtui demo cable: four nodes with two rails, on this machine. All address pairs are ok."),
    Scene(0.305, 2, "Now the cable of n003, rail 1, is pulled."),
    Scene(0.34, 2, "Its cells time out."),
    Scene(0.45, 7, "Found 3 s after the cable was pulled: what is wrong, and the command to type."),
    Scene(0.60, 2, "The cable is plugged in again."),
    Scene(0.78, 5, "All pairs are ok again 5 s later; what was bad is being watched."),
)
FILMS = {
    "trouble": Film("fabtui: two minutes of trouble", RECORDING, "n[000-001]", TROUBLE, ("2",)),
    "cable": Film("fabtui demo cable", ROOT / "recordings" / "lab-4x2-cable.jsonl.gz", "demo cable", CABLE),
}


async def go(app: FabricApp, pilot: Any, place: float) -> None:
    """Show a share of the recording."""
    feed: Any = app.feed
    length = feed.playback.length
    feed.seek(place * length)
    await until(app, pilot, lambda: abs(feed.playback.position - place * length) < 0.5, 60)
    if place == 1.0:
        feed.pause(False)
        await settled(app, pilot)
        await at_rest(app, pilot)


async def draw(film: Film, *, theme: str | None = None) -> str:
    """Play a film; return the picture."""
    frames = []
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            settings = ScreenSettings(title=film.session, colors="24", theme=theme, csv=Path("pairs.csv"))
            app = FabricApp(lambda: ReplayFeed(film.recording), settings)
            async with app.run_test(size=SIZE, notifications=True) as pilot:
                await settled(app, pilot)
                await pilot.press(*film.keys, "space")
                for scene in film.story:
                    if isinstance(scene.do, float):
                        await go(app, pilot, scene.do)
                    else:
                        await pilot.press(scene.do)
                    await pilot.pause(1.0)
                    if scene.key == "e":
                        await until(app, pilot, lambda: len(app._notifications) > 0, 60)
                        await pilot.pause(0.5)
                    frames.append(Frame(screen_of(app), scene.seconds, scene.key, scene.caption))
                    app.clear_notifications()
        finally:
            os.chdir(before)
    return animation(frames, film.title)


if __name__ == "__main__":
    use_one_clock()
    for name in sys.argv[1:] or FILMS:
        path = IMAGES / f"{name}.svg"
        path.write_text(asyncio.run(draw(FILMS[name])), encoding="utf-8")
        print(path)
