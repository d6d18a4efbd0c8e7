"""Asking NVIDIA's management library: one thing that fails is None, and a driver that hangs costs a deadline only."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional, Tuple


class Unavailable(Exception):
    """NVML cannot be used on this node; the text is the reason."""


def open_library() -> Any:
    """Return ``pynvml``, initialised; each call wants one ``nvmlShutdown``.

    Raises:
        Unavailable: There is no pynvml, no NVIDIA driver, or the driver refuses.
    """
    try:
        import pynvml  # type: ignore[import-untyped, unused-ignore]
    except Exception as error:
        raise Unavailable("pynvml cannot be imported: %s" % error) from None
    try:
        pynvml.nvmlInit()
    except Exception as error:
        raise Unavailable("NVML: %s" % error) from None
    return pynvml


def ask(function: Optional[Callable[..., Any]], *args: Any) -> Any:
    """Return what an NVML function answers, None if it fails in any way or does not exist."""
    if function is None:
        return None
    try:
        return function(*args)
    except Exception:  # a field this GPU, driver or pynvml does not know is None
        return None


def words(value: Any) -> Optional[str]:
    """Return text that older releases of pynvml give as bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def number(value: Any) -> Optional[int]:
    """Return a count, None for NVML's "not available" (None or all bits set)."""
    if isinstance(value, bool) or not isinstance(value, int) or value in (0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF):
        return None
    return value


class Task:
    """A function run on a thread of its own, because a broken driver may never answer."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        """Start ``function(library)``."""
        self._function = function
        self._value: Any = None
        self._error: Optional[str] = None
        self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            library = open_library()
            try:
                self._value = self._function(library)
            finally:
                ask(library.nvmlShutdown)
        except Unavailable as error:
            self._error = str(error)
        except Exception as error:
            self._error = "NVML: %s: %s" % (type(error).__name__, error)

    def result(self, seconds: float) -> Tuple[Any, Optional[str]]:
        """Wait for at most ``seconds``; return (value, None) or (None, reason)."""
        self._thread.join(max(seconds, 0.0))
        if self._thread.is_alive():
            return None, "NVML did not answer within %.1f s" % seconds
        return self._value, self._error
