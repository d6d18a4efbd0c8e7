"""The user's settings on the screen: keys, themes, and what is wrong there."""

from pathlib import Path

import pytest

from fabtui.screen.app import FabricApp
from fabtui.screen.keymap import check_keys, key_name, key_rows
from tests.screen.conftest import Opened, press, screen_text
from tests.screen.fakefeed import FakeFeed, sweep_of_two

THEME = "[colors]\nprimary = '{primary}'\nbackground = '{background}'\n[ramp.24]\ngood = '#ffffff on {good}'\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    themes = tmp_path / "fabtui" / "themes"
    themes.mkdir(parents=True)
    return themes


def cell_background(app: FabricApp) -> str:
    """The background of the first row's second cell, which is a good one."""
    app.main.draw()
    lines = app.screen._compositor.render_strips()
    styles = [s.style for line in lines for s in line._segments if s.style and s.style.bgcolor and s.text.strip()]
    return " ".join(str(style.bgcolor.name) for style in styles if style.bgcolor is not None)


async def test_a_broken_theme_among_the_others_is_reported(opened: Opened, folder: Path) -> None:
    (folder / "mine.toml").write_text(THEME.format(primary="#112233", background="#000000", good="#0000aa"))
    (folder / "odd.toml").write_text("[colors]\nprimary = 'no colour'\n")
    async with opened(FakeFeed(sweep_of_two().events), theme="mine") as (app, _):
        assert any("is not a colour" in note.message for note in app._notifications)
        assert "#0000aa" in cell_background(app)


async def test_a_theme_of_the_users_goes_before_one_of_its_name(opened: Opened, folder: Path) -> None:
    (folder / "dark.toml").write_text(THEME.format(primary="#112233", background="#000000", good="#0000aa"))
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
        await press(pilot, "R", "f5", "ctrl+r")
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
