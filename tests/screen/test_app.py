import asyncio
from typing import Any

import pytest
from textual.widgets import Input

from fabtui.exit_status import INTERRUPTED
from fabtui.model.events import EndpointsAdded, LogEntry, NodeState
from fabtui.screen.app import FabricApp
from fabtui.screen.context import ScreenSettings
from fabtui.screen.widgets.connecting import StartScreen
from tests.screen.conftest import Opened, make_app, press, screen_text, settled
from tests.screen.fakefeed import REFUSED, FakeFeed, Story, sweep_of_two
from tests.screen.test_actions import notes


async def test_it_starts_with_the_nodes_and_goes_over_to_the_grid(opened: Opened) -> None:
    story = sweep_of_two()
    feed = FakeFeed(story.events, hold=True)
    async with opened(feed) as (app, pilot):
        assert app.main.view == "connecting"
        at = next(n for n, one in enumerate(story.events) if isinstance(one, EndpointsAdded))
        feed.advance(at)
        app.main.draw()
        await pilot.pause()
        text = screen_text(app)
        assert app.main.view == "connecting"
        assert text.startswith(" connecting: 2 of 3 ready, 1 failed ")
        assert "n000  ready" in text
        assert "4 x H200, 4 data addresses, 4 IB ports, driver 570.124.06" in text
        assert "n002  failed" in text
        assert REFUSED in text
        assert "next: is sshd running there? ssh -v n002" in text
        feed.advance()
        app.main.draw()
        await pilot.pause()
        assert app.main.view == "grid"


