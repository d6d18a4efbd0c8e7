"""Draws "two minutes of trouble", from the first results to the cause: `python docs/make_animation.py`.

The keys are pressed in a replay of the session with planted faults in `recordings/`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from make_images import IMAGES, RECORDING, at_rest, settled, until, use_one_clock
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


STORY = (
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


async def draw(story: tuple[Scene, ...] = STORY, *, theme: str | None = None) -> str:
    """Play the story; return the picture."""
    frames = []
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            settings = ScreenSettings(title="n[000-001]", colors="24", theme=theme, csv=Path("pairs.csv"))
            app = FabricApp(lambda: ReplayFeed(RECORDING), settings)
            async with app.run_test(size=SIZE, notifications=True) as pilot:
                await settled(app, pilot)
                await pilot.press("2", "space")
                for scene in story:
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
    return animation(frames, "fabtui: two minutes of trouble")


if __name__ == "__main__":
    use_one_clock()
    path = IMAGES / "trouble.svg"
    path.write_text(asyncio.run(draw()), encoding="utf-8")
    print(path)
