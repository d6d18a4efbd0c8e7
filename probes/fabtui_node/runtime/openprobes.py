"""Probes asked for and not yet answered: each gets exactly one result, in time, whatever the worker does."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from fabtui_node.protocol import Message

# What a probe may take beyond its deadline before the supervisor answers for it.
GRACE = 2.0
MOST = 256
LONGEST = 3600.0


def failure(number: Any, kind: str, text: str) -> Message:
    """Return the result of a probe that gave no value."""
    return {"t": "result", "id": number, "ok": False, "error": {"kind": kind, "text": text}}


class OpenProbes:
    """Keeps the deadline of every open probe.

    Attributes:
        stuck: A probe did not come back by its deadline; its thread is still in the worker.
    """

    def __init__(self) -> None:
        self._until: Dict[int, float] = {}
        self.stuck = False

    def __len__(self) -> int:
        return len(self._until)

    def open(self, message: Message, now: float) -> Optional[Message]:
        """Take a probe message; returns the result that refuses it, None when it may run.

        Raises:
            KeyError, TypeError, ValueError: The message is not a probe.
        """
        number, deadline = message["id"], float(message["deadline"])
        if type(number) is not int or not isinstance(message["name"], str) or not isinstance(message["args"], dict):
            raise TypeError("not a probe")
        if not 0 < deadline <= LONGEST:
            return failure(number, "refused", "a deadline of %g s" % deadline)
        if number in self._until:
            raise ValueError("probe %d is open already" % number)
        if len(self._until) >= MOST:
            return failure(number, "refused", "%d probes are open already" % MOST)
        self._until[number] = now + deadline + GRACE
        return None

    def passes(self, message: Message) -> bool:
        """Return whether a part or result of the worker is still wanted; a result closes its probe."""
        if message["id"] not in self._until:
            return False
        if message["t"] == "result":
            del self._until[message["id"]]
        return True

    def overdue(self, now: float) -> List[Message]:
        """Close the probes whose time is over; returns their results."""
        late = [number for number, until in self._until.items() if now > until]
        for number in late:
            del self._until[number]
            self.stuck = True
        return [failure(number, "timeout", "the probe did not end by its deadline") for number in late]

    def fail_all(self, kind: str, text: str) -> List[Message]:
        """Close all probes; returns their results."""
        numbers = list(self._until)
        self._until.clear()
        self.stuck = False
        return [failure(number, kind, text) for number in numbers]
