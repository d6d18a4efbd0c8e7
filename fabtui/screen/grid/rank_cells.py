"""Map of the ranks of a running job: a row per node, a column per GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabtui.presentation.cell_levels import CellStyle, Glyphs
from fabtui.presentation.wording import common_domain
from fabtui.screen.grid.axis import Axis, AxisEntry, fit_text
from fabtui.screen.grid.cells import CellSource
from fabtui.screen.grid.layout import CellShape

if TYPE_CHECKING:
    # The first frame has no job, and the diagnosis takes long to import.
    from fabtui.diagnosis.running_job.job_verdict import RankRow
    from fabtui.presentation.job_board import JobBoard


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
