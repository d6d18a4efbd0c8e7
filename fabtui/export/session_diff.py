"""Differences between two sessions as JSON and CSV."""

from __future__ import annotations

import json
from typing import Any

from fabtui.diagnosis.session_diff import PairChange, SessionDiff
from fabtui.export.csv_table import table_text
from fabtui.export.json_schemas import FORMATS, address, cleaned
from fabtui.model.measurement import Measurement
from fabtui.presentation.findings import as_json as finding_json
from fabtui.sanitize import one_line

KIND = "fabtui diff"
COLUMNS = (
    *("layer", "arm", "src", "dst", "src_addr", "dst_addr", "bytes", "status"),
    *("verdict_then", "verdict_now", "value_then", "value_now", "unit", "ratio", "error"),
)


def json_text(names: tuple[str, str], diff: SessionDiff) -> str:
    """Return the differences as the text of a JSON file; the names are those of the two sessions."""
    facts = diff.facts
    value = {
        "kind": KIND,
        "format": FORMATS["diff"],
        "$schema": address("diff"),
        "then": names[0],
        "now": names[1],
        "worse": diff.worse,
        "differences": [one._asdict() for one in diff.differences],
        "layers": {str(layer): {str(status): n for status, n in found.items()} for layer, found in diff.counts.items()},
        "pairs": [dict(zip(COLUMNS, _row(one), strict=True)) for one in diff.pairs],
        "facts": None if facts is None else [change._asdict() for change in facts.changes],
        "nodes": None if facts is None else {"new": facts.new, "gone": facts.gone},
        "findings": {name: list(map(finding_json, getattr(diff, name))) for name in ("new", "gone", "still")},
    }
    return json.dumps(cleaned(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def csv_text(diff: SessionDiff) -> str:
    """Return the changed pairs as the text of a CSV file, the worst first; unknown values are empty."""
    return table_text(
        COLUMNS, ([one_line(cell) if isinstance(cell, str) else cell for cell in _row(one)] for one in diff.pairs)
    )


def _row(one: PairChange) -> list[Any]:
    key, latest = one.key, one.after or one.before
    assert latest is not None
    ends = [key.src, key.dst, key.src_addr or None, key.dst_addr or None]
    values = [_value(one.before), _value(one.after), latest.unit or None, one.ratio, latest.error]
    return [str(key.layer), key.arm or None, *ends, latest.bytes, str(one.status), str(one.then), str(one.now), *values]


def _value(measurement: Measurement | None) -> float | None:
    return None if measurement is None or measurement.value is None else float(measurement.value)
