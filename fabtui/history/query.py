"""Questions to the history of a site: what stands out, courses of components, and findings in earlier sessions."""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fabtui.diagnosis.finding import Domain, Finding, Kind, Severity
from fabtui.diagnosis.merge_findings import finding_key
from fabtui.errors import InputError
from fabtui.history.components import Component, PartKind, Parts, rule_of
from fabtui.history.file import DAY, history_file, mapping, moment, reading
from fabtui.history.rules import FoundOn, HourlyRate, PastEvidence, Share, StepOfVersion, history_findings
from fabtui.model.records import Recurrence

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
_Only = Collection[int] | None


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
    """Return the start (epoch seconds) of what is shown by default: of a subject its whole course."""
    return 0.0 if subject else start_before(time.time())


def start_before(when: float) -> float:
    """Return the start (epoch seconds) of the usual time before a moment, a whole day (UTC): days count as a whole."""
    return max(0.0, (when - USUAL_TIME) // DAY * DAY)


def read_overview(path: Path, since: float, subject: str = "", *, until: float = inf, courses: int = 0) -> Overview:
    """Read the overview of a history: of the sessions from a time to a time (epoch seconds).

    It has the courses of a subject (a node, an endpoint, a port or an identity), or of the first components that stand
    out.

    Raises:
        InputError: The file cannot be used.
    """
    with reading(path) as base:
        if base is None:
            return Overview(path, since, until, subject=subject)
        return SiteHistory(base, until).overview(path, since, subject, courses)


class SiteHistory:
    """Queries over the file of a site, about the sessions that began before a time; of counters, before its day."""

    def __init__(self, base: sqlite3.Connection, until: float = inf) -> None:
        self._base = base
        self._until = until
        ((latest,),) = base.execute("SELECT max(started) FROM session WHERE started < ?", (until,))
        self._latest = float(latest or 0.0)
        self._stays: dict[int, list[tuple[str, float, float]]] = {}
        for number, place, *times in base.execute("SELECT * FROM stay WHERE since < ? ORDER BY since", (until,)):
            began, last = map(moment, times)
            self._stays.setdefault(number, []).append((str(place), began, last))
        #: Components by their numbers in the file.
        self.components: dict[int, Component] = {}
        for number, kind, identity, by_name in base.execute("SELECT * FROM component"):
            if stays := self._stays.get(number):
                place = max(stays, key=lambda stay: stay[2])[0]
                self.components[number] = Component(PartKind(kind), identity, place, bool(by_name))

    def overview(self, path: Path, since: float, subject: str = "", courses: int = 0) -> Overview:
        """Return the overview of the sessions since a time (epoch seconds); see `read_overview`."""
        total = self.count(since)
        if not total:
            return Overview(path, since, self._until, subject=subject)
        standouts = self.worst(since)
        parts = self.find(subject)[:MOST_COURSES] if subject else [each.component for each in standouts[:courses]]
        shown, sessions, steps = self.courses(parts, since), self.sessions(since), self.version_steps(since)
        return Overview(path, since, self._until, total, sessions, standouts, subject, shown, steps)

    def rows(self, query: str, since: float, *more: object, only: _Only = None) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a query about the sessions of a time, or some of their components: its ``{where}``."""
        among = "" if only is None else f" AND component IN ({', '.join(map(str, only))})"
        where = f"WHERE started >= ? AND started < ?{among}"
        return self._base.execute(query.format(where=where), (since, self._until, *more))

    def sessions(self, since: float = 0.0) -> list[PastSession]:
        rows = self.rows(
            "SELECT started, nodes, endpoints, exit, versions, recording, software, text FROM session {where}"
            " ORDER BY started DESC LIMIT ?",
            since,
            _MOST_LISTED,
        )
        sessions = []
        for started, nodes, endpoints, code, versions, *words in rows:
            recording, software, text = map(str, words)
            names, code = tuple(map(str, json.loads(str(nodes)))), None if code is None else int(code)
            values = (int(endpoints), code, text, mapping(versions))
            sessions.append(PastSession(moment(started), recording, software, names, *values))
        return sessions

    def count(self, since: float = 0.0) -> int:
        return sum(1 for _ in self.rows("SELECT 1 FROM session {where}", since))

    def find(self, subject: str) -> list[Component]:
        """Return the components that a subject names; [] if it names none.

        A node stands for itself and its parts, an endpoint for its GPU, its links and ports. Also names of ports
        (``n061 mlx5_0/1``), identities (GUID, UUID, serial number), and the beginning of one identity.
        """
        within = f"{subject} ", f"{subject}:"
        parts = {
            part
            for number, part in self.components.items()
            if any(place == subject or place.startswith(within) for place, *_ in self._stays[number])
        }
        if gpus := {part.key for part in parts if part.kind is PartKind.GPU}:
            gpu_of = self._gpu_of()
            parts |= {part for part in self.components.values() if gpu_of.get(part.key) in gpus}
        if not parts:
            word = subject.lower()
            parts = {part for part in self.components.values() if part.identity.lower().startswith(word)}
            parts = {part for part in parts if part.identity.lower() == word} or parts
        order = list(PartKind)
        return sorted(parts, key=lambda part: (order.index(part.kind), part.place, part.identity))[:_MOST_PARTS]

    def courses(self, parts: Iterable[Component], since: float = 0.0) -> list[Course]:
        wanted = dict.fromkeys(parts)
        numbers = {part: number for number, part in self.components.items() if part in wanted}
        only = {*numbers.values()}
        shares, rates = self._shares(since, only), self._rates(since, only)
        visits = self.rows(
            "SELECT component, place, count(*) FROM seen JOIN session ON session = number {where}"
            " GROUP BY component, place",
            0.0,
            only=only,
        )
        times = {(number, place): count for number, place, count in visits}
        findings: dict[int, list[Sighting]] = {}
        for number, started, *words in self.rows(
            "SELECT component, started, rule, severity, subject, title FROM finding"
            " JOIN session ON session = number {where} ORDER BY started",
            since,
            only=only,
        ):
            findings.setdefault(number, []).append(Sighting(moment(started), *map(str, words)))
        return [
            Course(
                part,
                [Stay(*stay, int(times.get((number, stay[0]), 0))) for stay in self._stays[number]],
                {kind: days for (other, kind), days in shares.items() if other == part},
                {name: days for (other, name), days in rates.items() if other == part},
                findings.get(number, ()),
            )
            for part, number in ((part, numbers[part]) for part in wanted)
        ]

    def worst(self, since: float) -> list[Standout]:
        """Return the components that stand out since a time (epoch seconds), the worst first."""
        evidence, first_day = self.evidence, int(since // DAY)
        lowest: dict[Component, float] = {}
        for (component, _), shares in evidence.shares.items():
            if values := [day.lowest for day in shares if day.first >= since]:
                lowest[component] = min(*values, lowest.get(component, values[0]))
        worst: dict[Component, Standout] = {}
        for (component, rule), every in evidence.findings.items():
            days = [day for day in every if day.day >= first_day]
            # A finding about a cable is one about its port.
            if component.kind is PartKind.CABLE or not days:
                continue
            seen = {day: count for day, count in evidence.probed.get(component, {}).items() if day >= first_day}
            bad, last, times = {day.day for day in days}, days[-1], sum(day.sessions for day in days)
            turn = Turn.NEW if every[0].day >= first_day and len(days) <= 2 else Turn.LASTS
            if sum(a in bad and b not in bad for a, b in pairwise(seen)) > 1:
                turn = Turn.FLAPS
            when, counts = (every[0].time, last.time), (times, max(times, sum(seen.values())))
            row = Standout(component, turn, rule, str(last.title), last.severity, *when, *counts, lowest.get(component))
            if component not in worst or row.badness < worst[component].badness:
                worst[component] = row
        for finding in self.findings:
            facts, part = finding.facts, finding.facts.get("component")
            if isinstance(part, Component):
                known = worst.get(part)
                turn = Turn.DEGRADES if facts.get("degrades") else Turn.FLAPS
                severities = [str(finding.severity), *([known.severity] if known else [])]
                when = float(facts.get("since_time") or 0.0), float(facts.get("last_time") or self._latest)
                counts = (known.sessions, known.of) if known else (0, 0)
                words = str(facts.get("words") or finding.rule.title)
                worse = min(severities, key=_SEVERITIES.index)
                worst[part] = Standout(part, turn, finding.rule.id, words, worse, *when, *counts, lowest.get(part))
        return sorted(worst.values(), key=lambda standout: standout.badness)[:MOST_COMPONENTS]

    def version_steps(self, since: float) -> list[VersionStep]:
        """Return new versions since a time (epoch seconds) that changed what is usual, the latest first."""
        steps = [
            VersionStep(finding.facts["since_time"], finding.rule.id, finding.rule.message.format_map(finding.facts))
            for finding in self.findings
            if isinstance(finding.rule, StepOfVersion) and finding.facts["since_time"] >= since
        ]
        return sorted(steps, key=lambda step: -step.since)

    @cached_property
    def findings(self) -> list[Finding]:
        """Findings of the rules about earlier sessions, the worst first."""
        return history_findings(self.evidence)

    @cached_property
    def evidence(self) -> PastEvidence:
        since = (self._latest - WINDOW * DAY) // DAY * DAY
        return PastEvidence(
            shares=self._shares(since),
            rates=self._rates(since),
            usual=self._usual(since),
            versions=self._versions(since),
            findings=self._found_on(since),
            probed=self._probed(since),
            holders=self._holders(),
            gpu_of=self._gpu_of(),
        )

    def _shares(self, since: float, only: _Only = None) -> dict[tuple[Component, str], list[Share]]:
        """Return the shares of a day by component, and by layer and class, of all components or of some."""
        shares: dict[tuple[Component, str], list[Share]] = {}
        for number, kind, day, first, mean, lowest, sessions, bad in self.rows(
            "SELECT component, kind, day, min(started), avg(share), min(share), count(*), sum(bad > 0)"
            " FROM share JOIN session ON session = number {where}"
            " GROUP BY component, kind, day ORDER BY component, kind, day",
            since // DAY * DAY,
            only=only,
        ):
            share = Share(moment(day * DAY), moment(first), float(mean), float(lowest), int(sessions), int(bad))
            shares.setdefault((self.components[number], str(kind)), []).append(share)
        return shares

    def _rates(self, since: float, only: _Only = None) -> dict[tuple[Component, str], list[HourlyRate]]:
        """Return the counts of each component by counter: differences of totals, else increases within sessions."""
        last = min(self._until, 1e12) // DAY
        rows = self._base.execute(
            "SELECT * FROM reading WHERE day >= ? AND day < ? ORDER BY component, counter, day", (since // DAY, last)
        )
        readings: dict[tuple[Component, str], list[tuple[Any, ...]]] = {}
        for number, name, *values in rows if only is None else (row for row in rows if row[0] in only):
            readings.setdefault((self.components[number], str(name)), []).append(tuple(values))
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
        for kind, size, day, value in self.rows(
            "SELECT kind, size, day, avg(value) FROM usual JOIN session ON session = number {where}"
            " GROUP BY kind, size, day ORDER BY day",
            since,
        ):
            usual.setdefault((kind, size), []).append((day, value))
        return usual

    def _versions(self, since: float) -> dict[int, dict[str, tuple[str, float]]]:
        versions: dict[int, dict[str, tuple[str, float]]] = {}
        for day, text, started in self.rows(
            "SELECT day, versions, min(started) FROM session {where} GROUP BY day, versions ORDER BY min(started)",
            since,
        ):
            known = versions.setdefault(day, {})
            for fact, version in mapping(text).items():
                if fact not in known or known[fact][0] != version:
                    known[fact] = version, started
        return versions

    def _found_on(self, since: float) -> dict[tuple[Component, str], list[FoundOn]]:
        days: dict[tuple[Component, str], list[FoundOn]] = {}
        for number, rule, day, first, *values in self.rows(
            "SELECT component, rule, day, min(started), count(DISTINCT session), place, title, min(severity)"
            " FROM finding JOIN session ON session = number {where}"
            " AND severity != 'note' AND component IS NOT NULL GROUP BY component, rule, day ORDER BY day",
            since,
        ):
            days.setdefault((self.components[number], rule), []).append(FoundOn(day, moment(first), *values))
        return days

    def _probed(self, since: float) -> dict[Component, dict[int, int]]:
        days: dict[Component, dict[int, int]] = {}
        for number, day, sessions in self.rows(
            "SELECT component, day, count(*) FROM seen JOIN session ON session = number {where}"
            " AND component IN (SELECT component FROM finding WHERE severity != 'note')"
            " GROUP BY component, day ORDER BY day",
            since,
        ):
            days.setdefault(self.components[number], {})[day] = sessions
        return days

    def _holders(self) -> dict[_Key, list[tuple[Component, float, float]]]:
        holders: dict[_Key, list[tuple[Component, float, float]]] = {}
        for number, part in self.components.items():
            for place, since, until in self._stays[number] if not part.by_name else ():
                holders.setdefault((part.kind, place), []).append((part, since, until))
        return {key: sorted(held, key=lambda stay: stay[1]) for key, held in holders.items() if len(held) > 1}

    def _gpu_of(self) -> dict[_Key, _Key]:
        known = self.components
        rows = self._base.execute("SELECT port, gpu FROM carrier ORDER BY until")
        return {known[port].key: known[gpu].key for port, gpu in rows if port in known and gpu in known}


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


class RememberedFindings:
    """Findings of the latest sessions of a site in memory, asked about while a frame is made; a `FindingPast`."""

    def __init__(self, base: sqlite3.Connection, path: Path, before: float) -> None:
        #: Start of each session that a rule found something in about a component, by kind and identity, and its place.
        self._of_component: dict[tuple[str, _Key], list[tuple[float, str]]] = {}
        self._of_key: dict[str, list[float]] = {}
        self._seen: dict[_Key, list[float]] = {}
        self._parts: tuple[object, Parts] | None = None
        past = SiteHistory(base, before)
        #: What the rules about earlier sessions find.
        self.findings = tuple(past.findings)
        #: What stands out in the 30 days before.
        self.overview = past.overview(path, start_before(before) if isfinite(before) else 0.0)
        #: Time and usual value of the latest session that has one, by kind (`fabtui.history.file.usual_name`).
        self.usual: Mapping[str, tuple[float, float]] = {
            kind: (started, value)
            for kind, value, started in past.rows(
                "SELECT kind, value, started FROM usual JOIN session ON session = number {where}"
                " ORDER BY started, size",
                0.0,
            )
        }
        rows = base.execute(
            "SELECT started FROM session WHERE started < ? ORDER BY started DESC LIMIT ?", (before, _MOST_REMEMBERED)
        )
        self._sessions = sorted(started for (started,) in rows)
        since = self._sessions[0] if self._sessions else inf
        for started, key, rule, number, place in past.rows(
            "SELECT started, finding.key, rule, component, place FROM finding JOIN session ON session = number {where}"
            " ORDER BY started",
            since,
        ):
            self._of_key.setdefault(key, []).append(started)
            if number is not None:
                self._of_component.setdefault((rule, past.components[number].key), []).append((started, place))
        for number, started in past.rows(
            "SELECT component, started FROM seen JOIN session ON session = number {where}"
            " AND component IN (SELECT component FROM finding) ORDER BY started",
            since,
        ):
            self._seen.setdefault(past.components[number].key, []).append(started)

    def about(self, model: Model, finding: Finding) -> Recurrence | None:
        """Return how earlier sessions had a finding; None if none did."""
        if not self._sessions or finding.rule.domain in (Domain.HISTORY, Domain.SUMMARY):
            return None
        components = self._blamed(model, finding)
        if not components:
            # No component is to blame, so that the same names are all that is known.
            return self._recurrence(model, self._of_key.get(finding_key(finding)[:500], []), self._sessions)
        return next(filter(None, (self._own(model, rule_of(finding), part) for part in components)), None)

    def _own(self, model: Model, rule: str, part: Component) -> Recurrence | None:
        """Return how earlier sessions had a finding about a component, at any place."""
        own = [(when, place) for when, place in self._of_component.get((rule, part.key), []) if when < model.started]
        if not own:
            return None
        moved = "" if part.by_name or own[-1][1] in ("", part.place) else own[-1][1]
        more = {"moved_from": moved, "moved": str(part.kind) if moved else ""}
        return self._recurrence(model, [when for when, _ in own], self._seen.get(part.key, self._sessions), **more)

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


def remembered(path: Path, before: float = inf) -> RememberedFindings | None:
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
