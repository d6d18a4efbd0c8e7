"""Blocks of the history of a site: components that stand out, and the courses of a subject."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from fabtui.history.query import Course, Overview
from fabtui.presentation import component_history as texts
from fabtui.presentation.cell_levels import UNICODE, Glyphs
from fabtui.report.document import Block, Items, Paragraph, Table
from fabtui.report.text import shortened

if TYPE_CHECKING:
    from fabtui.model.session_model import Model

#: Maximum number of days and of findings of a course in a text.
_MOST_DAYS, _MOST_FINDINGS = 14, 10


def history_blocks(overview: Overview, glyphs: Glyphs, width: int | None = None) -> Iterator[Block]:
    if not overview.subject:
        yield Paragraph(texts.overview_sentence(overview))
        if steps := texts.version_step_texts(overview):
            yield Items("", steps)
        if overview.standouts:
            yield Table(
                "", [texts.STANDOUT_HEADINGS, *map(texts.standout_cells, overview.standouts)], texts.STANDOUT_TEXTS
            )
        return
    for course in overview.courses:
        yield from course_blocks(course, glyphs, width)


def past_blocks(model: Model) -> Iterator[Block]:
    """Yield what stands out at the nodes of a session in the days before it; nothing without earlier sessions."""
    overview: Overview | None = None if model.past is None else model.past.overview
    if overview is None or not overview.total:
        return
    here = [standout for standout in overview.standouts if standout.component.node in model.nodes]
    yield from history_blocks(replace(overview, standouts=here), UNICODE)


def course_blocks(course: Course, glyphs: Glyphs, width: int | None = None) -> Iterator[Block]:
    title = texts.part_text(course.component)
    yield Paragraph(title)
    if places := texts.place_lines(course):
        yield Items("places", places)
    if rows := texts.course_rows(course, glyphs, width):
        yield Table("course, a bar for each day", [texts.SUMMARY_HEADINGS, *rows], texts.SUMMARY_TEXTS)
    if days := texts.day_rows(course):
        table = Table("bandwidths as shares of usual, counters in events per hour", days)
        yield shortened(table, "days", most=_MOST_DAYS)
    if findings := texts.finding_rows(course):
        table = Table("findings", [texts.FINDING_HEADINGS, *findings], range(4))
        yield shortened(table, "findings", most=_MOST_FINDINGS)
