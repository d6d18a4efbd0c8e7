"""Components in earlier sessions as texts: what stands out, and the course of each, the same for every front end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from fabtui.history.components import Component
from fabtui.history.query import Course, Overview, Standout, Turn
from fabtui.history.rules import HourlyRate, Share
from fabtui.nodeset import count
from fabtui.paths import recordings_folder
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.numbers import percent_text, value_text
from fabtui.presentation.recurrence import date_text, span_text
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
#: What stands out, in words for a list and for a sentence (one, several).
TURN_WORDS = {Turn.DEGRADES: "degrades", Turn.FLAPS: "flaps", Turn.NEW: "new", Turn.LASTS: "lasts"}
_SENTENCES = {
    Turn.DEGRADES: ("degrades", "degrade"),
    Turn.FLAPS: ("flaps", "flap"),
    Turn.NEW: ("is new", "are new"),
    Turn.LASTS: ("has a persistent finding", "have persistent findings"),
}
_WIDEST, _LONGEST = 60, 200
_DAY = 86400.0


def part_text(one: Component) -> str:
    """Return the kind, the place and the identity of a component: ``GPU n061:3 (GPU-5d1a...)``."""
    identity = "" if one.by_name or one.identity == one.place else f" ({one_line(one.identity, _WIDEST)})"
    return f"{one.kind.words} {one_line(str(one), _WIDEST)}{identity}"


def overview_sentence(found: Overview) -> str:
    """Return how many sessions are known, and how many components degrade, flap, are new, or have lasting findings."""
    since = f" since {date_text(found.since)}" if found.since else ""
    where = f"in {count(found.total, 'session')}{since}"
    numbers = Counter(one.turn for one in found.standouts)
    parts = [f"{numbers[turn]} {_SENTENCES[turn][numbers[turn] > 1]}" for turn in TURN_WORDS if numbers[turn]]
    return f"{', '.join(parts) or 'no component stands out'} {where}"


def version_step_texts(found: Overview) -> list[str]:
    return [f"{one_line(one.title, _LONGEST)}  {one.rule}" for one in found.version_steps]


def empty_text(found: Overview) -> str:
    if math.isfinite(found.until):
        days = span_text((found.until - found.since) // _DAY)
        return f"the history has no session of the {days} before this recording"
    if found.path.exists() and found.since:
        return f"no session since {date_text(found.since)} is in the history {found.path}; fabtui history --since 1y"
    adds = f"fabtui history add {recordings_folder()}/*.jsonl.gz adds recordings"
    return f"no session is in the history yet: each session adds itself at its end, and {adds}"


def standout_cells(one: Standout) -> list[str]:
    """Return the cells of a component that stands out, below `STANDOUT_HEADINGS`."""
    return [
        f"{one.component.kind.words} {one_line(str(one.component), _WIDEST)}",
        TURN_WORDS[one.turn],
        share_text(one.lowest),
        f"{one.sessions} of {one.of}" if one.of else "-",
        date_text(one.first),
        one_line(one.title, _LONGEST),
        one.rule,
        date_text(one.last),
    ]


def share_text(share: float | None) -> str:
    """Return a share of what is usual; ``-`` if it is not known."""
    return "-" if share is None else percent_text(share)


def rate_text(rate: HourlyRate) -> str:
    """Return events per hour; ``-`` if the time is not known."""
    return value_text(rate.per_hour)


def place_lines(course: Course) -> list[str]:
    """Return where a component was, the latest first; none where it was at one place all the time."""
    if len(course.stays) < 2:
        return []
    lines = []
    for at, stay in enumerate(reversed(course.stays)):
        when = f"since {date_text(stay.since)}" if not at else f"{date_text(stay.since)} to {date_text(stay.until)}"
        lines.append(f"{one_line(stay.place, _WIDEST)} {when} ({count(stay.sessions, 'session')})")
    return lines


def moved_text(course: Course) -> str:
    """Return from where a component came to its place: ``moved from n012:3 on 2026-11-03``; "" if it did not move."""
    if len(course.stays) < 2:
        return ""
    before, now = course.stays[-2:]
    return f"moved from {one_line(before.place, _WIDEST)} on {date_text(now.since)}"


class CourseRow(NamedTuple):
    """One quantity of a component over days, as text."""

    what: str  #: Layer and class (``p2p same-rail, of usual``), or the counter (``symbol_error, per hour``).
    graph: str  #: A bar for each of the latest days with results.
    days: str  #: Number of days.
    first: str  #: Value of the first day.
    latest: str  #: Value of the latest day.
    worst: str  #: Lowest share, or highest rate.
    on: str  #: Day of that value.


def course_rows(course: Course, glyphs: Glyphs, width: int | None = None) -> list[CourseRow]:
    """Return a row for each bandwidth and each counter of a component; counters that never counted are left out.

    The graphs leave room for the other columns in lines of a width; None: they have at most `GRAPH_WIDTH` days.
    """
    rows = [_share_row(name, shares, glyphs) for name, shares in course.shares.items() if shares]
    rows += [_rate_row(name, rates, glyphs) for name, rates in course.rates.items() if any(one.events for one in rates)]
    room = max([len(row.what) for row in rows], default=0) + _BESIDE
    most = GRAPH_WIDTH if width is None else min(GRAPH_WIDTH, max(_LEAST_GRAPH, width - room))
    return [row._replace(graph=row.graph[-most:]) for row in rows]


def _share_row(name: str, shares: Sequence[Share], glyphs: Glyphs) -> CourseRow:
    worst = min(shares, key=lambda one: one.lowest)
    ends = (share_text(shares[0].share), share_text(shares[-1].share), share_text(worst.lowest))
    graph = bars([one.share for one in shares], max(1.0, *(one.share for one in shares)), glyphs)
    return CourseRow(f"{one_line(name, _WIDEST)}, of usual", graph, str(len(shares)), *ends, date_text(worst.day))


def _rate_row(name: str, rates: Sequence[HourlyRate], glyphs: Glyphs) -> CourseRow:
    worst = max(rates, key=lambda one: one.per_hour or 0.0)
    ends = (rate_text(rates[0]), rate_text(rates[-1]), rate_text(worst))
    graph = bars([one.per_hour for one in rates], worst.per_hour or 0.0, glyphs)
    return CourseRow(f"{one_line(name, _WIDEST)}, per hour", graph, str(len(rates)), *ends, date_text(worst.day))


def bars(values: Sequence[float | None], most: float, glyphs: Glyphs) -> str:
    """Return the latest values as a sparkline whose full height is ``most``; unknown ones are blank."""
    top = len(glyphs.blocks) - 1
    latest = values[-GRAPH_WIDTH:]
    shares = (None if value is None or most <= 0 else min(1.0, max(0.0, value / most)) for value in latest)
    return "".join(" " if share is None else glyphs.blocks[round(share * top)] for share in shares)


def day_rows(course: Course) -> list[list[str]]:
    """Return a table of the days, the latest first, with a heading: of each bandwidth the share of usual, and rates."""
    sessions: dict[float, int] = {}
    columns: list[tuple[str, dict[float, str]]] = []
    for name, shares in course.shares.items():
        sessions |= {one.day: max(one.sessions, sessions.get(one.day, 0)) for one in shares}
        columns.append((one_line(name, _WIDEST), {one.day: share_text(one.share) for one in shares}))
    for name, rates in course.rates.items():
        if any(one.events for one in rates):
            sessions |= {one.day: max(one.sessions, sessions.get(one.day, 0)) for one in rates}
            columns.append((f"{one_line(name, _WIDEST)}/h", {one.day: rate_text(one) for one in rates}))
    if not columns:
        return []
    head = ["day", "sessions", *(name for name, _ in columns)]
    days = sorted(sessions, reverse=True)
    return [
        head,
        *([date_text(day), str(sessions[day]), *(texts.get(day, "-") for _, texts in columns)] for day in days),
    ]


def finding_rows(course: Course) -> list[list[str]]:
    """Return the cells of each finding about a component below `FINDING_HEADINGS`, the latest first."""
    return [
        [date_text(each.time), each.rule, each.severity, one_line(each.title, _LONGEST)]
        for each in reversed(course.findings)
    ]
