"""Pictures of the screens. After a wanted change: ``pytest tests/screen/test_snapshots.py --snapshot-update``; look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from fabtui.fabric.events import NodeState
from tests.screen.conftest import make_app, settled
from tests.screen.fakefeed import REFUSED, FakeFeed, Story, big_sweep, sweep_of_two

SIZES = [(80, 24), (120, 40), (200, 50), (60, 15)]
Compare = Callable[..., bool]


def pressed(*keys: str) -> Callable[[Pilot[Any]], Any]:
    async def run(pilot: Pilot[Any]) -> None:
        await settled(pilot.app, pilot)  # type: ignore[arg-type]
        if keys:
            await pilot.press(*keys)
        await pilot.pause(0.1)
        # What was told for a moment goes by the clock.
        pilot.app.clear_notifications()
        await pilot.pause(0.1)

    return run


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_sweep_with_trouble(snap_compare: Compare, size: tuple[int, int]) -> None:
    app = make_app(FakeFeed(sweep_of_two().events))
    assert snap_compare(app, terminal_size=size, run_before=pressed("right_square_bracket", "right_square_bracket"))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_pair(snap_compare: Compare, size: tuple[int, int]) -> None:
    app = make_app(FakeFeed(sweep_of_two().events))
    keys = ("right_square_bracket", "right_square_bracket", "enter")
    assert snap_compare(app, terminal_size=size, run_before=pressed(*keys))


@pytest.mark.parametrize("size", SIZES[:3], ids=str)
def test_a_node(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(make_app(FakeFeed(sweep_of_two().events)), terminal_size=size, run_before=pressed("n"))


@pytest.mark.parametrize("size", SIZES[:2], ids=str)
def test_connecting(snap_compare: Compare, size: tuple[int, int]) -> None:
    story = Story(["n000", "n001", "n002", "n003"], 4)
    story.connect("n000")
    story.state("n001", NodeState.CONNECTING)
    story.state("n002", NodeState.CONNECTING)
    story.state("n002", NodeState.FAILED, REFUSED, "is sshd running there? ssh -v n002")
    assert snap_compare(make_app(FakeFeed(story.events)), terminal_size=size, run_before=pressed())


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_in_the_middle_of_a_sweep(snap_compare: Compare, size: tuple[int, int]) -> None:
    story = sweep_of_two(end=False)
    app = make_app(FakeFeed(story.events[:-20]))
    assert snap_compare(app, terminal_size=size, run_before=pressed())


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_healthy_fabrics(snap_compare: Compare, size: tuple[int, int], nodes: int) -> None:
    story = big_sweep(nodes, 8)
    story.end(0)
    app = make_app(FakeFeed(story.events))

    async def until_searched(pilot: Pilot[Any]) -> None:
        await pressed("down")(pilot)
        while not app.main.trouble.step(1.0):
            pass
        app.main.draw()
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=until_searched)


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


def test_help(snap_compare: Compare) -> None:
    app = make_app(FakeFeed(sweep_of_two().events))
    assert snap_compare(app, terminal_size=(100, 60), run_before=pressed("question_mark"))
