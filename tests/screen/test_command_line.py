"""The command line: completion, every kind of command, the answer to unknown ones, and a recording in place."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from textual import events

from fabtui.screen.app import FabricApp
from fabtui.screen.views.command_line import CommandLine, CommandTable
from fabtui.screen.views.dialogs import ConfirmScreen
from tests.screen.conftest import Opened, press, screen_text, until
from tests.screen.fakefeed import FakeFeed, big_sweep, sweep_of_two

RECORDING = Path(__file__).resolve().parents[2] / "tests" / "samples" / "sessions" / "h200x4-lab-2x2.jsonl.gz"


async def typed(pilot: Any, text: str, *keys: str) -> None:
    """Type a command, and other keys after it."""
    await press(pilot, "colon")
    pilot.app.screen.query_one("#command-input").value = text
    await pilot.pause()
    await press(pilot, *keys, "enter", seconds=0.1)


def screen_of(app: FabricApp) -> str:
    return type(app.screen).__name__


@pytest.mark.parametrize(
    ("command", "view"),
    [
        ("nodes", "NodesScreen"),
        ("findings", "FindingsScreen"),
        ("find", "FindingsScreen"),
        ("preflight", "NodesScreen"),
        ("help", "HelpScreen"),
        ("node n001", "NodeScreen"),
        ("pair n000:1>n001:2", "PairScreen"),
    ],
)
async def test_a_command_opens_a_view_from_any_other(opened: Opened, command: str, view: str) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await typed(pilot, command)
        assert screen_of(app) == view
        await typed(pilot, "nodes")
        stack = [type(one).__name__ for one in app.screen_stack]
        assert stack == ["MainScreen", *([view] if view != "NodesScreen" else []), "NodesScreen"]
        await typed(pilot, command)
        assert screen_of(app) == view
        stack = [type(one).__name__ for one in app.screen_stack]
        assert len(stack) == len(set(stack)) <= 3, "each kind of view is open once"


async def test_commands_choose_layer_filter_place_and_order(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        main = app.main
        await typed(pilot, "layer world")
        assert str(main.source.layer) == "world"
        await typed(pilot, "layer p2p")
        await typed(pilot, "go n001:2>n000:3")
        assert [entry.name for entry in main.cursor_entries() or ()] == ["n001:2", "n000:3"]
        await typed(pilot, "sort badness")
        assert "worst first" in screen_text(app)
        await typed(pilot, "sort badness")
        assert "worst first" in screen_text(app)
        await typed(pilot, "sort given")
        assert "worst first" not in screen_text(app)
        await typed(pilot, "filter n001>")
        assert {entry.node for entry in main.grid.source.rows.entries} == {"n001"}
        await typed(pilot, "filter")
        assert main.view_state.filter is None
        await typed(pilot, "theme textual-light")
        assert app.theme == "textual-light"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("fndings", "there is no command 'fndings'; did you mean findings?"),
        ("p", "there is no command 'p'; did you mean"),
        ("quit now", "quit takes no argument"),
        ("layer wold", "there is no layer 'wold'; did you mean world?"),
        ("filter n07", "is not a node here"),
        ("node n01", "did you mean n001?"),
        ("pair n000:1", "expected a pair"),
        ("sort leav", "there is no order 'leav'"),
        ("theme darkk", "there is no theme"),
        ("replay /nowhere/x.jsonl.gz", "/nowhere/x.jsonl.gz"),
    ],
)
async def test_a_wrong_command_is_explained_and_stays(opened: Opened, command: str, problem: str) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await typed(pilot, command)
        assert isinstance(app.screen, CommandLine)
        assert problem in screen_text(app)
        await press(pilot, "escape")
        assert screen_of(app) == "MainScreen"


async def test_tab_completes_commands_and_arguments(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await press(pilot, "colon", "l", "a", seconds=0.1)
        assert "layer LAYER: show a layer" in screen_text(app)
        await press(pilot, "tab", "space", "w", seconds=0.1)
        await press(pilot, "tab", "enter", seconds=0.1)
        assert str(app.main.source.layer) == "world"
        await pilot.press("colon", "up")
        assert app.screen.query_one("#command-input").value == "layer world"  # type: ignore[attr-defined]
        await pilot.press("down")
        assert not app.screen.query_one("#command-input").value  # type: ignore[attr-defined]


async def test_the_line_is_edited_as_in_a_shell(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await press(pilot, "colon", seconds=0.1)
        line = app.screen.query_one("Input")
        await press(pilot, *"fil", "ctrl+u", *"goto n1", "ctrl+w", *"n0", seconds=0.1)
        assert line.value == "goto n0"  # type: ignore[attr-defined]


async def test_what_is_typed_while_the_line_opens_is_not_lost(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        # As a terminal sends pasted keys: all at once.
        for key, character in (("colon", ":"), *zip("nodes", "nodes", strict=True), ("enter", "\r")):
            app.post_message(events.Key(key, character))
        await until(pilot, lambda: screen_of(app) == "NodesScreen")
        assert screen_of(app) == "NodesScreen", screen_text(app).splitlines()[-2:]


async def test_what_is_typed_while_a_prompt_opens_is_not_lost(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        names = {"/": "slash", " ": "space", "\r": "enter"}
        for character in "/n001 bad\r":
            app.post_message(events.Key(names.get(character, character), character))
        await until(pilot, lambda: app.main.view_state.filter is not None)
        assert app.main.view_state.filter is not None
        assert app.main.view_state.filter.text == "n001 bad", screen_text(app)
        assert [type(one).__name__ for one in app.screen_stack] == ["MainScreen"]


async def test_arguments_are_completed(opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.jsonl.gz").touch()
    (tmp_path / "older").mkdir()
    (tmp_path / "other.txt").touch()
    async with opened(FakeFeed(sweep_of_two().events)) as (app, _):
        table = CommandTable(app, app.screen)
        assert await table.completions("replay o") == ["replay older/", "replay one.jsonl.gz"]
        assert await table.completions("replay nowhere/") == []
        assert await table.completions("filter bad n00") == ["filter bad n000", "filter bad n001", "filter bad n002"]
        assert await table.completions("pair n000:1>n001:") == [f"pair n000:1>n001:{at}" for at in range(4)]
        assert await table.completions("nothing x") == []


async def test_keys_of_the_current_view_are_commands(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await typed(pilot, "findings")
        selected = app.screen.body_lines(80)  # type: ignore[attr-defined]
        await typed(pilot, "next")
        assert screen_of(app) == "FindingsScreen"
        assert app.screen.body_lines(80) != selected  # type: ignore[attr-defined]


async def test_a_recording_replaces_the_session(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed) as (app, pilot):
        await typed(pilot, f"replay {RECORDING}")
        await asyncio.sleep(0.2)
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("y")
        await until(pilot, lambda: app.feed is not feed and app.model.nodes)
        assert feed.closed == 1
        assert len(app.model.nodes) == 2
        assert RECORDING.name in screen_text(app)
        assert screen_of(app) == "MainScreen"


async def test_staying_keeps_the_session(opened: Opened) -> None:
    feed = FakeFeed(big_sweep(2, 2).events)
    async with opened(feed) as (app, pilot):
        await typed(pilot, f"replay {RECORDING}")
        await pilot.pause(0.2)
        await press(pilot, "n", seconds=0.1)
        assert (app.feed, feed.closed) == (feed, 0)
