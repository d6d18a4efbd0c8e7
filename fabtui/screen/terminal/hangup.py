"""What is left to do when the terminal is gone: nothing can be drawn any more, and nothing may wait for it."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

#: The exit status of a program that a hangup ended.
HUNG_UP = 128 + signal.SIGHUP


class Nowhere:
    """Stands in for the driver's writer: takes everything, writes nothing, never blocks."""

    def write(self, text: str) -> None:
        """Forget a text."""

    def flush(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def isatty(self) -> bool:
        """Say that this is no terminal."""
        return False


def write_no_more(driver: Any) -> None:
    """Have a driver of Textual write nowhere from now on.

    Its writer queues a few texts and then makes the whole app wait for a terminal that is gone.
    """
    if getattr(driver, "_writer_thread", None) is not None:
        driver._writer_thread = Nowhere()


def leave_within(seconds: float) -> None:
    """End this process after so many seconds, whatever it waits for by then."""
    timer = threading.Timer(seconds, os._exit, (HUNG_UP,))
    timer.daemon = True
    timer.start()
