"""Bringing asyncssh in, which is the most of what has to be loaded before the first connection."""

from __future__ import annotations

import ctypes.util
import gc
import sys


def load_logins() -> None:
    """Import all that logins by asyncssh are made of. For a thread: the event loop goes on meanwhile."""
    load_asyncssh()
    import fabtui.transport.asyncssh.jump_hosts  # noqa: F401


def load_asyncssh() -> None:
    """Import asyncssh, without the processes that it starts for that and without looking for garbage meanwhile.

    It looks for two libraries that it can do without, and where ``ldconfig`` does not know one, Python's way to look
    for a library is to run the compiler and the linker: seven processes, before the first connection.
    """
    if "asyncssh" in sys.modules:
        return
    find = ctypes.util.find_library
    known = getattr(ctypes.util, "_findSoname_ldconfig", find)
    collecting = gc.isenabled()
    gc.disable()
    ctypes.util.find_library = known
    try:
        import asyncssh  # noqa: F401
    finally:
        ctypes.util.find_library = find
        # What was imported stays: nothing of it is garbage, now or later.
        gc.freeze()
        if collecting:
            gc.enable()
