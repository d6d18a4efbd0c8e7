"""A matrix as ``nvidia-smi topo`` prints it: a row of names, then for each name a row of words."""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from fabtui_node.parsers.base import Notes
from fabtui_node.parsers.nvidia.values import is_noise, plain

MOST = 512
NAME = re.compile(r"(?:GPU|NIC)[0-9]{1,3}|[a-z][a-z0-9_]{1,24}", re.ASCII)
_LEGEND = re.compile(r"\s{0,8}([A-Z][A-Z0-9#]{0,5})\s{0,6}=\s{1,4}(\S.{0,200})")
_NIC = re.compile(r"\s{0,8}(NIC[0-9]{1,3}):\s{1,8}(\S{1,64})")


class Row(NamedTuple):
    """A row: its name, a word for each column (None where the line is cut off), and what stands behind them."""

    name: str
    cells: List[Optional[str]]
    rest: str


class Matrix(NamedTuple):
    """A matrix of ``nvidia-smi topo``.

    Attributes:
        columns: The devices, by the names that the header gives them.
        titles: The rest of the header, one text.
        rows: The rows, in the order in which they come.
        legend: The meanings of the words, as printed.
        nics: The device of each NIC.
        command: The options of the command, if the text begins with it.
    """

    columns: List[str]
    titles: str
    rows: List[Row]
    legend: Dict[str, str]
    nics: Dict[str, str]
    command: Optional[str]


def _header(line: str) -> Optional[Tuple[List[str], str]]:
    words = line.split()
    count = next((at for at, word in enumerate(words) if not NAME.fullmatch(word)), len(words))
    if not count or not words[0].startswith("GPU"):
        return None
    # A row begins with a name as well, but goes on with other words than names and titles.
    rest = " ".join(words[count:])
    if count == 1 and rest and not rest.startswith(("CPU", "NUMA", "Memory")):
        return None
    return words[:count][:MOST], rest


def _row(line: str, columns: List[str]) -> Optional[Row]:
    words = line.strip().split(None, len(columns) + 1)
    if not words or words[0] not in columns:
        return None
    cells: List[Optional[str]] = [word[:12] for word in words[1 : len(columns) + 1]]
    rest = words[len(columns) + 1] if len(words) > len(columns) + 1 else ""
    return Row(words[0], cells + [None] * (len(columns) - len(cells)), rest)


def parse(text: str, notes: Notes) -> Matrix:
    """Return the first matrix of a text, and note what is not understood or cut off."""
    columns: List[str] = []
    titles, command = "", None
    rows: List[Row] = []
    legend: Dict[str, str] = {}
    nics: Dict[str, str] = {}
    for line in plain(text).splitlines():
        line = line[:8000]
        head = None if columns else _header(line)
        row = _row(line, columns) if columns else None
        nic, word = _NIC.fullmatch(line.rstrip()[:200]), _LEGEND.fullmatch(line.rstrip()[:300])
        if head:
            columns, titles = head
        elif row and all(row.name != known.name for known in rows):
            rows.append(row)
        elif nic and len(nics) < MOST:
            nics[nic.group(1)] = nic.group(2)
        elif word and len(legend) < 64:
            legend[word.group(1)] = word.group(2)
        elif not is_noise(line) and not line.strip().lower().endswith("legend:"):
            notes.puzzled(line)
    if columns and len(rows) < len(columns):
        notes.warn("%d of %d rows: the text is cut off" % (len(rows), len(columns)))
    elif not columns and text.strip():
        notes.warn("no header with GPU0, GPU1 and so on")
    for row in rows:
        if None in row.cells:
            notes.warn("the row of %s is cut off" % row.name)
    found = re.search(r"nvidia-smi (topo .{1,60})", text[:2000])
    command = found.group(1) if found else None
    return Matrix(columns, titles, rows, legend, nics, command)


def values(matrix: Matrix) -> Dict[str, Any]:
    """Return what every matrix has, as JSON."""
    return {
        "columns": matrix.columns,
        "rows": [row.name for row in matrix.rows],
        "cells": [row.cells for row in matrix.rows],
        "legend": matrix.legend,
        "complete": bool(matrix.columns)
        and len(matrix.rows) == len(matrix.columns)
        and all(None not in row.cells for row in matrix.rows),
    }
