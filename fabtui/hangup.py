"""Watch of a terminal that is lost without a signal.

The kernel sends SIGHUP to the leader of the session only. Some leaders keep it: make, a shell with a trap, `srun
--pty`, `docker exec -it`, `script`. Their children are left with a terminal that reads as ended, and never learn of it.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

#: Interval (s) at which the terminal is looked at where the kernel wakes nobody.
_PERIOD = 1.0


def watch_terminal(descriptor: int, gone: Callable[[], None]) -> Callable[[], None]:
    """Call a function, in another thread, when a terminal is lost; return a function that ends the watch.

    What is not a terminal is not watched: a pipe may end while the session continues.
    """
    ended = threading.Event()
    if not os.isatty(descriptor):
        return ended.set

    def watch() -> None:
        poll = select.poll()
        # No input is waited for: that a terminal hangs up is reported all the same.
        poll.register(descriptor, 0)
        while not ended.is_set():
            if found := poll.poll(_PERIOD * 1000):
                # A descriptor that was closed is not a terminal that was lost.
                if not ended.is_set() and not found[0][1] & select.POLLNVAL:
                    gone()
                return

    threading.Thread(target=watch, name="hangup", daemon=True).start()
    return ended.set
