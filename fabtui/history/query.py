"""Questions to the history of a site: what stands out, courses of components, and findings in earlier sessions."""

from __future__ import annotations

import json
import math
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fabtui.diagnosis.finding import Domain, Finding, Kind, Severity
from fabtui.diagnosis.merge_findings import finding_key
from fabtui.errors import InputError
from fabtui.history.components import Component, PartKind, Parts
from fabtui.history.file import DAY, history_file, mapping, moment, reading
from fabtui.history.rules import FoundOn, HourlyRate, PastEvidence, Share, StepOfVersion, history_findings
from fabtui.model.recurrence import Recurrence

if TYPE_CHECKING:
    import sqlite3

    from fabtui.model.session_model import Model

#: Maximum number of components of an overview, of courses of a subject, and of components that a subject stands for.
MOST_COMPONENTS, MOST_COURSES, _MOST_PARTS = 40, 60, 500
#: Maximum number of sessions of an overview, and of latest sessions whose findings are remembered.
_MOST_LISTED, _MOST_REMEMBERED = 1000, 500
#: Seconds before now, or before a session, of which the overview is.
USUAL_TIME = 30 * DAY
#: Days whose courses are compared.
WINDOW = 120
#: Hours from which the increase within sessions is a rate, where no earlier total is known.
_LEAST_HOURS = 1.0
#: Time (s) without a reading after which two totals are not compared: much may have happened.
_LONGEST_GAP = 60 * DAY
_SEVERITIES: tuple[str, ...] = tuple(Severity)
_Key = tuple[PartKind, str]


class PastSession(NamedTuple):
    """A session that the history holds."""

    started: float  #: Start (epoch seconds).
    recording: str  #: Name of the recording's file without its folder, or "".
    software: str  #: Version of fabtui that recorded it.
    nodes: Sequence[str]  #: Names of the nodes.
    endpoints: int  #: Number of endpoints.
    exit_code: int | None  #: Exit code; None if it was cut off.
    text: str  #: The one line that summed it up, or "".
    versions: Mapping[str, str]  #: Versions by fact (``driver``, ``nccl``, ``kernel``).


class Sighting(NamedTuple):
    """A finding of a session."""

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
    stays: Sequence[Stay] = ()  #: Where it was.
    shares: Mapping[str, Sequence[Share]] = field(default_factory=dict)  #: By ``layer class``: ``p2p same-rail``.
    rates: Mapping[str, Sequence[HourlyRate]] = field(default_factory=dict)  #: By the name of the counter.
    findings: Sequence[Sighting] = ()  #: Findings about it.


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

    @property
    def badness(self) -> tuple[int, int, int, float]:
        """Sort key: the worst component has the least one."""
        return _SEVERITIES.index(self.severity), list(Turn).index(self.turn), -self.sessions, -self.last


@dataclass(frozen=True, slots=True)
class VersionStep:
    """New versions with which what is usual in a whole class of pairs changed: no component is at fault."""

    since: float  #: Start of the first session that had them (epoch seconds).
    rule: str  #: Id of the rule that found it.
    title: str  #: Versions and change in words.


@dataclass(frozen=True)
class Overview:
    """Sessions of a time, what stands out in them, and the courses of a subject if one was asked for."""

    path: Path  #: File of the history.
    since: float  #: Start of the time (epoch seconds); 0 for all of it.
    until: float  #: Sessions that began then (epoch seconds) or later are left out; infinite for none.
    total: int = 0  #: Number of sessions of that time.
    sessions: Sequence[PastSession] = ()  #: The latest of them, the newest first.
    standouts: Sequence[Standout] = ()  #: Components that stand out in that time, the worst first.
    subject: str = ""  #: The subject, or "".
    courses: Sequence[Course] = ()  #: Courses of the subject, or of the first components that stand out.
    version_steps: Sequence[VersionStep] = ()  #: New versions that changed what is usual, the latest first.


def usual_start(subject: str) -> float:
    """Return the start (epoch seconds) of what is shown where no other is asked for: of a subject its whole course."""
    return 0.0 if subject else start_before(time.time())


