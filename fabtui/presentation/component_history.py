"""Components in earlier sessions as texts: what stands out, and the course of each, the same for every front end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from fabtui.history.components import Component, date_of
from fabtui.history.query import Course, Overview, Standout, Turn
from fabtui.history.rules import HourlyRate, Share
from fabtui.nodeset import count
from fabtui.paths import history_file, recordings_folder
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.findings import span_text
from fabtui.presentation.numbers import percent_text, value_text
from fabtui.sanitize import one_line

#: Headings of components that stand out.
STANDOUT_HEADINGS = ("component", "what", "lowest", "sessions", "first seen", "finding", "rule", "last seen")
#: Columns of these that are text.
STANDOUT_TEXTS = (0, 1, 4, 5, 6, 7)
#: Headings of the values of a component, each a row with a sparkline.
SUMMARY_HEADINGS = ("value", "course", "days", "first", "latest", "worst", "on")
SUMMARY_TEXTS = (0, 1, 6)
FINDING_HEADINGS = ("session", "rule", "severity", "finding")
#: Number of latest days of a sparkline.
GRAPH_WIDTH = 40
#: Width of the columns beside a graph without the name of the value, and the least width of a graph.
_BESIDE, _LEAST_GRAPH = 48, 8
#: What stands out, in words for a sentence (one, several).
_SENTENCES = {
    Turn.DEGRADES: ("degrades", "degrade"),
    Turn.FLAPS: ("flaps", "flap"),
    Turn.NEW: ("is new", "are new"),
    Turn.LASTS: ("has a persistent finding", "have persistent findings"),
}
_WIDEST, _LONGEST = 60, 200
_DAY = 86400.0


def part_text(part: Component) -> str:
    """Return the kind, the place and the identity of a component: ``GPU n061:3 (GPU-5d1a...)``."""
    identity = "" if part.by_name or part.identity == part.place else f" ({one_line(part.identity, _WIDEST)})"
    return f"{_named(part)}{identity}"


def _named(part: Component) -> str:
    return f"{part.kind.words} {one_line(str(part), _WIDEST)}"


def overview_sentence(overview: Overview) -> str:
    """Return how many sessions are known, and how many components degrade, flap, are new, or have lasting findings."""
    since = f" since {date_of(overview.since)}" if overview.since else ""
    where = f"in {count(overview.total, 'session')}{since}"
    numbers = Counter(standout.turn for standout in overview.standouts)
    parts = [f"{numbers[turn]} {_SENTENCES[turn][numbers[turn] > 1]}" for turn in Turn if numbers[turn]]
    return f"{', '.join(parts) or 'no component stands out'} {where}"


def version_step_texts(overview: Overview) -> list[str]:
    return [f"{one_line(step.title, _LONGEST)}  {step.rule}" for step in overview.version_steps]


def empty_text(overview: Overview) -> str:
    if math.isfinite(overview.until):
        days = span_text((overview.until - overview.since) // _DAY)
        return f"the history has no session of the {days} before this recording"
    if overview.path.exists() and overview.since:
        since = date_of(overview.since)
        return f"no session since {since} is in the history {overview.path}; fabtui history --since 1y"
    adds = f"fabtui history add {recordings_folder()}/*.jsonl.gz adds recordings"
    labs = "; sessions of labs have their own: fabtui history --labs" if history_file(lab=True).exists() else ""
    labs = "" if overview.path == history_file(lab=True) else labs
    return f"no session is in the history yet: each session adds itself at its end, and {adds}{labs}"


def standout_cells(standout: Standout) -> list[str]:
    return [
        _named(standout.component),
        str(standout.turn),
        "-" if standout.lowest is None else percent_text(standout.lowest),
        f"{standout.sessions} of {standout.of}" if standout.of else "-",
        date_of(standout.first),
        one_line(standout.title, _LONGEST),
        standout.rule,
        date_of(standout.last),
    ]


def place_lines(course: Course) -> list[str]:
    """Return where a component was, the latest first; none where it was at one place all the time."""
    if len(course.stays) < 2:
        return []
    lines = []
    for at, stay in enumerate(reversed(course.stays)):
        when = f"since {date_of(stay.since)}" if not at else f"{date_of(stay.since)} to {date_of(stay.until)}"
        lines.append(f"{one_line(stay.place, _WIDEST)} {when} ({count(stay.sessions, 'session')})")
    return lines


def moved_text(course: Course) -> str:
    """Return from where a component came to its place: ``moved from n012:3 on 2026-11-03``; "" if it did not move."""
    if len(course.stays) < 2:
        return ""
    before, now = course.stays[-2:]
    return f"moved from {one_line(before.place, _WIDEST)} on {date_of(now.since)}"


class CourseRow(NamedTuple):
    """One quantity of a component over days, as text."""

    what: str  #: Layer and class (``p2p same-rail, of usual``), or the counter (``symbol_error, per hour``).
    graph: str  #: A bar for each of the latest days with results.
    days: str  #: Number of days.
    first: str  #: Value of the first day.
    latest: str  #: Value of the latest day.
    worst: str  #: Lowest share, or highest rate.
    on: str  #: Day of that value.


def _counting(course: Course) -> dict[str, Sequence[HourlyRate]]:
    return {name: rates for name, rates in course.rates.items() if any(day.events for day in rates)}


def course_rows(course: Course, glyphs: Glyphs, width: int | None = None) -> list[CourseRow]:
    """Return a row for each bandwidth and each counter of a component; counters that never counted are left out.

    The graphs leave room for the other columns in lines of a width; None: they have at most `GRAPH_WIDTH` days.
    """
    rows = []
    for name, shares in course.shares.items():
        lowest, values = min(shares, key=lambda day: day.lowest), [day.share for day in shares]
        first, latest, worst = map(percent_text, (values[0], values[-1], lowest.lowest))
        graph = bars(values, max(1.0, *values), glyphs)
        what = f"{one_line(name, _WIDEST)}, of usual"
        rows.append(CourseRow(what, graph, str(len(shares)), first, latest, worst, date_of(lowest.day)))
    for name, days in _counting(course).items():
        highest, rates = max(days, key=lambda day: day.per_hour or 0.0), [day.per_hour for day in days]
        first, latest, worst = map(value_text, (rates[0], rates[-1], highest.per_hour))
        graph = bars(rates, highest.per_hour or 0.0, glyphs)
        what = f"{one_line(name, _WIDEST)}, per hour"
        rows.append(CourseRow(what, graph, str(len(days)), first, latest, worst, date_of(highest.day)))
    room = max([len(row.what) for row in rows], default=0) + _BESIDE
    most = GRAPH_WIDTH if width is None else min(GRAPH_WIDTH, max(_LEAST_GRAPH, width - room))
    return [row._replace(graph=row.graph[-most:]) for row in rows]


def bars(values: Sequence[float | None], most: float, glyphs: Glyphs) -> str:
    """Return the latest values as a sparkline whose full height is ``most``; unknown ones are blank."""
    top = len(glyphs.blocks) - 1
    latest = values[-GRAPH_WIDTH:]
    shares = (None if value is None or most <= 0 else min(1.0, max(0.0, value / most)) for value in latest)
    return "".join(" " if share is None else glyphs.blocks[round(share * top)] for share in shares)


def day_rows(course: Course) -> list[list[str]]:
    """Return a table of the days, the latest first, with a heading: of each bandwidth the share of usual, and rates."""
    sessions: dict[float, int] = {}
    columns: dict[str, dict[float, str]] = {}
    for name, shares in course.shares.items():
        columns[one_line(name, _WIDEST)] = {day.day: percent_text(day.share) for day in shares}
    for name, rates in _counting(course).items():
        columns[f"{one_line(name, _WIDEST)}/h"] = {day.day: value_text(day.per_hour) for day in rates}
    every: list[Sequence[Share | HourlyRate]] = [*course.shares.values(), *_counting(course).values()]
    for each in (each for days in every for each in days):
        sessions[each.day] = max(each.sessions, sessions.get(each.day, 0))
    rows = (
        [date_of(day), str(sessions[day]), *(texts.get(day, "-") for texts in columns.values())]
        for day in sorted(sessions, reverse=True)
    )
    return [["day", "sessions", *columns], *rows] if columns else []


def finding_rows(course: Course) -> list[list[str]]:
    return [
        [date_of(each.time), each.rule, each.severity, one_line(each.title, _LONGEST)]
        for each in reversed(course.findings)
    ]
