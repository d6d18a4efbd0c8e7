"""Tables of ``--groups``: bandwidths by number of ranks, side by side for the arms of a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from string import ascii_uppercase
from typing import NamedTuple

from fabtui.export.collectives_table import SweepRow, TableRow, group_sweep
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.numbers import size_text, value_text
from fabtui.presentation.text_table import aligned
from fabtui.sanitize import one_line
from fabtui_node.parsers.nccl.transports import transport_of

#: Length of names of arms that name the columns if the transports are not known.
_SHORT = 12
#: GB/s are 10^9 bytes per second, Gb/s 10^9 bits.
_UNITS = {"GB/s": 1.0, "Gb/s": 8.0}


class SweepTable(NamedTuple):
    """Bandwidths by number of ranks: title, notes on the columns, and rows by unit with the heading first."""

    title: str
    notes: list[str]
    rows: dict[str, list[list[str]]]

    @property
    def left(self) -> list[int]:
        """Columns of text."""
        return [*range(3, max(len(row) for rows in self.rows.values() for row in rows), 3)]


def group_sweep_tables(model: Model) -> list[list[str]]:
    """Return the lines of a table per collective and message size, none without ``--groups``."""
    parts = []
    for table in sweep_tables(model):
        lines = [table.title, *(f"  {note}" for note in table.notes)]
        for unit, rows in table.rows.items():
            lines += [f"  {unit}", *aligned(rows, table.left)]
        parts.append(lines)
    return parts


def sweep_tables(model: Model) -> list[SweepTable]:
    """Return a table per collective and message size."""
    rows = group_sweep(model)
    tables = []
    for kind, size in dict.fromkeys((row.kind, row.bytes) for row in rows):
        mine = [row for row in rows if (row.kind, row.bytes) == (kind, size)]
        at = ", message size unknown" if size is None else f" at {size_text(size)}"
        tables.append(_table(model, f"{kind}{at}", mine))
    return tables


def _table(model: Model, title: str, rows: Sequence[SweepRow]) -> SweepTable:
    names = [one_line(name, 60) for name in model.comparison] or [""]
    words = [_word([row.arms[at] for row in rows]) for at in range(len(names))]
    # Transports name the columns only where those of the arms differ.
    heads = words if len({*words, ""}) > len(words) else list(ascii_uppercase[: len(names)])
    if not any(words) and max(map(len, names)) <= _SHORT:
        heads = names
    # A table that was read from a report has numbers of GPUs and no endpoints.
    gpus = not model.endpoints or any(end.kind == "gpu" for end in model.endpoints)
    notes = []
    if len(names) == 1:
        heads = [""]
    else:
        arms = zip(heads, names, words, strict=True)
        notes += [
            f"{head}: {name}" + ("" if word in ("", head) else f", over {word}")
            for head, name, word in arms
            if head != name
        ]
        if len(set(words)) == 1 and words[0]:
            notes.append(f"all use {words[0]}, so that this compares no transports")
    cells = {}
    for unit, factor in _UNITS.items():
        head = ["GPUs" if gpus else "ranks"]
        for name in heads:
            head += [f"{name} busbw".strip(), f"{name} algbw".strip(), "transport"]
        cells[unit] = [head, *([str(row.ranks), *_cells(row, factor)] for row in rows)]
    return SweepTable(f"{title}, by number of {'GPUs' if gpus else 'CPU ranks'}", notes, cells)


def _cells(row: SweepRow, factor: float) -> list[str]:
    cells = []
    for arm in row.arms:
        if arm is None:
            cells += ["-", "-", "not tested"]
            continue
        values = [None if value is None else value * factor for value in (arm.busbw, arm.algbw)]
        bad = "" if arm.verdict in (Verdict.OK, Verdict.SLOW) else str(arm.verdict)
        cells += [*map(value_text, values), bad or (arm.transport or "-")]
    return cells


def _word(rows: Sequence[TableRow | None]) -> str:
    """Return a word for the transport of an arm: that of the largest group that passed, "" if none is known."""
    known = [row.transport for row in rows if row is not None and row.transport]
    if not known:
        return ""
    most = Counter(known[-1].split(", ")).most_common(1)[0][0]
    return transport_of(most).word
