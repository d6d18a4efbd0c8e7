"""Side panel of the layer of the running job: who is behind first, then as much of the rest as fits."""

from __future__ import annotations

from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.findings import step_parts
from fabtui.presentation.job_board import (
    JobBoard,
    behind_lines,
    evidence_lines,
    group_lines,
    rate_lines,
    steps_of,
    traffic_lines,
)
from fabtui.presentation.wording import MUTED
from fabtui.presentation.wrapping import Line, Lines, stacked, whole
from fabtui.screen.widgets.text_line import TargetLine

#: Maximum number of lines without the headings of the parts.
_SHORT = 12


def job_panel(board: JobBoard, rank: Line | None, size: tuple[int, int], glyphs: Glyphs) -> list[TargetLine]:
    """Return the lines of the panel.

    Args:
        board: The running job.
        rank: The rank under the cursor, None if it is elsewhere.
        size: Width and height.
        glyphs: Characters of the screen.
    """
    width, height = size
    steps: Lines = [
        [("  next  " if not at else " " * 8, MUTED), (text, "$primary"), (f" {note}" if note else "", MUTED)]
        for at, (text, note) in enumerate(map(step_parts, steps_of(board)))
    ]
    behind = behind_lines(board, width, glyphs)
    parts: list[tuple[str, Lines]] = [
        (
            "who is behind",
            behind + stacked(steps, width, 8)
            if behind or steps
            else [[("nobody: no rank holds the others up", MUTED)]],
        ),
        ("ranks", group_lines(board, width, glyphs)),
        ("evidence", evidence_lines(board, width, blind=height > 40)),
        ("rates", rate_lines(board, width, glyphs)),
        ("under the cursor" if rank is not None else "", stacked([rank], width, 2) if rank else []),
        ("pairs", traffic_lines(board, width)),
    ]
    shown: list[Lines] = []
    used = 0
    for title, own in parts:
        head: Lines = [[(title.upper(), "bold")]] if title and height > _SHORT else []
        least = min(3 if head else 1, len(own))
        if own and (not shown or used + len(head) + least <= height):
            shown.append([*head, *own])
            used += len(shown[-1])
    airy = used + len(shown) <= height
    lines = [line for at, part in enumerate(shown) for line in ([[], *part] if airy and at else part)]
    return [(line, None) for line in whole(lines, height)]
