"""Base of the apps on a terminal: settings, colours, theme and filters."""

from __future__ import annotations

from typing import TypeVar

from textual.app import App
from textual.binding import Binding
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver

from fabtui.presentation.cell_levels import Glyphs
from fabtui.screen.context import ScreenSettings
from fabtui.screen.keys import KEY_NAMES
from fabtui.screen.terminal.internals import TerminalDriver, choose_filters
from fabtui.screen.themes import RAMP_OF_SYSTEM, ThemeChoice, cell_variables, ramp_of

ReturnType = TypeVar("ReturnType")


class TerminalApp(App[ReturnType]):
    """An app that draws as the settings of the screen ask for."""

    def __init__(self, settings: ScreenSettings) -> None:
        # Read for the variables of the theme.
        self.settings = settings
        super().__init__()
        self.glyphs = Glyphs(settings.ascii)
        self.themes = ThemeChoice(self, settings, self.color_count)
        self.theme_problem = self.themes.choose()  #: Error of the theme of the settings, or None.
        choose_filters(self, self.color_count, ascii_only=settings.ascii)

    @property
    def color_count(self) -> str:
        """Number of colours to draw with: ``24`` (bits), ``256``, ``16`` or ``none``."""
        if self.settings.colors != "auto":
            return self.settings.colors
        if self.no_color:
            return "none"
        return RAMP_OF_SYSTEM.get(self.console.color_system or "truecolor", "24")

    def get_driver_class(self) -> type[Driver]:
        found = super().get_driver_class()
        return TerminalDriver if found is LinuxDriver else found

    def get_css_variables(self) -> dict[str, str]:
        """Add the styles of the grid to the variables of the theme, once there is a style sheet that needs them."""
        if not hasattr(self, "stylesheet"):
            return {}
        found, theme = super().get_css_variables(), self.current_theme
        ramp, full = (ramp_of(theme.name, theme.dark, count) for count in (self.color_count, "24"))
        cells = cell_variables(ramp, full, found)
        # Problems have the colours of the verdicts, unless the theme has its own.
        own = {"error": theme.error, "warning": theme.warning}
        # A theme of the user's may lack some.
        tones = {"error": cells.get("tone-failed", "auto"), "warning": cells.get("tone-slow", "auto")}
        # Borders and tints take no "auto", the tone without colours.
        chosen = {name: tone for name, tone in tones.items() if own[name] is None and tone != "auto"}
        self.theme_variables = {**found, **cells, **chosen}
        return self.theme_variables

    def get_key_display(self, binding: Binding) -> str:
        """Return the name of a key: a word where Textual would show an arrow."""
        return KEY_NAMES.get(binding.key) or super().get_key_display(binding)
