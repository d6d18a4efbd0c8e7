"""View of the history of the site: components that stand out in earlier sessions, and the course of the chosen one."""

from __future__ import annotations

import asyncio
import math
from typing import ClassVar

from textual import on
from textual.binding import BindingType

from fabtui.errors import InputError
from fabtui.history.file import history_file
from fabtui.history.query import MOST_COMPONENTS, Course, Overview, Standout, Turn, read_overview, start_before
from fabtui.presentation.cell_levels import CellStyle
from fabtui.presentation.component_history import (
    FINDING_HEADINGS,
    STANDOUT_HEADINGS,
    SUMMARY_HEADINGS,
    course_rows,
    day_rows,
    empty_text,
    finding_rows,
    moved_text,
    overview_sentence,
    part_text,
    place_lines,
    standout_cells,
    version_step_texts,
)
from fabtui.presentation.wording import MUTED, Part, plain
from fabtui.presentation.wrapping import Lines, section, stacked
from fabtui.sanitize import one_line
from fabtui.screen.keys import shortcut
from fabtui.screen.views.detail_base import Cell, DetailScreen, as_text, crumbs, table_section
from fabtui.screen.widgets.finding_lines import SEVERITY_STYLES
from fabtui.screen.widgets.sorted_table import Columns, SortedTable, TableCell, TableRow, table_keys

#: Minimum number of lines of the table, with its headings.
_LEAST_TABLE = 3
#: Maximum number of days and of findings of a course.
_MOST_DAYS, _MOST_FINDINGS = 60, 40


class HistoryTable(SortedTable):
    """One line per component that stands out, the worst first."""

    columns = Columns(
        ("", *STANDOUT_HEADINGS), frozenset({"sessions", "lowest"}), frozenset({"component", "what", "finding"})
    )
    WHOLE_LINE = True
    BINDING_GROUP_TITLE = "History table"
    BINDINGS: ClassVar[list[BindingType]] = table_keys("history", "component")


def standout_row(place: int, one: Standout) -> TableRow:
    """Return the row of a component that stands out; ``place`` is its place, the worst being 1."""
    texts = standout_cells(one)
    lowest = 9.0 if one.lowest is None else one.lowest
    keys = (texts[0], [*Turn].index(one.turn), lowest, -one.sessions, -one.first, one.title, one.rule, -one.last)
    styles = ("bold", SEVERITY_STYLES[one.severity], "", "", "", "", MUTED, MUTED)
    cells = [TableCell(text, key, style) for text, key, style in zip(texts, keys, styles, strict=True)]
    return TableRow((one.component.key, one.rule), [TableCell(str(place), place, MUTED), *cells])


