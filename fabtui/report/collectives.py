"""Tables of the collectives as text, in the layout of nccl-tests."""

from __future__ import annotations

from fabtui.export.collectives_table import TableRow, table_rows
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.numbers import size_text, value_text
from fabtui.report.tables import MOST_LINES, aligned

_HEAD = ["group", "ranks", "size", "time us", "algbw GB/s", "busbw GB/s", "wrong", "algorithm", ""]
_ALGORITHM = 7


def collective_tables(model: Model) -> list[list[str]]:
    """Return a table for each collective: a row for each group and message size, the group of all ranks first.

    Of an A/B comparison, this shows the first arm; `fabtui.report.comparison` shows all of them.
    """
    rows = [row for row in table_rows(model) if row.arm is None]
    tables = []
    for kind in dict.fromkeys(row.kind for row in rows):
        found = [row for row in rows if row.kind == kind]
        # Those that fit a summary, in their order: bad rows first, then the first ones.
        places = sorted(range(len(found)), key=lambda at: (found[at].verdict is Verdict.OK, at))
        mine = [found[at] for at in sorted(places[:MOST_LINES])]
        cells = [_HEAD, *(_cells(row, mine[at - 1] if at else None) for at, row in enumerate(mine))]
        if not any(row.algorithm for row in mine):
            cells = [[*row[:_ALGORITHM], "", row[-1]] for row in cells]
        lines = aligned(cells, (0, _ALGORITHM, _ALGORITHM + 1))
        if len(found) > len(mine):
            lines.append(f"  and {len(found) - len(mine)} more rows; --table has them all")
        tables.append([kind, *lines])
    return tables


def _cells(row: TableRow, before: TableRow | None) -> list[str]:
    same = before is not None and before.group == row.group
    problem = "" if row.verdict is Verdict.OK else str(row.verdict)
    return [
        "" if same else row.group,
        "" if same else "-" if row.ranks is None else str(row.ranks),
        "-" if row.bytes is None else size_text(row.bytes),
        value_text(row.time_us),
        value_text(row.algbw),
        value_text(row.busbw),
        "-" if row.wrong is None else str(row.wrong),
        row.algorithm or "",
        f"{problem}: {row.error[:200]}" if problem and row.error else problem,
    ]
