"""How one direction of a pair went, as one side saw it, and which of two sides knows more about a failure."""

from __future__ import annotations

from typing import Any, Dict, Optional

from fabtui_node.ranks.base import CONNECT, Failed, Measured

Message = Dict[str, Any]


class Outcome:
    """How one direction went, as one side saw it."""

    def __init__(self) -> None:
        self.ok = False
        self.timeout = False
        self.phase = CONNECT
        self.error: Optional[str] = None
        self.made = False
        self.measured = Measured(0)
        self.both_rate: Optional[float] = None
        self.transport: Optional[str] = None
        self.own: Optional[str] = None
        self.other: Optional[str] = None
        self.raw: Optional[str] = None

    def fail(self, failed: Failed) -> None:
        """Note what went wrong."""
        self.ok, self.timeout, self.phase = False, failed.timeout, failed.phase
        self.error, self.raw = failed.text, failed.raw

    def verdict(self) -> Message:
        """Return what the other side is told."""
        return {
            "ok": self.ok,
            "timeout": self.timeout,
            "phase": self.phase,
            "error": self.error,
            "transport": self.transport,
            "address": self.own,
        }

    def complete(self, theirs: Message) -> None:
        """Fill in what only the other side knows."""
        way, address = theirs.get("transport"), theirs.get("address")
        if self.transport is None and isinstance(way, str):
            self.transport = way[:80]
        if self.other is None and isinstance(address, str):
            self.other = address[:80]


def consequence(mine: Optional[str], theirs: str) -> bool:
    """Return whether one side's words only tell that the other side let go, and the other side's tell more."""
    return _echo(mine or "") and not _echo(theirs)


def _echo(text: str) -> bool:
    return any(
        mark in text for mark in ("called off", "is gone", "onnection closed", "onnection reset", "remote error")
    )