class HistoryScreen(DetailScreen):
    """Components that stand out in earlier sessions of the site, read in the background when the view opens."""

    DEFAULT_CSS = "HistoryScreen HistoryTable { height: auto; }"
    BINDING_GROUP_TITLE = "History"
    FILTER_PROMPT = "filter", "words that the line of a component must have"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("escape,backspace,H", "leave", "history.back", "back to the previous view", "back", bar=("always",)),
        shortcut("enter,n", "open", "history.node", "show the node of the component", "node", bar=("first",)),
        shortcut("space", "more", "history.more", "next screen of the text below the table", "more"),
        shortcut("y", "copy", "history.copy", "copy the table and the course", "copy"),
    ]
    copy_width = 120

    def __init__(self) -> None:
        super().__init__()
        self.overview: Overview | None = None  #: What was read; None until then.
        self._problem = ""

    def above(self) -> list[HistoryTable]:
        return [HistoryTable(self.context.glyphs, id="history-table")]

    @property
    def table(self) -> HistoryTable:
        return self.query_one(HistoryTable)

    def on_mount(self) -> None:
        self.table.focus()
        super().on_mount()
        self.context.run_worker(self._read(), "history", exit_on_error=False)

    async def _read(self) -> None:
        context = self.context
        # A recording shows what was known when it was made.
        recorded = context.feed is not None and not context.feed.can_test
        until = context.model.started if recorded else math.inf
        since = start_before(context.now())
        path = history_file(bool(context.model.lab))
        try:
            self.overview = await asyncio.to_thread(read_overview, path, since, until=until, courses=MOST_COMPONENTS)
        except (InputError, OSError) as error:
            self._problem = one_line(str(error), 300)
        self.draw()

    @property
    def chosen(self) -> Course | None:
        row = self.table.selected
        if row is None or self.overview is None:
            return None
        return next((one for one in self.overview.courses if one.component.key == row.name[0]), None)

    @property
    def node(self) -> str | None:
        course = self.chosen
        node = course.component.node if course is not None else ""
        return node if node in self.context.model.nodes else None

    def draw(self) -> None:
        if not self.is_mounted or not self.query("#history-table"):
            return
        standouts = self.overview.standouts if self.overview is not None else ()
        rows = [standout_row(place, one) for place, one in enumerate(standouts, 1)]
        shown = self.matching_rows(rows)
        self.table.display = bool(rows)
        self.table.styles.height = max(_LEAST_TABLE, min(len(shown) + 1, (self.size.height - 2) // 2))
        self.table.put(shown, "no component has these words" if rows else "")
        super().draw()

    def title_parts(self) -> list[Part]:
        parts: list[Part] = [(" history ", "bold")]
        if self.overview is not None and self.overview.total:
            text = overview_sentence(self.overview)
            if len(plain([*crumbs(self), *parts])) + len(text) + 3 > self.size.width:
                text = text.rpartition(" since ")[0] or text
            parts.append((f"  {text}", MUTED))
        return parts

    def filtered_lines(self, width: int) -> Lines:
        """Return the whole text: the filter is for the table."""
        return self.body_lines(width)

    def body_lines(self, width: int) -> Lines:
        if self._problem:
            return [[], [(f"  {self._problem}", "$warning")]]
        if self.overview is None:
            return [[], [("  reading the history", MUTED)]]
        if not self.overview.total:
            return [[], [(f"  {empty_text(self.overview)}", "")]]
        steps = stacked([[(f"  {one}", MUTED)] for one in version_step_texts(self.overview)], width, 2)
        if (course := self.chosen) is None:
            return [[], [(f"  {overview_sentence(self.overview)}", "")], *steps]
        glyphs = self.context.glyphs
        lines = [*steps, *section(part_text(course.component), moved_text(course))]
        # Whole: the table has no room for it on a narrow terminal.
        titles = [one.title for one in self.overview.standouts if one.component.key == course.component.key]
        lines += stacked([[(f"  {one_line(text, 300)}", "bold")] for text in titles], width, 2)
        lines += [[(f"  {line}", "")] for line in place_lines(course)]
        rows = course_rows(course, glyphs, width)
        graphs: list[list[Cell]] = [[row.what, (row.graph, f"$tone-{CellStyle.GOOD.key}"), *row[2:]] for row in rows]
        lines += table_section("course", [*SUMMARY_HEADINGS], graphs, "a bar for each day")
        lines += table_section("findings", [*FINDING_HEADINGS], finding_rows(course)[:_MOST_FINDINGS])
        if days := day_rows(course):
            lines += table_section("days", days[0], days[1 : _MOST_DAYS + 1], "shares of usual, events per hour")
        return lines

    @on(HistoryTable.Moved)
    def moved(self) -> None:
        self.action_scroll_edge(False)
        self.draw()

    @on(HistoryTable.Chosen)
    def action_open(self) -> None:
        if self.node is not None:
            self.context.open_node(self.node)
        else:
            self.context.notify("the session has no node with this component")

    def action_copy(self) -> None:
        self.context.copy(f"{self.table.text}\n\n{as_text(self.body_lines(self.copy_width))}")
