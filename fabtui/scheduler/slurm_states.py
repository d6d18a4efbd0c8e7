"""States of nodes as Slurm names them: which of them get no jobs, and which do not work."""

from __future__ import annotations

#: What a state contains when the node gets no jobs (``sinfo`` manual, node state codes).
_OUT = (
    *("down", "drain", "drng", "fail", "maint", "inval", "error", "unk", "powered", "reboot", "perfctrs"),
    *("no_respond", "not_responding"),
)
#: The same of nodes that do not work.
_BROKEN = ("down", "fail", "inval", "error")


def out_of_service(state: str, responds: object = None) -> bool:
    """Return True if Slurm gives a node no jobs, by its state and whether it responds (False: it does not)."""
    return responds is False or any(word in state.lower() for word in _OUT)


def is_broken(state: str) -> bool:
    """Return True if a node does not work, by its state."""
    return any(word in state.lower() for word in _BROKEN)
