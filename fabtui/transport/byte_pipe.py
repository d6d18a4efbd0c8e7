"""The byte pipe under a link: what a way of reaching a node has to offer, and what is said when it ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


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
