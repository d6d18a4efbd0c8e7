"""The terminal below Textual: private parts of Textual, filters, suspension, notifications.

tests/screen/test_textual_internals.py pins the versions of Textual.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import queue
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rich.cells import cell_len
from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.driver import Driver
from textual.drivers import linux_driver
from textual.drivers._writer_thread import WriterThread
from textual.filter import ANSIToTruecolor, LineFilter, NoColor
from textual.notifications import Notification
from textual.screen import Screen
from textual.strip import Strip

from fabtui.hangup import watch_terminal
from fabtui.sanitize import drawable, one_line


class ControlFilter(LineFilter):
    """Removes control and invisible characters; the last place before the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(one.text.isprintable() or one.control for one in segments):
            return segments
        return [one if one.control else one._replace(text=drawable(one.text)) for one in segments]


_HORIZONTAL = "─━═▔▁╌╍┄┅┈┉"
_VERTICAL = "│┃║▏▎▍▌▐▕"
_OTHER = {"…": ".", "•": "*", "·": ".", "●": "*", "○": "o", "▶": ">", "▼": "v", "▸": ">", "▾": "v", "✓": "+"}
#: Blocks of bars and shades; their background remains.
_BLOCKS = "▂▃▄▅▆▇█▀░▒▓"
_NAMED: Mapping[str, str] = {
    **dict.fromkeys(_HORIZONTAL, "-"),
    **dict.fromkeys(_VERTICAL, "|"),
    **dict.fromkeys(_BLOCKS, " "),
    **_OTHER,
}
_CORNERS = range(0x250C, 0x2580)


def as_ascii(text: str) -> str:
    return text if text.isascii() else "".join(map(_replaced, text))


def _replaced(character: str) -> str:
    if character.isascii():
        return character
    width = cell_len(character)
    found = _NAMED.get(character) or ("+" if ord(character) in _CORNERS else "?")
    return found.ljust(width)[:width]


class AsciiFilter(LineFilter):
    """Replaces all characters beyond ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [one if one.text.isascii() else one._replace(text=as_ascii(one.text)) for one in segments]


def choose_filters(app: App[Any], color_count: str, *, ascii_only: bool) -> None:
    """Draw with a number of colours (``24``, ``256``, ``16`` or ``none``), and no control or invisible characters."""
    found = app._filters
    if color_count == "none":
        # Textual's own filter leaves shades of grey.
        found = [NoColor()]
    elif color_count == "16":
        # Textual would replace the terminal's own sixteen colours with RGB.
        found = [one for one in found if not isinstance(one, ANSIToTruecolor)]
    app._filters = [*found, ControlFilter(), *([AsciiFilter()] if ascii_only else [])]


def screen_lines(screen: Screen[Any]) -> list[Strip]:
    return screen._compositor.render_strips()


def has_effect(app: App[Any], key: str) -> bool:
    """Return True if a key is among the active bindings, which take longer to list."""
    return any(
        app._check_action_state(binding.action, place) is not False
        for place, bindings in app.screen._modal_binding_chain
        for binding in bindings.key_to_bindings.get(key, ())
    )


def _lenient(encoding: str) -> Callable[[], codecs.IncrementalDecoder]:
    return partial(codecs.getincrementaldecoder(encoding), "replace")


# Bytes that are not UTF-8 may be pasted; Textual's decoder would end the app.
linux_driver.getincrementaldecoder = _lenient  # type: ignore[attr-defined, assignment]


class TerminalDriver(linux_driver.LinuxDriver):
    """Textual's driver of a terminal, but its end raises nothing: it ends the session (`watch_hangup`)."""

    def run_input_thread(self) -> None:
        with contextlib.suppress(OSError):
            super().run_input_thread()


