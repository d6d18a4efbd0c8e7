"""``sminfo``: which subnet manager is in charge."""

from __future__ import annotations

import re
from typing import Any, Dict

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import values as ibwords

_LINE = re.compile(
    r"sminfo: sm lid ([0-9]{1,6}) sm guid (0x[0-9a-fA-F]{1,16}), activity count ([0-9]{1,12}) priority ([0-9]{1,4})"
    r" state ([0-9]{1,3})(?: (\S{1,40}))?",
    re.ASCII,
)


def likely(text: str) -> float:
    """Return the likelihood that a text is output of ``sminfo``."""
    return 0.97 if "sminfo: sm lid" in text else 0.8 if re.search("^sminfo: ", text, re.MULTILINE) else 0.0


def parse(text: str) -> Reading:
    """Return ``{"sm": {"lid", "guid", "activity", "priority", "state"}}``; ``sm`` is None when none answered."""
    notes = Notes()
    manager: Any = None
    for line in ibwords.lines(text):
        found = _LINE.match(line)
        if found:
            lid, guid, activity, priority, state, word = found.groups()
            manager = {
                "lid": int(lid),
                "guid": ibwords.guid(guid),
                "activity": int(activity),
                "priority": int(priority),
                "state": (word or state).replace("SMINFO_", ""),
            }
        elif ibwords.complaint(line):
            notes.warn(line)
        else:
            notes.puzzled(line)
    values: Dict[str, Any] = {"sm": manager}
    return notes.reading(values)


FORMATS = [Format("sminfo", "sminfo: the subnet manager in charge", ("sminfo",), {}, likely, parse)]
