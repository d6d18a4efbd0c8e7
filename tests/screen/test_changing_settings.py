"""Settings that are changed on the screen: the view of all settings, `:theme`, and the file that they are saved in."""

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from fabtui.screen.app import FabricApp
from fabtui.screen.views.settings import SettingsScreen
from tests.screen.conftest import Opened, press, screen_text
from tests.screen.fakefeed import FakeFeed, sweep_of_two


async def change(pilot: Pilot[Any], name: str, text: str) -> None:
    app = pilot.app
    if not isinstance(app.screen, SettingsScreen):
        await press(pilot, "f2")
    assert isinstance(app.screen, SettingsScreen)
    await pilot.press("home")
    while app.screen.table.selected is not None and app.screen.table.selected.name != name:
        await pilot.press("down")
    await press(pilot, "enter")
    await press(pilot, "ctrl+u", *("space" if one == " " else one for one in text), "enter")


async def saved(app: FabricApp, pilot: Pilot[Any]) -> None:
    await pilot.press("w")
    await app.workers.wait_for_complete([one for one in app.workers if one.name == "settings"])
    await pilot.pause()


def messages(app: FabricApp) -> str:
    return "\n".join(note.message for note in app._notifications)


async def test_a_setting_changes_at_once_and_the_file_when_asked(opened: Opened, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('# mine\n[screen]\ntheme = "dark"  # as at home\n')
    async with opened(FakeFeed(sweep_of_two().events), config=path) as (app, pilot):
        await change(pilot, "screen.theme", "light")
        assert app.theme == "light"
        assert "screen.theme = light; w in the settings (F2) keeps it" in messages(app)
        assert '"dark"' in path.read_text()
        await saved(app, pilot)
        assert path.read_text() == '# mine\n[screen]\ntheme = "light"  # as at home\n'
        assert app.unsaved_settings == {}
        await press(pilot, "escape", "colon", *"theme", "space", *"default", "enter")
        assert app.theme == "dark"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("screen.theme", "ligt", "there is no theme 'ligt'; themes: ansi, dark,"),
        ("session.timeout", "soon", "session.timeout: 'soon' is not a time"),
        ("screen.notify", "", "screen.notify: the string is empty"),
    ],
)
async def test_a_wrong_value_is_one_clear_line(opened: Opened, name: str, text: str, problem: str) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(120, 40)) as (app, pilot):
        await change(pilot, name, text)
        assert problem in screen_text(app)
        assert app.setting_texts == {}


async def test_a_theme_that_does_not_exist_is_one_clear_line(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(120, 40)) as (app, pilot):
        await press(pilot, "colon", *"theme", "space", *"ligt", "enter")
        assert "there is no theme 'ligt'; did you mean light?" in screen_text(app)
        assert app.setting_texts == {}


async def test_the_view_shows_values_and_sources_and_changes_them(opened: Opened, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    async with opened(FakeFeed(sweep_of_two().events), size=(120, 40), config=path) as (app, pilot):
        await press(pilot, "f2")
        assert isinstance(app.screen, SettingsScreen)
        assert "screen.theme" in screen_text(app)
        await press(pilot, "end", "enter")
        await press(pilot, *"/scratch/me", "enter")
        assert isinstance(app.screen, SettingsScreen)
        assert "recording.folder = /scratch/me; from the next start, if w writes it" in messages(app)
        shown = screen_text(app)
        assert "changed here" in shown
        assert "1 changed: w saves" in shown
        await pilot.press("w")
        await app.workers.wait_for_complete([one for one in app.workers if one.name == "settings"])
        await pilot.pause()
        assert "\n[recording]\n" in path.read_text()
        assert '\nfolder = "/scratch/me"\n' in path.read_text()
        app.screen.draw()
        await pilot.pause()
        assert "changed here, saved" in screen_text(app)
        await pilot.press("d", "w")
        await app.workers.wait_for_complete([one for one in app.workers if one.name == "settings"])
        assert '\n#folder = "/scratch/me"\n' in path.read_text()
        await press(pilot, "f2")
        assert len(app.screen_stack) == 1


async def test_a_file_that_cannot_be_changed_is_named(opened: Opened, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[screen\n")
    async with opened(FakeFeed(sweep_of_two().events), config=path) as (app, pilot):
        await press(pilot, "f2", "w")
        assert "nothing to save" in messages(app)
        await change(pilot, "session.timeout", "20")
        await saved(app, pilot)
        assert "is not TOML, so it cannot be changed" in messages(app)
        assert path.read_text() == "[screen\n"
        assert app.unsaved_settings == {"session.timeout": "20"}
