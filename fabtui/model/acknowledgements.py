"""Findings that the user knows about, each with a note."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from fabtui.model.events import Acknowledged
from fabtui.model.records import LogLine
from fabtui.sanitize import one_line


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
