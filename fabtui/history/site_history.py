"""The history of a site: typed queries over its file."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fabtui.diagnosis.finding import Finding, Severity
from fabtui.history.component import Component, PartKind
from fabtui.history.course import (
    DAY,
    Course,
    HourlyRate,
    PastSession,
    Share,
    Sighting,
    Standout,
    Stay,
    Turn,
    VersionStep,
)
from fabtui.history.foreign_values import mapping, moment
from fabtui.history.history_file import history_file, reading
from fabtui.history.history_rules import StepOfVersion, history_findings
from fabtui.history.past_evidence import EvidenceReader, FoundOn, PastEvidence, read_evidence

if TYPE_CHECKING:
    import sqlite3

#: Maximum number of components that a subject stands for.
_MOST_PARTS = 500
_SEVERITIES: tuple[str, ...] = tuple(Severity)
_SESSION = (
    "SELECT number, started, ended, recording, software, nodes, endpoints, exit, text, lab,"
    " verdicts, versions, settings FROM session"
)


class HistorySize(NamedTuple):
    """Size of a history."""

    sessions: int
    components: int
    bytes: int


class SiteHistory:
    """Queries over the file of a site; without a file all are empty. Sessions from ``until`` on are left out."""

    def __init__(self, base: sqlite3.Connection | None, path: Path, until: float = float("inf")) -> None:
        self._base = base
        self._until = until
        self.path = path
        self._evidence: PastEvidence | None = None
        self._findings: list[Finding] | None = None

    @property
    def is_empty(self) -> bool:
        """True if it holds no session."""
        return self._base is None or self._base.execute("SELECT 1 FROM session LIMIT 1").fetchone() is None

    def size(self) -> HistorySize:
        """Return the number of sessions and components, and the bytes of the file."""
        if self._base is None:
            return HistorySize(0, 0, 0)
        sessions, components = self._base.execute(
            "SELECT (SELECT count(*) FROM session), (SELECT count(*) FROM component)"
        ).fetchone()
        return HistorySize(sessions, components, self.path.stat().st_size)

    def sessions(self, since: float = 0.0, most: int = 1000) -> list[PastSession]:
        """Return the sessions that began after a time (epoch seconds), the newest first."""
        if self._base is None:
            return []
        rows = self._base.execute(
            f"{_SESSION} WHERE started >= ? AND started < ? ORDER BY started DESC LIMIT ?", (since, self._until, most)
        )
        return [_session(row) for row in rows]

    def count(self, since: float = 0.0) -> int:
        """Return the number of sessions that began after a time (epoch seconds)."""
        if self._base is None:
            return 0
        found = self._base.execute(
            "SELECT count(*) FROM session WHERE started >= ? AND started < ?", (since, self._until)
        )
        return int(found.fetchone()[0])

    @property
    def latest(self) -> float:
        """Start of the latest session (epoch seconds); 0 without any."""
        if self._base is None:
            return 0.0
        found = self._base.execute("SELECT max(started) FROM session WHERE started < ?", (self._until,))
        return float(found.fetchone()[0] or 0.0)

    def evidence(self) -> PastEvidence:
        """Return the evidence for the rules, up to the latest session."""
        if self._evidence is None:
            self._evidence = (
                PastEvidence() if self._base is None else read_evidence(self._base, self.latest, self._until)
            )
        return self._evidence

    def findings(self) -> list[Finding]:
        """Return what the rules about earlier sessions find, the worst first."""
        if self._findings is None:
            self._findings = history_findings(self.evidence())
        return self._findings

    def find(self, subject: str) -> list[Component]:
        """Return the components that a subject names; [] if it names none.

        A node stands for itself and its parts, an endpoint for its GPU, its links and ports. Also names of ports
        (``n061 mlx5_0/1``), identities (GUID, UUID, serial number), and the beginning of one identity.
        """
        if self._base is None or not subject:
            return []
        reader = EvidenceReader(self._base, 0.0)
        by_place = self._base.execute(
            "SELECT DISTINCT component FROM stay JOIN word ON number = place"
            " WHERE text = ? OR substr(text, 1, ?) IN (?, ?) LIMIT ?",
            (subject, len(subject) + 1, f"{subject} ", f"{subject}:", _MOST_PARTS),
        )
        found = [reader.component(number) for (number,) in by_place]
        found += [one for one in self._ports_of(reader, found) if one not in found]
        if not found:
            by_identity = self._base.execute(
                "SELECT number FROM component WHERE substr(identity, 1, ?) = ? COLLATE NOCASE LIMIT ?",
                (len(subject), subject, _MOST_PARTS),
            )
            found = [reader.component(number) for (number,) in by_identity]
            if exact := [one for one in found if one.identity.lower() == subject.lower()]:
                found = exact
        order = list(PartKind)
        return sorted(found, key=lambda one: (order.index(one.kind), one.place, one.identity))

    def _ports_of(self, reader: EvidenceReader, gpus: list[Component]) -> list[Component]:
        keys = {one.key for one in gpus if one.kind is PartKind.GPU}
        ports = [port for port, gpu in reader.gpu_of().items() if gpu in keys]
        return [one for one in reader.known() if one.key in ports]

    def history_of(self, subject: str | Component, since: float = 0.0) -> list[Course]:
        """Return the course of each component that a subject names, since a time (epoch seconds)."""
        if self._base is None:
            return []
        components = [subject] if isinstance(subject, Component) else self.find(subject)
        return [self._course(one, since) for one in components]

    def _course(self, one: Component, since: float) -> Course:
        assert self._base is not None
        key = str(one.kind), one.identity, one.by_name
        row = self._base.execute(
            "SELECT number FROM component WHERE kind = ? AND identity = ? AND by_name = ?", key
        ).fetchone()
        if row is None:
            return Course(one)
        reader = EvidenceReader(self._base, since, row[0], self._until)
        return Course(
            one,
            tuple(self._stays(row[0])),
            {str(kind): tuple(map(_checked_share, shares)) for (_, kind), shares in reader.shares().items()},
            {str(name): tuple(map(_checked_rate, rates)) for (_, name), rates in reader.rates().items()},
            tuple(self._sightings(row[0], since)),
            tuple(self._xids(row[0], since)),
        )

    def _stays(self, number: int) -> Iterator[Stay]:
        assert self._base is not None
        rows = self._base.execute(
            "SELECT text, since, until, (SELECT count(*) FROM seen WHERE seen.component = stay.component"
            " AND seen.place = stay.place) FROM stay JOIN word ON number = place"
            " WHERE component = ? AND since < ? ORDER BY since",
            (number, self._until),
        )
        return (Stay(str(place), moment(since), moment(until), int(count)) for place, since, until, count in rows)

    def _sightings(self, number: int, since: float) -> Iterator[Sighting]:
        assert self._base is not None
        rows = self._base.execute(
            "SELECT session, started, rules.text, severity, subjects.text, titles.text FROM finding"
            " JOIN session ON session.number = session JOIN word AS rules ON rules.number = rule"
            " JOIN word AS subjects ON subjects.number = subject JOIN word AS titles ON titles.number = title"
            " WHERE component = ? AND started >= ? AND started < ? ORDER BY started",
            (number, since, self._until),
        )
        return (Sighting(int(session), moment(started), *map(str, words)) for session, started, *words in rows)

    def _xids(self, number: int, since: float) -> Iterator[tuple[float, int, int]]:
        assert self._base is not None
        rows = self._base.execute(
            "SELECT started, xid, count FROM xid JOIN session ON session = number"
            " WHERE component = ? AND started >= ? AND started < ? ORDER BY started",
            (number, since, self._until),
        )
        return ((moment(started), int(xid), int(times)) for started, xid, times in rows)

    def worst(self, since: float, most: int = 20) -> list[Standout]:
        """Return the components that stand out since a time (epoch seconds), the worst first."""
        evidence = self.evidence()
        first_day = int(since // DAY)
        lowest = _lowest_shares(evidence, since)
        found: dict[Component, Standout] = {}
        for (component, rule), days in evidence.findings.items():
            # A finding about a cable is one about its port.
            if component.kind is not PartKind.CABLE and any(day.day >= first_day for day in days):
                one = _standout(component, rule, days, evidence.probed.get(component, {}), first_day, lowest)
                if component not in found or _badness(one) < _badness(found[component]):
                    found[component] = one
        for finding in self.findings():
            part = finding.facts.get("component")
            if isinstance(part, Component):
                found[part] = self._judged(part, finding, found.get(part), lowest)
        return sorted(found.values(), key=_badness)[:most]

    def version_steps(self, since: float) -> list[VersionStep]:
        """Return new versions since a time (epoch seconds) that changed what is usual, the latest first."""
        found = [
            VersionStep(one.facts["since_time"], one.rule.id, one.rule.message.format_map(one.facts))
            for one in self.findings()
            if isinstance(one.rule, StepOfVersion) and one.facts["since_time"] >= since
        ]
        return sorted(found, key=lambda one: -one.since)

    def _judged(
        self, component: Component, finding: Finding, known: Standout | None, lowest: Mapping[Component, float]
    ) -> Standout:
        """Return a component with a finding of the history, and the worse of its severities."""
        facts = finding.facts
        severities = [str(finding.severity)] + ([known.severity] if known else [])
        return Standout(
            component,
            Turn.DEGRADES if facts.get("degrades") else Turn.FLAPS,
            finding.rule.id,
            str(facts.get("words") or finding.rule.title),
            min(severities, key=_SEVERITIES.index),
            float(facts.get("since_time") or 0.0),
            float(facts.get("last_time") or self.latest),
            known.sessions if known else 0,
            known.of if known else 0,
            lowest.get(component),
        )


def _lowest_shares(evidence: PastEvidence, since: float) -> dict[Component, float]:
    found: dict[Component, float] = {}
    for (component, _), days in evidence.shares.items():
        if recent := [float(day.lowest) for day in days if day.first >= since]:
            found[component] = min(*recent, found.get(component, recent[0]))
    return found


# SQLite keeps what a column is given, so that a damaged file may hold any type.


def _checked_share(one: Share) -> Share:
    share, lowest = float(one.share), float(one.lowest)
    return Share(moment(one.day), moment(one.first), share, lowest, int(one.sessions), int(one.bad))


def _checked_rate(one: HourlyRate) -> HourlyRate:
    return HourlyRate(moment(one.day), moment(one.first), int(one.events), float(one.hours), int(one.sessions))


def _standout(
    component: Component,
    rule: str,
    days: Sequence[FoundOn],
    probed: Mapping[int, int],
    first_day: int,
    lowest: Mapping[Component, float],
) -> Standout:
    recent = [one for one in days if one.day >= first_day]
    seen = {day: sessions for day, sessions in probed.items() if day >= first_day}
    last, times = recent[-1], sum(one.sessions for one in recent)
    turn = _turn(days, recent, [*seen], first_day)
    return Standout(
        component,
        turn,
        rule,
        str(last.title),
        last.severity,
        moment(days[0].time),
        moment(last.time),
        times,
        max(times, sum(seen.values())),
        lowest.get(component),
    )


def _turn(days: Sequence[FoundOn], recent: Sequence[FoundOn], probed: Sequence[int], first_day: int) -> Turn:
    found = {one.day for one in recent}
    states = [day in found for day in probed]
    if sum(a and not b for a, b in itertools.pairwise(states)) > 1:
        return Turn.FLAPS
    return Turn.NEW if days[0].day >= first_day and len(recent) <= 2 else Turn.LASTS


def _badness(one: Standout) -> tuple[int, int, int, float]:
    return _SEVERITIES.index(one.severity), list(Turn).index(one.turn), -one.sessions, -one.last


def _session(row: tuple[object, ...]) -> PastSession:
    *plain, verdicts, versions, settings = row
    number, started, ended, recording, software, nodes, endpoints, code, text, lab = plain
    return PastSession(
        int(str(number)),
        moment(started),
        moment(ended),
        str(recording),
        str(software),
        tuple(map(str, json.loads(str(nodes)))),
        int(str(endpoints)),
        None if code is None else int(str(code)),
        str(text),
        str(lab),
        *map(mapping, (verdicts, versions, settings)),
    )


@contextlib.contextmanager
def open_history(path: Path | None = None, until: float = float("inf")) -> Iterator[SiteHistory]:
    """Yield the history of a site before a time (epoch seconds); an empty one if there is no file.

    Raises:
        InputError: The file is not one, is of a newer fabtui, or can be changed by others.
    """
    found = path or history_file()
    with reading(found) as base:
        yield SiteHistory(base, found, until)
