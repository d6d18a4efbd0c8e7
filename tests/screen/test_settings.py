"""The user's settings on the screen: keys, themes that are edited while they are looked at, and what is wrong there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from fabtui.screen.app import FabricApp
from fabtui.screen.keymap import check_keys, key_name, key_rows
from tests.screen.conftest import Opened, screen_text
from tests.screen.fakefeed import FakeFeed, sweep_of_two

THEME = "[colors]\nprimary = '{primary}'\nbackground = '{background}'\n[ramp.24]\ngood = '#ffffff on {good}'\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's own themes."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    themes = tmp_path / "fabtui" / "themes"
    themes.mkdir(parents=True)
    return themes


def write(path: Path, text: str) -> None:
    """Write a file the way editors do: a new one in the place of the old one."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    os.replace(beside, path)


async def until(pilot: Pilot[Any], what: Any, seconds: float = 10.0) -> None:
    for _ in range(int(seconds / 0.05)):
        await pilot.pause(0.05)
        if what():
            return
    raise AssertionError("it did not come to that")


def cell_background(app: FabricApp) -> str:
    """The background of the first row's second cell, which is a good one."""
    app.main.draw()
    lines = app.screen._compositor.render_strips()
    styles = [s.style for line in lines for s in line._segments if s.style and s.style.bgcolor and s.text.strip()]
    return " ".join(str(style.bgcolor.name) for style in styles if style.bgcolor is not None)


async def test_an_edited_theme_changes_the_screen(opened: Opened, folder: Path) -> None:
    path = folder / "mine.toml"
    write(path, THEME.format(primary="#112233", background="#000000", good="#0000aa"))
    async with opened(FakeFeed(sweep_of_two().events), theme="mine") as (app, pilot):
        assert "#0000aa" in cell_background(app)
        write(path, THEME.format(primary="#445566", background="#010203", good="#00aaaa"))
        await until(pilot, lambda: app.theme_variables["primary"].lower() == "#445566")
        await until(pilot, lambda: "#00aaaa" in cell_background(app))
        assert "#0000aa" not in cell_background(app)


async def test_a_broken_theme_keeps_the_old_one_and_reports_why(opened: Opened, folder: Path) -> None:
    path = folder / "mine.toml"
    write(path, THEME.format(primary="#112233", background="#000000", good="#0000aa"))
    async with opened(FakeFeed(sweep_of_two().events), theme="mine") as (app, pilot):
        write(path, "[colors]\nprimary = 'no colour'\n")
        await until(pilot, lambda: any("is not a colour" in note.message for note in app._notifications))
        assert any("the previous version stays in use" in note.message for note in app._notifications)
        assert "#0000aa" in cell_background(app)
        write(path, THEME.format(primary="#112233", background="#000000", good="#00bb00"))
        await until(pilot, lambda: "#00bb00" in cell_background(app))


async def test_a_new_theme_can_be_chosen_without_a_restart(opened: Opened, folder: Path) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        assert "later" not in app.available_themes
        write(folder / "later.toml", THEME.format(primary="#112233", background="#000000", good="#0000aa"))
        await until(pilot, lambda: "later" in app.available_themes)
        app.theme = "later"
        await until(pilot, lambda: "#0000aa" in cell_background(app))


async def test_a_theme_of_the_users_goes_before_one_of_its_name(opened: Opened, folder: Path) -> None:
    write(folder / "dark.toml", THEME.format(primary="#112233", background="#000000", good="#0000aa"))
    async with opened(FakeFeed(sweep_of_two().events)) as (app, _):
        assert "#0000aa" in cell_background(app)


async def test_a_missing_theme_is_reported_and_the_default_drawn(opened: Opened) -> None:
    settings = {"theme": "gone", "theme_must_be": False}
    async with opened(FakeFeed(sweep_of_two().events), **settings) as (app, _):
        assert app.theme == "dark"
        assert "1 PROBLEM IN SETTINGS: fabtui config validate" in screen_text(app)
        assert any("there is no theme 'gone'" in note.message for note in app._notifications)


async def test_keys_of_the_settings_work_and_wrong_ones_are_reported(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    keys = {"main.sweep": "f5,ctrl+r", "main.retset": "f6", "main.pause": "nokey"}
    problems = ("config.toml:3: unknown setting screen.thme",)
    async with opened(feed, keys=keys, problems=problems) as (app, pilot):
        shown = " ".join(note.message for note in app._notifications)
        await pilot.press("R", "f5", "ctrl+r")
        await pilot.pause()
        assert feed.swept == 2
        await pilot.press("space")
        assert feed.model.paused
        text = screen_text(app)
        assert "3 PROBLEMS IN SETTINGS: fabtui config validate" in text
        assert "did you mean main.retest?" in shown
        assert "there is no key 'nokey'" in shown
        assert "unknown setting screen.thme" in shown
        assert "f5 sweep" in text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("f5", "f5"),
        ("R", "R"),
        ("]", "right_square_bracket"),
        ("ctrl+r", "ctrl+r"),
        (" space ", "space"),
        ("+", "plus"),
        ("ctrl++", "ctrl+plus"),
        ("shift+left", "shift+left"),
        ("/", "slash"),
        ("ctrl+m", "enter"),
        ("page_down", None),
        ("pagedown", "pagedown"),
        ("", None),
        ("control+r", None),
        ("f55", None),
        ("\x1b", None),
    ],
)
def test_names_of_keys(text: str, name: str | None) -> None:
    assert key_name(text) == name


def test_the_default_keys_have_names_and_do_not_clash() -> None:
    rows = key_rows(FabricApp)
    for name, keys, words in ((row.id, row.keys, row.description) for row in rows):
        assert all(key_name(key) == key for key in keys.split(",")), name
        assert words, name
    assert check_keys({row.id: row.keys for row in rows}, FabricApp)[1] == []


def test_two_bindings_with_one_key_are_reported() -> None:
    usable, problems = check_keys({"main.sweep": "enter"}, FabricApp)
    assert usable == {"main.sweep": "enter"}
    assert [name for name, _ in problems] == ["main.sweep"]
    assert problems[0][1].startswith("enter is also the key of main.pair (show the pair")
    assert [name for name, _ in check_keys({"pair.copy": "f5", "detail.down": "f5"}, FabricApp)[1]] == ["pair.copy"]
    assert check_keys({"main.sweep": "f9", "main.pair": "R"}, FabricApp)[1] == []


def test_former_names_of_keys_are_still_those_of_the_settings() -> None:
    assert check_keys({"preflight.copy": "f9"}, FabricApp) == ({"nodes.copy": "f9"}, [])
    assert check_keys({"preflight.copy": "f9", "nodes.copy": "f8"}, FabricApp) == ({"nodes.copy": "f8"}, [])
    assert check_keys({"preflight.copy": "nokey"}, FabricApp)[1][0][0] == "preflight.copy"
