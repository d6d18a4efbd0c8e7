"""Tables that tools print, declared by their kinds of lines; and matrices, shown and exported alike."""

from __future__ import annotations

import copy
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from fabtui_node.parsers.base import Notes, Reading
from fabtui_node.parsers.lines import number, plain_lines, size, whole

Values = dict[str, Any]
#: More rows or columns than this are not a matrix of GPUs.
MOST = 4096
#: Maximum number of tables of a text, and of rows of a table.
_MOST_TABLES, _MOST_ROWS = 10_000, 100_000
#: Maximum number of characters of a line that are looked at.
_WIDTH = 4000


#: What ``<NAME:TYPE>`` in a pattern matches, and how it is converted.
_TYPES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "int": (r"\d{1,18}", int),
    "num": (r"[\d.]{1,30}", number),
    "word": (r"\S{1,253}", str),
    "size": (r"[\d.]{1,12} ?[KMGT]?i?B", size),
}
_VALUE = re.compile(r"<(\w*):(\w+)>")


class LineForm(NamedTuple):
    """A kind of line: the method of `Tables` that takes it, its pattern, and conversions of the groups by name."""

    does: str
    pattern: re.Pattern[str]
    converts: dict[str, Callable[[str], Any]]


def kinds(declared: str, **types: str | tuple[str, Callable[[str], Any]]) -> tuple[LineForm, ...]:
    """Return kinds of lines.

    Args:
        declared: One on each line: the method and the pattern, which continues in lines with more indent. A pattern
            matches from the start of a line without its indent; ``<NAME:TYPE>`` in it is a value, ``<:TYPE>`` has no
            name.
        **types: Further types of values: what they match, and their conversion.
    """
    rows: list[list[str]] = []
    for line in textwrap.dedent(declared).strip("\n").split("\n"):
        if line[0] == " ":
            rows[-1][1] += line.strip()
        else:
            rows.append(line.split(None, 1))
    known = {**_TYPES, **{name: (kind, str) if isinstance(kind, str) else kind for name, kind in types.items()}}
    return tuple(_kind(does, pattern, known) for does, pattern in rows)


def _kind(does: str, pattern: str, types: Mapping[str, tuple[str, Callable[[str], Any]]]) -> LineForm:
    converts = {}
    while value := _VALUE.search(pattern):
        matched, convert = types[value[2]]
        converts[value[1]] = convert
        pattern = pattern.replace(value[0], f"(?P<{value[1]}>{matched})" if value[1] else f"(?:{matched})")
    return LineForm(does, re.compile(pattern), converts)


class Tables:
    """Reads a text line by line; the first kind of line that matches, and whose method does not return False, counts.

    A reader declares its kinds of lines, the values of a text at first (``facts``) and those of a new table
    (``fresh``). Its tables are in the values if they have a name there (``called``).
    """

    _lines: ClassVar[tuple[LineForm, ...]]
    _facts: ClassVar[Values]
    _fresh: ClassVar[Values]
    _called: ClassVar[str]

    def __init_subclass__(
        cls,
        lines: tuple[LineForm, ...] = (),
        facts: Mapping[str, Any] | Iterable[str] = (),
        fresh: Mapping[str, Any] | None = None,
        called: str = "",
    ) -> None:
        cls._lines, cls._fresh, cls._called = lines, dict(fresh or {"rows": []}), called
        cls._facts = dict(facts) if isinstance(facts, Mapping) else dict.fromkeys(facts)

    def __init__(self) -> None:
        self.notes = Notes()
        self.facts = copy.deepcopy(self._facts)
        self.tables: list[Values] = []

    lines: Callable[[str], Iterable[str]] = staticmethod(plain_lines)

    @classmethod
    def parse(cls, text: str) -> Reading:
        reader = cls()
        for line in cls.lines(text):
            reader.take(line)
        return reader.reading()

    def reading(self) -> Reading:
        return self.notes.reading({**self.facts, **({self._called: self.tables} if self._called else {})})

    def take(self, line: str) -> bool:
        """Take a line in; return whether it is of a kind."""
        short = line.strip()[:_WIDTH]
        for does, pattern, converts in self._lines:
            if match := pattern.match(short):
                cells = match.groupdict().items()
                values = {name: None if cell is None else converts.get(name, str)(cell) for name, cell in cells}
                if getattr(self, does)(values, line) is not False:
                    return True
        return False

    def begin(self, values: Values, line: str) -> None:
        if len(self.tables) < _MOST_TABLES:
            self.tables.append({**copy.deepcopy(self._fresh), **values})

    def heading(self, values: Values, line: str) -> None:
        """Fill in a table without rows; else the line with its title is missing."""
        if not self.tables or self.tables[-1]["rows"]:
            self.begin({}, line)
        self.tables[-1].update(values)

    def row(self, values: Values, line: str) -> bool:
        """Add a row; return False outside of a table."""
        if self.tables and len(self.tables[-1]["rows"]) < _MOST_ROWS:
            self.tables[-1]["rows"].append(values)
        return bool(self.tables)

    def fact(self, values: Values, line: str) -> None:
        self.facts.update(values)

    def warn(self, values: Values, line: str) -> None:
        """Warn of a line, or of its part ``text``."""
        self.notes.warn(values.get("text") or line)

    def puzzle(self, values: Values, line: str) -> None:
        """Note a line that is not understood, unless it is before the first table."""
        if self.tables:
            self.notes.puzzled(line)

    def puzzled(self, values: Values, line: str) -> None:
        self.notes.puzzled(line)

    def skip(self, values: Values, line: str) -> None:
        """Pass a line over."""


def matrix(title: str, unit: str, rows: list[str], columns: list[str], cells: list[list[Any]]) -> Values:
    """Return a matrix: its title, the unit of its cells, the names of rows and columns, and the cells by row."""
    return {"title": title, "unit": unit, "rows": rows, "columns": columns, "cells": cells}


def is_matrix(value: Any) -> bool:
    return isinstance(value, dict) and {"rows", "columns", "cells"} <= value.keys() and isinstance(value["cells"], list)


def column_names(words: list[str]) -> list[str]:
    """Return the names of a heading, ``0 1 2 ...``, ascending; an empty list if the words are not one."""
    numbers = [count for word in words if (count := whole(word)) is not None and count >= 0]
    return list(map(str, numbers)) if len(words) == len(numbers) <= MOST and numbers == sorted(set(numbers)) else []


def add_row(table: Values, words: list[str], notes: Notes) -> bool:
    """Add a row of cells to a matrix; return False for other words, with a warning if it is cut off.

    A cell may be ``N/A``. Negative numbers are none that any test here prints.
    """
    name, *rest = words
    cells = [None if word == "N/A" else number(word) for word in rest]
    wrong = any((cell is None and word != "N/A") or (cell or 0) < 0 for cell, word in zip(cells, rest, strict=True))
    if wrong or len(cells) != len(table["columns"]) or not re.fullmatch(r"[\w.:-]{1,80}", name):
        if name.isdecimal():
            notes.warn(f"a row of {table['title']!r} is cut off")
        return False
    table["rows"].append(name)
    table["cells"].append(cells)
    return True
