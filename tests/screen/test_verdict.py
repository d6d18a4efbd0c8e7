"""Verdict line and the numbers of the layers' tabs."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from fabtui.model.events import Watching
from fabtui.screen.app import FabricApp
from fabtui.screen.views.findings import FindingsScreen
from tests.screen.conftest import Opened, screen_text, settled
from tests.screen.fakefeed import FakeFeed, big_sweep, sweep_of_two


async def diagnosed(app: FabricApp, pilot: Pilot[int]) -> list[str]:
    """Wait for the findings; return the lines of the screen."""
    for _ in range(100):
        if app.findings.known:
            break
        await pilot.pause(0.05)
    await settled(app, pilot)
    return screen_text(app).splitlines()


@pytest.mark.parametrize("size", [(36, 6), (60, 15), (80, 24), (120, 40), (200, 50)])
async def test_the_verdict_stands_below_the_title_at_every_size(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=size) as (app, pilot):
        line = (await diagnosed(app, pilot))[2]
        assert line.startswith("3 of 56 ")
        assert "1x 1T 1!" in line
        assert " F" in line


async def test_it_stays_while_watching(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed, size=(80, 24)) as (app, pilot):
        feed.play([Watching(on=True, time=feed.model.now)])
        assert (await diagnosed(app, pilot))[2].startswith("3 of 56 ")


async def test_a_tab_without_bad_pairs_has_no_number(opened: Opened) -> None:
    story = big_sweep(2, 4)
    story.end(0)
    async with opened(FakeFeed(story.events), size=(80, 24)) as (app, pilot):
        text = await diagnosed(app, pilot)
        assert text[1].startswith("all 56 pairs ok")
        assert "!" not in text[2]


async def test_tabs_have_the_numbers_of_bad_pairs_and_can_still_be_clicked(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(80, 24)) as (app, pilot):
        tabs = (await diagnosed(app, pilot))[3]
        assert " 2 p2p 3! " in tabs
        assert " 4 latency " in tabs
        await pilot.click("#tabs", offset=(tabs.index("latency") + 2, 0))
        assert app.main.source.layer == "latency"


async def test_a_click_on_the_verdict_shows_the_findings(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(80, 24)) as (app, pilot):
        await diagnosed(app, pilot)
        await pilot.click("#verdict")
        await pilot.pause()
        assert isinstance(app.screen, FindingsScreen)
