"""Choice of the theme, and reload when its file changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.theme import Theme

from fabtui.errors import InputError
from fabtui.paths import user_theme_folder
from fabtui.sanitize import one_line
from fabtui.screen.terminal.internals import reload_theme
from fabtui.screen.themes import ramps

if TYPE_CHECKING:
    from textual.app import App

    from fabtui.screen.context import ScreenSettings

#: Interval (s) at which the theme's file is checked.
INTERVAL = 0.75
#: The same where the user has no folder of themes: every check wakes an idle machine.
INTERVAL_WITHOUT_FOLDER = 5.0


class ThemeWatcher:
    """Registers themes with an app, and reloads those whose files change."""

    def __init__(self, app: App[Any], settings: ScreenSettings, color_count: str) -> None:
        self._app = app
        self._settings = settings
        self._default = ramps.FEW_COLORS if color_count in ("16", "none") else ramps.DEFAULT
        self._broken: dict[str, ramps.Stamp | None] = {}

    def choose(self) -> str | None:
        """Use the theme of the settings, else the default and return the error; on the command line, raise it."""
        try:
            self.use(self._settings.theme)
        except InputError as error:
            if self._settings.theme_must_be:
                raise
            self.use(None)
            return str(error)
        return None

    def use(self, name: str | None) -> None:
        """Use a theme, None: the default; raise `InputError` if there is none of that name."""
        name = name or self._default
        if name in ramps.theme_names():
            self._app.register_theme(textual_theme(ramps.read_theme(name)))
        elif name not in self._app.available_themes:
            ramps.read_theme(name)
        self._app.theme = name

    def register_all(self) -> None:
        for name in ramps.theme_names():
            if name in self._broken or name not in self._app.available_themes:
                self._register(name)

    def _register(self, name: str) -> None:
        path = ramps.theme_paths().get(name)
        try:
            theme = textual_theme(ramps.read_theme(name))
        except InputError as error:
            stamp = ramps.stamp_of(path) if path is not None else None
            if self._broken.get(name, ()) != stamp:
                self._broken[name] = stamp
                kept = "; the previous version stays in use" if name in self._app.available_themes else ""
                self._app.notify(f"{one_line(str(error), 300)}{kept}", severity="warning")
            return
        self._broken.pop(name, None)
        self._app.register_theme(theme)

    async def follow(self) -> None:
        """Reload the theme's file when it changes, and register new files; runs until cancelled."""
        folder = user_theme_folder()
        name, path = self._app.theme, ramps.theme_paths().get(self._app.theme)
        seen = await asyncio.to_thread(_stamps, path, folder)
        while True:
            await asyncio.sleep(INTERVAL if seen[1] is not None else INTERVAL_WITHOUT_FOLDER)
            # In a thread: the folder may be on a file server that has just gone away.
            found = await asyncio.to_thread(_stamps, path, folder)
            same = self._app.theme == name
            if found == seen and same:
                continue
            edited = same and found[0] != seen[0] and found[0] is not None
            if edited:
                self._register(name)
                if name not in self._broken:
                    reload_theme(self._app, name)
            self.register_all()
            name, path = self._app.theme, ramps.theme_paths().get(self._app.theme)
            seen = found if edited else await asyncio.to_thread(_stamps, path, folder)


def textual_theme(theme: ramps.ThemeFile) -> Theme:
    """Return a theme file as a theme of Textual."""
    colors: dict[str, Any] = dict(theme.colors)
    return Theme(name=theme.name, dark=theme.dark, ansi=theme.ansi, variables=theme.variables, **colors)


def _stamps(path: Path | None, folder: Path) -> tuple[ramps.Stamp | None, ramps.Stamp | None]:
    """Return the stamps of a theme file and of the user's theme folder."""
    return (ramps.stamp_of(path) if path is not None else None), ramps.stamp_of(folder)