async def test_a_failed_node_is_a_marked_row_and_column_with_its_reason(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await press(pilot, "G")
        text = screen_text(app)
        assert "n002  x" in text
        assert "n002 failed 0:0" in text
        assert "ago: connection refused" in text
        assert "is sshd running there?" in text


async def test_it_follows_the_size_of_the_terminal(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(120, 40)) as (app, pilot):
        assert (app.main.view, app.main.panel.display) == ("grid", True)
        for size, view, panel in (((80, 24), "grid", False), ((50, 12), "worst", False), ((200, 50), "grid", True)):
            await pilot.resize_terminal(*size)
            await pilot.pause(0.1)
            assert (app.main.view, app.main.panel.display) == (view, panel), size
        await pilot.press("p")
        assert not app.main.panel.display


async def test_the_pair_shows_both_directions_and_esc_goes_back(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await press(pilot, "right_square_bracket", "right_square_bracket", "enter")
        text = screen_text(app)
        for words in (
            *("n000:1 > n001:2", "n001:2 > n000:1", "43.6 GB/s", "99 % of the usual 44.1"),
            *("nccl 2.28.9", "10.1.0.1 > 10.2.0.2"),
        ):
            assert words in text
        assert "Active 400 Gb/s" in text
        assert "ibstat mlx5_1" in text
        assert "neighbours" in text
        await press(pilot, "end")
        text = screen_text(app)
        assert "mlx5_1 port 1 Active/LinkUp 400.0 Gb/s InfiniBand" in text
        assert "NCCL WARN ibv_modify_qp failed" in text
        await press(pilot, "escape")
        assert app.screen is app.main


async def test_keys_of_the_pair(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed) as (app, pilot):
        await pilot.press("down", "enter", "R")
        assert "no pair to test" in await notes(app, pilot)
        await pilot.press("escape", "right", "enter")
        await press(pilot, "r")
        assert feed.retested == [("n000:1", "n000:2")]
        await press(pilot, "R")
        assert feed.retested[1:] == [("n000:1", "n000:2"), ("n000:2", "n000:1")]
        await press(pilot, "x")
        assert screen_text(app).startswith(" fabtui / p2p / n000:2 > n000:1")
        await pilot.press("y")
        assert "n000:2 > n000:1" in app.clipboard
        assert "347 GB/s" in app.clipboard
        await press(pilot, "n")
        assert type(app.screen).__name__ == "NodeScreen"


async def test_the_node_shows_what_it_has_and_what_its_links_counted(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(140, 70)) as (app, pilot):
        await press(pilot, "n")
        text = screen_text(app)
        for words in (
            *("n000   ready", "570.124.06, CUDA 12.8", "gen5 x8 of gen5 x16", "alice", "mlx5_0 PIX", "1 of 2"),
            *("crc 1203 (+1200 since session start)", "link 1  inactive", "400 Gb/s"),
            *("/usr/lib/libnccl.so.2", "Link 1: <inactive>"),
        ):
            assert words in text, words
        await press(pilot, "n")
        assert "n001   ready" in screen_text(app)
        await press(pilot, "n")
        assert "n002   failed" in screen_text(app)
        assert "inventory not known" in screen_text(app)


async def test_an_open_pair_follows_the_model(opened: Opened) -> None:
    story = sweep_of_two()
    feed = FakeFeed(story.events)
    async with opened(feed) as (app, pilot):
        await pilot.press("enter")
        story.events.clear()
        good = story.good("n000:0", "n000:1", attempts=7)
        story.measured(*good)
        feed.play(story.events)
        await pilot.pause(0.2)
        assert "attempt 7" in screen_text(app)


async def test_help_names_every_key_of_every_screen(opened: Opened) -> None:
    from fabtui.screen.keymap import key_owners
    from fabtui.screen.keys import bindings_of

    async with opened(FakeFeed(sweep_of_two().events), size=(120, 400)) as (app, pilot):
        await press(pilot, "question_mark")
        text = screen_text(app)
        for kind in key_owners(FabricApp):
            for binding in bindings_of(kind):
                assert binding.id
                assert binding.tooltip
                words = [binding.id, f" {binding.tooltip}"]
                if binding.key.isdigit() and binding.tooltip.endswith(binding.key):
                    # Nine digits share one line.
                    words = [f"{word[:-1]}1 to 9" for word in words]
                assert all(word in text for word in words), words
        await pilot.press("escape")
        assert app.screen is app.main


async def test_the_palette_has_a_command_for_what_keys_do(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed) as (app, pilot):
        await press(pilot, "ctrl+p", seconds=0.2)
        await press(pilot, *"sweep of all", seconds=0.5)
        assert "Run the sweep of all pairs again" in screen_text(app)
        await press(pilot, "enter", seconds=0.3)
        assert feed.swept == 1


async def test_ids_of_bindings_are_unique() -> None:
    from fabtui.screen.keymap import key_owners
    from fabtui.screen.keys import bindings_of

    ids = [binding.id for kind in key_owners(FabricApp) for binding in bindings_of(kind)]
    assert len(ids) == len(set(ids))


async def test_nothing_is_imported_before_the_first_frame() -> None:
    """The feed, which brings asyncssh, is made after the first frame is on its way."""
    frames: list[str] = []
    app: FabricApp

    def make_feed() -> Any:
        frames.append(screen_text(app))
        return FakeFeed([])

    app = FabricApp(make_feed, ScreenSettings(colors="24", title="n[060-061]"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.3)
    assert frames[0].startswith(" fabtui ")
    assert " starting n[060-061]" in frames[0]


async def test_frames_are_few_however_many_events_there_are(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    story = sweep_of_two(end=False)
    feed = FakeFeed(story.events)
    async with opened(feed) as (app, pilot):
        drawn = 0
        draw = app.main.draw

        def counted() -> None:
            nonlocal drawn
            drawn += 1
            draw()

        monkeypatch.setattr(app.main, "draw", counted)
        for number in range(400):
            feed.play([LogEntry(level="info", text=f"line {number}", time=story.now)])
            if number % 20 == 0:
                await asyncio.sleep(0.01)
        await pilot.pause(0.2)
        assert 1 <= drawn <= 12
        assert "line 399" in screen_text(app)


async def test_the_log_shows_the_latest_and_grows(opened: Opened) -> None:
    story = sweep_of_two()
    for number in range(30):
        story.log(f"line number {number}", "n000")
    async with opened(FakeFeed(story.events), size=(100, 40)) as (app, pilot):
        assert "line number 29" in screen_text(app)
        assert "line number 20" not in screen_text(app)
        await press(pilot, "L")
        assert "line number 12" in screen_text(app)
        await press(pilot, "L")
        assert "line number 12" not in screen_text(app)


async def test_nodes_with_different_numbers_of_endpoints_and_one_without(opened: Opened) -> None:
    story = Story(["a", "b", "c"], 2)
    for node in ("a", "b", "c"):
        story.connect(node)
    story.endpoints("a", count=2)
    story.endpoints("b", count=3)
    story.endpoints("c", kind="none", count=1)
    story.add(EndpointsAdded(endpoints=[], notes={"c": "no GPU here, but GPUs elsewhere"}))
    story.phase("p2p", 20)
    story.measured(*story.good("a:0", "b:2"))
    async with opened(FakeFeed(story.events)) as (app, pilot):
        names = [entry.name for entry in app.main.source.axis.entries]
        assert names == ["a:0", "a:1", "b:0", "b:1", "b:2", "c"]
        await press(pilot, "G")
        assert "no GPU here, but GPUs elsewhere" in screen_text(app)


async def test_nothing_answers_and_the_app_still_shows_why(opened: Opened) -> None:
    story = Story(["a", "b"], 2)
    for node in ("a", "b"):
        story.state(node, NodeState.FAILED, "no route to host")
    story.end(3)
    async with opened(FakeFeed(story.events), size=(80, 24)) as (app, pilot):
        assert app.main.view == "connecting"
        assert screen_text(app).count("no route to host") == 2
        await press(pilot, "c", "enter", "right_square_bracket", "r", "space", "2", "L", "down", "y")
        assert app.is_running


_begin = FabricApp._begin


@pytest.fixture
def beginnings(monkeypatch: pytest.MonkeyPatch) -> list[FabricApp]:
    """The apps that would begin their sessions, and do not."""
    waiting: list[FabricApp] = []

    async def begin(app: FabricApp) -> None:
        waiting.append(app)

    monkeypatch.setattr(FabricApp, "_begin", begin)
    return waiting


async def test_keys_that_are_typed_before_the_session_begins_are_for_it(beginnings: list[FabricApp]) -> None:
    app = make_app(FakeFeed(sweep_of_two().events))
    async with app.run_test() as pilot:
        await pilot.press("g", "n", "0", "0", "1", "colon", "2")
        assert beginnings == [app]
        assert isinstance(app.screen, StartScreen)
        app.call_later(_begin, app)
        await settled(app, pilot)
        assert type(app.screen).__name__ == "CommandLine"
        assert app.screen.query_one(Input).value == "go n001:2"


async def test_only_quitting_needs_no_session(beginnings: list[FabricApp]) -> None:
    app = make_app(FakeFeed(sweep_of_two().events))
    async with app.run_test() as pilot:
        await pilot.press("t")
        assert beginnings == [app]
        assert isinstance(app.screen, StartScreen)
        assert screen_text(app).splitlines()[-1].split() == ["q", "quit"]
        await pilot.press("q")
    assert app.return_value == INTERRUPTED


def test_before_the_session_begins_there_is_an_empty_one() -> None:
    app = FabricApp(lambda: FakeFeed(()), ScreenSettings(colors="24"))
    assert (app.model.exit_code, app.model.endpoints) == (None, [])
    assert app.model is app.model