class LastingNotification(Notification):
    """A notification that has time left even where it expires while it is being drawn.

    Textual starts a timer for that time; one with a negative time never ends, and blocks the app.
    """

    @property
    def time_left(self) -> float:
        return max(0.05, super().time_left)

    @property
    def has_expired(self) -> bool:
        return self.raised_at + self.timeout <= time.time()


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
    """Discard all further output of a driver, whose writer would block the app until the terminal takes it."""
    if (writer := getattr(driver, "_writer_thread", None)) is not None:
        driver._writer_thread = NullWriter()
        # A write may wait for room, and the thread that would make some may have ended with the terminal.
        with contextlib.suppress(AttributeError, queue.Empty):
            while True:
                writer._queue.get_nowait()


def watch_hangup(driver: Any, loop: asyncio.AbstractEventLoop, hung_up: Callable[[], None]) -> None:
    """Call a function in a loop when the terminal of a Textual driver is lost without a signal."""
    descriptor = getattr(driver, "fileno", None)
    if not isinstance(descriptor, int):
        # A browser, or a test.
        return

    def gone() -> None:
        # At once: the loop may be blocked by a write, or be before one.
        discard_output(driver)
        # The input thread would read the end of the input again and again.
        driver.exit_event.set()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(hung_up)

    watch_terminal(descriptor, gone)


def write_codes(driver: Any, codes: str) -> bool:
    """Write to the terminal of a Textual driver; return False in a browser, and while another program has it."""
    writer = getattr(driver, "_writer_thread", None)
    if not isinstance(writer, threading.Thread) or not writer.is_alive():
        return False
    driver.write(codes)
    return True


def is_behind(driver: Any) -> bool:
    """Return True if the terminal has not taken what was drawn before, as over a slow link."""
    writer: Any = getattr(driver, "_writer_thread", None)
    if not isinstance(writer, WriterThread):
        return False
    try:
        return writer._queue.qsize() > 0 or not select.select((), (writer.fileno(),), (), 0)[1]
    except (OSError, ValueError):
        # No file, as in tests, or a number beyond what select takes.
        return False


def exit_within(seconds: float) -> None:
    timer = threading.Timer(seconds, os._exit, (HUNG_UP,))
    timer.daemon = True
    timer.start()


def suspend_group(driver: Driver | None) -> bool:
    """Suspend the process group until the shell continues it; return False if nothing would ever continue it."""
    # The group of a session leader has no shell above it, as with `ssh -t host fabtui`.
    if driver is None or not driver.can_suspend or os.getpgrp() == os.getsid(0):
        return False
    os.killpg(os.getpgrp(), signal.SIGTSTP)
    return True


#: Maximum number of characters of a notification.
_LONGEST = 200


def sequence(method: str, text: str, *, tmux: bool) -> str:
    """Return what makes a terminal show a text: ``bell``, ``osc9`` (iTerm2 and others) or ``osc777`` (rxvt and others).

    ``tmux``: the terminal is that around tmux, which passes it on if its option ``allow-passthrough`` is on.
    """
    if method == "bell":
        return "\a"
    # A semicolon would end the field, and begin a command such as a progress bar (OSC 9;4).
    text = one_line(text, _LONGEST).replace(";", ",")
    found = f"\x1b]9;fabtui: {text}\a" if method == "osc9" else f"\x1b]777;notify;fabtui;{text}\a"
    return f"\x1bPtmux;{found.replace(chr(27), chr(27) * 2)}\x1b\\" if tmux else found


#: Puts the title of the terminal on a stack, and takes it from there again; tmux does so for its pane.
SAVE_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"


def title_sequence(text: str) -> str:
    """Return what gives the terminal, or the pane of tmux, a title."""
    return f"\x1b]2;{one_line(text, _LONGEST)}\a"


def notify_terminal(app: App[Any], method: str, text: str) -> bool:
    """Let the terminal show a text; return False if the app does not have it now."""
    return write_codes(app._driver, sequence(method, text, tmux=bool(os.environ.get("TMUX"))))
