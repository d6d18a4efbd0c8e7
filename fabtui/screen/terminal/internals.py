"""Private parts of Textual that the screen needs; tests/screen/test_textual_internals.py pins the versions."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from rich.color import ColorSystem
from textual.app import App
from textual.filter import ANSIToTruecolor, NoColor
from textual.screen import Screen
from textual.strip import Strip

from fabtui.screen.terminal.ascii_filter import AsciiFilter
from fabtui.screen.terminal.unfit_filter import UnfitFilter


def color_system(app: App[Any]) -> ColorSystem:
    """Return the number of colours of the terminal."""
    return app.console._color_system or ColorSystem.TRUECOLOR


def remove_all_color(app: App[Any]) -> None:
    """Draw without any colour; Textual's own filter leaves shades of grey."""
    app._filters = [NoColor()]


def remove_unfit(app: App[Any]) -> None:
    """Draw no control and no invisible characters."""
    app._filters = [*app._filters, UnfitFilter()]


def replace_all_unicode(app: App[Any]) -> None:
    """Draw in ASCII, what Textual draws itself included."""
    app._filters = [*app._filters, AsciiFilter()]


def keep_named_colors(app: App[Any]) -> None:
    """Draw the terminal's own sixteen colours as such; Textual's filter replaces them with RGB."""
    app._filters = [one for one in app._filters if not isinstance(one, ANSIToTruecolor)]


def reload_theme(app: App[Any], name: str) -> None:
    """Apply a theme in use again after it was registered again."""
    app._watch_theme(name)


def screen_lines(screen: Screen[Any]) -> list[Strip]:
    """Return the lines of a screen as they are drawn."""
    return screen._compositor.render_strips()


#: Exit status after a hangup.
HUNG_UP = 128 + signal.SIGHUP


class NullWriter:
    """Replacement for the writer thread of Textual's driver; discards all output and never blocks."""

    def write(self, text: str) -> None: ...
    def flush(self) -> None: ...
    def stop(self) -> None: ...
    def isatty(self) -> bool:
        return False


def discard_output(driver: Any) -> None:
    """Discard all further output of a Textual driver.

    Its writer thread queues a few texts and then blocks the app until the terminal takes them.
    """
    if getattr(driver, "_writer_thread", None) is not None:
        driver._writer_thread = NullWriter()


def write_codes(driver: Any, codes: str) -> bool:
    """Write to the terminal of a Textual driver; return False in a browser, and while another program has it."""
    writer = getattr(driver, "_writer_thread", None)
    if not isinstance(writer, threading.Thread) or not writer.is_alive():
        return False
    driver.write(codes)
    return True


def exit_within(seconds: float) -> None:
    """End this process after some seconds, even if it is blocked then."""
    timer = threading.Timer(seconds, os._exit, (HUNG_UP,))
    timer.daemon = True
    timer.start()
