"""Suspension of the process, as a shell with job control knows it."""

from __future__ import annotations

import os
import signal

from textual.driver import Driver


def suspend_group(driver: Driver | None) -> bool:
    """Suspend the process group until the shell continues it; return False if nothing would ever continue it.

    The driver restores the terminal on SIGTSTP, and draws again on SIGCONT.
    """
    # The group of a session leader has no shell above it, as with `ssh -t host fabtui`.
    if driver is None or not driver.can_suspend or os.getpgrp() == os.getsid(0):
        return False
    os.killpg(os.getpgrp(), signal.SIGTSTP)
    return True
