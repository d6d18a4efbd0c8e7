"""Commands that the user ran on nodes, with their output."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from fabtui.model.events import CommandEnd, CommandStart
from fabtui.model.records import LogLine

#: Maximum number of commands whose output is kept.
MOST_COMMANDS = 200
#: Number of lines of an output that the event log shows.
LOGGED_LINES = 5
#: Text between a command and its node in labs of fabtui 0.2 and before.
_OLD_PLACE = " # on "


@dataclass
class CommandRun:
    """A command that runs, or has ended; its texts are as the node sent them."""

    start: CommandStart
    end: CommandEnd | None = None


class CommandLog:
    """The latest run of each next step; starts and ends are lines of the event log too."""

    def __init__(self, log: deque[LogLine]) -> None:
        self.version = 0  #: Incremented by each start and end.
        self._log = log
        self._runs: dict[int, CommandRun] = {}
        self._latest: dict[str, CommandRun] = {}

    def start(self, event: CommandStart) -> None:
        self.version += 1
        while len(self._runs) >= MOST_COMMANDS:
            old = self._runs.pop(next(iter(self._runs)))
            if self._latest.get(old.start.command) is old:
                del self._latest[old.start.command]
        run = self._runs[event.number] = self._latest[event.command] = CommandRun(event)
        command, mark, node = event.command.rpartition(_OLD_PLACE)
        if mark:
            self._latest[f"ssh {node} {command}"] = run
        self._log.append(LogLine(run.start.time, "notice", event.node, f"you run: {' '.join(event.argv)}"))

    def end(self, event: CommandEnd) -> None:
        """Add the output of a command; nothing if its start is unknown."""
        run = self._runs.get(event.number)
        if run is None or run.end is not None:
            return
        self.version += 1
        run.end = event
        node, name = run.start.node, run.start.argv[0] if run.start.argv else run.start.command
        lines = event.output.splitlines()
        shown = lines if len(lines) <= LOGGED_LINES else lines[: LOGGED_LINES - 1]
        more = [f"and {len(lines) - len(shown)} more lines: see the findings"] if len(shown) < len(lines) else []
        self._log.extend(LogLine(event.time, "info", node, f"  {line}") for line in [*shown, *more])
        # Last, where a log of two lines shows it.
        level = "info" if event.exit == 0 else "warning"
        self._log.append(LogLine(event.time, level, node, f"{name}: {outcome(event)}"))

    @property
    def last(self) -> int:
        return max(self._runs, default=0)

    def latest(self, command: str) -> CommandRun | None:
        return self._latest.get(command)

    def __len__(self) -> int:
        return len(self._runs)


def outcome(event: CommandEnd) -> str:
    """Return how a command ended, and how much it printed."""
    # `fabtui.nodeset.count` would load ClusterShell before the first frame.
    count = len(event.output.splitlines())
    ended = event.problem or (f"exit status {event.exit}" if event.exit is not None else "ended")
    parts = [ended, f"{count} line{'s' * (count != 1)}" + (f" of {event.lines}" if event.lines else "")]
    if event.dropped:
        parts.append(f"{event.dropped} more bytes not kept")
    return ", ".join(parts)
