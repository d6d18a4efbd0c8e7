"""History of a site as JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fabtui.export.formats import cleaned, head, table_text, when
from fabtui.export.formats import json_text as text_of
from fabtui.history.components import Component
from fabtui.history.query import Course, Overview
from fabtui.presentation.component_history import overview_sentence
from fabtui.sanitize import one_line

#: Columns of the CSV: a row for each day and value, and for each finding.
COLUMNS = ("component", "identity", "place", "time", "what", "name", "value", "unit", "sessions", "lowest", "text")
#: Attributes that JSON has under their names, and their times.
_COMPONENT = ("kind", "identity", "place", "by_name")
_STANDOUT = ("turn", "rule", "severity", "title", "first", "last", "sessions", "of", "lowest")
_STEP = ("since", "rule", "title")
_STAY = ("place", "since", "until", "sessions")
_SHARE = ("day", "share", "lowest", "sessions", "bad")
_RATE = ("day", "per_hour", "events", "hours", "sessions")
_FINDING = ("rule", "severity", "subject", "title")
_TIMES = frozenset({"day", "first", "last", "since", "until"})


def json_text(overview: Overview) -> str:
    """Return the history as the text of a JSON file; times are ISO 8601 in UTC."""
    value = {
        **head("history"),
        "since": when(overview.since) or None,
        "subject": overview.subject or None,
        "sentence": overview_sentence(overview),
        "sessions": [
            {
                "started": when(one.started),
                "recording": one.recording or None,
                "software": one.software,
                "nodes": list(one.nodes),
                "endpoints": one.endpoints,
                "exit": one.exit_code,
                "sentence": one.text,
                "versions": dict(one.versions),
            }
            for one in overview.sessions
        ],
        "standouts": [
            {"component": _values(one.component, _COMPONENT), **_values(one, _STANDOUT)} for one in overview.standouts
        ],
        "version_steps": [_values(one, _STEP) for one in overview.version_steps],
        "courses": [_course(one) for one in overview.courses],
    }
    return text_of(cleaned(value))


def _values(one: object, names: Sequence[str]) -> dict[str, Any]:
    values = {name: getattr(one, name) for name in names}
    return values | {name: when(values[name]) for name in names if name in _TIMES}


def _course(course: Course) -> dict[str, Any]:
    return {
        "component": _values(course.component, _COMPONENT),
        "stays": [_values(one, _STAY) for one in course.stays],
        "shares": {name: [_values(one, _SHARE) for one in shares] for name, shares in course.shares.items()},
        "rates": {name: [_values(one, _RATE) for one in rates] for name, rates in course.rates.items()},
        "findings": [{"session": when(one.time), **_values(one, _FINDING)} for one in course.findings],
    }


def csv_text(overview: Overview) -> str:
    """Return the history as the text of a CSV file; unknown values are empty.

    Without a subject it has a row for each component that stands out, and for each step with new versions. Else it has
    one for each day and value, and finding.
    """
    rows = [*_course_rows(overview)] if overview.subject else [*_standout_rows(overview)]
    return table_text(COLUMNS, ([one_line(cell) if isinstance(cell, str) else cell for cell in row] for row in rows))


def _standout_rows(overview: Overview) -> Iterator[list[Any]]:
    for one in overview.standouts:
        values = [str(one.turn), one.rule, one.sessions, f"of {one.of} sessions", one.sessions, one.lowest, one.title]
        yield [*_names(one.component), when(one.last), *values]
    for step in overview.version_steps:
        yield ["", "", "", when(step.since), "version", step.rule, None, None, None, None, step.title]


def _course_rows(overview: Overview) -> Iterator[list[Any]]:
    for course in overview.courses:
        names = _names(course.component)
        for name, shares in course.shares.items():
            for share in shares:
                values = ["share", name, share.share, "of usual", share.sessions, share.lowest, None]
                yield [*names, when(share.day), *values]
        for name, rates in course.rates.items():
            for rate in rates:
                yield [*names, when(rate.day), "rate", name, rate.per_hour, "per hour", rate.sessions, None, None]
        for finding in course.findings:
            values = ["finding", finding.rule, None, finding.severity, None, None, finding.title]
            yield [*names, when(finding.time), *values]


def _names(one: Component) -> list[str]:
    return [str(one.kind), one.identity, one.place]
