"""Tables and nested values as plain text within the width of the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fabtui.importers.matrix import is_matrix
from fabtui.presentation.text_table import aligned
from fabtui.report.text import wrapped
from fabtui.sanitize import one_line

#: Maximum number of rows of a table; --json has all.
MOST_ROWS = 200
_WIDEST_CELL = 60
#: Longer units are listed below the values.
LONG_UNIT = 12
#: Columns that identify a row come first.
_IDS = ("gpu", "index", "interface", "ca", "node", "host", "name", "link", "port")
_ID_ENDS = ("name", "node", "rank", "bus", "guid", "kind", "bytes", "src")
#: Maximum number of blocks of columns of a short table.
_MOST_BLOCKS = 3
_DEEPEST = 8
_NONE = "-"


class Layout:
    """Layout of nested values, with units by their names, in the width of the terminal."""

    def __init__(self, units: dict[str, str], width: int) -> None:
        self._units = units
        self._width = max(width, 40)

    def lines(self, values: dict[str, Any], depth: int = 0) -> list[str]:
        """Return the lines of an object: plain values first, then its parts."""
        if depth > _DEEPEST:
            return [f"{'  ' * depth}..."]
        own = values.get("units")
        if isinstance(own, dict) and all(isinstance(unit, str) for unit in own.values()):
            # Units in the text override those of the format.
            rest = {name: value for name, value in values.items() if name != "units"}
            return Layout({**self._units, **own}, self._width).lines(rest, depth)
        if is_matrix(values):
            # The whole output is a matrix: other values come first.
            rest = {name: value for name, value in values.items() if name not in ("rows", "columns", "cells")}
            return [*self.lines(rest, depth), "", *(f"{'  ' * (depth + 1)}{line}" for line in self._matrix(values, ""))]
        values = {name: values[name] for name in _ids_first(list(values))}
        facts = {name: text for name, value in values.items() if (text := self.fact(name, value)) is not None}
        shown = {name: text for name, text in facts.items() if text != _NONE}
        wide = max((len(words(name)) for name in shown), default=0)
        lines = []
        for name, text in shown.items():
            start = f"{'  ' * (depth + 1)}{words(name):<{wide}}  "
            lines += wrapped(start, f"{text} {self.unit(name)}".rstrip(), self._width)
        for name, value in values.items():
            lines += self._part(name, value, depth) if name not in facts else []
        return lines

    def fact(self, name: str, value: Any) -> str | None:
        """Return the text after a name; None if the value needs its own lines."""
        if is_plain(value):
            return self.cell(value)
        if isinstance(value, dict) and _is_short(value) and not is_matrix(value):
            shown = [(key, self.cell(item)) for key, item in value.items() if item is not None]
            # The unit of the object holds for all its values, and follows them.
            units = {} if self.unit(name) else {key: self.unit(key) for key, _ in shown}
            return ", ".join(f"{words(key)} {text} {units.get(key, '')}".rstrip() for key, text in shown) or _NONE
        if isinstance(value, list) and value and all(map(is_plain, value)):
            return ", ".join(map(self.cell, value))
        return None

    def _part(self, name: str, value: Any, depth: int) -> list[str]:
        pad = "  " * (depth + 1)
        if is_matrix(value):
            return ["", *(pad + line for line in self._matrix(value, name))]
        if isinstance(value, dict):
            inner = self.lines(value, depth + 1)
            return [f"{pad}{words(name)}", *inner] if inner else []
        if not value:
            return []
        if all(isinstance(item, dict) for item in value):
            return self._objects(name, value, depth)
        if all(isinstance(item, list) for item in value):
            rows = ["  ".join(map(self.cell, item)) for item in value[:MOST_ROWS]]
            return [f"{pad}{words(name)}", *(f"{pad}  {row}" for row in rows), *self._more(value, depth)]
        return [f"{pad}{words(name)}", *(f"{pad}  {self.cell(item)}" for item in value[:MOST_ROWS])]

    def _objects(self, name: str, items: list[dict[str, Any]], depth: int) -> list[str]:
        """Return a table if the objects are flat, else their lines one after another."""
        pad = "  " * (depth + 1)
        if any(is_matrix(item) for item in items):
            return [line for item in items for line in self._part(name, item, depth)]
        flat = [row for item in items[:MOST_ROWS] if (row := flattened(item)) is not None]
        if len(flat) == len(items[:MOST_ROWS]) and (table := self._table(flat, depth)) is not None:
            return ["", f"{pad}{words(name)}", *table, *self._more(items, depth)]
        lines: list[str] = []
        plural = words(name)
        singular = plural[:-1] if plural.endswith("s") and not plural.endswith("ss") else plural
        for number, item in enumerate(items[:MOST_ROWS]):
            lines += ["", f"{pad}{singular} {number + 1} of {len(items)}", *self.lines(item, depth + 1)]
        return lines + self._more(items, depth)

    @staticmethod
    def _more(items: list[Any], depth: int) -> list[str]:
        left = len(items) - MOST_ROWS
        return [f"{'  ' * (depth + 2)}and {left} more; --json has them all"] if left > 0 else []

    def _table(self, rows: list[dict[str, Any]], depth: int) -> list[str] | None:
        """Return the lines of a table; None if it would be split into too many blocks of columns."""
        every = dict.fromkeys(name for row in rows for name in row)
        names = _ids_first([name for name in every if any(row.get(name) not in (None, [], {}) for row in rows)])
        if not names:
            return []
        groups = self._groups(names, range(len(names)))
        heads = [groups, [words(name.rpartition(".")[2]) for name in names], [*map(self.unit, names)]]
        columns = [_even([self.cell(row.get(name), _WIDEST_CELL) for row in rows]) for name in names]
        cells = [list(row) for row in zip(*columns, strict=True)]
        left = {at for at, name in enumerate(names) if any(isinstance(row.get(name), (str, list)) for row in rows)}
        pad = "  " * (depth + 1)
        found: list[str] = []
        blocks = _blocks([*heads, *cells], self._width - len(pad))
        if len(blocks) > 1 and len(rows) <= (3 if len(blocks) <= _MOST_BLOCKS else 40):
            return None
        for block in blocks:
            heads[0] = self._groups(names, block)
            shown = [row for row in heads if any(row[at] for at in block)]
            table = [[row[at] for at in block] for row in [*shown, *cells]]
            lefts = {at for at, column in enumerate(block) if column in left}
            found += [*([""] if found else []), *(pad + line for line in aligned(table, lefts))]
        return found

    def _matrix(self, value: dict[str, Any], name: str) -> list[str]:
        title = one_line(str(value.get("title") or words(name)), 200)
        unit = str(value.get("unit") or "")
        if unit and unit not in title:
            title = f"{title}, {unit}"
        columns = [one_line(str(column), 30) for column in value["columns"]]
        rows = [
            [one_line(str(row), 30), *(self.cell(cell, _WIDEST_CELL) for cell in cells)]
            for row, cells in zip(value["rows"], value["cells"], strict=False)
            if isinstance(cells, list)
        ]
        even = [row for row in rows if len(row) == len(columns) + 1]
        if not even:
            return [title]
        # All numbers of a matrix have the same number of decimals, at most 3.
        most = min(max((_decimals(cell) for row in even for cell in row[1:] if _is_number(cell)), default=0), 3)
        table = [["", *columns]]
        for name_of_row, *cells in even:
            table.append([name_of_row, *(f"{float(cell):.{most}f}" if _is_number(cell) else cell for cell in cells)])
        lines = [title] if title else []
        blocks = _blocks(table, self._width - 4)
        for block in blocks:
            lines += [*([""] if block is not blocks[0] else []), *aligned([[row[at] for at in block] for row in table])]
        return lines

    @staticmethod
    def _groups(names: list[str], block: Sequence[int]) -> list[str]:
        """Return the headings of column groups, each over its first column in a block."""
        found = [""] * len(names)
        before = ""
        for at in block:
            group = words(names[at].rpartition(".")[0])
            found[at] = group if group != before else ""
            before = group
        return found

    def unit(self, name: str) -> str:
        """Return the unit of a value by its name, or ""; long ones are listed apart."""
        group, _, own = name.rpartition(".")
        unit = self._units.get(group) or self._units.get(own, "")
        return unit if len(unit) <= LONG_UNIT else ""

    def cell(self, value: Any, limit: int = 2000) -> str:
        """Return a plain value or a short list as text."""
        if value is None or value == "":
            return _NONE
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, float):
            return f"{value:.10g}"
        if isinstance(value, dict):
            return f"{len(value)} values"
        if isinstance(value, list):
            return one_line(" ".join(map(self.cell, value[:100])), limit) or _NONE
        return one_line(str(value), limit) or _NONE


def _ids_first(names: list[str]) -> list[str]:
    """Return names with identifying columns first."""
    if not names or names[0] in _IDS or names[0].endswith(_ID_ENDS):
        return names
    ids = [name for name in _IDS if name in names]
    return ids + [name for name in names if name not in ids]


def is_plain(value: Any) -> bool:
    """Return True for a value without parts."""
    return value is None or isinstance(value, (str, int, float, bool))


def words(name: str) -> str:
    """Return the name of a value as words."""
    return one_line(name.replace("_", " "), 60)


def flattened(item: dict[str, Any]) -> dict[str, Any] | None:
    """Return an object as a table row, small objects in it as columns; None if it is too deep."""
    row: dict[str, Any] = {}
    for name, value in item.items():
        short = isinstance(value, list) and len(value) <= 8 and all(is_plain(inner) for inner in value)
        if is_plain(value) or short:
            row[name] = value
        elif isinstance(value, dict) and len(value) <= 8 and all(is_plain(inner) for inner in value.values()):
            row.update({f"{name}.{inner}": found for inner, found in value.items()})
        elif value in ([], {}):
            row[name] = None
        else:
            return None
    return row if len(row) <= 40 else None


def _is_short(value: dict[str, Any]) -> bool:
    """Return True if an object fits on one line."""
    return 0 < len(value) <= 12 and all(is_plain(item) and len(str(item)) <= 24 for item in value.values())


def _even(cells: list[str]) -> list[str]:
    """Return the numbers of a column with the same number of decimals."""
    numbers = [cell for cell in cells if cell != _NONE]
    if not any("." in cell for cell in numbers) or not all(map(_is_number, numbers)):
        return cells
    most = max(map(_decimals, numbers))
    return cells if most > 6 else [cell if cell == _NONE else f"{float(cell):.{most}f}" for cell in cells]


def _is_number(cell: str) -> bool:
    return cell.replace(".", "", 1).isdecimal()


def _decimals(cell: str) -> int:
    return len(cell.partition(".")[2])


def _blocks(table: list[list[str]], width: int) -> list[list[int]]:
    """Return the blocks of columns that fit the width, each beginning with the first column."""
    widths = [max(map(len, column)) + 2 for column in zip(*table, strict=True)]
    if not widths or sum(widths) + 2 <= width:
        return [list(range(len(widths)))]
    blocks: list[list[int]] = [[0]]
    for at in range(1, len(widths)):
        if len(blocks[-1]) > 1 and 2 + sum(widths[column] for column in blocks[-1]) + widths[at] > width:
            blocks.append([0])
        blocks[-1].append(at)
    return blocks
