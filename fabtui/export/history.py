"""History of a site as JSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fabtui.export.csv_table import table_text, when
from fabtui.export.json_schemas import FORMATS, address, cleaned
from fabtui.history.component import Component
from fabtui.history.course import Course
from fabtui.presentation.component_history import overview_sentence
from fabtui.sanitize import one_line

if TYPE_CHECKING:
    from fabtui.history.overview import Overview

KIND = "fabtui history"
#: Columns of the CSV: a row for each day and value, and for each finding.
COLUMNS = ("component", "identity", "place", "time", "what", "name", "value", "unit", "sessions", "lowest", "text")


def json_text(found: Overview) -> str:
    """Return the history as the text of a JSON file; times are ISO 8601 in UTC."""
    value = {
        "kind": KIND,
        "format": FORMATS["history"],
        "$schema": address("history"),
        "since": when(found.since) or None,
        "subject": found.subject or None,
        "sentence": overview_sentence(found),
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
            for one in found.sessions
        ],
        "standouts": [
            {
                "component": _component(one.component),
                "turn": str(one.turn),
                "rule": one.rule,
                "severity": one.severity,
                "title": one.title,
                "first": when(one.first),
                "last": when(one.last),
                "sessions": one.sessions,
                "of": one.of,
                "lowest": one.lowest,
            }
            for one in found.standouts
        ],
        "courses": [_course(one) for one in found.courses],
    }
    return json.dumps(cleaned(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _component(one: Component) -> dict[str, Any]:
    return {"kind": str(one.kind), "identity": one.identity, "place": one.place, "by_name": one.by_name}


def _course(course: Course) -> dict[str, Any]:
    return {
        "component": _component(course.component),
        "stays": [
            {"place": one.place, "since": when(one.since), "until": when(one.until), "sessions": one.sessions}
            for one in course.stays
        ],
        "shares": {
            name: [
                {
                    "day": when(one.day),
                    "share": one.share,
                    "lowest": one.lowest,
                    "sessions": one.sessions,
                    "bad": one.bad,
                }
                for one in shares
            ]
            for name, shares in course.shares.items()
        },
        "rates": {
            name: [
                {
                    "day": when(one.day),
                    "per_hour": one.per_hour,
                    "events": one.events,
                    "hours": one.hours,
                    "sessions": one.sessions,
                }
                for one in rates
            ]
            for name, rates in course.rates.items()
        },
        "findings": [
            {
                "session": when(one.time),
                "rule": one.rule,
                "severity": one.severity,
                "subject": one.subject,
                "title": one.title,
            }
            for one in course.findings
        ],
        "xids": [{"session": when(time), "xid": xid, "count": number} for time, xid, number in course.xids],
    }


def csv_text(found: Overview) -> str:
    """Return the history as the text of a CSV file; unknown values are empty.

    Without a subject it has a row for each component that stands out, else one for each day and value, and finding.
    """
    rows = [*_course_rows(found)] if found.subject else [*_standout_rows(found)]
    return table_text(COLUMNS, ([one_line(cell) if isinstance(cell, str) else cell for cell in row] for row in rows))


def _standout_rows(found: Overview) -> Iterator[list[Any]]:
    for one in found.standouts:
        values = [str(one.turn), one.rule, one.sessions, f"of {one.of} sessions", one.sessions, one.lowest, one.title]
        yield [*_names(one.component), when(one.last), *values]


def _course_rows(found: Overview) -> Iterator[list[Any]]:
    for course in found.courses:
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
        for time, xid, number in course.xids:
            yield [*names, when(time), "xid", str(xid), number, "times", None, None, None]


def _names(one: Component) -> list[str]:
    return [str(one.kind), one.identity, one.place]
