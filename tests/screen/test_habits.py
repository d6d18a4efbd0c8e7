"""The question before quitting, jump mode, help of where one is, the mouse, the clipboard."""

import base64
from typing import Any

import pytest
from textual import events

from fabtui.screen.app import FabricApp
from fabtui.screen.keymap import key_owners
from fabtui.screen.keys import bindings_of
from fabtui.screen.views.dialogs import ConfirmScreen
from fabtui.screen.views.jump import LETTERS, JumpScreen, targets_of
from tests.screen.conftest import Opened, make_app, press, screen_text, settled
from tests.screen.fakefeed import FAILED, TIMEOUT, FakeFeed, Story, sweep_of_two


def letter_at(app: Any, x: int, y: int) -> str:
    line: str = screen_text(app).splitlines()[y]
    return line[x : x + 3].strip()


async def test_quitting_asks_only_while_a_sweep_runs() -> None:
    feed = FakeFeed(sweep_of_two(end=False).events)
    app = make_app(feed)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(app, pilot)
        await press(pilot, "q")
        assert isinstance(app.screen, ConfirmScreen)
        text = " ".join(screen_text(app).split())
        assert "A sweep is running. Quit?" in text
        assert "56 of 56 GPU pairs tested. Nothing is recorded." in text
        await press(pilot, "n")
        assert len(app.screen_stack) == 1
        assert feed.closed == 0
        await press(pilot, "q", "escape", "q", "y", seconds=0.2)
    assert feed.closed == 1
    assert app.return_value == 1


@pytest.mark.parametrize("keys", [("q", "q"), ("ctrl+c", "ctrl+c"), ("q", "enter"), ("enter", "ctrl+c", "q")])
async def test_the_key_that_quits_pressed_twice_quits(keys: tuple[str, ...]) -> None:
    feed = FakeFeed(sweep_of_two(end=False).events)
    app = make_app(feed)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(app, pilot)
        await press(pilot, *keys, seconds=0.2)
    assert feed.closed == 1


async def test_a_replay_and_what_has_ended_are_left_without_a_question() -> None:
    for feed in (FakeFeed(sweep_of_two(end=False).events, can_test=False), FakeFeed(sweep_of_two().events)):
        app = make_app(feed)
        async with app.run_test(size=(100, 30)) as pilot:
            await settled(app, pilot)
            await press(pilot, "q", seconds=0.2)
        assert feed.closed == 1


async def test_nothing_is_asked_while_nodes_are_connected() -> None:
    story = Story(["n000", "n001"], 4)
    story.connect("n000")
    app = make_app(FakeFeed(story.events))
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(app, pilot)
        await press(pilot, "q", seconds=0.2)
    assert app.return_value == 130


