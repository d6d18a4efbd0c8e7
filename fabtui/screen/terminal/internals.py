"""Private parts of Textual that the screen needs; tests/screen/test_textual_internals.py pins the versions.

`ansi_strips` and `hangup` rely on private attributes as well.
"""

from __future__ import annotations

from typing import Any

from rich.color import ColorSystem
from textual.app import App
from textual.filter import NoColor
from textual.screen import Screen
from textual.strip import Strip


def color_system(app: App[Any]) -> ColorSystem:
    """Return the number of colours of the terminal."""
    return app.console._color_system or ColorSystem.TRUECOLOR


def remove_all_color(app: App[Any]) -> None:
    """Draw without any colour; Textual's own filter leaves shades of grey."""
    app._filters = [NoColor()]


def reload_theme(app: App[Any], name: str) -> None:
    """Apply a theme in use again after it was registered again."""
    app._watch_theme(name)


def screen_lines(screen: Screen[Any]) -> list[Strip]:
    """Return the lines of a screen as they are drawn."""
    return screen._compositor.render_strips()
