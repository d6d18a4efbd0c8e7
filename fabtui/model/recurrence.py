"""Recurrence of a finding: since when sessions have had it, how often, and whether it moved with a part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Earlier sessions that had a finding of this one."""

    first: float  #: Start of the first session that found it (epoch seconds).
    last: float  #: Start of the last session before this one that found it (epoch seconds).
    sessions_ago: int  #: Sessions of the component since the first one: 3 for "first seen 3 sessions ago".
    times: int  #: Which time this is, this session included: 3 for the third time.
    days: float  #: Days from the first sighting to this session.
    running: int  #: Sessions in a row that found it, this one included.
    moved: str = ""  #: What moved with it: ``gpu``, ``cable``, ``port``; "" if nothing did.
    moved_from: str = ""  #: Place at which the component had the finding before: it moved with it; "" if it did not.


class FindingPast(Protocol):
    """Earlier sessions of a site, as they were when a session began."""

    #: What the rules about earlier sessions find, of all nodes; their type is `fabtui.diagnosis.finding.Finding`.
    findings: tuple[Any, ...]
    #: What stands out in the 30 days before, at all nodes; its type is `fabtui.history.query.Overview`.
    overview: Any

    def about(self, model: Any, finding: Any) -> Recurrence | None:
        """Return how earlier sessions had a finding of a session; None if none did.

        It is asked while a frame is made: it neither waits nor reads a file.
        """
