"""Notifications of the terminal: its bell, or text that it hands to the desktop."""

from __future__ import annotations

import os
from typing import Any

from textual.app import App

from fabtui.sanitize import one_line
from fabtui.screen.terminal.internals import write_codes

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


def notify_terminal(app: App[Any], method: str, text: str) -> bool:
    """Let the terminal show a text; return False if the app does not have it now."""
    return write_codes(app._driver, sequence(method, text, tmux=bool(os.environ.get("TMUX"))))
