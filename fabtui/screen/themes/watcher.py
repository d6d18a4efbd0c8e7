"""The themes of an app: choosing one, and following its file while it is edited."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from fabtui.errors import InputError
from fabtui.paths import user_theme_folder
from fabtui.sanitize import one_line
from fabtui.screen.themes.ramps import DEFAULT, FEW_COLORS, read_theme, stamp_of, theme_names, theme_paths

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp

#: Seconds between two looks at the theme's file: a change is there within a second, and an idle screen costs nothing.
_EVERY = 0.75
#: The same where the user has no folder of themes: each look wakes the machine, and theirs are what users edit.
_SELDOM = 5.0

Stamp = tuple[int, int, int] | None


class ThemeKeeper:
    """Registers themes with an app, and brings changes of their files to the screen.

    Args:
        app: The app.
    """

    def __init__(self, app: FabricApp) -> None:
        self._app = app
        self._broken: dict[str, Stamp] = {}

    def choose(self) -> str | None:
        """Choose the theme of the settings; returns what is wrong with it, and then it is the default one.

        Raises:
            InputError: It cannot be used, and the user asked for it now, rather than in the settings file.
        """
        settings = self._app.settings
        default = FEW_COLORS if self._app.color_count in ("16", "none") else DEFAULT
        problem = None
        try:
            self._use(settings.theme or default)
        except InputError as error:
            if settings.theme_must_be:
                raise
            problem = str(error)
            self._use(default)
        return problem

    def _use(self, name: str) -> None:
        if name in theme_names():
            self._app.register_theme(read_theme(name).to_textual())
        elif name not in self._app.available_themes:
            read_theme(name)
        self._app.theme = name

    def register_all(self) -> None:
        """Register every theme whose file can be used, so that it can be chosen."""
        for name in theme_names():
            if name in self._broken or name not in self._app.available_themes:
                self._register(name)

    def _register(self, name: str) -> None:
        path = theme_paths().get(name)
        try:
            theme = read_theme(name).to_textual()
        except InputError as error:
            stamp = stamp_of(path) if path is not None else None
            if self._broken.get(name, ()) != stamp:
                self._broken[name] = stamp
                kept = "; what was before stays" if name in self._app.available_themes else ""
                self._app.tell(f"{one_line(str(error), 300)}{kept}", bad=True)
            return
        self._broken.pop(name, None)
        self._app.register_theme(theme)

    async def follow(self) -> None:
        """Bring changes of the theme's file, and new files of the user's, to the screen; runs until cancelled."""
        folder = user_theme_folder()
        name, path = self._app.theme, theme_paths().get(self._app.theme)
        seen = await asyncio.to_thread(_look, path, folder)
        while True:
            await asyncio.sleep(_EVERY if seen[1] is not None else _SELDOM)
            # In a thread: the folder may lie on a file server that has just gone away.
            found = await asyncio.to_thread(_look, path, folder)
            same = self._app.theme == name
            if found == seen and same:
                continue
            edited = same and found[0] != seen[0] and found[0] is not None
            if edited:
                self._read_again(name)
            self.register_all()
            name, path = self._app.theme, theme_paths().get(self._app.theme)
            seen = found if edited else await asyncio.to_thread(_look, path, folder)

    def _read_again(self, name: str) -> None:
        self._register(name)
        if name not in self._broken:
            self._app._watch_theme(name)


def _look(path: Path | None, folder: Path) -> tuple[Stamp, Stamp]:
    """Return what changes when a theme's file does, and when a file comes to the user's folder or goes."""
    return (stamp_of(path) if path is not None else None), stamp_of(folder)
