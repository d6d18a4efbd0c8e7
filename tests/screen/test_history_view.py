"""The view of the history: what stands out, the course of a component, and what a recording may know."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from textual.pilot import Pilot

from fabtui.diagnosis.finding import Finding
from fabtui.history.file import history_file
from fabtui.history.query import VersionStep
from fabtui.model.records import Recurrence
from fabtui.model.session_model import Model
from fabtui.screen.app import FabricApp
from fabtui.screen.views.history import HistoryScreen
from fabtui.screen.views.pair import PairScreen
from tests.past import DAY, write_past
from tests.screen.conftest import Opened, make_app, press, screen_text, settled, until
from tests.screen.fakefeed import START, FakeFeed, sweep_of_two


async def _read(app: FabricApp, pilot: Pilot[int]) -> None:
    await until(pilot, lambda: isinstance(app.screen, HistoryScreen) and app.screen.overview)
    await pilot.pause()


@pytest.fixture(autouse=True)
def _own_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


async def test_what_stands_out_and_the_course_of_the_component_of_the_cursor(opened: Opened) -> None:
    write_past(history_file(lab=True))
    async with opened(FakeFeed(sweep_of_two().events), size=(120, 40)) as (app, pilot):
        await pilot.press("H")
        await _read(app, pilot)
        screen = app.screen
        assert isinstance(screen, HistoryScreen)
        text = screen_text(app)
        assert "1 degrades, 1 flaps, 1 is new in 15 sessions since 2023-10-15" in text
        assert "moved from n012:3 on 2023-10-05" in text
        assert "n012:3 2023-09-15 to 2023-10-03 (10 sessions)" in text
        await press(pilot, "G")
        assert screen.chosen is not None
        assert f" {screen.chosen.component.place} (" in screen_text(app)
        assert screen.overview is not None
        step = VersionStep(
            START, "FT405", "what is usual changed on 2023-11-04 with driver 570 -> 580: p2p same-rail -9 %"
        )
        screen.overview = replace(screen.overview, version_steps=[step])
        screen.draw()
        await pilot.pause()
        assert f"  {step.title}  FT405" in screen_text(app)
        await pilot.press("H")
        assert app.screen is app.main


async def test_a_recording_shows_nothing_later(opened: Opened) -> None:
    write_past(history_file(lab=True), later=70 * DAY)
    feed = FakeFeed(sweep_of_two().events, can_test=False)
    async with opened(feed, size=(80, 24)) as (app, pilot):
        await pilot.press("H")
        await _read(app, pilot)
        assert "the history has no session of the 30 days before this recording" in screen_text(app)
        await pilot.press("space")
        await settled(app, pilot)
        assert "all of the text is shown" in [one.message for one in app._notifications]


class _AlwaysSeen:
    findings: tuple[Any, ...] = ()
    usual: Any = MappingProxyType({})
    overview: Any = None

    def about(self, model: Model, finding: Finding) -> Recurrence:
        return Recurrence(START - 14 * DAY, START - DAY, 3, 3, 14.0, 1, moved_from="n012:3", moved="gpu")


async def test_a_finding_and_its_pair_show_since_when(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    feed.model.past = _AlwaysSeen()
    sentence = "first seen 3 sessions ago (2023-10-31), third time in 14 days, moved with the GPU from n012:3"
    async with opened(feed, size=(120, 40)) as (app, pilot):
        await press(pilot, "F")
        assert sentence in screen_text(app)
        await press(pilot, "escape", "right_square_bracket", "right_square_bracket", "enter")
        assert isinstance(app.screen, PairScreen)
        assert sentence in screen_text(app)


@pytest.mark.snapshot
@pytest.mark.parametrize("size", [(120, 40), (80, 24)], ids=str)
def test_a_picture(snap_compare: Callable[..., bool], size: tuple[int, int]) -> None:
    write_past(history_file(lab=True))
    app = make_app(FakeFeed(sweep_of_two().events))

    async def opened_view(pilot: Pilot[int]) -> None:
        await settled(app, pilot)
        await pilot.press("H")
        await _read(app, pilot)

    assert snap_compare(app, terminal_size=size, run_before=opened_view)
