"""Keys other than movement: tests, pauses, exports, copies."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from fabtui.model.events import NodeState, NodeUpdate
from fabtui.model.session_model import Model
from fabtui.screen.app import FabricApp
from tests.screen.conftest import Opened, press, screen_text, until
from tests.screen.fakefeed import FakeFeed, nodes_of_two, sweep_of_two
from tests.screen.test_command_line import typed


async def notes(app: FabricApp, pilot: Any, wanted: str = "") -> str:
    for _ in range(40):
        await pilot.pause(0.15)
        # A file that is drawn and written takes longer on a busy machine.
        if any(wanted in note.message for note in app._notifications):
            break
    return "\n".join(note.message for note in app._notifications)


async def test_re_test_sweep_and_pause(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed) as (app, pilot):
        await press(pilot, "r", "R")
        assert feed.retested == [("n000:0", "n000:1")]
        assert feed.swept == 1
        await press(pilot, "space", seconds=0.1)
        assert feed.model.paused
        assert "space resume" in screen_text(app)
        await press(pilot, "space", seconds=0.1)
        assert not feed.model.paused
        assert "space pause" in screen_text(app)


async def test_a_pair_of_a_node_that_is_gone_is_not_promised_a_test(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed) as (app, pilot):
        feed.play([NodeUpdate(node="n000", state=NodeState.LOST, text="Connection lost", time=feed.model.now)])
        await pilot.press("r")
        shown = await notes(app, pilot)
        assert "n000 is lost" in shown
        assert "testing again" not in shown
        assert feed.retested == []


async def test_the_nodes_have_the_whole_width_while_they_are_connected(opened: Opened) -> None:
    async with opened(FakeFeed(nodes_of_two()), size=(120, 40)) as (app, pilot):
        await pilot.pause(0.1)
        lines = [line.strip() for line in screen_text(app).splitlines()]
        (at,) = [number for number, line in enumerate(lines) if line.startswith("• n000")]
        assert lines[at + 1].startswith("• n001"), "the message of a node is on one line"


async def test_a_pause_is_seen_while_a_sweep_runs(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two(end=False).events)) as (app, pilot):
        await press(pilot, "space", seconds=0.1)
        assert "PAUSED" in screen_text(app).splitlines()[0]


async def test_a_recording_cannot_be_tested(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events, can_test=False, badges=["RECORDING one.jsonl.gz"])
    async with opened(feed) as (app, pilot):
        await pilot.press("r", "R")
        assert (await notes(app, pilot)).count("a recording cannot be tested again") >= 1
        assert feed.retested == []
        assert feed.swept == 0
        assert "RECORDING one.jsonl.gz" in screen_text(app)


async def test_a_failed_retest_is_reported(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = FakeFeed(sweep_of_two().events)

    async def broken(pairs: Any) -> None:
        raise RuntimeError("the [bold]link[/bold] is gone")

    monkeypatch.setattr(feed, "retest", broken)
    async with opened(feed) as (app, pilot):
        await pilot.press("r")
        assert "RuntimeError: the [bold]link[/bold] is gone" in await notes(app, pilot)


async def test_csv_is_written_in_a_thread_and_reported(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    import fabtui.screen.app_actions as module

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


async def test_a_report_is_written_with_its_key_and_where_a_command_wants_it(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await pilot.press("E")
        await app.workers.wait_for_complete()
        assert "report written to" in await notes(app, pilot)
        (name,) = os.listdir(tmp_path)
        assert re.fullmatch(r"fabtui-\d{8}T\d{6}Z\.html", name)
        assert (tmp_path / name).read_text().startswith("<!DOCTYPE html>")
        await typed(pilot, f"report {tmp_path}/a.txt")
        assert "should end in .html" in screen_text(app)
        await pilot.press("escape")
        await typed(pilot, f"report {tmp_path}/a.md")
        await app.workers.wait_for_complete()
        assert "## Findings" in (tmp_path / "a.md").read_text()


async def test_the_real_csv_has_the_rows_of_the_screen(opened: Opened, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    async with opened(FakeFeed(sweep_of_two().events), csv=tmp_path / "s.csv") as (_, pilot):
        await pilot.press("e")
        await until(pilot, lambda: (tmp_path / "s.csv").exists())
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
    assert "12.4▾" in (tmp_path / name).read_text()


async def test_the_grid_is_drawn_as_it_is_shown(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await pilot.press("2", "I")
        assert "pictures written to" in await notes(app, pilot)
        await pilot.press("plus", "3", "I")
        assert "-world.svg and .png" in await notes(app, pilot, "-world")
    found = {name[24:]: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    assert sorted(found) == ["p2p.png", "p2p.svg", "world.png", "world.svg"]
    assert found["p2p.png"].startswith(b"\x89PNG")
    assert b"GB/s" in found["p2p.svg"]
    assert b"<title>" not in found["world.svg"], "there are no results in world"


async def test_a_full_disk_is_reported_when_the_grid_is_drawn(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def full(path: Path, data: bytes) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("fabtui.screen.app_actions.write_bytes", full)
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await pilot.press("I")
        assert "the picture could not be written: no space left" in await notes(app, pilot)


async def test_copying_gives_plain_text(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await pilot.press("right_square_bracket", "right_square_bracket", "y")
        assert app.clipboard.startswith("n000:1 > n001:2\n")
        assert "p2p: failed; at 256 MiB; transfer: the packets were dropped" in app.clipboard
        assert "reverse: n001:2 > n000:1" in app.clipboard


async def test_a_browser_has_no_terminal_for_a_login(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FabricApp, "is_web", True)
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await press(pilot, "exclamation_mark", seconds=0.2)
        (note,) = app._notifications
        assert note.message.startswith("a browser has no terminal for a login; type elsewhere: ")
