"""Replay in the app: seek, next change of a verdict, speed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from fabtui.model.events import EndpointsAdded
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import CellStyle
from fabtui.screen import session_actions
from fabtui.screen.app import FabricApp
from fabtui.screen.grid.navigation import Zoom
from fabtui.screen.views.pair import PairScreen
from fabtui.session.event_pipeline import Journal
from fabtui.session.feeds.base import Playback
from fabtui.session.feeds.replay import ReplayFeed
from tests.screen.conftest import Opened, make_app, press, screen_text, settled, until
from tests.screen.fakefeed import FAILED, START, TIMEOUT, FakeFeed, sweep_of_two


@asynccontextmanager
async def replayed(folder: Path) -> AsyncIterator[tuple[FabricApp, Pilot[int], ReplayFeed]]:
    """The app at the end of a recording of a sweep, one event per second, paused."""
    path = folder / "a.jsonl.gz"
    journal = Journal(path)
    journal.append([replace(event, time=START + at) for at, event in enumerate(sweep_of_two().events)])
    journal.close()
    feed = ReplayFeed(path, None)
    app = make_app(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.feed is feed and feed.model.exit_code is not None)
        await until(pilot, lambda: app.model is feed.model)
        feed.pause(True)
        await settled(app, pilot)
        yield app, pilot, feed


def is_other(app: FabricApp, model: Model) -> bool:
    return app.model is not model


def cursor(app: FabricApp) -> tuple[str, ...]:
    return tuple(entry.name for entry in app.main.cursor_entries() or ())


async def test_a_seek_back_keeps_cursor_layer_zoom_and_filter(tmp_path: Path) -> None:
    async with replayed(tmp_path) as (app, pilot, feed):
        await pilot.press("2", "right_square_bracket", "right_square_bracket", "f", *"n000>", "enter")
        await settled(app, pilot)
        where = cursor(app)
        assert where == FAILED
        end = app.model
        await pilot.press("comma")
        await until(pilot, lambda: app.model is not end)
        await settled(app, pilot)
        assert app.model is feed.model
        assert app.model.exit_code is None
        assert cursor(app) == where
        assert str(app.main.source.layer) == "p2p"
        assert app.main.view_state.filter is not None
        assert app.main.view_state.zoom is Zoom.GPUS
        assert app.main.source.model is app.model
        text = screen_text(app)
        assert "PAUSED · REPLAY 1:2" in text
        await pilot.press("full_stop")
        await until(pilot, lambda: app.model.exit_code is not None)


async def test_the_next_change_is_shown_with_its_pair(tmp_path: Path) -> None:
    async with replayed(tmp_path) as (app, pilot, _):
        await pilot.press("percent_sign", *"0%", "enter")
        await until(pilot, lambda: app.model.exit_code is None)
        await settled(app, pilot)
        assert app.main.view == "connecting"
        await pilot.press("right_parenthesis")
        await until(pilot, lambda: bool(app._notifications))
        await settled(app, pilot)
        first = next(iter(app._notifications)).message
        assert first.endswith("p2p: failed") or first.endswith("p2p: timed out")
        assert cursor(app) in (FAILED, TIMEOUT)
        row, column = app.main.grid.row, app.main.grid.column
        assert app.main.source.cell(row, column, 6)[0] in (CellStyle.FAILED, CellStyle.TIMEOUT)
        assert app.model.turns.latest[-1].after in (Verdict.FAILED, Verdict.TIMEOUT)


async def test_a_pair_that_is_shown_goes_back_too(tmp_path: Path) -> None:
    async with replayed(tmp_path) as (app, pilot, feed):
        await pilot.press("right_square_bracket", "right_square_bracket", "enter")
        await settled(app, pilot)
        assert "x failed" in screen_text(app)
        at_endpoints = next(at for at, one in enumerate(sweep_of_two().events) if isinstance(one, EndpointsAdded))
        for place, shown in ((float(at_endpoints), False), (1000.0, True)):
            before = app.model
            feed.seek(place)
            await until(pilot, (lambda: app.model.exit_code is not None) if shown else partial(is_other, app, before))
            await settled(app, pilot)
            assert isinstance(app.screen, PairScreen)
            assert ("x failed" in screen_text(app)) == shown
        feed.seek(0.0)
        await until(pilot, lambda: not app.model.endpoints)
        await settled(app, pilot)
        assert app.screen is app.main, "the pair does not exist yet"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("50%", 100.0),
        ("50", 100.0),
        ("0", 0.0),
        ("0:50", 50.0),
        ("1:30", 90.0),
        ("1:00:05", 3605.0),
        ("+0:30", 110.0),
        ("-10", 70.0),
        ("-5:00", 0.0),
    ],
)
async def test_places_in_a_recording(opened: Opened, text: str, place: float) -> None:
    feed = FakeFeed(sweep_of_two().events, can_test=False)
    feed.replay = Playback(80.0, 200.0, 1.0)
    async with opened(feed) as (app, _):
        session_actions.seek_to(app, text)
    assert feed.sought == [place]


@pytest.mark.parametrize("text", ["", "x", "101%", "101", "+5%", "0:50%", "1:2:3:4"])
async def test_the_prompt_refuses_what_is_no_place(opened: Opened, text: str) -> None:
    feed = FakeFeed(sweep_of_two().events, can_test=False)
    feed.replay = Playback(80.0, 200.0, 1.0)
    async with opened(feed) as (app, pilot):
        await press(pilot, "percent_sign", *text, "enter", seconds=0.1)
        assert "is not a place in a recording" in screen_text(app)
    assert not feed.sought


async def test_a_live_session_has_no_keys_of_a_replay(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed, size=(200, 50)) as (app, pilot):
        assert "seek" not in screen_text(app).splitlines()[-1]
        await press(pilot, "comma", seconds=0.1)
        assert "only a replay can" in "".join(note.message for note in app._notifications)
        feed.replay = Playback(0.0, None, 1.0)
        app.main.draw()
        await pilot.pause(0.1)
        assert ", . seek" in screen_text(app).splitlines()[-1]
    assert not feed.sought
