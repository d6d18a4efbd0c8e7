"""Choice of the theme."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.theme import Theme

from fabtui.errors import InputError
from fabtui.sanitize import one_line
from fabtui.screen.themes import ramps

if TYPE_CHECKING:
    from textual.app import App

    from fabtui.screen.context import ScreenSettings


class ThemeChoice:
    """Registers themes with an app, and uses one of them."""

    def __init__(self, app: App[Any], settings: ScreenSettings, color_count: str) -> None:
        self._app = app
        self._settings = settings
        self._default = ramps.FEW_COLORS if color_count in ("16", "none") else ramps.DEFAULT

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
        """Register all theme files, so that they can be chosen; the user learns which cannot be used."""
        for name in ramps.theme_names():
            if name not in self._app.available_themes:
                try:
                    self._app.register_theme(textual_theme(ramps.read_theme(name)))
                except InputError as error:
                    self._app.notify(one_line(str(error), 300), severity="warning")


def textual_theme(theme: ramps.ThemeFile) -> Theme:
    colors: dict[str, Any] = dict(theme.colors)
    return Theme(name=theme.name, dark=theme.dark, ansi=theme.ansi, variables=theme.variables, **colors)