async def test_a_letter_jumps_to_a_layer_and_to_a_node(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        targets = targets_of(app.screen)
        assert 9 <= len(targets) <= len(LETTERS)
        await press(pilot, "ctrl+o")
        assert isinstance(app.screen, JumpScreen)
        assert "jump: press a letter" in screen_text(app)
        start, _, layer = app.main.tabs.spans[3]
        letter = letter_at(app, start, app.main.tabs.region.y)
        assert letter in LETTERS
        await press(pilot, letter, seconds=0.1)
        assert len(app.screen_stack) == 1
        assert app.main.source.layer is layer

        await press(pilot, "ctrl+o")
        nodes = [t for t in targets if t.x < 10 and t.y > app.main.grid.region.y]
        await press(pilot, letter_at(app, nodes[1].x, nodes[1].y), seconds=0.1)
        assert app.main.source.axis.entries[app.main.grid.row].name == "n001:0"


async def test_a_letter_jumps_to_a_bad_pair_of_the_panel(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await press(pilot, "ctrl+o")
        panel = app.main.panel.region
        lines = screen_text(app).splitlines()
        at = next(y for y, line in enumerate(lines) if "timed out" in line[panel.x :] and y > panel.y + 3)
        letter = lines[at][app.main.panel.content_region.x - 1 :][:3].strip()
        await press(pilot, letter, seconds=0.1)
        assert tuple(entry.name for entry in app.main.cursor_entries() or ()) == TIMEOUT


async def test_jumping_in_a_detail_and_leaving_jump_mode(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(100, 30)) as (app, pilot):
        await press(pilot, "n", "ctrl+o")
        assert isinstance(app.screen, JumpScreen)
        await press(pilot, "escape")
        node = app.screen
        assert type(node).__name__ == "NodeScreen"
        last = targets_of(node)[-1]
        await press(pilot, "ctrl+o")
        await press(pilot, letter_at(app, last.x, last.y), seconds=0.1)
        assert node.query_one("#detail-body").scroll_y > 0
        await press(pilot, "ctrl+o", "5")
        assert app.screen is node


async def test_a_letter_can_be_clicked(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        start, _, layer = app.main.tabs.spans[5]
        await press(pilot, "ctrl+o")
        await pilot.click(offset=(start + 1, app.main.tabs.region.y))
        await pilot.pause(0.1)
        assert app.screen is app.main
        assert app.main.source.layer is layer


@pytest.mark.parametrize(
    ("keys", "title", "words", "first"),
    [
        ((), "help: grid", "A row sends, a column receives.", "grid.up"),
        (("enter",), "help: pair", "One pair in both directions", "pair.retest"),
        (("n",), "help: node", "One node: GPUs", "node."),
    ],
)
async def test_help_begins_with_the_current_view(
    opened: Opened, keys: tuple[str, ...], title: str, words: str, first: str
) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(120, 320)) as (app, pilot):
        await press(pilot, *keys, "question_mark")
        text = screen_text(app)
        assert title in text.splitlines()[0]
        begin = "keys of this view" if not keys else first
        assert text.index(begin) < text.index("legend") < text.index(words)
        assert text.index(first) < text.index("confirm.yes")


@pytest.mark.parametrize("key", ["question_mark", "f1"])
async def test_the_first_page_of_the_help_has_the_keys_and_signs_that_people_need(opened: Opened, key: str) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(80, 24)) as (app, pilot):
        await press(pilot, key)
        lines = [line.strip() for line in screen_text(app).splitlines()]
        assert lines[1].startswith("keys of this view")
        assert [line.split()[0] for line in lines[2:13]] == [
            "enter",
            "]",
            "i",
            "F",
            "t",
            "J",
            "r",
            "R",
            "w",
            "/",
            "1-9",
        ]
        for words in ("ok", "slow", "timed out", "failed", "wrong data", "not tested", "node gone", "below 95 %"):
            assert any(words in line for line in lines[14:23]), words
        assert "main.pair" not in screen_text(app), "names for the settings file need a wide screen"


@pytest.mark.parametrize(
    ("key", "crumb"),
    [
        ("enter", "n000:0 > n000:1"),
        ("n", "n000"),
        ("t", "nodes"),
        ("T", ""),
        ("P", "nodes"),
        ("F", "6 findings, 3 pairs"),
    ],
)
async def test_every_view_names_the_layer_that_it_was_opened_from(opened: Opened, key: str, crumb: str) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(120, 30)) as (app, pilot):
        await press(pilot, "4", "home", "ctrl+home", "right", key)
        assert screen_text(app).splitlines()[0].startswith(f" fabtui / latency / {crumb}")
        await press(pilot, "question_mark")
        assert f"/ {crumb if key != 'F' else 'findings'} / help" in screen_text(app).splitlines()[0] or key == "T"


async def test_a_view_opened_from_a_view_names_the_way_to_it(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(120, 30)) as (app, pilot):
        await press(pilot, "t")
        assert screen_text(app).splitlines()[0].startswith(" fabtui / p2p / nodes ")
        await press(pilot, "enter")
        assert screen_text(app).splitlines()[0].startswith(" fabtui / p2p / nodes / n002 ")
        await press(pilot, "question_mark")
        assert screen_text(app).splitlines()[0].startswith(" fabtui / p2p / nodes / n002 / help")
        await press(pilot, "escape", "escape")
        assert screen_text(app).splitlines()[0].startswith(" fabtui / p2p / nodes ")


