"""Tables of collectives, of A/B comparisons, and of ``--groups``: bandwidths by number of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from string import ascii_uppercase

from fabtui.diagnosis.knowledge.published_ranges import published
from fabtui.diagnosis.pairs.ab_comparison import KINDS, Arm, Compared, compared
from fabtui.export.collectives_table import CollectiveRow, SweepRow, group_sweep, published_text, table_rows
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.numbers import brief_text, scales_text, size_text, spoken_text, value_text
from fabtui.presentation.wording import verdict_words
from fabtui.presentation.wrapping import filled
from fabtui.report.document import Table
from fabtui.report.text import MOST_LINES
from fabtui.sanitize import one_line
from fabtui_node.parsers.nccl.transports import transport_of

#: Length of names of arms that name the columns if the transports are not known.
_SHORT = 12
#: GB/s are 10^9 bytes per second, Gb/s 10^9 bits.
_UNITS = {"GB/s": 1.0, "Gb/s": 8.0}

_COLLECTIVES_HEAD = ["group", "ranks", "size", "time us", "algbw GB/s", "busbw GB/s", "wrong", "algorithm", ""]
_ALGORITHM = 7
#: More transports than this of one class and arm are counted.
_MOST_TRANSPORTS = 2


def collective_tables(model: Model) -> list[Table]:
    """Return the table of each collective, of an A/B comparison for the first arm; see `comparison`."""
    rows = [row for row in table_rows(model) if row.arm is None]
    tables = []
    for kind in dict.fromkeys(row.kind for row in rows):
        own = [row for row in rows if row.kind == kind]
        # Those that fit a summary, in their order: bad rows first, then the first ones.
        places = sorted(range(len(own)), key=lambda at: (own[at].verdict is Verdict.OK, at))
        mine = [own[at] for at in sorted(places[:MOST_LINES])]
        cells = [_COLLECTIVES_HEAD, *map(_collective_cells, mine, [None, *mine[:-1]])]
        if not any(row.algorithm for row in mine):
            cells = [[*row[:_ALGORITHM], "", row[-1]] for row in cells]
        rates = [rate for row in mine for rate in (row.algbw, row.busbw) if rate is not None]
        scales = scales_text(min(rates, default=None), "GB/s")
        notes = [scales] if scales else []
        if len(own) > len(mine):
            notes.append(f"and {len(own) - len(mine)} more rows; --table has them all")
        notes += map(published_text, published(model, kind))
        shown = filled(cells, nothing=("",))
        left = [place for place, at in enumerate(shown) if at in (0, _ALGORITHM, _ALGORITHM + 1)]
        tables.append(Table(kind, [[row[at] for at in shown] for row in cells], left, notes))
    return tables


def _collective_cells(row: CollectiveRow, before: CollectiveRow | None) -> list[str]:
    same = before is not None and before.group == row.group
    problem = "" if row.verdict is Verdict.OK else verdict_words(row.verdict)
    return [
        "" if same else row.group,
        "" if same else "-" if row.ranks is None else str(row.ranks),
        "-" if row.bytes is None else size_text(row.bytes),
        value_text(row.time_us),
        brief_text(row.algbw, "GB/s"),
        brief_text(row.busbw, "GB/s"),
        "-" if row.wrong is None else str(row.wrong),
        row.algorithm or "",
        f"{problem}: {row.error[:200]}" if problem and row.error else problem,
    ]


def comparison(model: Model) -> Iterator[Table]:
    rows = compared(model)
    if not rows:
        return
    names = [one_line(name, 80) for name in model.comparison]
    head = ["", "", "", names[0]]
    for name in names[1:]:
        head += [name, ""]
    cells = [_compared_cells(row, rows[at - 1] if at else None) for at, row in enumerate(rows)]
    # All columns but sizes and ratios are text.
    left = [0, 1, 3, *range(4, len(head), 2)]
    yield Table(f"A/B, medians; ratios to {names[0]}", [head, *cells], left)


def _compared_cells(row: Compared, before: Compared | None) -> list[str]:
    layer = KINDS.get(row.layer, str(row.layer))
    same = before is not None and before.layer is row.layer
    cells = ["" if same else layer, "" if same and before and before.what == row.what else one_line(row.what)]
    cells += ["" if row.bytes is None else size_text(row.bytes), _arm_text(row, row.arms[0])]
    for arm in row.arms[1:]:
        ratio = row.ratio(arm)
        cells += [_arm_text(row, arm), "-" if ratio is None else f"{ratio:.2f}x"]
    return cells


def _arm_text(row: Compared, arm: Arm) -> str:
    parts = []
    if arm.transports:
        more = len(arm.transports) - _MOST_TRANSPORTS
        shown = ", ".join(one_line(transport, 40) for transport in arm.transports[:_MOST_TRANSPORTS])
        parts.append(shown + (f" +{more}" if more > 0 else ""))
    if arm.median is not None:
        parts.append(spoken_text(arm.median, row.unit))
    if arm.failed:
        parts.append(f"{arm.failed} of {arm.failed + len(arm.values)} not ok")
    return " ".join(parts) or "not tested"


def sweep_tables(model: Model) -> Iterator[Table]:
    rows = group_sweep(model)
    for kind, size in dict.fromkeys((row.kind, row.bytes) for row in rows):
        at = ", message size unknown" if size is None else f" at {size_text(size)}"
        own = [row for row in rows if (row.kind, row.bytes) == (kind, size)]
        yield from _tables(model, f"{kind}{at}", own)


def _tables(model: Model, title: str, rows: Sequence[SweepRow]) -> Iterator[Table]:
    names = [one_line(name, 60) for name in model.comparison] or [""]
    words = [_word([row.arms[at] for row in rows]) for at in range(len(names))]
    # Transports name the columns only where those of the arms differ.
    heads = words if len({*words, ""}) > len(words) else list(ascii_uppercase[: len(names)])
    if not any(words) and max(map(len, names)) <= _SHORT:
        heads = names
    # A table that was read from a report has numbers of GPUs and no endpoints.
    gpus = not model.endpoints or any(end.kind == "gpu" for end in model.endpoints)
    notes: list[str] = []
    if len(names) == 1:
        heads = [""]
    else:
        for short, name, word in zip(heads, names, words, strict=True):
            over = "" if word in ("", short) else f", over {word}"
            notes += [f"{short}: {name}{over}"] if short != name else []
        if len(set(words)) == 1 and words[0]:
            notes.append(f"all use {words[0]}, so this compares no transports")
    for unit, factor in _UNITS.items():
        head = ["GPUs" if gpus else "ranks"]
        for name in heads:
            head += [f"{name} busbw".strip(), f"{name} algbw".strip(), "transport"]
        cells = [[str(row.ranks), *_cells(row, factor)] for row in rows]
        what = f"{title}, by number of {'GPUs' if gpus else 'CPU ranks'}, {unit}"
        yield Table(what, [head, *cells], range(3, len(head), 3), notes)


def _cells(row: SweepRow, factor: float) -> list[str]:
    cells = []
    for arm in row.arms:
        if arm is None:
            cells += ["-", "-", "not tested"]
            continue
        values = [None if value is None else value * factor for value in (arm.busbw, arm.algbw)]
        bad = "" if arm.verdict in (Verdict.OK, Verdict.SLOW) else verdict_words(arm.verdict)
        cells += [*map(value_text, values), bad or (arm.transport or "-")]
    return cells


def _word(rows: Sequence[CollectiveRow | None]) -> str:
    """Return a word for the transport of an arm: that of the largest group that passed, "" if none is known."""
    known = [row.transport for row in rows if row is not None and row.transport]
    if not known:
        return ""
    most = Counter(known[-1].split(", ")).most_common(1)[0][0]
    return transport_of(most).word
