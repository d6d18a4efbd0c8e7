from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest

from fabtui.fabric.errors import InputError
from fabtui.fabric.events import Kind, NodeState, event
from fabtui.fabric.model import Model
from fabtui.screen.app import FabricApp
from fabtui.screen.settings import ScreenSettings
from tests.screen.conftest import Opened, make_app, screen_text, settled
from tests.screen.fakefeed import REFUSED, FakeFeed, Story, sweep_of_two


async def notes(app: FabricApp, pilot: Any) -> str:
    await pilot.pause(0.15)
    return "\n".join(note.message for note in app._notifications)


async def test_it_starts_with_the_nodes_and_goes_over_to_the_grid(opened: Opened) -> None:
    story = sweep_of_two()
    feed = FakeFeed(story.events, hold=True)
    async with opened(feed) as (app, pilot):
        assert app.main.view == "connecting"
        at = next(n for n, one in enumerate(story.events) if one["kind"] == "endpoints")
        feed.advance(at)
        app.main.draw()
        await pilot.pause()
        text = screen_text(app)
        assert app.main.view == "connecting"
        assert "connecting 2/3 ready, 1 failed" in text
        assert "n000  ready" in text
        assert "4 x H200, 4 data addresses, 4 IB ports, driver 570.124.06" in text
        assert "n002  failed" in text
        assert REFUSED in text
        assert "next: is sshd running there? ssh -v n002" in text
        feed.advance()
        app.main.draw()
        await pilot.pause()
        assert app.main.view == "grid"
        await pilot.press("c")
        assert app.main.view == "connecting"
        await pilot.press("c")
        assert app.main.view == "grid"


