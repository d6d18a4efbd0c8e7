"""Pictures of the screens. After a wanted change: ``pytest tests/screen/test_snapshots.py --snapshot-update``; look.

Every view is there at three sizes, in the default theme and in shades of grey. A new view is a line in `VIEWS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from fabtui.model.events import NodeState
from tests.screen.conftest import make_app, settled
from tests.screen.fakefeed import REFUSED, FakeFeed, Story, big_sweep, sweep_of_two

SIZES = [(80, 24), (120, 40), (200, 60)]
THEMES = ["dark", "mono"]
#: The list that small terminals get, and what else is seen there.
SMALL = [(60, 15), (20, 5)]
Compare = Callable[..., bool]


def connecting() -> Story:
    story = Story(["n000", "n001", "n002", "n003"], 4)
    story.connect("n000")
    story.state("n001", NodeState.CONNECTING)
    story.state("n002", NodeState.CONNECTING)
    story.state("n002", NodeState.FAILED, REFUSED, "is sshd running there? ssh -v n002")
    return story


def middle() -> Story:
    story = sweep_of_two(end=False)
    story.events = story.events[:-20]
    return story


def healthy(nodes: int) -> Callable[[], Story]:
    def story() -> Story:
        made = big_sweep(nodes, 8)
        made.end(0)
        return made

    return story


BAD = ("right_square_bracket", "right_square_bracket")
#: What is played, and the keys that lead to the view.
VIEWS: dict[str, tuple[Callable[[], Story], tuple[str, ...]]] = {
    "connecting": (connecting, ()),
    "middle": (middle, ()),
    "grid": (sweep_of_two, BAD),
    "pair": (sweep_of_two, (*BAD, "enter")),
    "node": (sweep_of_two, ("n",)),
    "preflight": (sweep_of_two, ("P",)),
    "log": (sweep_of_two, ("L",)),
    "fabric": (sweep_of_two, (*BAD, "minus")),
    "two-nodes": (sweep_of_two, (*BAD, "plus")),
    "worst": (sweep_of_two, ("v",)),
    "nodes": (sweep_of_two, ("t",)),
    "findings": (sweep_of_two, ("F",)),
    "filter": (sweep_of_two, ("f",)),
    "go-to": (sweep_of_two, ("slash",)),
    "sorted": (sweep_of_two, ("s",)),
    "palette": (sweep_of_two, ("ctrl+p",)),
    "help": (sweep_of_two, ("question_mark",)),
    "jump": (sweep_of_two, ("ctrl+o",)),
    "question": (middle, ("q",)),
    "64": (healthy(8), ("down",)),
}


def pressed(*keys: str) -> Callable[[Pilot[Any]], Any]:
    async def run(pilot: Pilot[Any]) -> None:
        app = pilot.app
        await settled(app, pilot)  # type: ignore[arg-type]
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        await pilot.pause(0.1)
        for field in app.screen.query(Input):
            field.cursor_blink = False
        while not app.main.scope.index.step(1.0):  # type: ignore[attr-defined]
            pass
        # Background work is done in steps; complete it.
        for _ in range(100):
            if not app.main.findings.step(1.0):  # type: ignore[attr-defined]
                break
            await pilot.pause(0.05)
        app.main.draw()  # type: ignore[attr-defined]
        # Notifications disappear by the clock.
        app.clear_notifications()
        await pilot.pause(0.1)

    return run


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("view", VIEWS)
def test_a_view(snap_compare: Compare, view: str, size: tuple[int, int], theme: str) -> None:
    story, keys = VIEWS[view]
    app = make_app(FakeFeed(story().events), theme=theme)
    assert snap_compare(app, terminal_size=size, run_before=pressed(*keys))


@pytest.mark.parametrize("size", SMALL, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("view", ["grid", "middle", "pair", "question"])
def test_a_small_terminal(snap_compare: Compare, view: str, size: tuple[int, int]) -> None:
    story, keys = VIEWS[view]
    keys = tuple(key for key in keys if key not in BAD)
    assert snap_compare(make_app(FakeFeed(story().events)), terminal_size=size, run_before=pressed(*keys))


@pytest.mark.parametrize("size", SIZES[:2], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("nodes", [2, 4])
def test_healthy_fabrics(snap_compare: Compare, size: tuple[int, int], nodes: int) -> None:
    app = make_app(FakeFeed(healthy(nodes)().events))
    assert snap_compare(app, terminal_size=size, run_before=pressed("down"))


@pytest.mark.parametrize("layer", list("134567"))
def test_layers(snap_compare: Compare, layer: str) -> None:
    app = make_app(FakeFeed(sweep_of_two().events))
    assert snap_compare(app, terminal_size=(120, 30), run_before=pressed(layer, "right", "right", "right", "right"))


@pytest.mark.parametrize("theme", ["light", "high-contrast"])
def test_themes(snap_compare: Compare, theme: str) -> None:
    app = make_app(FakeFeed(sweep_of_two().events), theme=theme)
    assert snap_compare(app, terminal_size=(120, 30), run_before=pressed())


def test_sixteen_colours_and_ascii(snap_compare: Compare) -> None:
    app = make_app(FakeFeed(sweep_of_two().events), colors="16", ascii=True)
    assert snap_compare(app, terminal_size=(120, 30), run_before=pressed())


def test_no_colour(snap_compare: Compare) -> None:
    app = make_app(FakeFeed(sweep_of_two().events), colors="none", ascii=True)
    assert snap_compare(app, terminal_size=(80, 24), run_before=pressed())
