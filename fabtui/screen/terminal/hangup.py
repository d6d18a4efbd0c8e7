"""End of the app when its terminal is gone: no output, and a deadline for the process."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

#: Exit status after a hangup.
HUNG_UP = 128 + signal.SIGHUP


class NullWriter:
    """Replacement for the writer thread of Textual's driver; discards all output and never blocks."""

    def write(self, text: str) -> None:
        """Discard text."""

    def flush(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def isatty(self) -> bool:
        """Return False."""
        return False


def discard_output(driver: Any) -> None:
    """Discard all further output of a Textual driver.

    Its writer thread queues a few texts and then blocks the app until the terminal takes them.
    """
    if getattr(driver, "_writer_thread", None) is not None:
        driver._writer_thread = NullWriter()


def exit_within(seconds: float) -> None:
    """End this process after some seconds, even if it is blocked then."""
    timer = threading.Timer(seconds, os._exit, (HUNG_UP,))
    timer.daemon = True
    timer.start()
