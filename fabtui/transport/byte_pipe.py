"""The byte pipe under a link: what a way of reaching a node has to offer, and what is said when it ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from fabtui.sanitize import clean, last_line
from fabtui.transport.link import NodeUnreachable


@dataclass(frozen=True, slots=True)
class Ending:
    """How a byte pipe ended.

    Attributes:
        status: Exit status of the remote command, or None.
        signal: Name of the signal that ended it, or None.
        reason: What is known when neither is: the connection went before the command did.
    """

    status: int | None = None
    signal: str | None = None
    reason: str = ""

    @property
    def lost(self) -> bool:
        """Whether the connection broke: an end without status or signal is never a result."""
        return self.status is None and self.signal is None

    def describe(self) -> str:
        """Return the ending in words."""
        if self.signal is not None:
            return f"ended by signal {self.signal}"
        if self.status is not None:
            return f"ended with status {self.status}"
        return self.reason or "the connection was lost"


class BytePipe(ABC):
    """Standard input, output and error of a command on a node."""

    @abstractmethod
    async def read(self) -> bytes:
        """Return some bytes of standard output, none at its end. May raise `OSError` or what the transport raises."""

    @abstractmethod
    async def read_error(self) -> bytes:
        """Return some bytes of standard error, none at its end."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Write to standard input; returns when the transport's buffer has room again."""

    @abstractmethod
    def write_eof(self) -> None:
        """End standard input. Never raises."""

    @abstractmethod
    async def ending(self) -> Ending:
        """Wait until the command ended or the connection went."""

    @abstractmethod
    def abort(self) -> None:
        """Tear everything down at once. Never raises."""

    @abstractmethod
    async def wait_closed(self) -> None:
        """Wait a bounded time until nothing of the pipe is left on this machine. Never raises."""


STDERR_KEPT = 8 * 1024
BANNER_KEPT = 16 * 1024

#: Makes an error of how a command ended early, of its banner and of its standard error.
Explain = Callable[[Ending, str, str], NodeUnreachable]


class Tail:
    """The last bytes of a stream."""

    def __init__(self, kept: int = STDERR_KEPT) -> None:
        self._kept = kept
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Take more of the stream."""
        self._data += data
        del self._data[: -self._kept]

    def text(self) -> str:
        """Return what is kept, cleaned."""
        return clean(bytes(self._data))


def shorten(banner: bytes, kept: int = BANNER_KEPT) -> str:
    """Return a banner as text; of a long one the beginning and the end, with a word on what is left out."""
    if len(banner) <= kept:
        return clean(banner)
    half = kept // 2
    return f"{clean(banner[:half])}\n[{len(banner) - 2 * half} bytes left out]\n{clean(banner[-half:])}"


def last_words(banner: str, stderr: str) -> str:
    """Return the last lines of what a command printed and of its errors; either may hold the reason."""
    return " | ".join(line for line in (last_line(stderr, 200), last_line(banner, 200)) if line)


def explain_end(ending: Ending, banner: str, stderr: str) -> NodeUnreachable:
    """Return what to say of a command that ended before its start marker."""
    said = last_words(banner, stderr)
    detail = "\n".join(part for part in (banner, stderr) if part)
    if ending.status in (126, 127):
        return NodeUnreachable(
            "no-python",
            last_line(stderr, 300) or said or "no python3 was found",
            "name an interpreter (3.8 or newer) with --remote-python",
            detail,
        )
    what = "the connection was lost" if ending.lost else f"the login {ending.describe()}"
    text = f"{what} before the node side started"
    if ending.lost and ending.reason:
        text += f" ({ending.reason})"
    return NodeUnreachable("closed", f"{text}: {said}" if said else text, None, detail)
