"""Styles of preflight lines."""

from __future__ import annotations

from collections.abc import Sequence

from fabtui.presentation.preflight_lines import Line as RoleLine
from fabtui.presentation.wording import MUTED
from fabtui.presentation.wrapping import Lines

#: Style of each role of a piece of a line.
STYLES = {
    "bad": "bold $error",
    "warn": "$warning",
    "note": "$secondary",
    "name": "bold",
    "head": "bold $accent",
    "dim": MUTED,
}


def styled(lines: Sequence[RoleLine]) -> Lines:
    """Return lines with the styles of their roles."""
    return [[(text, STYLES.get(role, "")) for text, role in line] for line in lines]
