"""State of a node's connection."""

from __future__ import annotations

from enum import StrEnum


class NodeState(StrEnum):
    """State of a node's connection."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    LOOKING = "looking"
    READY = "ready"
    FAILED = "failed"
    LOST = "lost"

    @property
    def gone(self) -> bool:
        """Return True if the node can no longer be used."""
        return self in (NodeState.FAILED, NodeState.LOST)
