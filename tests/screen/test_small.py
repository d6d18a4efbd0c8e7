"""Small terminals: 60x15 works; a smaller one shows the required size and can be quit."""

import re

import pytest

from fabtui.model.events import NodeState, NodeUpdate, SessionStart
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import clock_text, plain
from fabtui.screen.views.main_layout import MIN_HEIGHT, MIN_WIDTH
from fabtui.screen.widgets.main_head import connecting_line, head_line, quiet_facts
from tests.conftest import ModelMaker
from tests.screen.conftest import Opened, make_app, press, screen_text, settled
from tests.screen.fakefeed import FakeFeed, big_sweep, sweep_of_two
from tests.screen.test_run import Terminal

SMALL = (60, 15)


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


async def test_60x15_is_a_list_that_can_be_worked_with(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed, size=SMALL) as (app, pilot):
        assert app.main.view == "worst"
        found = [line.split()[:4] for line in lines(screen_text(app))]
        assert found[2] == ["▾", "pair", "value", "class"]
        assert found[3:6] == [
            ["x", "n000:1", ">", "n001:2"],
            ["T", "n000:3", ">", "n001:2"],
            ["▾", "n000:1", ">", "n001:1"],
        ]
        await press(pilot, "down", "r")
        assert feed.retested == [("n000:3", "n001:2")]
        await pilot.press("y")
        assert app.clipboard.startswith("n000:3 > n001:2")
        await press(pilot, "4")
        assert "no bad pair in layer latency" in screen_text(app)
        await press(pilot, "2", "enter")
        assert "connect: timed out after 5.0 s" in screen_text(app)
        await press(pilot, "escape", "n")
        assert screen_text(app).startswith(" fabtui / p2p / n000   ready")
        await press(pilot, "escape", "c", "home", "enter")
        assert "connection refused" in " ".join(screen_text(app).split())
        await press(pilot, "escape", "escape", "question_mark")
        assert "help: worst pairs" in screen_text(app)


async def test_a_short_list_leaves_room_for_the_causes_and_names_are_whole_or_not_there(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(60, 20)) as (app, _):
        assert app.main.view == "worst"
        shown = lines(screen_text(app))
        assert shown[1].split() == ["1", "2", "p2p", "3", "3", "4", "5", "6", "7"]
        below = shown[next(at for at, line in enumerate(shown) if line.startswith("───")) :]
        assert any(" n000:1 > n001:2 failed" in line for line in below)


async def test_a_narrow_and_high_terminal_shows_sentence_grid_and_findings(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(43, 42)) as (app, _):
        assert app.main.view == "grid"
        found = lines(screen_text(app))
        assert found[0].startswith(" n002 failed  3 of 56 bad")
        row = next(number for number, line in enumerate(found) if line.startswith("n001 0"))
        titles = [number for number, line in enumerate(found) if re.match(r"[ ▌][12] n00", line)]
        assert row < titles[0] < titles[1] < row + 20


async def test_60x15_shows_a_sweep_as_it_goes(opened: Opened) -> None:
    story = sweep_of_two(end=False)
    feed = FakeFeed(story.events, hold=True)
    async with opened(feed, size=SMALL) as (app, pilot):
        feed.advance(len(story.events) - 20)
        app.main.draw()
        await pilot.pause()
        assert lines(screen_text(app))[0].startswith(" n002 failed  1 suspect, 38 of 56 ")
        assert "p2p" in lines(screen_text(app))[0]
        before = screen_text(app)
        feed.advance()
        app.main.draw()
        await pilot.pause()
        assert screen_text(app) != before
        assert "n000:1 > n001:2" in screen_text(app)


async def test_a_large_healthy_fabric_at_60x15(opened: Opened) -> None:
    story = big_sweep(8, 8)
    story.end(0)
    async with opened(FakeFeed(story.events), size=SMALL) as (app, pilot):
        while not app.main.view_state.index.step(1.0):
            pass
        app.main.draw()
        await pilot.pause()
        assert "no bad pair in layer p2p" in screen_text(app)
        assert "All 4032 GPU pairs are ok" in screen_text(app)


@pytest.mark.parametrize("size", [(20, 5), (10, 2), (MIN_WIDTH - 1, 50), (200, MIN_HEIGHT - 1), (8, 1)])
async def test_a_small_terminal_shows_the_required_size_and_q_quits(size: tuple[int, int]) -> None:
    feed = FakeFeed(sweep_of_two().events)
    app = make_app(feed)
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        text = lines(screen_text(app))
        assert "q quits" in text
        if size[1] > 1:
            assert text[0].endswith(f"needs {MIN_WIDTH}x{MIN_HEIGHT}"[-size[0] :])
        if size[1] >= 5:
            assert f"this is {size[0]}x{size[1]}" in text
            assert "3 bad pairs" in text
        await press(pilot, "q", seconds=0.2)
    assert feed.closed == 1
    assert app.return_value == 1


