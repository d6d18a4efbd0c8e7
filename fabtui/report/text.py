"""Blocks of a report as plain text, for terminals and files."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from fabtui.presentation.wrapping import NOTHING, aligned, text_width
from fabtui.report.document import Block, Entry, Items, Lines, Panel, Paragraph, Picture, Table

#: Maximum number of lines of a list.
MOST_LINES = 60
#: Maximum width of a column, except for cells that are longer.
_WIDEST_CELL = 60
#: Minimum width of a last column of text.
_NARROWEST = 20
#: Maximum number of rows of a table in few or many blocks of columns that is shown row by row.
_FEW_ROWS, _MANY_ROWS, _MOST_BLOCKS = 3, 40, 3
_ALL = "--csv and --json have them all"


def text(blocks: Iterable[Block], width: int | None = None, plain: bool = False) -> str:
    """Return blocks as text with blank lines between; ``width`` None: sentences stay whole; ``plain``: ASCII only."""
    joined = "\n".join(text_lines(blocks, width)) + "\n"
    return joined.encode("ascii", "replace").decode("ascii") if plain else joined


def text_lines(blocks: Iterable[Block], width: int | None = None) -> list[str]:
    lines: list[str] = []
    apart = False
    for block in blocks:
        if own := [*_block(block, width)]:
            lines += ["", *own] if apart else own
            apart = not (isinstance(block, Paragraph) and block.head)
    return lines


def _block(block: Block, width: int | None) -> Iterator[str]:
    match block:
        case Paragraph():
            yield from folded(block.text, width)
        case Items():
            yield from _title(block.title, width)
            indent, width = "  " if block.title else "", None if block.whole else width
            yield from (piece for item in block.items for piece in folded(indent + item, width))
        case Lines():
            yield from (*_title(block.title, width), *block.lines)
        case Table():
            indent = "  " if block.title else ""
            lines = _table(block, None if width is None else width - len(indent))
            yield from _title(block.title, width)
            yield from (f"{indent}{line}".rstrip() for line in (*lines, *block.notes))
        case Entry():
            yield from folded(f"{block.number} {block.title}  {block.rule}", width)
            yield from (piece for line in block.evidence for piece in folded(f"    {line}", width))
            yield from (f"    next: {command}" for command in block.next)
        case Panel():
            # The lines of findings belong together.
            inner = [f"  {line}" for one in block.blocks for line in _block(one, None if width is None else width - 2)]
            yield from _title(block.title, width)
            yield from inner if block.whole else capped(inner, "lines", indent="  ")
        case Picture():
            # The table or the grid behind it follows.
            pass


def _title(title: str, width: int | None) -> list[str]:
    return [] if not title else [title] if width is None else wrapped("", title, width)


def _table(table: Table, width: int | None) -> list[str]:
    """Return the rows of a table; if it is too wide, in blocks of columns, each of which begins with the first one."""
    head, *rows = table.rows
    if not rows and not any(head):
        return []
    heads = [list(line) for line in zip(*(_heading(cell) for cell in head), strict=True)]
    last = len(head) - 1
    columns = zip(_once(heads[0]), *heads[1:], *rows, strict=True)
    widths = [min(_WIDEST_CELL, max(map(text_width, column))) for column in columns]
    blocks = [[0]]
    for at in range(1, last + 1):
        # Text in the last column is wrapped.
        needed = min(widths[at], _NARROWEST) if at == last and at in table.left else widths[at]
        used = sum(widths[column] + 2 for column in blocks[-1])
        if width is not None and len(blocks[-1]) > 1 and used + needed > width:
            blocks.append([0])
        blocks[-1].append(at)
    if len(blocks) > 1 and any(head) and len(rows) <= (_FEW_ROWS if len(blocks) <= _MOST_BLOCKS else _MANY_ROWS):
        return _one_by_one(table, width)
    found: list[str] = []
    for block in blocks:
        tops = [_once([heads[0][at] for at in block]), *([line[at] for at in block] for line in heads[1:])]
        left = {place for place, at in enumerate(block) if at in table.left}
        shown = [*filter(any, tops), *([row[at] for at in block] for row in rows)]
        lines = aligned(shown, left, indent="", widest=_WIDEST_CELL)
        start, room = sum(widths[at] + 2 for at in block[:-1]), width if block[-1] in table.left else None
        found += [*([""] if found else []), *(piece for line in lines for piece in _hanging(line, start, room))]
    return found


def _once(groups: list[str]) -> list[str]:
    return [name if not at or name != groups[at - 1] else "" for at, name in enumerate(groups)]


def _heading(cell: str) -> list[str]:
    lines = cell.split("\n")
    return lines if len(lines) == 3 else ["", cell, ""]


def _one_by_one(table: Table, width: int | None) -> list[str]:
    head, *rows = table.rows
    parts = []
    for number, row in enumerate(rows, 1):
        named = [(*_heading(name), cell) for name, cell in zip(head, row, strict=True) if cell not in NOTHING]
        facts = [[f"{group} {name}".strip(), f"{cell} {unit}".strip()] for group, name, unit, cell in named]
        lines = _table(Table("", [["", ""], *facts], (0, 1)), None if width is None else width - 2)
        parts += ["", f"{number} of {len(rows)}", *(f"  {line}" for line in lines)]
    return parts[1:]


def _hanging(line: str, start: int, width: int | None) -> list[str]:
    """Return a line whose last column begins at a place, wrapped to a width unless it has a command to be copied.

    A long cell before the last column moves that column: such a line is left whole.
    """
    if width is None or len(line) <= width or "next: " in line or line[max(start - 2, 0) : start].strip():
        return [line]
    return wrapped(line[:start], line[start:], width)


def capped(lines: Sequence[str], what: str, most: int = MOST_LINES, where: str = _ALL, indent: str = "") -> list[str]:
    """Return lines; of too many, the first ones and the number of the rest (``what``: a plural)."""
    left = len(lines) - most
    noun, space, rest = what.partition(" ")
    shown = f"{noun.removesuffix('s') if left == 1 else noun}{space}{rest}"
    return [*lines[:most], *([f"{indent}and {left} more {shown}; {where}"] if left > 0 else [])]


def shortened(table: Table, what: str, where: str = _ALL, most: int = MOST_LINES) -> Table:
    """Return a table with at most some rows below its heading, and a note on the others."""
    head, *rows = table.rows
    shown = capped(["" for _ in rows], what, most, where)
    return table._replace(rows=[head, *rows[:most]], notes=[*shown[most:], *table.notes])


def folded(line: str, width: int | None) -> list[str]:
    """Return a line in pieces of ``width`` characters with a hanging indent; a command to be copied stays whole."""
    if width is None or len(line) <= width or line.lstrip().startswith("next: "):
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    pieces = textwrap.wrap(
        line.strip(),
        max(40, width),
        initial_indent=indent[2:],
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return pieces or [line]


def wrapped(start: str, text: str, width: int) -> list[str]:
    """Return the lines of a text after a prefix, with a hanging indent."""
    pieces = textwrap.wrap(text, max(width - len(start), 20), break_on_hyphens=False) or [""]
    return [(start if at == 0 else " " * len(start)) + piece for at, piece in enumerate(pieces)]


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 3, 10)] + "..."
