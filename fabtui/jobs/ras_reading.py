"""Reading a report of NCCL RAS, text or JSON."""

from __future__ import annotations

import re

from fabtui.jobs.ras_json import parse_json
from fabtui.jobs.ras_report import RasReport
from fabtui.jobs.ras_text import parse_text
from fabtui_node.parsers.base import Notes

_IS_JSON = re.compile(r'"(?:communicators_count|missing_ranks_count|collective_counts)"\s*:')


def report_of(text: str, notes: Notes) -> RasReport:
    """Return the report of a text, which may be JSON."""
    return parse_json(text, notes) if _IS_JSON.search(text) else parse_text(text, notes)
