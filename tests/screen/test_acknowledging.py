"""Findings that the user marks as known."""

import pytest
from textual.pilot import Pilot

from fabtui.screen.app import FabricApp
from fabtui.screen.views.findings import FindingsScreen
from tests.screen.conftest import Opened, press, screen_text, settled, until
from tests.screen.fakefeed import FakeFeed, sweep_of_two
from tests.screen.test_verdict import diagnosed


async def concluded(app: FabricApp, pilot: Pilot[int]) -> None:
    await until(pilot, lambda: app.findings.final)
    await settled(app, pilot)


def _panel_text(screen: str) -> str:
    return " ".join(" ".join(line.partition("▏")[2] for line in screen.splitlines()).split())


@pytest.mark.parametrize("size", [(80, 24), (120, 50)])
async def test_a_known_finding_is_shown_quietly_at_the_end(opened: Opened, size: tuple[int, int]) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed, size=size) as (app, pilot):
        text = await diagnosed(app, pilot)
        assert text[0].startswith(" n002 failed  3 of 56 ")
        assert size == (80, 24) or text[3].endswith(" 6   F all ")
        await press(pilot, "F", "a", *"ticket 4711", "enter", seconds=0.1)
        assert [one.known for one in app.findings.found] == [False] * 5 + [True]
        assert "known since" in screen_text(app) or size == (80, 24)
        await press(pilot, "slash", *"ticket", "enter")
        assert "1 of 6" in screen_text(app), "a filter finds notes"
        assert " 6 n002 failed" in screen_text(app)
        await pilot.press("escape", "escape")
        await concluded(app, pilot)
        shown = screen_text(app)
        verdict = shown.splitlines()[0]
        assert verdict.startswith(" 3 of 56 tested GPU pairs are bad  n000:1 > n001:2 failed"), "no count is dropped"
        assert size == (80, 24) or shown.splitlines()[3].endswith(" 6, 1 known   F all ")
        assert "n002 failed" not in verdict
        assert size == (80, 24) or "known: ticket 4711" in _panel_text(shown).partition(" 6 n002 failed")[2]
        await press(pilot, "F", "A", seconds=0.1)
        assert "not marked as known" in next(iter(app._notifications)).message
        await pilot.press("end", "home")
        for _ in range(5):
            await pilot.press("tab")
        await press(pilot, "A", seconds=0.1)
        assert not any(one.known for one in app.findings.found)


async def test_if_all_is_known_nothing_is_new(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed, size=(120, 40)) as (app, pilot):
        await diagnosed(app, pilot)
        await pilot.press("F")
        for _ in range(6):
            await press(pilot, "home", "a", "enter", seconds=0.05)
        assert all(one.known for one in app.findings.found)
        assert {one.acknowledged.note for one in app.findings.found if one.acknowledged} == {"known"}
        await pilot.press("escape")
        await concluded(app, pilot)
        lines = screen_text(app).splitlines()
        assert lines[0].startswith(" 3 of 56 tested GPU pairs are bad  n002 failed")
        assert "… (known); and 3 more " in lines[0]
        assert lines[3].endswith(" no new one, 6 known   F all ")


async def test_a_recording_takes_no_notes(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events, can_test=False), size=(100, 40)) as (app, pilot):
        await diagnosed(app, pilot)
        await press(pilot, "F", "a")
        assert isinstance(app.screen, FindingsScreen)
        assert not app.screen.query("#prompt")
        assert "a recording cannot be changed" in [one.message for one in app._notifications]
