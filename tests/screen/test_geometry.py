"""Geometry of the grid: what is under the mouse stays there while results arrive."""

from pathlib import Path

import pytest

from fabtui.model.events import Event, NodeState
from fabtui.model.recording import read_events
from fabtui.screen.app import FabricApp
from tests.screen.conftest import Opened, screen_text, settled
from tests.screen.fakefeed import FakeFeed, big_sweep

RECORDINGS = sorted((Path(__file__).parents[2] / "tests" / "samples" / "sessions").glob("*.jsonl.gz"))
SIZES = [(80, 24), (120, 40), (200, 50)]
#: Number of times the grid is measured during a session.
_STEPS = 15


def geometry(app: FabricApp) -> tuple[object, ...]:
    grid = app.main.grid
    layout = grid.layout_now()
    cell = (layout.cell, layout.tall, layout.heads, layout.row_gaps, layout.column_gaps)
    return grid.region, cell, app.main.panel.region


async def seen(opened: Opened, events: list[Event], size: tuple[int, int]) -> dict[tuple[object, ...], str]:
    """Play a session; return each geometry that its grid has had, and when it had it first."""
    feed = FakeFeed(events, hold=True)
    found: dict[tuple[object, ...], str] = {}
    async with opened(feed, size=size) as (app, pilot):
        await settled(app, pilot)
        while feed.waiting:
            feed.advance(max(1, len(events) // _STEPS))
            await pilot.pause(0)
            for _ in range(20):
                if app.main.findings is not None:
                    app.main.findings.step(1.0)
            app.main.draw()
            await pilot.pause()
            if app.main.view == "grid":
                found.setdefault(geometry(app), f"{app.model.phase.name} {app.model.done}")
    return found


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.partition(".")[0])
async def test_the_grid_stays_where_it_is_during_a_recording(opened: Opened, path: Path, size: tuple[int, int]) -> None:
    assert len(found := await seen(opened, list(read_events(path)), size)) == 1, found


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_the_grid_stays_where_it_is_when_a_node_is_lost_and_returns(
    opened: Opened, size: tuple[int, int]
) -> None:
    story = big_sweep(2, 4)
    story.state("n001", NodeState.LOST, "the connection was cut")
    for number in range(6):
        story.log(f"line {number}")
    assert len(found := await seen(opened, story.events, size)) == 1, found
    story.state("n001", NodeState.READY)
    assert len(found := await seen(opened, story.events, size)) == 1, found


async def test_a_lost_node_stands_in_the_title(opened: Opened) -> None:
    story = big_sweep(2, 4)
    story.state("n001", NodeState.LOST, "the connection was cut")
    async with opened(FakeFeed(story.events), size=(80, 24)) as (app, _):
        title = screen_text(app).splitlines()[0]
        assert title.startswith(" n001 is lost  56 of 56 GPU pairs tested ")
        assert title.count("lost") == 1
        assert title.rstrip().endswith(" p2p · 0:00")
