"""Answers to the question who is behind, with the next commands."""

from __future__ import annotations

from typing import Any, NamedTuple

from fabtui.jobs.place import Place


class Answer(NamedTuple):
    """Answer to the question who is behind.

    Attributes:
        sentences: The answer, the most important sentence first.
        next: Commands to type next, each with its node.
        hangs: True if a rank is behind, silent or failed; None if the source does not show it.
    """

    sentences: list[str]
    next: list[str]
    hangs: bool | None

    def values(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        return {"answer": self.sentences, "next": self.next, "hangs": self.hangs}


def stack_command(place: Place) -> str:
    """Return the command that shows where a rank is, for its node."""
    if place.pid is None:
        return f"on the node of rank {place.rank}: py-spy dump --pid PID (or cat /proc/PID/wchan, /proc/PID/status)"
    where = f"ssh {place.node} " if place.node else ""
    return f"{where}py-spy dump --pid {place.pid}"


def state_command(place: Place) -> str:
    """Return the command that shows whether the process of a rank is there, stopped or in the driver."""
    if place.pid is None:
        return f"on the node of rank {place.rank}: ps -eo pid,stat,wchan:32,etime,args"
    where = f"ssh {place.node} " if place.node else ""
    return f"{where}ps -o pid,stat,wchan:32,etime,args -p {place.pid}"
