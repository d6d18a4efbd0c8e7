"""Commands that the user runs on nodes, over their open links."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fabtui.model.events import CommandEnd, CommandStart
from fabtui.sanitize import one_line
from fabtui.session.event_pipeline import EventPump
from fabtui.session.node_client import NodeClient, ProbeFailed

if TYPE_CHECKING:
    from fabtui.diagnosis.knowledge.step_command import StepCommand

#: Time (s) that a command gets.
DEADLINE = 20.0
#: Maximum number of characters of output: a node keeps to it, unless it is not to be trusted.
MOST_OUTPUT = 64 * 1024
_LARGEST = 1 << 53


class StepRunner:
    """Runs commands on nodes and emits their start and their end."""

    def __init__(self, pump: EventPump, clients: Mapping[str, NodeClient]) -> None:
        self._pump = pump
        self._clients = clients
        #: Numbers of commands, unique within a recording; those of an earlier part of it come before.
        self.numbers = itertools.count(1)
        self._running: set[int] = set()

    def close(self) -> None:
        """End what still runs: the links are about to be closed, and its output is lost."""
        for number in sorted(self._running):
            self._finish(CommandEnd(number=number, problem="killed at the end of the session"))

    def _finish(self, end: CommandEnd) -> None:
        if end.number in self._running:
            self._running.discard(end.number)
            self._pump.emit(end)

    async def run(self, step: StepCommand) -> None:
        """Run a command on its node; its end has the reason if there is no output."""
        number = next(self.numbers)
        self._running.add(number)
        self._pump.emit(CommandStart(number=number, node=step.node, command=step.text, argv=step.argv))
        args = {"argv": list(step.argv), "grep": [one.as_json() for one in step.greps], "last": step.last}
        try:
            if (client := self._clients.get(step.node)) is None:
                raise ProbeFailed("lost", "the node is not connected")
            value = await client.probe("command", args, DEADLINE)
        except ProbeFailed as failed:
            self._finish(CommandEnd(number=number, problem=one_line(failed.text, 500)))
        else:
            self._finish(_end(number, value))


def _end(number: int, value: Mapping[str, Any]) -> CommandEnd:
    """Return the end of a command as its node reports it, within bounds."""
    output, status = value.get("output"), _number(value.get("exit"))
    text = output if isinstance(output, str) else ""
    return CommandEnd(
        number=number,
        output=text[:MOST_OUTPUT],
        lines=_number(value.get("lines")) or 0,
        dropped=(_number(value.get("dropped")) or 0) + len(text[MOST_OUTPUT:]),
        exit=status,
        problem=one_line(str(value.get("problem") or ""), 500),
    )


def _number(value: Any) -> int | None:
    """Return a number of the node if it can be one."""
    return value if type(value) is int and 0 <= value <= _LARGEST else None
