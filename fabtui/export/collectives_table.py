"""Tables of collectives: one row per collective, group, message size and arm."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, NamedTuple

from fabtui.diagnosis.pairs.ab_comparison import KINDS, group_name
from fabtui.export.atomic_write import write_atomically
from fabtui.export.csv import escaped
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line


class TableRow(NamedTuple):
    """Result of one group in one collective; None: unknown.

    Attributes:
        kind: Collective, such as ``all_reduce``.
        group: ``all``, a node, a rail (``rail3``) or two nodes (``n060+n061``).
        ranks: Number of ranks.
        bytes: Message size, as nccl-tests counts it.
        time_us: Time of one iteration (us), of the slowest rank.
        algbw: Bytes over time, in GB/s (1e9 bytes a second).
        busbw: The same times the factor of the collective.
        wrong: Number of wrong elements of the result.
        algorithm: Algorithm and protocol chosen by the library, such as ``RING/SIMPLE``.
        transport: Transport that was used.
        arm: Arm of an A/B comparison; None for the reference.
        verdict: Verdict.
        error: Error message.
    """

    kind: str
    group: str
    ranks: int | None
    bytes: int | None
    time_us: float | None
    algbw: float | None
    busbw: float | None
    wrong: int | None
    algorithm: str | None
    transport: str | None
    arm: str | None
    verdict: Verdict
    error: str | None


def table_rows(model: Model) -> list[TableRow]:
    """Return all rows: by arm, collective, group (all ranks, nodes, rails, pairs of nodes) and message size."""
    kinds = list(KINDS)
    places = {name: number for number, name in enumerate(model.nodes)}
    arms: dict[str | None, int] = {None: 0} | {arm: at for at, arm in enumerate(model.comparison) if at}
    found = [m for m in (*model.measurements(), *model.arms()) if m.layer in KINDS]

    def place(m: Measurement) -> tuple[int, ...]:
        if m.src == m.dst == "all":
            group = (0, 0, 0)
        elif m.src == m.dst:
            # Rails are no nodes, and rail10 comes behind rail9.
            group = (1, places[m.src], 0) if m.src in places else (2, len(m.src), _last_number(m.src))
        else:
            group = (3, places.get(m.src, -1), places.get(m.dst, -1))
        return (arms.get(m.arm, len(arms)), kinds.index(m.layer), *group, m.asked_bytes or 0)

    found.sort(key=place)
    ranks = {(m.layer, m.src, m.dst): n for m in found if (n := _whole(m, "ranks")) is not None}
    return [_row(model, m, ranks.get((m.layer, m.src, m.dst))) for m in found]


def write_table(model: Model, path: Path) -> int:
    """Write the tables as CSV, whole or not at all; returns how many rows there are.

    What is not known is an empty cell. Text that a spreadsheet would run as a formula begins with an apostrophe.

    Raises:
        OSError: It cannot be written.
    """
    rows = table_rows(model)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(TableRow._fields)
    for row in rows:
        writer.writerow(["" if cell is None else escaped(cell) if isinstance(cell, str) else cell for cell in row])
    data = text.getvalue().encode("utf-8", "backslashreplace")
    write_atomically(path, lambda file: file.write(data))
    return len(rows)


def _row(model: Model, m: Measurement, ranks: int | None) -> TableRow:
    seconds, algbw = _number(m, "seconds"), _number(m, "algbw")
    algorithm: Any = (m.extra or {}).get("algorithm")
    return TableRow(
        kind=KINDS[m.layer],
        group=one_line(group_name(m)),
        ranks=ranks,
        bytes=m.asked_bytes,
        time_us=None if seconds is None else seconds * 1e6,
        algbw=algbw,
        busbw=m.value,
        wrong=_whole(m, "wrong"),
        algorithm=one_line(str(algorithm), 40) if algorithm else None,
        transport=one_line(m.transport) if m.transport else None,
        arm=one_line(m.arm) if m.arm else None,
        verdict=model.verdict(m),
        error=one_line(m.error) if m.error else None,
    )


def _number(m: Measurement, name: str) -> float | None:
    value = (m.extra or {}).get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _whole(m: Measurement, name: str) -> int | None:
    value = (m.extra or {}).get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _last_number(text: str) -> int:
    digits = text.removeprefix("rail")
    return int(digits) if digits.isdecimal() and len(digits) < 10 else -1