async def test_help_is_searched_as_one_types(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(120, 60)) as (app, pilot):
        await press(pilot, "question_mark", "slash", *"worst")
        text = screen_text(app)
        assert "main.list" in text
        assert "main.pause" not in text
        assert text.index("main.list") < text.index("worst.up"), "the keys of the current view come first"
        await press(pilot, "space", *"zzz")
        assert "no line has these words" in screen_text(app)
        await press(pilot, "escape")
        await press(pilot, "escape")
        assert "main.pause" in screen_text(app)
        await press(pilot, "escape")
        assert app.screen is app.main


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [
        ((), ("FabricApp", "MainScreen", "ZoomingScreen", "GridView")),
        (("enter",), ("FabricApp", "PairScreen", "DetailScreen")),
        (("n",), ("FabricApp", "NodeScreen", "DetailScreen")),
        (("F",), ("FabricApp", "FindingsScreen", "DetailScreen")),
        (("t",), ("FabricApp", "NodesScreen", "NodesTable")),
        (("v",), ("FabricApp", "MainScreen", "WorstList")),
        (("L",), ("FabricApp", "MainScreen", "LogView")),
    ],
)
async def test_the_palette_has_every_action_of_where_one_is(
    opened: Opened, keys: tuple[str, ...], kinds: tuple[str, ...]
) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await press(pilot, *keys)
        titles = {command.title.partition("  (")[0].lower() for command in app.get_system_commands(app.screen)}
        for kind in key_owners(FabricApp):
            if kind.__name__ in kinds:
                for binding in bindings_of(kind):
                    # Keys of replays are listed in replays.
                    if "replay" not in binding.needs and binding.id not in (
                        "app.commands",
                        "app.interrupt",
                        "main.connecting",
                        "main.preflight",
                    ):
                        assert binding.tooltip.lower() in titles, binding.id
        assert "change the theme" in titles


async def test_the_palette_has_a_line_for_each_command_with_its_key(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(80, 24)) as (app, pilot):
        await pilot.press("colon", "ctrl+p", *"node")
        await settled(app, pilot)
        await pilot.pause(0.3)
        assert type(app.screen).__name__ == "CommandPalette", "the command line makes room for it"
        lines = [line.split() for line in screen_text(app).splitlines()]
        assert ["Show", "the", "node", "of", "the", "row", "(n)"] in lines
        assert not any("omplete" in line for line in lines)


