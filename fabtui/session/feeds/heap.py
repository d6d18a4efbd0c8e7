"""How the C library hands out memory to the threads of this process."""

from __future__ import annotations

#: Of glibc's malloc.h.
_M_ARENA_MAX = -8


def share_heap() -> bool:
    """Have all threads take memory from one heap, from now on; say whether the C library knows how.

    glibc gives threads heaps of their own, in which what one batch of a recording has left stays free for the next one
    of that thread alone. Threads of Python hold one lock anyway, so a heap for each gains nothing.
    """
    import ctypes

    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1))
    except (OSError, AttributeError):
        return False
