"""Cells that the grid shows: of endpoint pairs, of two nodes, and of the ranks of a job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from fabtui.diagnosis.job.job_verdict import RankRow
from fabtui.model.cell_level import GOOD_FROM, Judged, judge
from fabtui.model.endpoints import PairClass
from fabtui.model.layers import Layer, Per
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Cell, Model
from fabtui.presentation.cell_levels import GRADES, MARKED, STYLES, CellStyle, Glyphs, cell_text, transport_style
from fabtui.presentation.job_board import JobBoard
from fabtui.presentation.numbers import brief_text, percent_text, short_value, spoken, value_text
from fabtui.presentation.wording import common_domain
from fabtui.screen.grid.axis import Axis, AxisEntry, fit_text
from fabtui.screen.grid.layout import ENDPOINTS, NUMBER_WIDTH, CellShape

if TYPE_CHECKING:
    from fabtui.screen.grid.prompts import Filter


class RowOrder(StrEnum):
    """Order of rows and columns."""

    GIVEN = "given"
    BADNESS = "badness"
    BLAME = "blame"
    DOMAIN = "domain"
    LEAF = "leaf"
    RAIL = "rail"


class BadCell(NamedTuple):
    """A bad cell by its positions."""

    row: int
    column: int
    style: CellStyle
    share: float | None
    cell: Cell


class CellSource(ABC):
    """Cells of an axis against itself, each with a style and a text; ``row_at``, ``column_at``: positions shown."""

    shape = CellShape()
    line_names: Sequence[str] = ()  #: Names of the lines of a tall cell below its first one, for the row headers.

    def __init__(self, axis: Axis) -> None:
        self.axis = axis
        self.show_in()

    def show_in(
        self,
        rows: Sequence[int] | None = None,
        columns: Sequence[int] | None = None,
        groups: Mapping[int, str] | None = None,
    ) -> None:
        """Show some rows and columns by their positions; None means all, in their own order.

        ``groups`` has the name of the group of each position, whose rows and columns follow each other.
        """
        self.groups = groups
        self.row_at = range(self.axis.size) if rows is None else rows
        self.column_at = range(self.axis.size) if columns is None else columns
        self.rows = self.axis if rows is None else self.axis.in_order(rows, groups)
        self.columns = self.axis if columns is None else self.axis.in_order(columns, groups)
        #: Row and column of each position that is shown.
        self.row_of = {position: row for row, position in enumerate(self.row_at)}
        self.column_of = {position: column for column, position in enumerate(self.column_at)}

    def shown_at(self, positions: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        rows, columns = self.row_of, self.column_of
        return [(rows[a], columns[b]) for a, b in positions if a in rows and b in columns]

    @abstractmethod
    def cell(self, row: int, column: int, width: int) -> tuple[int, str]:
        """Return style and text of one cell, ``width`` cells wide."""

    def row(self, row: int, first: int, last: int, width: int) -> list[tuple[int, str]]:
        return [self.cell(row, column, width) for column in range(first, last)]

    def below(self, row: int, column: int, width: int, most: int) -> list[str]:
        """Return at most ``most`` lines of a tall cell below its first one, each exactly ``width`` cells wide."""
        return []


#: Maximum relative move of a median before all cells are drawn again at once.
_MEDIAN_STEP = 0.02

#: Maximum number of cells whose judgement is kept.
_MOST_JUDGED = 4096


class EndpointCells(CellSource):
    """Cells of one layer of a model, by endpoint."""

    shape = ENDPOINTS

    def __init__(self, model: Model, layer: Layer, glyphs: Glyphs) -> None:
        self.model = model
        self.layer = layer
        self.glyphs = glyphs
        super().__init__(Axis.of_model(model))
        self.filter: Filter | None = None
        self.highlighted: set[tuple[int, int]] = set()  #: Cells, by positions, that changed a moment ago.
        #: Judged cells, by positions: the grid and the index both read a changed cell.
        self._judged: dict[tuple[int, int], Judged] = {}
        self._axis_key = self._key()
        self._drawn_with: list[float | None] = []
        self._board: JobBoard | None = None
        self._unit: tuple[str, int | None] = ("", None)
        self._unit_version = -1
        self.take_medians()

    def _key(self) -> tuple[object, ...]:
        return (self.model.layout, *(record.state.gone for record in self.model.nodes.values()))

    def axis_changed(self) -> bool:
        """Take over the axis of the model; return True if it changed."""
        before, self._axis_key = self._axis_key, self._key()
        if before == self._axis_key:
            return False
        self.axis = Axis.of_model(self.model)
        self.show_in()
        self._judged.clear()
        return True

    def read_medians(self) -> tuple[bool, bool]:
        """Return two flags: the measures by which cells are judged moved far, and at all, since `take_medians`."""
        latest = self._measures()
        if latest == self._drawn_with:
            return False, False
        return any(map(_far, self._drawn_with, latest)), True

    def take_medians(self) -> None:
        self._drawn_with = self._measures()
        self._judged.clear()

    def _measures(self) -> list[float | None]:
        medians = [self.model.median(self.layer, kind) for kind in PairClass]
        return medians + [self.model.limit(self.layer, kind) for kind in PairClass]

    def show(self, layer: Layer) -> None:
        self.layer = layer
        self._unit_version = -1
        self.take_medians()

    def take_board(self, board: JobBoard) -> None:
        self._board = board

    def _job_cell(self, row: int, column: int, width: int) -> tuple[CellStyle, str]:
        """Return the rank of an endpoint on the diagonal, and the traffic of a pair elsewhere; blank if unknown."""
        a, b = self.axis.entries[row], self.axis.entries[column]
        style, text = CellStyle.UNTESTED, ""
        if self._board is None or a.number is None or b.number is None:
            pass
        elif row != column:
            text = self._board.pair_text(str(self.model.endpoints[a.number]), str(self.model.endpoints[b.number]))
            style = CellStyle.UNTESTED if not text else CellStyle.SKIPPED if text == "0" else CellStyle.GOOD
        elif a.index.isdecimal() and (found := self._board.at(a.node, int(a.index))) is not None:
            style, text = self._board.style_of(found), self._board.cell_lines(found, width, self.glyphs)[0]
        return style, f"{text[:width]:^{width}}"

    def take_filter(self, chosen: Filter | None) -> None:
        self.filter = chosen
        self._judged.clear()

    def take_changes(self, changed: AbstractSet[tuple[int, int]]) -> list[tuple[int, int]]:
        """Judge some cells, given by endpoint numbers, again when they are read; return their positions."""
        at = self.axis.position
        positions = [(at[src], at[dst]) for src, dst in changed if src in at and dst in at]
        for position in positions:
            self._judged.pop(position, None)
        return positions

    def cell(self, row: int, column: int, width: int) -> tuple[int, str]:
        return self.cell_of(self.row_at[row], self.column_at[column], width)

    def below(self, row: int, column: int, width: int, most: int) -> list[str]:
        return self.below_of(self.row_at[row], self.column_at[column], width, most)

    def cell_of(self, row: int, column: int, width: int) -> tuple[CellStyle, str]:
        if self.layer is Layer.JOB:
            return self._job_cell(row, column, width)
        style, cell = self._display(row, column, width)
        glyphs = self.glyphs
        if cell is None or width < NUMBER_WIDTH:
            return style, cell_text(style, "", width, glyphs)
        # Its number is more exact than a shade.
        style = CellStyle.GOOD if style in GRADES else style
        if width >= WIDE and (text := first_line(self.layer, style, cell, width, glyphs)):
            return style, f"{text:^{width}}"
        number = self._number(cell, width)
        if number:
            text = cell_text(style, number, width, glyphs)
        else:
            text = f"{word_of(style, glyphs, width - 1):>{width - 1}} "
        # The verdict keeps its colour while the pair is tested again.
        return style, text[:-1] + glyphs.of_style[CellStyle.RUNNING] if cell.running else text

    def below_of(self, row: int, column: int, width: int, most: int) -> list[str]:
        if self.layer is Layer.JOB:
            return []
        style, cell, share = self.judge(row, column)
        if cell is None or style is CellStyle.PAD or not most:
            return []
        line = line_below(self.layer, cell, share, width, self.glyphs)
        return [f"{line:^{width}}"] if line else []

    def _display(self, row: int, column: int, width: int) -> tuple[CellStyle, Cell | None]:
        """Return style and cell of two positions; a narrow cell has no room to mark a test otherwise."""
        style, cell, _ = self.judge(row, column)
        if width < NUMBER_WIDTH and cell is not None and cell.running:
            style = CellStyle.RUNNING
        if self.highlighted and style in GRADES and (row, column) in self.highlighted:
            style = CellStyle.FLASH
        return style, cell

    def _number(self, cell: Cell, width: int) -> str:
        if self.layer is Layer.TRANSPORT and cell.measurement is not None:
            return (transport_style(cell.text)[1] if cell.text else "")[: width - 1]
        return "" if cell.value is None else short_value(cell.value, cell.unit, min(width - 1, 4))

    def judge(self, row: int, column: int) -> tuple[CellStyle, Cell | None, float | None]:
        """Return style, cell (if there is one) and share of the class median of two positions."""
        source, target = self.axis.entries[row], self.axis.entries[column]
        if source.number is None or target.number is None:
            gone = source.gone or target.gone
            diagonal = row == column and self.layer.spec.per is not Per.NODE_PAIR
            style = CellStyle.DIAGONAL if diagonal else CellStyle.UNTESTED
            return (CellStyle.GONE if gone else style), None, None
        level, cell, share = self.judged(row, column, source.number, target.number)
        return STYLES[level], cell, share

    def judged(self, row: int, column: int, src: int, dst: int) -> Judged:
        judged = self._judged.get((row, column))
        if judged is None:
            if len(self._judged) >= _MOST_JUDGED:
                self._judged.clear()
            lets = None if self.filter is None else self.filter.lets
            judged = self._judged[row, column] = judge(self.model, self.layer, src, dst, lets)
        return judged

    def unit(self) -> tuple[str, int | None]:
        """Return unit ("" without values) and largest message size of the layer; slow paths have smaller messages."""
        model, layer = self.model, self.layer
        if self._unit_version != model.version:
            self._unit_version = model.version
            # A sweep of thousands of endpoints may begin anywhere: what its results share is found at once.
            shapes = (shape for shape in model.results.store.columns()[0] if shape is not None and shape.layer is layer)
            largest = max((one for one in shapes if one.has_value), key=lambda one: one.asked or 0, default=None)
            self._unit = ("", None) if largest is None else (largest.unit, largest.asked)
            if layer.spec.by_address:
                found = (one for one in model.addresses.pairs(layer) if one.value is not None)
                self._unit = next(((one.unit, one.asked_bytes) for one in found), ("", None))
        return self._unit


def _far(before: float | None, now: float | None) -> bool:
    if before is None or now is None:
        return before is not now
    return abs(now - before) > _MEDIAN_STEP * abs(before)


class NodePairCells(CellSource):
    """Cells with rows of one node and columns of another, given by the indices of the nodes."""

    shape = ENDPOINTS._replace(tall_from=NUMBER_WIDTH, halves=False)

    def __init__(self, source: EndpointCells, a: int, b: int) -> None:
        super().__init__(source.axis)
        self._source = source
        self.nodes = (a, b)
        at = source.axis.node_at
        self.show_in(
            [position for position in source.row_at if at[position] == a],
            [position for position in source.column_at if at[position] == b],
        )

    def cell(self, row: int, column: int, width: int) -> tuple[int, str]:
        return self._source.cell_of(self.row_at[row], self.column_at[column], width)

    def below(self, row: int, column: int, width: int, most: int) -> list[str]:
        return self._source.below_of(self.row_at[row], self.column_at[column], width, most)


class RankCells(CellSource):
    """Ranks of a job: rank and state, and below them what is known of GPU, links and processor."""

    shape = CellShape(widest=9, tall=5, apart_from=4, tall_from=4, halves=False)

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(Axis([], of_nodes_alone=True))
        self.board: JobBoard | None = None
        self._glyphs = glyphs
        self._shown: tuple[object, ...] = ()

    def take(self, board: JobBoard) -> tuple[bool, bool]:
        """Show a board; return two flags: rows or columns changed, and a cell changed."""
        if board is self.board:
            return False, False
        before, self.board = self._shown, board
        self.line_names = board.line_names
        self.shape = RankCells.shape._replace(tall=1 + len(board.line_names))
        self._shown = (
            *(tuple(board.nodes), board.columns, board.line_names),
            *(board.verdict.ranks, board.verdict.state),
        )
        if self._shown[:3] == before[:3]:
            return False, self._shown != before
        domain = common_domain(board.nodes)
        labels = [(node, fit_text(node.removesuffix(domain))) for node in board.nodes]
        rows = [AxisEntry(node, label, "", None, True, False) for node, label in labels]
        columns = [AxisEntry("", "", str(at), None, not at, False) for at in range(board.columns)]
        self.axis = self.rows = Axis(rows, of_nodes_alone=True)
        # Room for the names of the lines.
        self.rows.label_width = max([self.rows.label_width, *map(len, self.line_names)])
        self.columns = Axis(columns)
        self.row_at, self.column_at = range(len(rows)), range(len(columns))
        self.row_of, self.column_of = ({at: at for at in one} for one in (self.row_at, self.column_at))
        return True, True

    def rank(self, row: int, column: int) -> RankRow | None:
        if self.board is None or row >= self.rows.size:
            return None
        return self.board.at(self.rows.entries[row].node, column)

    def place_of(self, node: str, index: int) -> tuple[int, int] | None:
        row = next((at for at, entry in enumerate(self.rows.entries) if entry.node == node), None)
        return None if row is None or index >= self.columns.size else (row, index)

    def cell(self, row: int, column: int, width: int) -> tuple[int, str]:
        found = self.rank(row, column)
        if found is None or self.board is None:
            return CellStyle.UNTESTED, " " * width
        return self.board.style_of(found), f"{self.board.cell_lines(found, width, self._glyphs)[0]:^{width}}"

    def below(self, row: int, column: int, width: int, most: int) -> list[str]:
        found = self.rank(row, column)
        if found is None or self.board is None:
            return []
        return [f"{text:^{width}}" for text in self.board.cell_lines(found, width, self._glyphs)[1 : most + 1]]


#: Minimum width for a value with a mark, in the middle of its cell.
WIDE = 7
#: Minimum width for a value with its unit.
_UNIT_FROM = 10
#: Minimum and maximum length of a bar beside its percentage.
_SHORTEST_BAR, _LONGEST_BAR = 2, 5
_WORDS = {
    CellStyle.SLOW: "slow",
    CellStyle.TIMEOUT: "T out",
    CellStyle.FAILED: "FAIL",
    CellStyle.WRONG: "data",
    CellStyle.INCONCLUSIVE: "unclear",
    CellStyle.SKIPPED: "skipped",
    # Many pairs are tested at once: a sign is enough.
    CellStyle.RUNNING: "",
    CellStyle.GONE: "gone",
    CellStyle.UNTESTED: "",
}
#: Words that are their own signs.
_SIGNS = frozenset({CellStyle.TIMEOUT, CellStyle.FAILED})


def first_line(layer: Layer, style: CellStyle, cell: Cell, width: int, glyphs: Glyphs) -> str:
    """Return the value of a cell with its unit and a mark, or its verdict; "" if neither fits."""
    mark = glyphs.of_style[CellStyle.RUNNING] if cell.running else glyphs.of_style[style] if style in MARKED else ""
    text = _value(layer, cell, width)
    if text:
        return text + mark if len(text) < width else text
    word = word_of(style, glyphs, width)
    if cell.running and style is not CellStyle.RUNNING and len(word) + 2 <= width:
        return f"{mark} {word}"
    return word


def word_of(style: CellStyle, glyphs: Glyphs, width: int) -> str:
    """Return a verdict in a word with its sign, or without, or the sign alone, as the width allows; "" for ok."""
    word, sign = _WORDS.get(style, ""), glyphs.of_style.get(style, "").strip()
    named = [] if style in _SIGNS or not (sign and word) else [f"{sign} {word}"]
    alone = [f"{sign}{word}"] if style is CellStyle.WRONG else [word] if word else []
    return next((text for text in (*named, *alone, sign if style in _WORDS else "") if len(text) <= width), "")


def _value(layer: Layer, cell: Cell, width: int) -> str:
    if layer is Layer.TRANSPORT:
        path = "".join(c for c in cell.text if " " <= c <= "~")
        name = path if len(path) < width else path.rsplit("/", 1)[-1]
        # Neighbouring cells need a blank between them; of words, those that fit.
        return name if len(name) < width else name[:width].rpartition(" ")[0] or name[: width - 1]
    if cell.value is None:
        return ""
    number = brief_text(cell.value, cell.unit)
    value, unit = spoken(cell.value, cell.unit)
    named = f"{value_text(value)} {unit}"
    return named if width >= _UNIT_FROM and len(named) < width else number if len(number) <= width else ""


def line_below(layer: Layer, cell: Cell, share: float | None, width: int, glyphs: Glyphs) -> str:
    """Return the line of a cell below its value: how far it is below the usual one; "" for one that is not."""
    measured = cell.measurement
    if measured is None or layer is Layer.TRANSPORT:
        return ""
    if layer is Layer.HEALTH:
        # The layer that is bad.
        return "" if cell.verdict is Verdict.OK else str(measured.layer)[:width]
    if share is None or share >= GOOD_FROM:
        return ""
    percent = percent_text(share)
    # Neighbouring cells need a blank between them.
    room = width - 3 - len(percent)
    if room >= _SHORTEST_BAR:
        return f"{share_bar(share, min(room, _LONGEST_BAR), glyphs)} {percent}"
    return percent if len(percent) < width else ""


def share_bar(share: float, width: int, glyphs: Glyphs) -> str:
    """Return a bar of a share of 1; more than nothing is at least half a character."""
    return _bar(min(2 * width, max(1 if share > 0 else 0, round(2 * width * share))), width, glyphs.share)


@lru_cache(512)
def _bar(halves: int, width: int, characters: tuple[str, str, str]) -> str:
    full, half, rest = characters
    return (full * (halves // 2) + half * (halves % 2)).ljust(width, rest)
