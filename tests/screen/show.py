"""Runs the app on a synthetic feed: ``python -m tests.screen.show [two|connecting|NODESxENDPOINTS] [--live] ...``."""

import argparse
import sys

from fabtui.screen.context import ScreenSettings
from fabtui.screen.launch import run_app
from tests.screen.fakefeed import FakeFeed, big_sweep, sweep_of_two


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="?", default="two")
    parser.add_argument("--live", action="store_true", help="play it slowly")
    parser.add_argument("--part", type=float, default=1.0)
    parser.add_argument("--colors", default="auto")
    parser.add_argument("--theme")
    parser.add_argument("--ascii", action="store_true")
    given = parser.parse_args()
    if given.what == "two":
        story = sweep_of_two()
    else:
        nodes, _, per_node = given.what.partition("x")
        story = big_sweep(int(nodes), int(per_node), part=given.part)
    feed = FakeFeed(story.events, pace=0.03 if given.live else 0.0)
    return run_app(
        lambda: feed,
        ScreenSettings(
            theme=given.theme, colors=given.colors, ascii=given.ascii, title=f"n[000-{len(story.nodes) - 1:03d}]"
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
