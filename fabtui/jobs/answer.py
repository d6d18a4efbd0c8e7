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
        suspects: The ranks that it names, on whose nodes the cause is to be looked for.
    """

    sentences: list[str]
    next: list[str]
    hangs: bool | None
    suspects: tuple[Place, ...] = ()

    def values(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        return {"answer": self.sentences, "next": self.next, "hangs": self.hangs}


def stack_command(place: Place) -> str:
    """Return the command that shows where a rank is, as typed on its node."""
    if place.pid is None:
        return "py-spy dump --pid PID (or cat /proc/PID/wchan, /proc/PID/status)"
    return f"py-spy dump --pid {place.pid}"


def state_command(place: Place) -> str:
    """Return the command that shows whether the process of a rank is there, stopped or in the driver."""
    if place.pid is None:
        return "ps -eo pid,stat,wchan:32,etime,args"
    return f"ps -o pid,stat,wchan:32,etime,args -p {place.pid}"


def over_ssh(node: str, command: str) -> str:
    """Return a command for a node as it is typed where ssh leads there; it is as it is for an unknown node."""
    return f"ssh {node} {command}" if node else command


def at_rank(place: Place, command: str) -> str:
    """Return a command with the node or, if that is unknown, the rank."""
    return over_ssh(place.node, command) if place.pid is not None else f"on the node of rank {place.rank}: {command}"
