"""Import asyncssh, the largest part of the time before the first connection."""

from __future__ import annotations

import ctypes.util
import gc
import sys


def load_logins() -> None:
    """Import the modules for logins by asyncssh. Runs in a thread."""
    load_asyncssh()
    import fabtui.transport.asyncssh.jump_hosts  # noqa: F401


def load_asyncssh() -> None:
    """Import asyncssh without starting processes and without garbage collection.

    asyncssh searches for two optional libraries. If ``ldconfig`` does not know one, ctypes runs the compiler and the
    linker: seven processes.
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
        # Imported modules are never garbage.
        gc.freeze()
        if collecting:
            gc.enable()
