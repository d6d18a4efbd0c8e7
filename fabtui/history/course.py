"""Courses of components over sessions: values typed for readers of the history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from fabtui.history.component import Component

#: Seconds of a day, the step in which courses are compared.
DAY = 86400.0


@dataclass(frozen=True, slots=True)
class PastSession:
    """A session that the history holds."""

    number: int  #: Its number in the file.
    started: float  #: Start (epoch seconds).
    ended: float  #: Latest event (epoch seconds).
    recording: str  #: Name of the recording's file without its folder, or "".
    software: str  #: Version of fabtui that recorded it.
    nodes: tuple[str, ...]  #: Names of the nodes.
    endpoints: int  #: Number of endpoints.
    exit_code: int | None  #: Exit code; None if it was cut off.
    text: str  #: The one line that summed it up, or "".
    lab: str  #: Size of the lab, or "" on real nodes.
    verdicts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  #: Number of results: layer, verdict.
    versions: Mapping[str, str] = field(default_factory=dict)  #: Versions by fact (``driver``, ``nccl``, ``kernel``).
    settings: Mapping[str, Any] = field(default_factory=dict)  #: Options that change what is measured.


class Share(NamedTuple):
    """Bandwidth of a component over a day, in one class of pairs: median of its pairs over what is usual there."""

    day: float  #: Start of the day (epoch seconds, UTC).
    first: float  #: Start of the first session of the day (epoch seconds).
    share: float  #: Mean over the sessions of the day; 1.0 is what is usual.
    lowest: float  #: Lowest of these sessions.
    sessions: int  #: Number of sessions.
    bad: int  #: Sessions in which a pair of the component had a bad verdict.


class HourlyRate(NamedTuple):
    """Counter of a component over a day."""

    day: float  #: Start of the day (epoch seconds, UTC).
    first: float  #: Start of the first session of the day (epoch seconds).
    events: int  #: Events counted since the reading before it.
    hours: float  #: Hours in which they were counted.
    sessions: int  #: Number of sessions.

    @property
    def per_hour(self) -> float | None:
        """Events per hour; None if the time is unknown."""
        return self.events / self.hours if self.hours > 0 else None


class Sighting(NamedTuple):
    """A finding of a session."""

    session: int  #: Number of the session.
    time: float  #: Start of the session (epoch seconds).
    rule: str  #: Id of the rule, such as ``FT017``.
    severity: str  #: ``bad``, ``warn`` or ``note``.
    subject: str  #: Subject in the names of that session.
    title: str  #: Title of the finding.


class Stay(NamedTuple):
    """Time that a component spent at a place."""

    place: str  #: The place.
    since: float  #: Start of the first session that saw it there (epoch seconds).
    until: float  #: Start of the last one (epoch seconds).
    sessions: int  #: Number of sessions.


@dataclass(frozen=True, slots=True)
class Course:
    """All that is known of one component, the oldest first."""

    component: Component  #: The component.
    stays: tuple[Stay, ...] = ()  #: Where it was.
    shares: Mapping[str, tuple[Share, ...]] = field(default_factory=dict)  #: By ``layer class``: ``p2p same-rail``.
    rates: Mapping[str, tuple[HourlyRate, ...]] = field(default_factory=dict)  #: By the name of the counter.
    findings: tuple[Sighting, ...] = ()  #: Findings about it.
    xids: tuple[tuple[float, int, int], ...] = ()  #: Start of the session, Xid, and its count in the kernel's log.


class Turn(StrEnum):
    """Why a component stands out."""

    DEGRADES = "degrades"  #: A rule about earlier sessions found that it gets worse.
    FLAPS = "flaps"  #: A finding about it comes and goes.
    NEW = "new"  #: A finding about it was seen for the first time.
    LASTS = "lasts"  #: A finding about it stays.


@dataclass(frozen=True, slots=True)
class Standout:
    """A component that stands out in a time, for lists; the worst first."""

    component: Component  #: The component.
    turn: Turn  #: Why.
    rule: str  #: Id of the rule of its worst finding.
    title: str  #: Title of that finding, in the words of its latest session.
    severity: str  #: Severity of that finding.
    first: float  #: First sighting of all time (epoch seconds).
    last: float  #: Last sighting (epoch seconds).
    sessions: int  #: Sessions of the time that found it.
    of: int  #: Sessions of the time that looked at the component.
    lowest: float | None  #: Lowest share of usual in the time; None without bandwidth.


@dataclass(frozen=True, slots=True)
class VersionStep:
    """New versions with which what is usual in a whole class of pairs changed: no component is at fault."""

    since: float  #: Start of the first session that had them (epoch seconds).
    rule: str  #: Id of the rule that found it.
    title: str  #: Versions and change in words.