async def test_clicks_and_the_wheel(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        main = app.main
        place = next(
            (x, y)
            for y in range(main.grid.region.height)
            for x in range(main.grid.region.width)
            if main.grid.cell_at(x, y) == (1, 6)
        )
        await pilot.click("#grid", offset=place)
        await pilot.pause()
        assert tuple(entry.name for entry in main.cursor_entries() or ()) == FAILED
        await pilot._post_mouse_events([events.MouseScrollDown], "#grid", offset=place)
        await pilot.pause()
        down = main.grid.row
        assert down > 1
        await pilot._post_mouse_events([events.MouseScrollUp], "#grid", offset=place)
        await pilot.pause()
        assert main.grid.row < down
        await pilot.press("end")
        await pilot.click("#grid", offset=place)
        await pilot.pause()
        assert app.screen is main
        await pilot.click("#grid", offset=place)
        await pilot.pause()
        assert type(app.screen).__name__ == "PairScreen", "a click on the cell of the cursor opens it"
        await pilot.press("escape")
        start, _, layer = main.tabs.spans[2]
        await pilot.click("#tabs", offset=(start + 1, 0))
        await pilot.pause()
        assert main.source.layer is layer
        line = screen_text(app).splitlines()[-1]
        await pilot.click("#keys", offset=(line.index("? help"), 0))
        await pilot.pause(0.1)
        assert type(app.screen).__name__ == "HelpScreen"


async def test_the_mouse_over_a_cell_shows_its_value(opened: Opened) -> None:
    story = sweep_of_two()
    feed = FakeFeed(story.events)
    # Without room for taller cells: they get lower when the log grows.
    async with opened(feed, size=(110, 24)) as (app, pilot):
        grid = app.main.grid
        places = {grid.cell_at(x, y): (x, y) for y in range(grid.region.height) for x in range(grid.region.width)}
        before = app.main.cursor_entries()

        def last_line() -> str:
            return screen_text(app).splitlines()[grid.region.bottom - 1]

        await pilot.hover("#grid", offset=places[1, 6])
        await pilot.pause()
        assert last_line().startswith(" n000:1 > n001:2  x failed")
        await pilot.hover("#grid", offset=places[1, 5])
        await pilot.pause()
        assert last_line().startswith(" n000:1 > n001:1  ▾ slow  12.4 GB/s")
        story.events.clear()
        story.measured(*story.good("n000:1", "n001:1"))
        feed.play(story.events)
        await pilot.pause(0.2)
        assert last_line().startswith(" n000:1 > n001:1  ok  46.")
        assert app.main.cursor_entries() == before
        await pilot.hover("#panel")
        await pilot.pause()
        assert "n000:1 > n001:1" not in last_line()


async def test_the_mouse_and_the_letters_know_orders_and_zooms(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        grid = app.main.grid

        async def over(cell: tuple[int, int]) -> str:
            places = {grid.cell_at(x, y): (x, y) for y in range(grid.region.height) for x in range(grid.region.width)}
            await pilot.hover("#grid", offset=places[cell])
            await pilot.pause()
            return screen_text(app).splitlines()[grid.region.bottom - 1]

        await press(pilot, "s", seconds=0.1)
        first = grid.source.rows.entries[0].name
        assert first == "n000:1"
        assert (await over((0, 6))).startswith(" n000:1 > n001:2  x failed")
        await press(pilot, "s", "minus", seconds=0.1)
        assert "n000 > n001  x 1 failed  T 1 timeout  ▾ 1 slow  13 ok" in await over((0, 1))
        await press(pilot, "ctrl+o")
        assert isinstance(app.screen, JumpScreen)
        rows = [t for t in app.screen._targets.values() if t.x < 10 and t.y > grid.region.y]
        assert len(rows) == 3
        await press(pilot, letter_at(app, rows[1].x, rows[1].y), seconds=0.1)
        assert (app.main.cursor_entries() or (None,))[0].node == "n001"  # type: ignore[union-attr]


async def test_copying_is_osc_52_on_the_wire(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        written: list[str] = []
        assert app._driver is not None
        monkeypatch.setattr(app._driver, "write", written.append)
        await press(pilot, "y")
        found = next(text for text in written if text.startswith("\x1b]52;c;"))
        copied = base64.b64decode(found.removeprefix("\x1b]52;c;").rstrip("\x07\x1b\\")).decode()
        assert copied.startswith("n000:0 > n000:1\n")


async def test_the_key_bar_has_whole_entries_at_every_width(opened: Opened) -> None:
    whole: set[str] = set()
    for width in (200, 64, 77, 88, 97, 131):
        async with opened(FakeFeed(sweep_of_two().events), size=(width, 24)) as (app, _):
            bar = screen_text(app).splitlines()[-1]
            assert len(bar) == width
            entries = {entry for entry in bar.split("  ") if entry.strip()}
            whole = whole or {entry.strip() for entry in entries} | {"arrows move"}
            assert {entry.strip() for entry in entries} <= whole, width
            assert {"F findings", "? help", "q quit"} <= {entry.strip() for entry in entries}


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        (("escape",), "there is nothing to go back to: q quits"),
        (("question_mark", "question_mark"), "this is the help: / searches it, Esc leaves it"),
    ],
)
async def test_a_key_without_effect_reports_why(opened: Opened, keys: tuple[str, ...], shown: str) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await press(pilot, *keys)
        assert shown in [note.message for note in app._notifications]


async def test_tab_in_an_empty_command_line_shows_what_it_completes(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await pilot.press("colon", "tab")
        await settled(app, pilot)
        assert "type the first letters of a command: Tab completes it" in screen_text(app)
