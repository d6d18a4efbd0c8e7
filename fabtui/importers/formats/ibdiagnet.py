"""Output and log of ibdiagnet: what the discovery found, complaints, and warnings and errors of each stage.

Grammar: ibdiagnet 1 is public (ibutils, ``ibdebug_if.tcl``). Messages begin with ``-I-``, ``-W-`` or ``-E-``. Its
``Stages Status Report`` has the columns ``STAGE Errors Warnings``.

Version 2 (NVIDIA, closed) keeps the marks and ends with ``Summary``, as in its manual and in public logs. Its columns
are ``Stage Warnings Errors Comment``, so that their order is read from the heading.
"""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import plain_lines

_MARKED = re.compile(r"\s{0,8}-([IWE])-\s?(.*)", re.I)
_HEADING = re.compile(r"stage\s+(warnings\s+errors|errors\s+warnings)(?:\s+comment)?\s*", re.I)
_STAGE = re.compile(r"(\S(?:.{0,80}?\S)?)\s{2,200}(\d{1,12})\s{1,40}(\d{1,12})(?:\s{1,40}(.{1,200}?))?\s*")
_NODES = re.compile(r"(\d{1,9}) nodes \((\d{1,9}) Switches & (\d{1,9}) CA-s\) discovered", re.I)
_VERSION = re.compile(r"ibdiagnet(?:[ _-]?version)?:? +(?:version:? +)?\"?v?(\d+\.\d[\w.-]{0,40})", re.I)
#: Maximum number of complaints that are kept.
_MOST = 1000


class _Parser:
    def __init__(self) -> None:
        self.notes = Notes()
        self.values: dict[str, Any] = {"version": None, "nodes": None, "switches": None, "hosts": None}
        self.stages: list[dict[str, Any]] = []
        self.complaints: dict[tuple[str, str], int] = {}
        self.open: tuple[str, str] | None = None
        self.order: tuple[str, str] | None = None

    def line(self, line: str) -> None:
        """Take one line in."""
        marked = _MARKED.fullmatch(line)
        if marked or not line.startswith("    "):
            self._end()
        mark, text = (marked[1].upper(), marked[2].strip()) if marked else ("", line.strip())
        if heading := _HEADING.fullmatch(text[:200]):
            first = heading[1].lower().startswith("warnings")
            self.order = ("warnings", "errors") if first else ("errors", "warnings")
        elif self.order and mark in ("", "I") and (stage := _STAGE.fullmatch(text[:500])):
            numbers = dict(zip(self.order, (int(stage[2]), int(stage[3])), strict=True))
            row = {"stage": stage[1], "errors": numbers["errors"], "warnings": numbers["warnings"], "comment": stage[4]}
            self.stages.append(row)
        elif mark in ("W", "E") and text:
            self.open = ("error" if mark == "E" else "warning", text[:300])
        elif self.open and not mark and line.startswith("    ") and len(self.open[1]) < 300:
            # What follows a complaint, indented, belongs to it.
            self.open = (self.open[0], f"{self.open[1]} {text}"[:300])
        elif found := _NODES.search(text[:500]):
            self.values |= {
                name: int(count) for name, count in zip(("nodes", "switches", "hosts"), found.groups(), strict=True)
            }
        elif found := _VERSION.search(text[:300]):
            self.values["version"] = found[1]

    def _end(self) -> None:
        """Keep the complaint whose lines have ended."""
        if self.open and (self.open in self.complaints or len(self.complaints) < _MOST):
            self.complaints[self.open] = self.complaints.get(self.open, 0) + 1
        self.open = None


def parse(text: str) -> Reading:
    """Return ``nodes``, ``switches``, ``hosts``, ``stages`` and ``complaints`` with how often each was printed."""
    parser = _Parser()
    for line in plain_lines(text):
        parser.line(line)
    parser.line("")
    notes = parser.notes
    for stage in parser.stages:
        if stage["errors"] or stage["warnings"]:
            notes.warn(f"{stage['stage']}: {stage['errors']} errors, {stage['warnings']} warnings")
    for level, complaint in parser.complaints:
        if level == "error":
            notes.warn(complaint)
    if not parser.stages:
        notes.warn("the summary of the stages is missing: the run did not end, or the text is a part of it")
    complaints = [{"level": level, "text": text, "count": count} for (level, text), count in parser.complaints.items()]
    return notes.reading({**parser.values, "stages": parser.stages, "complaints": complaints})


_LIKELY = first_of(
    (
        0.97,
        r"(?i)^[ \t]{0,8}(?:-I- )?stage {1,60}(?:warnings {1,20}errors|errors {1,20}warnings)\b"
        r"|^[ \t]{0,8}-I- stages status report",
    ),
    (0.9, r"(?i)\bibdiagnet2?\.(?:log|db_csv)\b|nodes \(\d+ switches & \d+ ca-s\) discovered"),
    (0.6, r"^[ \t]{0,8}-[IWE]- .{1,300}\n(?:.*\n){0,3}?[ \t]{0,8}-[IWE]- "),
)
_TITLE = "ibdiagnet: warnings and errors of each check of an InfiniBand fabric"
FORMATS = [Format("ibdiagnet", _TITLE, _LIKELY, parse, aliases="ibdiagnet2")]
