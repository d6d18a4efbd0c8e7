"""Ends of the app: on request, after a sweep, on bad input, on an error."""

from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.errors import InputError
from fabtui.model.events import NodeState
from fabtui.presentation.verdict_line import sentence_of
from fabtui.screen.app import FabricApp
from fabtui.screen.context import ScreenSettings
from tests.screen.conftest import Opened, make_app, press, screen_text, settled, until
from tests.screen.fakefeed import FakeFeed, Story, sweep_of_two


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_quitting_closes_the_feed(key: str) -> None:
    feed = FakeFeed(sweep_of_two().events)
    app = make_app(feed)
    async with app.run_test() as pilot:
        await settled(app, pilot)
        await press(pilot, key, seconds=0.2)
    assert feed.closed == 1
    assert app.return_value == 1


async def test_closing_is_shown_and_a_second_q_does_not_wait() -> None:
    feed = FakeFeed(sweep_of_two(end=False).events)
    feed.close_takes = 60
    app = make_app(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(app, pilot)
        await press(pilot, "enter", "q", "y", seconds=0.1)
        assert "closing: ending the processes on the nodes" in screen_text(app)
        await press(pilot, "q", seconds=0.1)
        assert app.return_value == 1


@pytest.mark.parametrize(("bad", "code"), [(True, 1), (False, 130)])
async def test_a_sweep_that_is_left_early_is_not_reported_as_ok(bad: bool, code: int) -> None:
    story = sweep_of_two(end=False)
    if not bad:
        story = Story(["n000", "n001"], 4)
        for node in story.nodes:
            story.connect(node)
        story.endpoints(*story.nodes)
        pairs = story.ordered_pairs()
        story.phase("p2p", len(pairs))
        story.measured(*story.good(*pairs[0]))
    app = make_app(FakeFeed(story.events))
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(app, pilot)
        await press(pilot, "q", "y", seconds=0.1)
    assert app.return_value == code
    line = sentence_of(diagnose(app.model))
    assert "ok." not in line
    assert (" bad: " in line and " failed" in line) is bad


@pytest.mark.parametrize(("failed", "code"), [(False, 130), (True, 3)])
async def test_leaving_before_the_first_result_is_not_reported_as_ok(failed: bool, code: int) -> None:
    story = Story(["n000", "n001"], 4)
    story.connect("n000")
    story.state("n001", NodeState.FAILED if failed else NodeState.CONNECTING, "no route to host" if failed else "")
    app = make_app(FakeFeed(story.events))
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(app, pilot)
        await press(pilot, "ctrl+c", seconds=0.1)
    assert app.return_value == code
    assert (
        sentence_of(diagnose(app.model)).lower().startswith(("no pair was tested", "n001 failed: no pair was tested"))
    )


async def test_closing_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    import fabtui.screen.app as module

    monkeypatch.setattr(module, "CLOSE_DEADLINE", 0.1)
    feed = FakeFeed(sweep_of_two().events)
    feed.close_takes = 60
    app = make_app(feed)
    async with app.run_test() as pilot:
        await settled(app, pilot)
        await press(pilot, "q", seconds=0.4)
    assert app.exit_message is not None
    assert "was given up" in app.exit_message


@pytest.mark.parametrize("where", ["make", "run"])
async def test_bad_input_ends_the_app_with_2_and_one_line(where: str) -> None:
    feed = FakeFeed([])
    feed.error = InputError("no host in ''; give --nodes")

    def make_feed() -> Any:
        if where == "make":
            raise feed.error or AssertionError
        return feed

    app = FabricApp(make_feed, ScreenSettings(colors="24"))
    async with app.run_test() as pilot:
        await pilot.pause(0.3)
    assert app.return_value == 2
    assert app.exit_message == "fabtui: no host in ''; give --nodes"


async def test_an_error_of_ours_leaves_what_is_known_on_the_screen(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    run = feed.run

    async def broken() -> None:
        await run()
        raise ZeroDivisionError("[red]division")

    feed.run = broken  # type: ignore[method-assign]
    async with opened(feed) as (app, pilot):
        text = screen_text(app)
        assert "STOPPED BY AN ERROR: ZeroDivisionError: [red]division" in text
        assert "12.4▾" in text
        await press(pilot, "q", seconds=0.2)
    assert app.return_value == 3
    assert "ZeroDivisionError" in (app.exit_message or "")


async def test_leaving_at_the_end_where_that_is_wanted() -> None:
    feed = FakeFeed(sweep_of_two().events)
    app = make_app(feed, exit_on_end=True)
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == 1
    assert feed.closed == 1
