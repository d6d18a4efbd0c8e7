"""Draws the pictures of the manual from a recording: `python docs/make_images.py [RECORDING]`."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from fabtui.screen.app import FabricApp
from fabtui.screen.settings import ScreenSettings
from fabtui.session.replay import ReplayFeed

HERE = Path(__file__).parent
RECORDING = HERE.parent / "recordings" / "h200x8-lab-2x4-faults.jsonl.gz"
#: Keys pressed before each picture, from the end of the recording on.
PICTURES = {"grid": ["2", "right_square_bracket"], "pair": ["enter"], "node": ["escape", "n"]}


def tidy(svg: str) -> str:
    """Return the picture without what differs from run to run, and without fonts from elsewhere."""
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


async def main(recording: Path) -> None:
    """Play a recording and draw."""
    app = FabricApp(lambda: ReplayFeed(recording), ScreenSettings(title="n[000-001]", colors="24"))
    async with app.run_test(size=(120, 36)) as pilot:
        for _ in range(100):
            await pilot.pause(0.1)
            feed = app.feed
            if feed is not None and feed.model.exit_code is not None:
                break
        await pilot.pause(0.5)
        for name, keys in PICTURES.items():
            await pilot.press(*keys)
            await pilot.pause(0.5)
            path = HERE / "images" / f"{name}.svg"
            path.write_text(tidy(app.export_screenshot(title="fabtui")))
            print(path)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDING))
