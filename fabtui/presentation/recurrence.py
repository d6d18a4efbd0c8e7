"""Text of the recurrence of a finding."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from fabtui.history.components import PartKind, date_of
from fabtui.model.records import Recurrence
from fabtui.nodeset import count
from fabtui.sanitize import one_line

_ORDINALS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
#: How parts are called in a sentence, by their kind.
_PARTS = {str(kind): kind.words for kind in PartKind}
#: Longest identity and place in a sentence.
_WIDEST = 60


def recurrence_text(past: Recurrence) -> str:
    """Return since when, how often and with what part a finding is seen: ``first seen 3 sessions ago``.

    The second time needs no number: the finding was seen before.
    """
    parts = [f"first seen {count(past.sessions_ago, 'session')} ago ({date_of(past.first)})"]
    if past.times > 2:
        parts.append(f"{ordinal(past.times)} time in {span_text(past.days)}")
    if past.moved_from:
        part = _PARTS.get(past.moved, past.moved) or "component"
        parts.append(f"moved with the {one_line(part, 20)} from {one_line(past.moved_from, _WIDEST)}")
    return ", ".join(parts)


def recurrence_json(past: Recurrence) -> dict[str, Any]:
    """Return the same as a JSON object; times are ISO 8601 in UTC."""
    times = {"first": _stamp(past.first), "last": _stamp(past.last), "days": round(past.days, 3)}
    return {**asdict(past), **times, "text": recurrence_text(past)}


def ordinal(number: int) -> str:
    """Return an ordinal number: ``third``, ``12th``."""
    if number < len(_ORDINALS):
        return _ORDINALS[number]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def span_text(days: float) -> str:
    """Return a time in whole days, of less than a day in hours: ``14 days``, ``5 hours``."""
    if days >= 1:
        return count(round(days), "day")
    return count(max(1, round(24 * days)), "hour")


def _stamp(when: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
