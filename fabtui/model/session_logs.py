"""Logs of what the user did in a session: notes about findings, commands on nodes, experiments."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from fabtui.model.events import (
    EXPERIMENT_ARM,
    Acknowledged,
    BisectRound,
    BisectStart,
    CommandEnd,
    CommandStart,
    Experiment,
    Pair,
)
from fabtui.model.layers import COLLECTIVES, Layer
from fabtui.model.measurement import Measurement
from fabtui.model.records import LogLine
from fabtui.nodeset import count
from fabtui.sanitize import one_line

#: Maximum number of commands whose output is kept.
MOST_COMMANDS = 200
#: Number of lines of an output that the event log shows.
LOGGED_LINES = 5
#: What a round of a search is for.
PURPOSES = {
    "compare": "for comparison",
    "all": "all together",
    "halves": "halves",
    "crossing": "a part of each half",
    "check": "checked",
    "rest": "without what was found",
}
#: Text between a command and its node in labs of fabtui 0.2 and before.
_OLD_PLACE = " # on "


class Acknowledgement(NamedTuple):
    """Note about a finding, and when (epoch seconds) it was given."""

    note: str
    since: float


class AcknowledgementLog:
    """Notes by the keys of findings; changes in the session are lines of the event log."""

    def __init__(self, log: deque[LogLine]) -> None:
        self.version = 0  #: Incremented by each change.
        self._log = log
        self._notes: dict[str, Acknowledgement] = {}

    def take(self, event: Acknowledged) -> None:
        """Add the note about a finding, or remove it if the note is empty."""
        self.version += 1
        if event.note:
            self._notes[event.finding] = Acknowledgement(event.note, event.since or event.time)
        else:
            self._notes.pop(event.finding, None)
        if not event.since:
            what = f"known: {one_line(event.note, 200)}" if event.note else "is no longer marked as known"
            self._log.append(LogLine(event.time, "notice", None, f"{one_line(event.title, 200)}: {what}"))

    def about(self, finding: str) -> Acknowledgement | None:
        """Return the note about a finding by its key, or None."""
        return self._notes.get(finding)


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
    lines = count(len(event.output.splitlines()), "line")
    ended = event.problem or (f"exit status {event.exit}" if event.exit is not None else "ended")
    parts = [ended, lines + (f" of {event.lines}" if event.lines else "")]
    if event.dropped:
        parts.append(f"{event.dropped} more bytes not kept")
    return ", ".join(parts)


class Tried(NamedTuple):
    """An experiment that has ended, with its measurements."""

    event: Experiment
    results: dict[Pair, Measurement]  #: The p2p measurement of each ordered pair.
    groups: dict[Pair, Measurement]  #: The measurement of the collective over each group, of the largest message.


class ExperimentLog:
    """Latest experiment of each kind about each finding. Their measurements do not change the grid."""

    def __init__(self) -> None:
        self._tried: dict[tuple[str, tuple[str, ...], str], Tried] = {}
        self._running: dict[Pair, Measurement] = {}
        self._groups: dict[Pair, Measurement] = {}

    def __bool__(self) -> bool:
        return bool(self._tried)

    def add(self, event: Experiment) -> None:
        """Take an experiment that has ended; it replaces an earlier one of its kind."""
        key = event.rule, tuple(event.subject), event.trial
        self._tried.pop(key, None)
        self._tried[key] = Tried(event, self._running, self._groups)
        self._running, self._groups = {}, {}

    def take(self, measurement: Measurement) -> bool:
        """Take a measurement if it belongs to an experiment, and return whether it does."""
        if measurement.arm is None or not measurement.arm.startswith(EXPERIMENT_ARM):
            return False
        if measurement.layer is Layer.P2P:
            self._running[measurement.src, measurement.dst] = measurement
        elif measurement.layer in COLLECTIVES.values():
            self._groups[measurement.src, measurement.dst] = measurement
        return True

    def about(self, rule: str, subjects: Container[tuple[str, ...]], since: float) -> list[Tried]:
        """Return the experiments about a finding of a rule that ended after a time, in their order."""
        tried = self._tried.values()
        return [
            one
            for one in tried
            if one.event.rule == rule and tuple(one.event.subject) in subjects and one.event.time >= since
        ]


class BisectionLog:
    """Latest search for what makes a collective over many ranks slow or fail."""

    def __init__(self) -> None:
        self.version = 0  #: Incremented by each change.
        self.start: BisectStart | None = None
        self.rounds: dict[int, BisectRound] = {}  #: Rounds by number.

    def begin(self, event: BisectStart) -> None:
        self.version += 1
        self.start, self.rounds = event, {}

    def take(self, event: BisectRound) -> None:
        """Add a round, or replace it by its results.

        Raises:
            ValueError: It has units that the search does not have.
        """
        known = range(len(self.start.units) if self.start is not None else 0)
        groups = (numbers for group in event.groups for numbers in (group.suspects, group.fill))
        if any(
            number not in known
            for numbers in (event.left, event.cleared, *event.culprits, *groups)
            for number in numbers
        ):
            raise ValueError("a round of a search has unknown units")
        self.version += 1
        self.rounds[event.number] = event

    @property
    def last(self) -> BisectRound | None:
        return next(reversed(self.rounds.values()), None)

    @property
    def running(self) -> bool:
        return self.start is not None and (self.last is None or not self.last.outcome)

    def names(self, numbers: Iterable[int]) -> list[str]:
        """Return the names of units."""
        return [] if self.start is None else [self.start.units[number] for number in numbers]
