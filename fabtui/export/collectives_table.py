"""Tables of collectives, one row per collective, group, message size and arm; and published bandwidths beside them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from fabtui.atomic_write import write_text
from fabtui.diagnosis.knowledge.published_ranges import PublishedComparison, PublishedRange, published
from fabtui.diagnosis.pairs.ab_comparison import KINDS, group_name
from fabtui.export.formats import JsonObject, members, table_text
from fabtui.model.endpoints import FIRST_RANKS
from fabtui.model.layers import COLLECTIVES
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.numbers import size_text, value_text
from fabtui.sanitize import one_line

#: Number at the end of the name of a rail.
_NUMBER = re.compile(r"[0-9]{1,9}$")
_WORDS = {"nvls": "with NVLS", "ring": "without NVLS"}


class CollectiveRow(NamedTuple):
    """Result of one group in one collective; None: unknown."""

    kind: str  # collective, such as ``all_reduce``
    group: str  # ``all``, a node, a rail (``rail3``), the first ranks (``first8``) or two nodes (``n060+n061``)
    ranks: int | None  # number of ranks
    bytes: int | None  # message size, as nccl-tests counts it
    time_us: float | None  # time of one iteration, of the slowest rank
    time_min_us: float | None  # the same of the fastest iteration
    algbw: float | None  # bytes over time, in GB/s (1e9 bytes a second)
    algbw_max: float | None  # the same of the fastest iteration
    busbw: float | None  # the same times the factor of the collective
    wrong: int | None  # number of wrong elements of the result
    algorithm: str | None  # algorithm and protocol chosen by the library, such as ``RING/SIMPLE``
    transport: str | None
    arm: str | None  # arm of an A/B comparison; None for the reference
    verdict: Verdict
    error: str | None


def table_rows(model: Model) -> list[CollectiveRow]:
    kinds = list(KINDS)
    places = {name: number for number, name in enumerate(model.nodes)}
    arms: dict[str | None, int] = {None: 0} | {arm: at for at, arm in enumerate(model.comparison) if at}
    measured = [*model.measurements(*KINDS), *(m for m in model.results.arms() if m.layer in KINDS)]

    def place(m: Measurement) -> tuple[int, ...]:
        if m.src == m.dst == "all":
            group = (0, 0, 0)
        elif m.src == m.dst:
            # Rails are not nodes, and rail10 comes behind rail9.
            rail = int((_NUMBER.findall(m.src) or [-1])[0])
            group = (1, places[m.src], 0) if m.src in places else (2, len(m.src), rail)
        else:
            group = (3, places.get(m.src, -1), places.get(m.dst, -1))
        return (arms.get(m.arm, len(arms)), kinds.index(m.layer), *group, m.asked_bytes or 0)

    measured.sort(key=place)
    ranks = {(m.layer, m.src, m.dst): n for m in measured if (n := _number(m, "ranks")) is not None}
    return [_row(model, m, ranks.get((m.layer, m.src, m.dst))) for m in measured]


class SweepRow(NamedTuple):
    """Results of a number of ranks (``--groups``) in each arm of a comparison; None: not tested."""

    kind: str
    bytes: int | None
    ranks: int
    arms: list[CollectiveRow | None]


def group_sweep(model: Model) -> list[SweepRow]:
    names: list[str | None] = [None, *model.comparison[1:]]
    rows: dict[tuple[str, int, int], dict[str | None, CollectiveRow]] = {}
    for row in table_rows(model):
        if row.group not in model.nodes and (count := FIRST_RANKS.fullmatch(row.group)) is not None:
            rows.setdefault((row.kind, row.bytes or 0, int(count[1])), {})[row.arm] = row
    order = sorted(rows, key=lambda key: (list(KINDS.values()).index(key[0]), *key[1:]))
    return [SweepRow(kind, size or None, n, [*map(rows[kind, size, n].get, names)]) for kind, size, n in order]


def sweep_json(model: Model) -> list[JsonObject]:
    """Return the rows of `group_sweep` as JSON objects, bandwidths in GB/s and Gb/s; see `sweep_tables`."""
    names = model.comparison or [""]

    def arm(name: str, row: CollectiveRow | None) -> JsonObject:
        if row is None:
            return {"arm": name, "verdict": None}
        rates = members(row, "busbw", "algbw")
        gigabits = {f"{field}_gbit": None if value is None else 8 * value for field, value in rates.items()}
        return {"arm": name, **members(row, "verdict", "transport", "error"), **rates, **gigabits}

    return [
        {"collective": row.kind, **members(row, "bytes", "ranks"), "arms": [*map(arm, names, row.arms)]}
        for row in group_sweep(model)
    ]


def write_table(model: Model, path: Path) -> int:
    """Write the tables as CSV, whole or not at all (OSError); return the number of rows."""
    rows = table_rows(model)
    write_text(path, table_text(CollectiveRow._fields, rows))
    return len(rows)


def _row(model: Model, m: Measurement, ranks: Any) -> CollectiveRow:
    seconds, fastest, algbw, wrong = (_number(m, name) for name in ("seconds", "fastest", "algbw", "wrong"))
    algorithm: Any = (m.extra or {}).get("algorithm")
    return CollectiveRow(
        kind=KINDS[m.layer],
        group=one_line(group_name(m)),
        ranks=ranks,
        bytes=m.asked_bytes,
        time_us=None if seconds is None else seconds * 1e6,
        time_min_us=None if fastest is None else fastest * 1e6,
        algbw=None if algbw is None else float(algbw),
        algbw_max=algbw * seconds / fastest if algbw and seconds and fastest else None,
        busbw=m.value,
        wrong=wrong,
        algorithm=one_line(str(algorithm), 40) if algorithm else None,
        transport=one_line(m.transport) if m.transport else None,
        arm=one_line(m.arm) if m.arm else None,
        verdict=model.verdict(m),
        error=one_line(m.error) if m.error else None,
    )


def _number(m: Measurement, name: str) -> Any:
    value = (m.extra or {}).get(name)
    kinds = int if name in ("ranks", "wrong") else (int, float)
    return value if isinstance(value, kinds) and not isinstance(value, bool) else None


def published_text(comparison: PublishedComparison) -> str:
    """Return a measured collective beside the published values, with their message size and sources."""
    measured, where, ends, rows = comparison
    value, size, nics = measured.value, measured.asked_bytes or 0, rows[0].nics
    algorithm = str((measured.extra or {}).get("algorithm") or "").lower()
    what = f"{len(ends)} x {rows[0].gpu}"
    if (nodes := len({end.node for end in ends})) > 1:
        what += f" on {nodes} nodes" + (f" with {nics[0]} x {nics[1]} Gb/s" if nics else "")
    shown = "-" if value is None else value_text(value)
    text = f"{shown} GB/s over {one_line(where, 80)}: published for {what}: {', '.join(map(_part, rows))}"
    if any(row.algorithm for row in rows) and algorithm:
        text += f"; NVLS was {'used' if algorithm.startswith('nvls') else 'not used'}"
    least = min((row.bytes for row in rows if row.bytes), default=0)
    if size < least:
        text += f"; these are from {size_text(least)} on, this is {size_text(size)}"
    return f"{text} ({'; '.join(dict.fromkeys(row.source for row in rows))})"


def published_json(model: Model) -> list[dict[str, Any]]:
    """Return the measured collectives beside published values as JSON objects, bandwidths in GB/s."""
    return [
        {
            "collective": kind,
            "over": comparison.where,
            "bytes": comparison.measured.asked_bytes,
            "busbw": comparison.measured.value,
            "text": published_text(comparison),
            "ranges": [
                {"low": row.busbw[0], "high": row.busbw[1], "bytes": row.bytes or None}
                | {"source": row.source, "date": row.date, "algorithm": row.algorithm or None}
                for row in comparison.rows
            ],
        }
        for kind in COLLECTIVES
        for comparison in published(model, kind)
    ]


def _part(row: PublishedRange) -> str:
    low, high = map(value_text, row.busbw)
    words = [low if low == high else f"{low} to {high}", "GB/s", _WORDS.get(row.algorithm, "")]
    return " ".join(filter(None, [*words, "" if row.bytes else "at an unknown size"]))
