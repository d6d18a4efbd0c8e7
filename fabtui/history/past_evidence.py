"""Evidence of earlier sessions: the context of the rules of the domain ``history``, read from the file at once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fabtui.history.component import Component, PartKind
from fabtui.history.course import DAY, HourlyRate, Share

if TYPE_CHECKING:
    import sqlite3

#: Days whose courses are compared.
WINDOW = 120
#: Hours from which the increase within sessions is a rate, where no earlier total is known.
_LEAST_HOURS = 1.0
#: Days without a reading after which two totals are not compared: much may have happened.
_LONGEST_GAP = 60
_SHARES = (
    "SELECT component, text, day, first, total, lowest, sessions, bad FROM share_day JOIN word ON number = kind"
    " WHERE +day >= ? AND +day < ? AND TRUE ORDER BY component, kind, day"
)
_READINGS = (
    "SELECT component, text, day, first, time, total, increase, hours, sessions FROM reading"
    " JOIN word ON number = counter WHERE +day >= ? AND +day < ? AND TRUE ORDER BY component, counter, day"
)


class FoundOn(NamedTuple):
    """A day on which a rule found something about a component."""

    day: int  #: Days since the epoch.
    time: float  #: Start of the first session of the day (epoch seconds).
    sessions: int  #: Number of sessions that found it.
    place: str  #: Where the component was.
    title: str  #: Title of the finding.
    severity: str  #: Severity of the finding.


class UsualOn(NamedTuple):
    """Usual value of a class on a day."""

    day: int
    time: float  #: Start of the first session of the day (epoch seconds).
    value: float  #: Mean of the sessions.
    sessions: int


class VersionsOn(NamedTuple):
    """Versions of the software on a day."""

    most: Mapping[str, str]  #: Version that most sessions had, by fact.
    first: Mapping[tuple[str, str], float]  #: Start of the first session that had a version of a fact (epoch seconds).


@dataclass
class PastEvidence:
    """Observations of earlier sessions about components, by day."""

    shares: dict[tuple[Component, str], list[Share]] = field(default_factory=dict)  #: By component, layer and class.
    rates: dict[tuple[Component, str], list[HourlyRate]] = field(default_factory=dict)  #: By component and counter.
    usual: dict[tuple[str, int], list[UsualOn]] = field(default_factory=dict)  #: By class with hardware, and size.
    versions: dict[int, VersionsOn] = field(default_factory=dict)  #: By day.
    findings: dict[tuple[Component, str], list[FoundOn]] = field(default_factory=dict)  #: By component and rule.
    #: Days that saw a component of `findings`, with the number of sessions.
    probed: dict[Component, dict[int, int]] = field(default_factory=dict)
    #: Components of a kind that were at one place one after the other, with the first and last time there.
    holders: dict[tuple[PartKind, str], list[tuple[Component, float, float]]] = field(default_factory=dict)
    #: GPU of each port, by their keys.
    gpu_of: dict[tuple[PartKind, str], tuple[PartKind, str]] = field(default_factory=dict)


class EvidenceReader:
    """Reads what the file holds between two times (epoch seconds), of all components or of one by its number.

    What days saw ends with the day before ``until``: a day is one value.
    """

    def __init__(
        self, base: sqlite3.Connection, since: float, only: int | None = None, until: float = float("inf")
    ) -> None:
        self.base, self.since, self.until = base, since, until
        self.last_day = 1 << 40 if until == float("inf") else int(until // DAY)
        # The unary plus keeps SQLite from the index that serves all components.
        self._of = "" if only is None else f"AND component = {only:d}"
        self._day = "day" if only is None else "+day"
        self.first_day = int(since // DAY)
        self._components: dict[int, Component] = {}

    def component(self, number: int) -> Component:
        """Return a component with the place where it was seen last."""
        if (found := self._components.get(number)) is None:
            kind, identity, by_name = self.base.execute(
                "SELECT kind, identity, by_name FROM component WHERE number = ?", (number,)
            ).fetchone()
            place = self.base.execute(
                "SELECT text FROM stay JOIN word ON number = place WHERE component = ? ORDER BY until DESC LIMIT 1",
                (number,),
            ).fetchone()
            found = Component(PartKind(kind), identity, place[0] if place else identity, bool(by_name))
            self._components[number] = found
        return found

    def known(self) -> list[Component]:
        """Return the components that were read so far."""
        return list(self._components.values())

    def shares(self) -> dict[tuple[Component, str], list[Share]]:
        """Return the shares of each component by layer and class."""
        found: dict[tuple[Component, str], list[Share]] = {}
        rows = self.base.execute(
            _SHARES.replace("+day", self._day).replace("AND TRUE", self._of),
            (self.first_day, self.last_day),
        )
        key, days = None, list[Share]()
        for number, kind, day, first, total, lowest, sessions, bad in rows:
            if key != (number, kind):
                key, days = (number, kind), found.setdefault((self.component(number), kind), [])
            days.append(Share(day * DAY, first, total / sessions, lowest, sessions, bad))
        return found

    def rates(self) -> dict[tuple[Component, str], list[HourlyRate]]:
        """Return the counts of each component by counter: differences of totals, else increases within sessions."""
        found: dict[tuple[Component, str], list[HourlyRate]] = {}
        rows = self.base.execute(
            _READINGS.replace("+day", self._day).replace("AND TRUE", self._of),
            (self.first_day, self.last_day),
        )
        key, before, days = None, None, list[HourlyRate]()
        for number, name, day, first, time, total, increase, hours, sessions in rows:
            if key != (number, name):
                key, before, days = (number, name), None, found.setdefault((self.component(number), name), [])
            # One event in a session of seconds would be hundreds per hour.
            count, length = increase, hours if hours >= _LEAST_HOURS else 0.0
            if before is not None and total is not None and time - before[0] < _LONGEST_GAP * DAY:
                length = (time - before[0]) / 3600
                # After a reset, or a reboot, it counts from zero.
                count = total - before[1] if total >= before[1] else total
            if total is not None:
                before = time, total
            days.append(HourlyRate(day * DAY, first, count, length, sessions))
        return _with_zeros(found)

    def usual(self) -> dict[tuple[str, int], list[UsualOn]]:
        """Return the usual values of each class by message size."""
        found: dict[tuple[str, int], list[UsualOn]] = {}
        rows = self.base.execute(
            "SELECT text, size, day, first, total / sessions, sessions FROM usual_day JOIN word ON number = kind"
            " WHERE day >= ? AND day < ? ORDER BY day",
            (self.first_day, self.last_day),
        )
        for kind, size, day, first, value, sessions in rows:
            found.setdefault((kind, size), []).append(UsualOn(day, first, value, sessions))
        return found

    def versions(self) -> dict[int, VersionsOn]:
        """Return the versions of each day."""
        counts: dict[int, dict[str, Counter[str]]] = {}
        first: dict[int, dict[tuple[str, str], float]] = {}
        rows = self.base.execute(
            "SELECT cast(started / ? AS INTEGER) AS day, versions, count(*), min(started) FROM session"
            " WHERE started >= ? AND started < ? GROUP BY day, versions ORDER BY min(started)",
            (DAY, self.since, self.until),
        )
        for day, text, sessions, started in rows:
            for fact, version in json.loads(text).items():
                counts.setdefault(day, {}).setdefault(fact, Counter())[version] += sessions
                first.setdefault(day, {}).setdefault((fact, version), started)
        return {
            day: VersionsOn({fact: versions.most_common(1)[0][0] for fact, versions in facts.items()}, first[day])
            for day, facts in counts.items()
        }

    def findings(self) -> dict[tuple[Component, str], list[FoundOn]]:
        """Return the days on which a rule found something about a component, notes left out."""
        found: dict[tuple[Component, str], list[FoundOn]] = {}
        rows = self.base.execute(
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
            (DAY, self.since, self.until),
        )
        for number, rule, day, first, sessions, place, title, severity in rows:
            one = FoundOn(day, first, sessions, place or "", title, severity)
            found.setdefault((self.component(number), rule), []).append(one)
        return found

    def probed(self, components: set[Component]) -> dict[Component, dict[int, int]]:
        """Return the days on which sessions saw components, with the number of sessions."""
        numbers = {number for number, one in self._components.items() if one in components}
        found = {}
        for number in numbers:
            rows = self.base.execute(
                "SELECT day, sessions FROM seen_day WHERE component = ? AND day >= ? AND day < ? ORDER BY day",
                (number, self.first_day, self.last_day),
            )
            found[self.component(number)] = dict(rows)
        return found

    def holders(self) -> dict[tuple[PartKind, str], list[tuple[Component, float, float]]]:
        """Return the places that several components of a kind held one after the other."""
        found: dict[tuple[PartKind, str], list[tuple[Component, float, float]]] = {}
        rows = self.base.execute(
            "SELECT stay.component, text, since, until FROM stay JOIN word ON word.number = place"
            " WHERE place IN (SELECT place FROM stay GROUP BY place HAVING count(*) > 1) ORDER BY since"
        )
        for number, place, since, until in rows:
            one = self.component(number)
            if not one.by_name:
                found.setdefault((one.kind, place), []).append((one, since, until))
        return {key: held for key, held in found.items() if len(held) > 1}

    def gpu_of(self) -> dict[tuple[PartKind, str], tuple[PartKind, str]]:
        """Return the GPU of each port."""
        rows = self.base.execute("SELECT port, gpu FROM carrier ORDER BY until")
        return {self.component(port).key: self.component(gpu).key for port, gpu in rows}


def _with_zeros(
    found: dict[tuple[Component, str], list[HourlyRate]],
) -> dict[tuple[Component, str], list[HourlyRate]]:
    """Return the rates, with the days before the first count of a link, which only its GPU has."""
    gpus = {(one.identity, name): days for (one, name), days in found.items() if one.kind is PartKind.GPU}
    for (one, name), days in found.items():
        whole = gpus.get((one.identity.rpartition("/")[0], name), []) if one.kind is PartKind.NVLINK else []
        before = [day for day in whole if day.day < days[0].day]
        at = next((day for day in whole if day.day == days[0].day), None)
        if before and at is not None:
            # The link had counted nothing at the reading before.
            first = days[0]._replace(events=max(days[0].events, at.events), hours=at.hours)
            days[:] = [*(day._replace(events=0) for day in before), first, *days[1:]]
    return found


def read_evidence(base: sqlite3.Connection, latest: float, until: float = float("inf")) -> PastEvidence:
    """Return the evidence of the days before the latest session (epoch seconds), and of sessions before ``until``."""
    reader = EvidenceReader(base, latest - WINDOW * DAY, until=until)
    findings = reader.findings()
    return PastEvidence(
        shares=reader.shares(),
        rates=reader.rates(),
        usual=reader.usual(),
        versions=reader.versions(),
        findings=findings,
        probed=reader.probed({component for component, _ in findings}),
        holders=reader.holders(),
        gpu_of=reader.gpu_of(),
    )