async def test_at_20x5_a_running_sweep_is_asked_about_with_the_keys_in_sight() -> None:
    feed = FakeFeed(sweep_of_two(end=False).events)
    app = make_app(feed)
    async with app.run_test(size=(20, 5)) as pilot:
        await settled(app, pilot)
        await press(pilot, "q")
        assert "y quit    n stay" in screen_text(app)
        await press(pilot, "q", seconds=0.2)
    assert feed.closed == 1


async def test_it_comes_back_when_there_is_room_again(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await pilot.press("right_square_bracket", "enter")
        for size in ((20, 5), (100, 30), (29, 20), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause(0.1)
            small = size[0] < MIN_WIDTH or size[1] < MIN_HEIGHT
            assert ("fabtui needs" in screen_text(app)) is small
            if not small:
                assert screen_text(app).startswith(" fabtui / p2p / n000:1 > n001:1")
        await press(pilot, "escape")
        assert "12.4▾" in screen_text(app)


def test_a_real_terminal_of_20x5_shows_the_required_size_and_q_quits() -> None:
    terminal = Terminal("two", size=(20, 5))
    terminal.until("q quits")
    terminal.until(f"needs {MIN_WIDTH}x{MIN_HEIGHT}")
    terminal.until("3 bad pairs")
    terminal.press("q")
    assert terminal.end() == 1
    assert b"\x1b[?1049l" in terminal.seen


def test_a_real_terminal_of_60x15_lists_the_worst_pairs() -> None:
    terminal = Terminal("two", size=SMALL)
    terminal.until("12.4 GB/s")
    terminal.press("\x1b[B\r")
    terminal.until("timed out after 5.0 s")
    terminal.press("q")
    assert terminal.end() == 1


def test_nodes_that_are_ready_are_counted_before_the_first_test() -> None:
    model = Model()
    names = [f"login-{number:02}.example" for number in range(9)]
    model.apply(SessionStart(nodes=names, time=1.0))
    for name in names[:6]:
        model.apply(NodeUpdate(node=name, state=NodeState.FAILED, text="refused", time=1.0))
    facts = quiet_facts(model, 2.0, 3.0, "", Glyphs(False))
    line = plain(head_line(lambda _: connecting_line(model), facts, 80, Glyphs(False)))
    assert line.startswith(" connecting: 0 of 9 ready, 6 failed ")
    assert line.endswith(" 0:02")
    assert len(line) <= 80


def test_suspects_and_faults_behind_the_filled_numbers_are_apart() -> None:
    sentence = [("1 of 55 pairs is bad", "$cell-slow"), (", 1 suspect", ""), (": ", ""), ("a > b is slow", "")]
    line = plain(head_line(lambda _: list(sentence), [], 120, Glyphs(False)))
    assert line.startswith(" 1 of 55 pairs is bad  1 suspect: a > b is slow")


def test_what_the_verdict_reports_of_lost_nodes_stands_nowhere_else() -> None:
    model = Model()
    names = ["a.example", "b.example"]
    model.apply(SessionStart(nodes=names, time=1.0))
    model.apply(NodeUpdate(node=names[0], state=NodeState.LOST, text="cut", retry=12.0, time=1.0))

    def line(verdict: str) -> str:
        facts = quiet_facts(model, 2.0, 9.0, "", Glyphs(False), ".example")
        whole = plain(head_line(lambda width: [(verdict[:width], "")], facts, 80, Glyphs(False)))
        return whole.rpartition("  ")[2].strip()

    assert line("0 of 2 bad, but a is lost") == "next try in 3 s · 2 nodes · 0:02"
    assert line("0 of 2 bad") == "a lost for 0:08, next try in 3 s · 2 nodes · 0:02"
    model.apply(NodeUpdate(node=names[1], state=NodeState.LOST, text="cut", time=1.0))
    assert line("0 of 2 bad, but a is lost, b is lost") == "2 nodes · 0:02"
    assert "a lost for 0:08, b lost for 0:08 · " in line("0 of 2 bad, but a is lost")


def test_what_follows_a_sweep_takes_no_time_of_it() -> None:
    maker = ModelMaker().start(["a"]).endpoints({"a": 2}).add("phase", name="p2p", total=2).pairs(["a:0", "a:1"])
    maker.add("phase", name="done").add("end", exit=0)
    took = maker.model().elapsed
    for _ in range(90):
        maker.add("log", level="info", text="a note")
    maker.add("phase", name="confirm", total=2).add("phase", name="done").add("end", exit=0)
    model = maker.model()
    facts = quiet_facts(model, model.elapsed, model.now, "", Glyphs(False))
    assert model.elapsed > took + 40
    assert f"done in {clock_text(took)}" in [plain(fact.parts) for fact in facts]
