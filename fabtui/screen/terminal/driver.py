"""The terminal driver of the app: Textual's, which writes frames in fewer bytes once the first is on the screen."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from textual.drivers.linux_driver import LinuxDriver


class CompactDriver(LinuxDriver):
    """Writes to the terminal; in fewer bytes once it has something to make them fewer with."""

    compact: Callable[[str, int], str] | None = None

    def write(self, data: str) -> None:
        """Write text, styles and places to the terminal."""
        if self.compact is not None:
            data = self.compact(data, self._app.size.width)
        super().write(data)


def write_compactly(driver: object) -> None:
    """Have the app's driver make frames compact from now on; what that takes need not be loaded before the first."""
    from fabtui.screen.terminal.frame_compression import compact

    if isinstance(driver, CompactDriver):
        driver.compact = partial(compact, erases=erases_to_background())


def erases_to_background() -> bool:
    """Return whether the terminal erases to the background that it draws with, as all but GNU screen's like do."""
    if os.environ.get("TERM_PROGRAM") == "tmux" or os.environ.get("TERM", "").startswith("tmux"):
        # It does, though its descriptions, which are made for what may run outside it, do not say so.
        return True
    try:
        import curses

        curses.setupterm(fd=0)
    except Exception:
        # A Python without curses, a terminal that is not described.
        return False
    return bool(curses.tigetflag("bce"))
