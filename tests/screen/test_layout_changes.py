"""Changes of the layout: the side panel is filled, node states are left, notifications leave the last lines alone."""

from typing import Any

import pytest

from fabtui.model.events import NodeState
from tests.screen.conftest import Opened, make_app, press, screen_text, settled, until
from tests.screen.fakefeed import FakeFeed, Story, nodes_of_two, sweep_of_two


@pytest.mark.parametrize("keys", ["v escape", "v v", "c c", "c escape", "p p", "L L"])
async def test_the_panel_is_filled_again_after_another_layout(opened: Opened, keys: str) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await until(pilot, lambda: app.findings.known)
        app.main.draw()
        before = app.main.panel.shown.plain
        assert len(before.splitlines()) > 20
        await press(pilot, *keys.split(), seconds=0.1)
        assert app.main.panel.shown.plain == before


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_node_states_have_their_own_keys(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(FakeFeed(nodes_of_two()), size=size) as (app, pilot):
        await pilot.pause(0.1)
        keys = screen_text(app).splitlines()[-1]
        assert not any(word in keys for word in ("enter pair", "next bad", "filter"))
        await press(pilot, "right_square_bracket", "enter", "s", "f", "v", seconds=0.1)
        assert app.main.view == "connecting"
        assert len(app.screen_stack) == 1


async def test_node_states_stay_if_no_node_could_be_reached(opened: Opened) -> None:
    story = Story(["n000", "n001"], 4)
    for node in story.nodes:
        story.state(node, NodeState.FAILED, "connection refused", f"ssh -v {node} true")
    story.endpoints(*story.nodes, kind="none", count=1)
    story.end(3)
    async with opened(FakeFeed(story.events), size=(80, 24)) as (app, pilot):
        await press(pilot, "2", seconds=0.1)
        assert app.main.view == "connecting"
        text = screen_text(app)
        assert "No node could be reached: 2 nodes failed." in text
        assert "next: ssh -v n001 true" in text


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 40)])
@pytest.mark.parametrize("long", [1, 20])
async def test_notifications_cover_the_last_lines_alone(size: tuple[int, int], long: int) -> None:
    app = make_app(FakeFeed(sweep_of_two().events))
    async with app.run_test(size=size, notifications=True) as pilot:
        await settled(app, pilot)
        await until(pilot, lambda: "▌" in screen_text(app) or size != (60, 15))
        before = screen_text(app).splitlines()
        for number in range(4):
            app.notify(f"notification {number}" + " and more" * long, severity="warning")
            await pilot.pause(0.1)
        await pilot.pause(0.3)
        lines = screen_text(app).splitlines()
        assert lines[:-3] == before[:-3], "findings and side panel"
        assert lines[-1] == before[-1], "keys"
        assert "notification 3 and more" in "\n".join(lines), "the latest"


async def test_notifications_stand_above_a_prompt() -> None:
    app = make_app(FakeFeed(sweep_of_two().events))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(app, pilot)
        for key in ("f", "colon"):
            await press(pilot, key, seconds=0.2)
            before = screen_text(app).splitlines()
            app.notify(f"something happened after {key}")
            await pilot.pause(0.3)
            after = screen_text(app).splitlines()
            assert after != before
            assert after[-2:] == before[-2:]
            await press(pilot, "escape", seconds=0.2)


@pytest.mark.parametrize(("leader", "signals"), [(7, 1), (8, 0)])
async def test_ctrl_z_suspends_where_a_shell_can_continue(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, leader: int, signals: int
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr("fabtui.screen.terminal.internals.os.getpgrp", lambda: 8)
    monkeypatch.setattr("fabtui.screen.terminal.internals.os.getsid", lambda _: leader)
    monkeypatch.setattr("fabtui.screen.terminal.internals.os.killpg", lambda *what: sent.append(what))
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        monkeypatch.setattr(type(app._driver), "can_suspend", True)
        await press(pilot, "ctrl+z", seconds=0.1)
        assert len(sent) == signals
        assert any("cannot be suspended" in note.message for note in app._notifications) is not bool(signals)


KEYS_OF_THE_GRID = [
    *("enter", "plus", "minus", "right_square_bracket", "r", "f", "u", "slash"),
    *("s", "b", "O", "y", "x", "m", "p"),
]


async def test_no_key_of_the_grid_is_silent_over_the_node_states(opened: Opened) -> None:
    async with opened(FakeFeed(nodes_of_two())) as (app, pilot):
        await pilot.pause()
        assert app.main.view == "connecting"
        for key in KEYS_OF_THE_GRID:
            app.clear_notifications()
            await press(pilot, key)
            assert app.main.view == "connecting", key
            assert ["this key is for the grid" in note.message for note in app._notifications] == [True], key


async def test_the_opposite_direction_that_is_not_listed_is_reported(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await press(pilot, "v", "x")
        assert "not in this list" in list(app._notifications)[-1].message


async def test_a_notification_that_is_shown_is_not_shown_again_beside_itself() -> None:
    app = make_app(FakeFeed(sweep_of_two().events))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(app, pilot)
        for _ in range(3):
            app.notify("once")
            await pilot.pause(0.1)
        app.notify("once", severity="error")
        await pilot.pause(0.3)
        assert screen_text(app).count("once") == 2, "what is as severe is the same"
