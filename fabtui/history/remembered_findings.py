"""Findings of earlier sessions in memory: asked about each finding while a frame is made."""

from __future__ import annotations

from bisect import bisect_left
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fabtui.diagnosis.finding import Domain, Finding, Kind
from fabtui.diagnosis.merge_findings import finding_key
from fabtui.errors import InputError
from fabtui.history.component import Component
from fabtui.history.course import DAY
from fabtui.history.history_file import history_file, reading
from fabtui.history.overview import MOST_COMPONENTS, Overview, start_before
from fabtui.history.parts import Parts
from fabtui.history.site_history import SiteHistory
from fabtui.model.recurrence import Recurrence
from fabtui.model.session_model import Model

if TYPE_CHECKING:
    import sqlite3

#: Number of latest sessions that are remembered.
_MOST_SESSIONS = 500

_Key = tuple[str, str]


class _Time(NamedTuple):
    """A session that found something."""

    session: float  #: Start of the session (epoch seconds).
    place: str  #: Place of the component.
    component: _Key  #: Kind and identity of the component.


class RememberedFindings:
    """Findings of the latest sessions of a site; a `FindingPast`.

    Args:
        base: A connection to the file of the site.
        path: The file.
        before: Time (epoch seconds) from which sessions are left out.
    """

    def __init__(self, base: sqlite3.Connection, path: Path, before: float) -> None:
        self._of_component: dict[tuple[str, _Key], list[_Time]] = {}
        self._of_place: dict[tuple[str, str, str], list[_Time]] = {}
        self._of_key: dict[str, list[float]] = {}
        self._sessions: list[float] = []
        self._seen: dict[_Key, list[float]] = {}
        self._parts: tuple[object, Parts] | None = None
        past = SiteHistory(base, path, before)
        #: What the rules about earlier sessions find.
        self.findings = tuple(past.findings())
        since = start_before(before) if isfinite(before) else 0.0
        #: What stands out in the 30 days before.
        self.overview = Overview(
            *(path, since, before, past.count(since), (), past.worst(since, MOST_COMPONENTS)),
            version_steps=past.version_steps(since),
        )
        self._read(base, before)

    def _read(self, base: sqlite3.Connection, before: float) -> None:
        rows = base.execute(
            "SELECT started FROM session WHERE started < ? ORDER BY started DESC LIMIT ?", (before, _MOST_SESSIONS)
        )
        self._sessions = sorted(started for (started,) in rows)
        if not self._sessions:
            return
        times = (self._sessions[0], before)
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
                one = _Time(started, place or "", (kind, identity))
                self._of_component.setdefault((rule, one.component), []).append(one)
                self._of_place.setdefault((rule, kind, one.place), []).append(one)
        seen = base.execute(
            "SELECT kind, identity, started FROM seen JOIN session ON session.number = seen.session"
            " JOIN component ON component.number = seen.component WHERE started >= ? AND started < ?"
            " AND seen.component IN (SELECT component FROM finding) ORDER BY started",
            times,
        )
        for kind, identity, started in seen:
            self._seen.setdefault((kind, identity), []).append(started)

    def about(self, model: Any, finding: Any) -> Recurrence | None:
        """Return how earlier sessions had a finding; None if none did."""
        if not self._sessions or finding.rule.domain in (Domain.HISTORY, Domain.SUMMARY):
            return None
        components = self._components(model, finding)
        rule = f"{finding.rule.id} {finding.code}".strip()
        if not components:
            # No component is to blame, so that the same names are all that is known.
            times = self._of_key.get(finding_key(finding)[:500], [])
            return self._recurrence(model, sorted(set(times)), self._sessions)
        found = (self._own(model, rule, component) for component in components)
        return next(filter(None, found), None) or self._of_others(model, rule, components[0])

    def _own(self, model: Model, rule: str, component: Component) -> Recurrence | None:
        """Return how earlier sessions had a finding about a component, at any place."""
        key = str(component.kind), component.identity
        own = [one for one in self._of_component.get((rule, key), []) if one.session < model.started]
        if not own:
            return None
        moved = "" if component.by_name or own[-1].place in ("", component.place) else own[-1].place
        seen = self._seen.get(key, self._sessions)
        return self._recurrence(model, _starts(own), seen, moved_from=moved, moved=str(component.kind) if moved else "")

    def _of_others(self, model: Model, rule: str, component: Component) -> Recurrence | None:
        """Return how earlier sessions had a finding about components that were at the place of one."""
        key, kind = (str(component.kind), component.identity), str(component.kind)
        others = [
            one
            for one in self._of_place.get((rule, kind, component.place), [])
            if one.component != key and one.session < model.started
        ]
        if not others or component.by_name:
            return None
        seen = self._seen.get(others[-1].component, self._sessions)
        return self._recurrence(model, _starts(others), seen, stayed_after=others[-1].component[1])

    def _components(self, model: Model, finding: Finding) -> list[Component]:
        subject = finding.subject
        if subject.kind not in (Kind.GPU, Kind.NIC, Kind.NODE):
            return []
        state = id(model), model.layout, model.nodes_version
        if self._parts is None or self._parts[0] != state:
            self._parts = state, Parts(model)
        return self._parts[1].blamed(subject.name)

    def _recurrence(self, model: Model, times: list[float], seen: list[float], **more: str) -> Recurrence | None:
        times = [one for one in times if one < model.started]
        if not times:
            return None
        seen = seen[: bisect_left(seen, model.started)]
        found, running = set(times), 1
        for one in reversed(seen):
            if one not in found:
                break
            running += 1
        return Recurrence(
            first=times[0],
            last=times[-1],
            sessions_ago=max(1, len(seen) - bisect_left(seen, times[0])),
            times=len(times) + 1,
            days=(model.started - times[0]) / DAY,
            running=running,
            **more,
        )


def _starts(found: list[_Time]) -> list[float]:
    return sorted({one.session for one in found})


def remembered(path: Path, before: float = float("inf")) -> RememberedFindings | None:
    """Return the findings of a history before a time (epoch seconds); None without any.

    Raises:
        InputError: The file cannot be read, or should not.
    """
    with reading(path) as base:
        found = None if base is None else RememberedFindings(base, path, before)
    return found


def past_of(model: Model, path: Path | None = None) -> RememberedFindings | None:
    """Return the findings of sessions before the one of a model; None if there are none, or they cannot be read.

    A history that cannot be read keeps nobody from reading a recording: ``fabtui history`` names the problem.
    """
    try:
        return remembered(path or history_file(lab=bool(model.lab)), model.started)
    except InputError:
        return None
