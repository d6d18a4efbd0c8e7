"""Outline of the cells of a finding: brackets at both sides, where a cell has blanks."""

from __future__ import annotations

from collections.abc import Collection

from fabtui.model.endpoints import node_of
from fabtui.screen.grid.axis import Axis

#: Columns to outline, by row.
Outlined = dict[int, set[int]]


def outlined(pairs: Collection[tuple[str, str]], rows: Axis, columns: Axis) -> Outlined:
    """Return the cells of ordered pairs of endpoints; of node blocks those that contain one."""
    found: Outlined = {}
    if not pairs:
        return found
    row_of, column_of = _positions(rows), _positions(columns)
    for src, dst in pairs:
        row = row_of.get(node_of(src) if rows.of_nodes_alone else src)
        column = column_of.get(node_of(dst) if columns.of_nodes_alone else dst)
        if row is not None and column is not None:
            found.setdefault(row, set()).add(column)
    return found


def _positions(axis: Axis) -> dict[str, int]:
    named = axis.of_nodes_alone
    return {seat.node if named else f"{seat.node}:{seat.index}": at for at, seat in enumerate(axis.seats)}


def bracketed(text: str) -> str:
    """Return the text of a cell with brackets in place of blanks at its ends."""
    left, right = text[:1] == " ", len(text) > 1 and text[-1:] == " "
    return ("[" if left else text[:1]) + text[1:-1] + (("]" if right else text[-1:]) if len(text) > 1 else "")