async def test_a_failed_node_is_a_marked_row_and_column_with_its_reason(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await pilot.press("G")
        await pilot.pause()
        text = screen_text(app)
        assert "n002 -x" in text
        assert "n002 failed 0:0" in text
        assert "ago: connection refused" in text
        assert "is sshd running there?" in text


async def test_the_panel_tells_value_class_path_and_error(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await pilot.press("right_square_bracket", "right_square_bracket")
        await pilot.pause()
        text = screen_text(app)
        for words in (
            "n000:1 > n001:2",
            "x failed",
            "cross-rail",
            "2 attempts",
            "lab fault made on purpose",
            "loss 0 %",
        ):
            assert words in text
        assert "2 n000:1 > n001:2 failed               1 cell" in text
        assert "p2p     n  worst  median  best  slow <  bad" in text


async def test_80_columns_tell_the_same_in_a_line(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(80, 24)) as (app, pilot):
        assert not app.main.panel.display
        await pilot.press("right_square_bracket")
        await pilot.pause()
        assert "n000:1 > n001:1  ! slow  12.4 GB/s  rail 0.27 of 45.9" in screen_text(app)
        assert "? help" in screen_text(app)
        assert "q quit" in screen_text(app)


async def test_very_small_terminals_get_the_worst_pairs(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(60, 15)) as (app, pilot):
        assert app.main.view == "worst"
        text = screen_text(app)
        assert text.index("x n000:1 > n001:2") < text.index("T n000:3 > n001:2") < text.index("! n000:1 > n001:1")
        await pilot.press("down", "enter")
        await pilot.pause()
        assert "n000:3 > n001:2" in screen_text(app)
        assert "connect: timed out after 5.0 s" in screen_text(app)


async def test_it_follows_the_size_of_the_terminal(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(120, 40)) as (app, pilot):
        assert (app.main.view, app.main.panel.display) == ("grid", True)
        for size, view, panel in (((80, 24), "grid", False), ((50, 12), "worst", False), ((200, 50), "grid", True)):
            await pilot.resize_terminal(*size)
            await pilot.pause(0.1)
            assert (app.main.view, app.main.panel.display) == (view, panel), size
        await pilot.press("p")
        assert not app.main.panel.display


async def test_the_pair_shows_both_ways_and_esc_goes_back(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await pilot.press("right_square_bracket", "right_square_bracket", "enter")
        await pilot.pause()
        text = screen_text(app)
        for words in (
            "n000:1 > n001:2",
            "n001:2 > n000:1",
            "43.6 GB/s",
            "0.99 of 44.1",
            "nccl 2.28.9",
            "10.1.0.1 > 10.2.0.2",
        ):
            assert words in text
        assert "Active 400 Gb/s" in text
        assert "ping -c3 -I 10.1.0.1 10.2.0.2" in text
        assert "neighbours" in text
        await pilot.press("end")
        await pilot.pause()
        text = screen_text(app)
        assert "mlx5_1 port 1 Active/LinkUp 400.0 Gb/s InfiniBand" in text
        assert "NCCL WARN ibv_modify_qp failed" in text
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen is app.main


async def test_keys_of_the_pair(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed) as (app, pilot):
        await pilot.press("down", "enter", "R")
        assert "nothing to test" in await notes(app, pilot)
        await pilot.press("escape", "right", "enter")
        await pilot.press("r")
        await pilot.pause()
        assert feed.retested == [("n000:1", "n000:2")]
        await pilot.press("R")
        await pilot.pause()
        assert feed.retested[1:] == [("n000:1", "n000:2"), ("n000:2", "n000:1")]
        await pilot.press("x")
        await pilot.pause()
        assert screen_text(app).startswith(" n000:2 > n000:1")
        await pilot.press("y")
        assert "n000:2 > n000:1" in app.clipboard
        assert "347 GB/s" in app.clipboard
        await pilot.press("n")
        await pilot.pause()
        assert type(app.screen).__name__ == "NodeScreen"


async def test_the_node_shows_what_it_has_and_what_its_links_counted(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(140, 70)) as (app, pilot):
        await pilot.press("n")
        await pilot.pause()
        text = screen_text(app)
        for words in (
            "n000   ready",
            "570.124.06, CUDA 12.8",
            "gen5 x8 of gen5 x16",
            "alice",
            "mlx5_0 PIX",
            "1 of 2",
            "crc 1203 (+1200 since the start)",
            "link 1  inactive",
            "400 Gb/s",
            "/usr/lib/libnccl.so.2",
            "Link 1: <inactive>",
        ):
            assert words in text, words
        await pilot.press("n")
        await pilot.pause()
        assert "n001   ready" in screen_text(app)
        await pilot.press("n")
        await pilot.pause()
        assert "n002   failed" in screen_text(app)
        assert "its inventory is not known" in screen_text(app)


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


async def test_re_test_sweep_and_pause(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed) as (app, pilot):
        await pilot.press("r", "R")
        await pilot.pause()
        assert feed.retested == [("n000:0", "n000:1")]
        assert feed.swept == 1
        await pilot.press("space")
        await pilot.pause(0.1)
        assert feed.model.paused
        assert "space go on" in screen_text(app)
        await pilot.press("space")
        await pilot.pause(0.1)
        assert not feed.model.paused
        assert "space pause" in screen_text(app)


async def test_a_pause_is_seen_while_a_sweep_runs(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two(end=False).events)) as (app, pilot):
        await pilot.press("space")
        await pilot.pause(0.1)
        assert "PAUSED" in screen_text(app).splitlines()[0]


async def test_a_recording_says_that_it_cannot_test(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events, can_test=False, badges=["RECORDING one.jsonl.gz"])
    async with opened(feed) as (app, pilot):
        await pilot.press("r", "R")
        assert (await notes(app, pilot)).count("a recording cannot be tested again") >= 1
        assert feed.retested == []
        assert feed.swept == 0
        assert "RECORDING one.jsonl.gz" in screen_text(app)


async def test_a_re_test_that_breaks_is_told(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = FakeFeed(sweep_of_two().events)

    async def broken(pairs: Any) -> None:
        raise RuntimeError("the [bold]link[/bold] is gone")

    monkeypatch.setattr(feed, "retest", broken)
    async with opened(feed) as (app, pilot):
        await pilot.press("r")
        assert "RuntimeError: the [bold]link[/bold] is gone" in await notes(app, pilot)


async def test_progress_bar_counts_and_remaining_time(opened: Opened) -> None:
    story = sweep_of_two(end=False)
    cut = len(story.events) - 20
    async with opened(FakeFeed(story.events[:cut])) as (app, _):
        line = screen_text(app).splitlines()[0]
        assert "p2p ████" in line
        assert "/56" in line
        assert "left" in line


async def test_the_end_is_counted(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, _):
        assert "1 failed  1 timeout  1 slow" in screen_text(app).splitlines()[0]
        assert "trouble found" in screen_text(app).splitlines()[0]


async def test_csv_is_written_in_a_thread_and_told(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    import fabtui.export.csv as module

    seen: list[Any] = []

    def write(model: Model, path: Path) -> int:
        seen.append((model, path, threading.current_thread()))
        if len(seen) > 1:
            raise OSError("no space left on device")
        return 73

    monkeypatch.setattr(module, "write_csv", write)
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed, csv=tmp_path / "s.csv") as (app, pilot):
        await pilot.press("e")
        assert f"73 rows written to {tmp_path / 's.csv'}" in await notes(app, pilot)
        assert seen[0][:2] == (feed.model, tmp_path / "s.csv")
        assert seen[0][2] is not threading.main_thread()
        await pilot.press("e")
        assert "could not be written: no space left" in await notes(app, pilot)


async def test_the_real_csv_has_the_rows_of_the_screen(opened: Opened, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    async with opened(FakeFeed(sweep_of_two().events), csv=tmp_path / "s.csv") as (_, pilot):
        await pilot.press("e")
        for _ in range(100):
            if (tmp_path / "s.csv").exists():
                break
            await pilot.pause(0.1)
        lines = (tmp_path / "s.csv").read_text().splitlines()
        assert len([line for line in lines if ",p2p," in line]) == 56


async def test_a_screenshot_is_written_into_the_working_folder(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await pilot.press("S")
        assert "screenshot written to" in await notes(app, pilot)
    (name,) = os.listdir(tmp_path)
    assert re.fullmatch(r"fabtui-[0-9]{8}T[0-9]{6}Z\.svg", name)
    assert "12.4!" in (tmp_path / name).read_text()


async def test_copying_gives_plain_text(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await pilot.press("right_square_bracket", "right_square_bracket", "y")
        assert app.clipboard.startswith("n000:1 > n001:2\n")
        assert "p2p: failed; at 256 MiB; lab fault made on purpose: transfer: the packets were dropped" in app.clipboard
        assert "back: n001:2 > n000:1" in app.clipboard


async def test_help_names_every_key_of_every_screen(opened: Opened) -> None:
    from fabtui.screen.commands import binding_groups, bindings_of

    async with opened(FakeFeed(sweep_of_two().events), size=(120, 240)) as (app, pilot):
        await pilot.press("question_mark")
        await pilot.pause()
        text = screen_text(app)
        for _, kind in binding_groups():
            for binding in bindings_of(kind):
                assert binding.id
                assert binding.id in text
                assert binding.tooltip
                assert binding.tooltip in text
        await pilot.press("escape")
        assert app.screen is app.main


async def test_keys_can_be_rebound_by_their_ids(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed) as (app, pilot):
        app.set_keymap({"main.sweep": "f5"})
        await pilot.press("R")
        assert feed.swept == 0
        await pilot.press("f5")
        await pilot.pause()
        assert feed.swept == 1
        await pilot.press("question_mark")
        await pilot.pause()
        assert "f5" in screen_text(app).lower()


async def test_the_palette_has_a_command_for_what_keys_do(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed) as (app, pilot):
        await pilot.press("ctrl+p")
        await pilot.pause(0.2)
        await pilot.press(*"whole sweep")
        await pilot.pause(0.5)
        assert "Run the whole sweep again" in screen_text(app)
        await pilot.press("enter")
        await pilot.pause(0.3)
        assert feed.swept == 1


async def test_ids_of_bindings_are_unique() -> None:
    from fabtui.screen.commands import binding_groups, bindings_of

    ids = [binding.id for _, kind in binding_groups() for binding in bindings_of(kind)]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_quitting_closes_the_feed(key: str) -> None:
    feed = FakeFeed(sweep_of_two().events)
    app = make_app(feed)
    async with app.run_test() as pilot:
        await settled(app, pilot)
        await pilot.press(key)
        await pilot.pause(0.2)
    assert feed.closed == 1
    assert app.return_value == 1


async def test_closing_is_told_and_a_second_q_does_not_wait() -> None:
    feed = FakeFeed(sweep_of_two(end=False).events)
    feed.close_takes = 60
    app = make_app(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(app, pilot)
        await pilot.press("enter", "q", "y")
        await pilot.pause(0.1)
        assert "closing: ending what runs on the nodes" in screen_text(app)
        await pilot.press("q")
        await pilot.pause(0.1)
        assert app.return_value == 0


async def test_closing_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    import fabtui.screen.leaving as module

    monkeypatch.setattr(module, "CLOSE_DEADLINE", 0.1)
    feed = FakeFeed(sweep_of_two().events)
    feed.close_takes = 60
    app = make_app(feed)
    async with app.run_test() as pilot:
        await settled(app, pilot)
        await pilot.press("q")
        await pilot.pause(0.4)
    assert app.last_words is not None
    assert "was given up" in app.last_words


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
    assert app.last_words == "fabtui: no host in ''; give --nodes"


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
        assert "12.4!" in text
        await pilot.press("q")
        await pilot.pause(0.2)
    assert app.return_value == 3
    assert "ZeroDivisionError" in (app.last_words or "")


async def test_leaving_at_the_end_where_that_is_wanted() -> None:
    feed = FakeFeed(sweep_of_two().events)
    app = make_app(feed, exit_on_end=True)
    async with app.run_test() as pilot:
        for _ in range(50):
            await pilot.pause(0.05)
            if app.return_value is not None:
                break
    assert app.return_value == 1
    assert feed.closed == 1


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
    assert "fabtui n[060-061]" in frames[0]


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
            feed.play([event(Kind.LOG, level="info", node=None, text=f"line {number}", time=story.now)])
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
        await pilot.press("L")
        await pilot.pause()
        assert "line number 12" in screen_text(app)
        await pilot.press("L")
        await pilot.pause()
        assert "line number 12" not in screen_text(app)


async def test_nodes_with_different_numbers_of_endpoints_and_one_without(opened: Opened) -> None:
    story = Story(["a", "b", "c"], 2)
    for node in ("a", "b", "c"):
        story.connect(node)
    story.endpoints("a", count=2)
    story.endpoints("b", count=3)
    story.endpoints("c", kind="none", count=1)
    story.add(event(Kind.ENDPOINTS, endpoints=[], notes={"c": "no GPU here, but GPUs elsewhere"}))
    story.phase("p2p", 20)
    story.measured(*story.good("a:0", "b:2"))
    async with opened(FakeFeed(story.events)) as (app, pilot):
        names = [seat.name for seat in app.main.source.axis.seats]
        assert names == ["a:0", "a:1", "b:0", "b:1", "b:2", "c:-"]
        await pilot.press("G")
        await pilot.pause()
        assert "no GPU here, but GPUs elsewhere" in screen_text(app)


async def test_nothing_answers_and_the_app_still_tells_why(opened: Opened) -> None:
    story = Story(["a", "b"], 2)
    for node in ("a", "b"):
        story.state(node, NodeState.FAILED, "no route to host")
    story.end(3)
    async with opened(FakeFeed(story.events), size=(80, 24)) as (app, pilot):
        assert app.main.view == "connecting"
        assert screen_text(app).count("no route to host") == 2
        await pilot.press("c", "enter", "right_square_bracket", "r", "space", "2", "L", "down", "y")
        await pilot.pause()
        assert app.is_running
