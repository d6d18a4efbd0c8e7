"""Table of the worst pairs: in the side panel, and in place of the grid on small terminals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.numbers import percent_text
from fabtui.presentation.wording import CELL, CLASS_WORDS, MUTED, failure_text, measured_text, verdict_words
from fabtui.screen.context import context_of
from fabtui.screen.grid.axis import Axis
from fabtui.screen.grid.cells import BadCell
from fabtui.screen.widgets.pair_text import pair_name
from fabtui.screen.widgets.sorted_table import Columns, SortedTable, TableCell, TableRow, table_keys

#: Maximum number of listed pairs.
MAX_PAIRS = 200
_CLASSES = list(CLASS_WORDS)
#: Width (characters) from which the list has room for verdicts in words.
_WORDS_FROM = 70
#: Columns of the list; of a narrow one and the side panel, where a glyph stands for the verdict.
COLUMNS = Columns(
    ("verdict", "pair", "value", "class", "of usual", "message"),
    frozenset({"value", "of usual"}),
    frozenset({"verdict", "pair"}),
)
NARROW = Columns(
    ("", "pair", "value", "class", "share", "message"), frozenset({"value", "share"}), frozenset({"", "pair"})
)


def worst_rows(
    model: Model, axis: Axis, found: Sequence[BadCell], glyphs: Glyphs, *, narrow: bool, messages: bool = True
) -> list[TableRow]:
    """Return rows of bad pairs, given worst first, by position; ``narrow``: for the columns `NARROW`."""
    rows = []
    for rank, bad in enumerate(found):
        m = bad.cell.measurement
        style = f"{CELL}{bad.style.key}"
        glyph, word = glyphs.of_style[bad.style], verdict_words(bad.style.key)
        usual = None if m is None or m.value is None else model.usual(m)
        share = "" if m is None or m.value is None or not usual else percent_text(m.value / usual)
        kind = None if m is None else model.key_of(m).kind
        value = "-" if m is None else measured_text(m)
        number = (0, 0.0) if m is None or m.value is None else (1, m.value)
        if narrow and value == "-":
            value = word
        cells = [
            TableCell(glyph if narrow else f"{glyph} {word}", rank, style),
            TableCell(pair_name(axis.entries[bad.row], axis.entries[bad.column]), (bad.row, bad.column)),
            TableCell(value, number, style if value == word else "bold"),
            TableCell("" if kind is None else CLASS_WORDS[kind], -1 if kind is None else _CLASSES.index(kind), MUTED),
            TableCell(share, -1.0 if bad.share is None else bad.share),
        ]
        message = "" if m is None or not messages else failure_text(m, 200)
        rows.append(TableRow((bad.row, bad.column), [*cells, TableCell(message, (not message, message), MUTED)]))
    return rows


class WorstPairs(SortedTable):
    """Bad pairs, worst first. Left and right choose the column to sort by."""

    columns = COLUMNS
    WHOLE_LINE = True
    BINDING_GROUP_TITLE = "Worst pairs"
    BINDINGS: ClassVar[list[BindingType]] = table_keys("worst", "pair", " of the list")

    def on_resize(self) -> None:
        """Draw again: words may fit now, or no longer."""
        context_of(self).request_draw()

    def list_pairs(self, model: Model, axis: Axis, found: Sequence[BadCell], none_text: str) -> None:
        narrow = self.size.width < _WORDS_FROM
        self.columns = NARROW if narrow else COLUMNS
        self.put(worst_rows(model, axis, found, self._glyphs, narrow=narrow), none_text)

    @property
    def chosen(self) -> tuple[int, int] | None:
        return None if self.selected is None else self.selected.name

    @property
    def pairs(self) -> list[object]:
        return [row.name for row in self._rows]

    def select_pair(self, row: int, column: int) -> None:
        lines = [line for line, one in enumerate(self._rows) if one.name == (row, column)]
        if lines:
            self._go(lines[0])