def start_before(when: float) -> float:
    """Return the start (epoch seconds) of the usual time before a moment, a whole day (UTC): days count as a whole."""
    return max(0.0, (when - USUAL_TIME) // DAY * DAY)


def read_overview(
    path: Path, since: float, subject: str = "", *, until: float = math.inf, courses: int = 0
) -> Overview:
    """Read the overview of a history.

    Args:
        path: File of the history.
        since: Start of the time (epoch seconds).
        subject: A node, an endpoint, a port or an identity; "" for none.
        until: Sessions that began then (epoch seconds) or later are left out.
        courses: Number of components that stand out whose courses are read, if there is no subject.

    Raises:
        InputError: The file cannot be used.
    """
    with reading(path) as base:
        if base is None:
            return Overview(path, since, until, subject=subject)
        return SiteHistory(base, until).overview(path, since, subject, courses)


class SiteHistory:
    """Queries over the file of a site.

    Args:
        base: A connection to the file.
        until: Sessions that began then (epoch seconds) or later are left out; what days saw ends with the day before.
    """

    def __init__(self, base: sqlite3.Connection, until: float = math.inf) -> None:
        self._base = base
        self._until = until
        self._last_day = 1 << 40 if until == math.inf else int(until // DAY)
        self._components: dict[int, Component] = {}
        self._evidence: PastEvidence | None = None
        self._findings: list[Finding] | None = None

    def overview(self, path: Path, since: float, subject: str = "", courses: int = 0) -> Overview:
        """Return the overview of the sessions since a time (epoch seconds); see `read_overview`."""
        total = self.count(since)
        if not total:
            return Overview(path, since, self._until, subject=subject)
        standouts = self.worst(since)
        parts = self.find(subject)[:MOST_COURSES] if subject else [each.component for each in standouts[:courses]]
        shown = [self._course(number, since) for part in parts for number in self._numbers(part)]
        sessions, steps = self.sessions(since), self.version_steps(since)
        return Overview(path, since, self._until, total, sessions, standouts, subject, shown, steps)

    def sessions(self, since: float = 0.0) -> list[PastSession]:
        """Return the latest sessions that began after a time (epoch seconds), the newest first."""
        rows = self._base.execute(
            "SELECT started, nodes, endpoints, exit, versions, recording, software, text FROM session"
            " WHERE started >= ? AND started < ? ORDER BY started DESC LIMIT ?",
            (since, self._until, _MOST_LISTED),
        )
        found = []
        for started, nodes, endpoints, code, versions, *words in rows:
            recording, software, text = map(str, words)
            names, code = tuple(map(str, json.loads(str(nodes)))), None if code is None else int(code)
            values = (int(endpoints), code, text, mapping(versions))
            found.append(PastSession(moment(started), recording, software, names, *values))
        return found

    def count(self, since: float = 0.0) -> int:
        """Return the number of sessions that began after a time (epoch seconds)."""
        rows = self._base.execute(
            "SELECT count(*) FROM session WHERE started >= ? AND started < ?", (since, self._until)
        )
        return int(rows.fetchone()[0])

    @property
    def latest(self) -> float:
        """Start of the latest session (epoch seconds); 0 without any."""
        rows = self._base.execute("SELECT max(started) FROM session WHERE started < ?", (self._until,))
        return float(rows.fetchone()[0] or 0.0)

    def find(self, subject: str) -> list[Component]:
        """Return the components that a subject names; [] if it names none.

        A node stands for itself and its parts, an endpoint for its GPU, its links and ports. Also names of ports
        (``n061 mlx5_0/1``), identities (GUID, UUID, serial number), and the beginning of one identity.
        """
        by_place = self._base.execute(
            "SELECT DISTINCT component FROM stay JOIN word ON number = place"
            " WHERE text = ? OR substr(text, 1, ?) IN (?, ?) LIMIT ?",
            (subject, len(subject) + 1, f"{subject} ", f"{subject}:", _MOST_PARTS),
        )
        named = {self._component(number): True for (number,) in by_place}
        keys = {part.key for part in named if part.kind is PartKind.GPU}
        if keys:
            gpu_of = self._gpu_of()
            named |= {part: True for part in self._components.values() if gpu_of.get(part.key) in keys}
        if not named:
            by_identity = self._base.execute(
                "SELECT number FROM component WHERE substr(identity, 1, ?) = ? COLLATE NOCASE LIMIT ?",
                (len(subject), subject, _MOST_PARTS),
            )
            named = {self._component(number): True for (number,) in by_identity}
            named = {part: True for part in named if part.identity.lower() == subject.lower()} or named
        order = list(PartKind)
        return sorted(named, key=lambda part: (order.index(part.kind), part.place, part.identity))

    def course_of(self, part: Component, since: float = 0.0) -> Course:
        """Return the course of a component since a time (epoch seconds)."""
        return next((self._course(number, since) for number in self._numbers(part)), Course(part))

    def _numbers(self, part: Component) -> Iterable[int]:
        rows = self._base.execute(
            "SELECT number FROM component WHERE kind = ? AND identity = ? AND by_name = ?",
            (str(part.kind), part.identity, part.by_name),
        )
        return [number for (number,) in rows]

    def _course(self, number: int, since: float) -> Course:
        stays = self._base.execute(
            "SELECT text, since, until, (SELECT count(*) FROM seen WHERE seen.component = stay.component"
            " AND seen.place = stay.place) FROM stay JOIN word ON number = place"
            " WHERE component = ? AND since < ? ORDER BY since",
            (number, self._until),
        )
        sightings = self._base.execute(
            "SELECT started, rules.text, severity, subjects.text, titles.text FROM finding"
            " JOIN session ON session.number = session JOIN word AS rules ON rules.number = rule"
            " JOIN word AS subjects ON subjects.number = subject JOIN word AS titles ON titles.number = title"
            " WHERE component = ? AND started >= ? AND started < ? ORDER BY started",
            (number, since, self._until),
        )
        return Course(
            self._component(number),
            [Stay(str(place), moment(began), moment(until), int(count)) for place, began, until, count in stays],
            {kind: shares for (_, kind), shares in self._shares(since, number).items()},
            {name: rates for (_, name), rates in self._rates(since, number).items()},
            [Sighting(moment(started), *map(str, words)) for started, *words in sightings],
        )

    def worst(self, since: float) -> list[Standout]:
        """Return the components that stand out since a time (epoch seconds), the worst first."""
        evidence, first_day = self.evidence(), int(since // DAY)
        lowest: dict[Component, float] = {}
        for (component, _), shares in evidence.shares.items():
            if recent := [day.lowest for day in shares if day.first >= since]:
                lowest[component] = min(*recent, lowest.get(component, recent[0]))
        worst: dict[Component, Standout] = {}
        for (component, rule), days in evidence.findings.items():
            # A finding about a cable is one about its port.
            if component.kind is not PartKind.CABLE and days[-1].day >= first_day:
                seen = {day: count for day, count in evidence.probed.get(component, {}).items() if day >= first_day}
                standout = _standout(component, rule, days, seen, first_day, lowest.get(component))
                if component not in worst or standout.badness < worst[component].badness:
                    worst[component] = standout
        for finding in self.findings():
            part = finding.facts.get("component")
            if isinstance(part, Component):
                worst[part] = self._judged(part, finding, worst.get(part), lowest.get(part))
        return sorted(worst.values(), key=lambda standout: standout.badness)[:MOST_COMPONENTS]

    def _judged(self, part: Component, finding: Finding, known: Standout | None, lowest: float | None) -> Standout:
        facts = finding.facts
        severities = [str(finding.severity)] + ([known.severity] if known else [])
        return Standout(
            part,
            Turn.DEGRADES if facts.get("degrades") else Turn.FLAPS,
            finding.rule.id,
            str(facts.get("words") or finding.rule.title),
            min(severities, key=_SEVERITIES.index),
            float(facts.get("since_time") or 0.0),
            float(facts.get("last_time") or self.latest),
            known.sessions if known else 0,
            known.of if known else 0,
            lowest,
        )

    def version_steps(self, since: float) -> list[VersionStep]:
        """Return new versions since a time (epoch seconds) that changed what is usual, the latest first."""
        steps = [
            VersionStep(finding.facts["since_time"], finding.rule.id, finding.rule.message.format_map(finding.facts))
            for finding in self.findings()
            if isinstance(finding.rule, StepOfVersion) and finding.facts["since_time"] >= since
        ]
        return sorted(steps, key=lambda step: -step.since)

    def findings(self) -> list[Finding]:
        """Return what the rules about earlier sessions find, the worst first."""
        if self._findings is None:
            self._findings = history_findings(self.evidence())
        return self._findings

    def evidence(self) -> PastEvidence:
        """Return the evidence of the days before the latest session."""
        if self._evidence is None:
            since = self.latest - WINDOW * DAY
            findings = self._found_on(since)
            self._evidence = PastEvidence(
                shares=self._shares(since),
                rates=self._rates(since),
                usual=self._usual(since),
                versions=self._versions(since),
                findings=findings,
                probed=self._probed({component for component, _ in findings}, since),
                holders=self._holders(),
                gpu_of=self._gpu_of(),
            )
        return self._evidence

    def _component(self, number: int) -> Component:
        if (part := self._components.get(number)) is None:
            kind, identity, by_name = self._base.execute(
                "SELECT kind, identity, by_name FROM component WHERE number = ?", (number,)
            ).fetchone()
            place = self._base.execute(
                "SELECT text FROM stay JOIN word ON number = place WHERE component = ? ORDER BY until DESC LIMIT 1",
                (number,),
            ).fetchone()
            part = Component(PartKind(kind), identity, place[0] if place else identity, bool(by_name))
            self._components[number] = part
        return part

    def _days(self, columns: str, table: str, name: str, since: float, only: int | None) -> Iterator[tuple[Any, ...]]:
        """Return rows of a table that days are summed up in, of all components or of one."""
        # The unary plus keeps SQLite from the index that serves all components.
        day, of = ("day", "") if only is None else ("+day", f"AND component = {only:d}")
        query = (
            f"SELECT component, text, {columns} FROM {table} JOIN word ON number = {name}"  # noqa: S608  # nosec B608
            f" WHERE {day} >= ? AND {day} < ? {of} ORDER BY component, {name}, day"
        )
        return self._base.execute(query, (int(since // DAY), self._last_day))

    def _shares(self, since: float, only: int | None = None) -> dict[tuple[Component, str], list[Share]]:
        shares: dict[tuple[Component, str], list[Share]] = {}
        rows = self._days("day, first, total, lowest, sessions, bad", "share_day", "kind", since, only)
        for number, kind, day, first, total, lowest, sessions, bad in rows:
            share = Share(moment(day * DAY), moment(first), total / sessions, float(lowest), int(sessions), int(bad))
            shares.setdefault((self._component(number), str(kind)), []).append(share)
        return shares

    def _rates(self, since: float, only: int | None = None) -> dict[tuple[Component, str], list[HourlyRate]]:
        """Return the counts of each component by counter: differences of totals, else increases within sessions."""
        rows = self._days("day, first, time, total, increase, hours, sessions", "reading", "counter", since, only)
        readings: dict[tuple[Component, str], list[tuple[Any, ...]]] = {}
        for number, name, *values in rows:
            readings.setdefault((self._component(number), str(name)), []).append(tuple(values))
        rates: dict[tuple[Component, str], list[HourlyRate]] = {}
        by_key: dict[tuple[_Key, str], list[HourlyRate]] = {}
        for key in sorted(readings, key=lambda key: (key[0].kind is PartKind.NVLINK, key[1] != "errors")):
            part, name = key
            # Before its first count, a link is read as part of its GPU, and a port as one without errors.
            link = part.kind is PartKind.NVLINK
            other = ((PartKind.GPU, part.identity.rpartition("/")[0]), name) if link else (part.key, "errors")
            start = readings[key][0][0] * DAY
            zeros = [day._replace(events=0) for day in by_key.get(other, ()) if day.day < start]
            rates[key] = by_key[part.key, name] = [*zeros, *_counted(readings[key], zeros)]
        return rates

    def _usual(self, since: float) -> dict[tuple[str, int], list[tuple[int, float]]]:
        usual: dict[tuple[str, int], list[tuple[int, float]]] = {}
        rows = self._base.execute(
            "SELECT text, size, day, total / sessions FROM usual_day JOIN word ON number = kind"
            " WHERE day >= ? AND day < ? ORDER BY day",
            (int(since // DAY), self._last_day),
        )
        for kind, size, day, value in rows:
            usual.setdefault((kind, size), []).append((day, value))
        return usual

    def _versions(self, since: float) -> dict[int, dict[str, tuple[str, float]]]:
        versions: dict[int, dict[str, tuple[str, float]]] = {}
        rows = self._base.execute(
            "SELECT cast(started / ? AS INTEGER) AS day, versions, min(started) FROM session"
            " WHERE started >= ? AND started < ? GROUP BY day, versions ORDER BY min(started)",
            (DAY, since, self._until),
        )
        for day, text, started in rows:
            known = versions.setdefault(day, {})
            for fact, version in mapping(text).items():
                if fact not in known or known[fact][0] != version:
                    known[fact] = version, started
        return versions

    def _found_on(self, since: float) -> dict[tuple[Component, str], list[FoundOn]]:
        days: dict[tuple[Component, str], list[FoundOn]] = {}
        rows = self._base.execute(
            # Texts are joined to the days, which are few.
            "SELECT found.component, rules.text, day, first, sessions, places.text, titles.text, severity FROM"
            " (SELECT component, rule, cast(started / ? AS INTEGER) AS day, min(started) AS first,"
            " count(DISTINCT session) AS sessions, session, title, min(severity) AS severity"
            " FROM finding JOIN session ON session.number = finding.session"
            " WHERE started >= ? AND started < ? AND severity != 'note' AND component IS NOT NULL"
            " GROUP BY component, rule, day) AS found"
            " JOIN word AS rules ON rules.number = rule JOIN word AS titles ON titles.number = title"
            " LEFT JOIN seen ON seen.component = found.component AND seen.session = found.session"
            " LEFT JOIN word AS places ON places.number = seen.place ORDER BY day",
            (DAY, since, self._until),
        )
        for number, rule, day, first, sessions, place, title, severity in rows:
            each = FoundOn(day, moment(first), sessions, place or "", title, severity)
            days.setdefault((self._component(number), rule), []).append(each)
        return days

    def _probed(self, components: set[Component], since: float) -> dict[Component, dict[int, int]]:
        query = "SELECT day, sessions FROM seen_day WHERE component = ? AND day >= ? AND day < ? ORDER BY day"
        times = int(since // DAY), self._last_day
        known = [(number, part) for number, part in self._components.items() if part in components]
        return {part: dict(self._base.execute(query, (number, *times))) for number, part in known}

    def _holders(self) -> dict[_Key, list[tuple[Component, float, float]]]:
        holders: dict[_Key, list[tuple[Component, float, float]]] = {}
        rows = self._base.execute(
            "SELECT stay.component, text, since, until FROM stay JOIN word ON word.number = place"
            " WHERE place IN (SELECT place FROM stay GROUP BY place HAVING count(*) > 1) ORDER BY since"
        )
        for number, place, since, until in rows:
            part = self._component(number)
            if not part.by_name:
                holders.setdefault((part.kind, place), []).append((part, since, until))
        return {key: held for key, held in holders.items() if len(held) > 1}

    def _gpu_of(self) -> dict[_Key, _Key]:
        rows = self._base.execute("SELECT port, gpu FROM carrier ORDER BY until")
        return {self._component(port).key: self._component(gpu).key for port, gpu in rows}


def _counted(readings: Iterable[tuple[Any, ...]], zeros: Sequence[HourlyRate]) -> Iterator[HourlyRate]:
    before = (zeros[-1].first, 0) if zeros else None
    for day, first, at, total, increase, hours, sessions in readings:
        # One event in a session of seconds would be hundreds per hour.
        count, length = increase, hours if hours >= _LEAST_HOURS else 0.0
        if total is not None and before is not None and at - before[0] < _LONGEST_GAP:
            length = (at - before[0]) / 3600
            # After a reset, or a reboot, it counts from zero.
            count = total - before[1] if total >= before[1] else total
        if total is not None:
            before = at, total
        yield HourlyRate(moment(day * DAY), moment(first), int(count), float(length), int(sessions))


def _standout(
    component: Component,
    rule: str,
    days: Sequence[FoundOn],
    seen: Mapping[int, int],
    first_day: int,
    lowest: float | None,
) -> Standout:
    recent = [day for day in days if day.day >= first_day]
    bad, times = {day.day for day in recent}, sum(day.sessions for day in recent)
    last, of = recent[-1], max(times, sum(seen.values()))
    turn = Turn.NEW if days[0].day >= first_day and len(recent) <= 2 else Turn.LASTS
    if sum(a in bad and b not in bad for a, b in pairwise(seen)) > 1:
        turn = Turn.FLAPS
    return Standout(component, turn, rule, str(last.title), last.severity, days[0].time, last.time, times, of, lowest)


class RememberedFindings:
    """Findings of the latest sessions of a site in memory, asked about while a frame is made; a `FindingPast`.

    Args:
        base: A connection to the file of the site.
        path: The file.
        before: Time (epoch seconds) from which sessions are left out.
    """

    def __init__(self, base: sqlite3.Connection, path: Path, before: float) -> None:
        #: Start of each session that a rule found something in about a component, by kind and identity, and its place.
        self._of_component: dict[tuple[str, str, str], list[tuple[float, str]]] = {}
        self._of_key: dict[str, list[float]] = {}
        self._seen: dict[tuple[str, str], list[float]] = {}
        self._parts: tuple[object, Parts] | None = None
        past = SiteHistory(base, before)
        #: What the rules about earlier sessions find.
        self.findings = tuple(past.findings())
        #: What stands out in the 30 days before.
        self.overview = past.overview(path, start_before(before) if math.isfinite(before) else 0.0)
        rows = base.execute(
            "SELECT started FROM session WHERE started < ? ORDER BY started DESC LIMIT ?", (before, _MOST_REMEMBERED)
        )
        self._sessions = sorted(started for (started,) in rows)
        if self._sessions:
            self._read(base, (self._sessions[0], before))

    def _read(self, base: sqlite3.Connection, times: tuple[float, float]) -> None:
        found = base.execute(
            "SELECT started, keys.text, rules.text, kind, identity, places.text FROM finding"
            " JOIN session ON session.number = finding.session JOIN word AS keys ON keys.number = finding.key"
            " JOIN word AS rules ON rules.number = rule LEFT JOIN component ON component.number = finding.component"
            " LEFT JOIN seen ON seen.component = finding.component AND seen.session = finding.session"
            " LEFT JOIN word AS places ON places.number = seen.place"
            " WHERE started >= ? AND started < ? ORDER BY started",
            times,
        )
        for started, key, rule, kind, identity, place in found:
            self._of_key.setdefault(key, []).append(started)
            if kind is not None:
                self._of_component.setdefault((rule, kind, identity), []).append((started, place or ""))
        seen = base.execute(
            "SELECT kind, identity, started FROM seen JOIN session ON session.number = seen.session"
            " JOIN component ON component.number = seen.component WHERE started >= ? AND started < ?"
            " AND seen.component IN (SELECT component FROM finding) ORDER BY started",
            times,
        )
        for kind, identity, started in seen:
            self._seen.setdefault((kind, identity), []).append(started)

    def about(self, model: Model, finding: Finding) -> Recurrence | None:
        """Return how earlier sessions had a finding; None if none did."""
        if not self._sessions or finding.rule.domain in (Domain.HISTORY, Domain.SUMMARY):
            return None
        components = self._blamed(model, finding)
        rule = f"{finding.rule.id} {finding.code}".strip()
        if not components:
            # No component is to blame, so that the same names are all that is known.
            return self._recurrence(model, self._of_key.get(finding_key(finding)[:500], []), self._sessions)
        return next(filter(None, (self._own(model, rule, component) for component in components)), None)

    def _own(self, model: Model, rule: str, part: Component) -> Recurrence | None:
        """Return how earlier sessions had a finding about a component, at any place."""
        key = str(part.kind), part.identity
        own = [(when, place) for when, place in self._of_component.get((rule, *key), []) if when < model.started]
        if not own:
            return None
        moved = "" if part.by_name or own[-1][1] in ("", part.place) else own[-1][1]
        more = {"moved_from": moved, "moved": key[0] if moved else ""}
        return self._recurrence(model, [when for when, _ in own], self._seen.get(key, self._sessions), **more)

    def _blamed(self, model: Model, finding: Finding) -> list[Component]:
        subject = finding.subject
        if subject.kind not in (Kind.GPU, Kind.NIC, Kind.NODE):
            return []
        state = id(model), model.layout, model.nodes_version
        if self._parts is None or self._parts[0] != state:
            self._parts = state, Parts(model)
        return self._parts[1].blamed(subject.name)

    def _recurrence(self, model: Model, times: Iterable[float], seen: list[float], **more: str) -> Recurrence | None:
        starts = sorted({when for when in times if when < model.started})
        if not starts:
            return None
        seen = seen[: bisect_left(seen, model.started)]
        running = next((at for at, when in enumerate(reversed(seen)) if when not in starts), len(seen))
        return Recurrence(
            first=starts[0],
            last=starts[-1],
            sessions_ago=max(1, len(seen) - bisect_left(seen, starts[0])),
            times=len(starts) + 1,
            days=(model.started - starts[0]) / DAY,
            running=running + 1,
            **more,
        )


def remembered(path: Path, before: float = math.inf) -> RememberedFindings | None:
    """Return the findings of a history before a time (epoch seconds); None without any.

    Raises:
        InputError: The file cannot be read, or should not.
    """
    with reading(path) as base:
        return None if base is None else RememberedFindings(base, path, before)


def past_of(model: Model, path: Path | None = None) -> RememberedFindings | None:
    """Return the findings of sessions before the one of a model; None if there are none, or they cannot be read.

    A history that cannot be read keeps nobody from reading a recording: ``fabtui history`` names the problem.
    """
    try:
        return remembered(path or history_file(lab=bool(model.lab)), model.started)
    except InputError:
        return None
