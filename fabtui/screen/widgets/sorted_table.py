"""Table with one line per row, sorted by a column that a key or a click on its heading chooses."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import CELL, MUTED, Part, plain
from fabtui.presentation.wrapping import Line, clipped, fill, text_width
from fabtui.screen.keys import shortcut
from fabtui.screen.widgets.text_line import Span, heading_at


class TableCell(NamedTuple):
    """Cell of a table: text, sort key (ascending), style."""

    text: str
    key: Any
    style: str = ""


class TableRow(NamedTuple):
    """Row of a table: its name (hashable) identifies it, and it has a cell for each column."""

    name: Any
    cells: list[TableCell]


class Columns(NamedTuple):
    """Headings of a table."""

    headings: tuple[str, ...]  #: Heading of each column.
    right: frozenset[str] = frozenset()  #: Headings above cells that are aligned to the right.
    always: frozenset[str] = frozenset()  #: Headings of columns that are shown even if they are empty.


@dataclass
class Sorting:
    """Column by which rows are sorted, and whether the order is reversed."""

    column: int = 0
    inverted: bool = False

    def choose(self, column: int) -> None:
        """Sort by a column; reverse the order if it is the current one."""
        self.inverted = self.column == column and not self.inverted
        self.column = column

    def sorted(self, rows: Sequence[TableRow]) -> list[TableRow]:
        """Return rows in this order; equal rows keep the order that they have."""
        found = sorted(rows, key=lambda row: row.cells[self.column].key)
        return found[::-1] if self.inverted else found


class TableLines(NamedTuple):
    """Line of headings with the place of each, and a line for each row."""

    head: Line
    spans: list[Span]
    rows: list[Line]


def table_lines(
    columns: Columns, rows: Sequence[TableRow], sorting: Sorting, glyphs: Glyphs, *, edge: int = 1, width: int = 0
) -> TableLines:
    """Return headings, with an arrow at the sorted one, and rows.

    ``edge`` is the number of blanks at both sides of a column; with 0 there are two after it.
    A column that is empty in every row is left out. With a ``width``, lines end before the first column whose heading,
    or number, does not fit; all have their place.
    """
    down, up = ("v", "^") if glyphs.plain else ("▾", "▴")
    heads = list(columns.headings)
    heads[sorting.column] = f"{heads[sorting.column]} {up if sorting.inverted else down}".strip()
    texts = [[row.cells[at].text for row in rows] for at in range(len(heads))]
    widths = [max(map(text_width, [head, *column])) for head, column in zip(heads, texts, strict=True)]
    shown = [
        at
        for at, name in enumerate(columns.headings)
        if name in columns.always or any(text not in ("", "-", "0") for text in texts[at])
    ]
    left, right = " " * edge, " " * (edge or 2)

    def padded(text: str, at: int, last: int) -> str:
        alone = fill(text, widths[at], columns.headings[at] not in columns.right)
        return f"{left}{alone.rstrip()}" if at == last else f"{left}{alone}{right}"

    spans: list[Span] = []
    place = 0
    for at in shown:
        begin, place = place, place + len(padded(heads[at], at, shown[-1]))
        spans.append((begin, place, at))
    least = [widths[at] if name in columns.right else len(heads[at]) for at, name in enumerate(columns.headings)]
    drawn = [at for begin, _, at in spans if not begin or not width or begin + len(left) + least[at] <= width]
    last = drawn[-1]
    head: Line = [(padded(heads[at], at, last), "bold reverse" if at == sorting.column else MUTED) for at in drawn]
    lines = [
        [part for at in drawn for part in _filled(padded(row.cells[at].text, at, last), row.cells[at])] for row in rows
    ]
    return TableLines(head, spans, lines)


def _filled(text: str, cell: TableCell) -> Line:
    """Return a padded cell; the fill of a verdict ends with its word."""
    if not cell.style.startswith(CELL):
        return [(text, cell.style)]
    before, word, after = text.partition(cell.text)
    return [(before, ""), (word, cell.style), (after, "")]


def table_keys(name: str, row: str, where: str = "") -> list[BindingType]:
    """Return the keys of a table, whose names in the settings begin with ``name``; a row shows a ``row``."""
    return [
        shortcut("up,k", "move(-1)", f"{name}.up", f"previous {row}"),
        shortcut("down,j", "move(1)", f"{name}.down", f"next {row}"),
        shortcut("home", "edge(False)", f"{name}.first", f"first {row}{where}"),
        shortcut("end,G", "edge(True)", f"{name}.last", f"last {row}{where}"),
        shortcut("pageup,ctrl+u", "page(-1)", f"{name}.page-up", "one screen up"),
        shortcut("pagedown,ctrl+d", "page(1)", f"{name}.page-down", "one screen down"),
        shortcut("right,l", "sort(1)", f"{name}.sort-next", "sort by the next column"),
        shortcut("left,h", "sort(-1)", f"{name}.sort-previous", "sort by the previous column"),
        shortcut("i", "invert", f"{name}.invert", "reverse the order"),
    ]


class SortedTable(Widget, can_focus=True):
    """Table whose cursor stays on its row when the order changes.

    A DataTable would update every cell each second.
    """

    DEFAULT_CSS = "SortedTable { width: 1fr; height: 1fr; text-wrap: nowrap; }"
    columns: Columns
    #: Whether the whole line of the cursor is marked, not the first cell alone.
    WHOLE_LINE: ClassVar[bool] = False

    class Moved(Message):
        """The user has moved the cursor."""

    class Chosen(Message):
        """The user has clicked the row of the cursor."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._glyphs = glyphs
        self._rows: list[TableRow] = []
        self._unsorted: Sequence[TableRow] = []
        self._none_text = ""
        self._order: Sorting | None = None
        #: Row of the cursor, and its line when it was last there.
        self._chosen: Hashable = None
        self._line = 0
        self._spans: list[Span] = []
        self._top = 0
        self.sorting = Sorting()

    def put(self, rows: Sequence[TableRow], none_text: str = "") -> None:
        """Show rows, given in the order of equal ones, or a text if there are none; the same again costs nothing."""
        order = Sorting(self.sorting.column, self.sorting.inverted)
        if rows == self._unsorted and order == self._order and none_text == self._none_text:
            return
        self._order, self._unsorted, self._none_text = order, rows, none_text
        self._rows = order.sorted(rows)
        self.refresh()

    @property
    def cursor(self) -> int:
        if self._chosen is not None:
            found = next((line for line, row in enumerate(self._rows) if row.name == self._chosen), None)
            self._line = min(self._line, max(0, len(self._rows) - 1)) if found is None else found
        return self._line

    @property
    def selected(self) -> TableRow | None:
        return self._rows[self.cursor] if self._rows else None

    @property
    def text(self) -> str:
        found = table_lines(self.columns, self._rows, self.sorting, self._glyphs)
        return "\n".join(plain(line).rstrip() for line in (found.head, *found.rows))

    def render(self) -> Content:
        width, height = self.size
        if not self._rows and self._none_text:
            self._spans = []
            return Content.styled(f" {self._none_text}", MUTED)
        found = table_lines(self.columns, self._rows, self.sorting, self._glyphs, width=width)
        self._spans = found.spans
        room = max(1, height - 1)
        cursor = self.cursor
        self._top = max(min(self._top, cursor), cursor - room + 1, 0)
        shown = [found.head, *found.rows[self._top : self._top + room]]
        lines = []
        for number, line in enumerate(shown, self._top - 1):
            marked = line if number != cursor or line is found.head else self._marked(line, width)
            lines.append(Content.assemble(*clipped(marked, width, self._glyphs.ellipsis)))
        return Content("\n").join(lines)

    def _marked(self, line: Line, width: int) -> Line:
        marked: list[Part] = [
            (text, style if style.startswith(CELL) else self._reversed(style, first=not at))
            for at, (text, style) in enumerate(line)
        ]
        if self.WHOLE_LINE:
            marked.append((" " * max(0, width - sum(len(text) for text, _ in line)), "reverse"))
        return marked

    def _reversed(self, style: str, *, first: bool) -> str:
        return f"{style} reverse".strip() if first else "reverse" if self.WHOLE_LINE else style

    def _go(self, line: int) -> None:
        if self._rows:
            self._line = max(0, min(line, len(self._rows) - 1))
            self._chosen = self._rows[self._line].name
            self.refresh()
            self.post_message(self.Moved())

    def action_move(self, by: int) -> None:
        self._go(self.cursor + by)

    def action_turn(self, by: int) -> None:
        self._go((self.cursor + by) % max(1, len(self._rows)))

    def action_edge(self, last: bool) -> None:
        self._go(len(self._rows) - 1 if last else 0)

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 2))

    def action_sort(self, step: int, spans: Sequence[Span] | None = None) -> None:
        """Sort by the next or previous column that is shown, here or elsewhere (``spans``)."""
        shown = [at for _, _, at in spans or self._spans] or [self.sorting.column]
        here = shown.index(self.sorting.column) if self.sorting.column in shown else -1
        self.sort_by(shown[(here + step) % len(shown)])

    def action_invert(self) -> None:
        self.sort_by(self.sorting.column)

    def sort_by(self, column: int) -> None:
        if (row := self.selected) is not None:
            self._chosen = row.name
        self.sorting.choose(column)
        self.put(self._unsorted, self._none_text)

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            if (found := heading_at(self._spans, event.x)) is not None:
                self.sort_by(found)
            return
        if (line := self._top + event.y - 1) < len(self._rows):
            again = line == self.cursor and self._chosen is not None
            self._go(line)
            if again:
                self.post_message(self.Chosen())
