"""Files of fabtui itself: CSV and JSON snapshots, and recordings."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Any

from fabtui.export.csv import COLUMNS, INTEGERS, NUMBERS, rows, unescaped
from fabtui.model.event_schema import APPLY_ERRORS
from fabtui.model.events import Event, event_from_json
from fabtui.model.session_model import Model
from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.lines import json_value, number, whole

_HEADING = ",".join(COLUMNS)


def csv_rows(text: str, notes: Notes) -> list[dict[str, Any]]:
    """Return the rows of a CSV snapshot; numbers are numbers, and what is not known is None."""
    reader = csv.reader(io.StringIO(text.lstrip("\ufeff")))
    found: list[dict[str, Any]] = []
    try:
        if next(reader, None) != list(COLUMNS):
            notes.warn("the columns are not those of a snapshot")
            return []
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(COLUMNS):
                notes.warn("a row is cut off")
                notes.puzzled(",".join(cells))
                continue
            found.append(_csv_row(cells, notes))
    except csv.Error as error:
        notes.warn(f"the CSV cannot be read further: {error}")
    return found


def _csv_row(cells: list[str], notes: Notes) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, cell in zip(COLUMNS, cells, strict=True):
        if name in NUMBERS:
            row[name] = whole(cell) if name in INTEGERS else number(cell)
            if cell and row[name] is None:
                notes.warn(f"{name}: {cell[:40]!r} is not a number")
        else:
            row[name] = unescaped(cell) or None
    return row


def _parse_csv(text: str) -> Reading:
    notes = Notes()
    return notes.reading(_summary(csv_rows(text, notes), notes))


def _summary(found: list[dict[str, Any]], notes: Notes) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for row in found:
        verdict = str(row.get("verdict"))
        counts[verdict] = counts.get(verdict, 0) + 1
    if not found:
        notes.warn("no measurement")
    return {"verdicts": counts, "measurements": found}


def json_snapshot(text: str) -> dict[str, Any] | None:
    """Return the object of a JSON snapshot, or None."""
    value = json_value(text) if text.lstrip().startswith("{") else None
    if not isinstance(value, dict) or not str(value.get("software", "")).startswith("fabtui"):
        return None
    return value if isinstance(value.get("measurements"), list) else None


def _parse_json(text: str) -> Reading:
    notes = Notes()
    value = json_snapshot(text)
    if value is None:
        notes.warn("the JSON snapshot of fabtui is incomplete")
        return notes.reading({})
    return notes.reading(value)


def events(text: str, notes: Notes) -> Iterator[Event]:
    """Yield the events of a recording up to where it is cut off."""
    for line in text.split("\n"):
        if not line.strip():
            continue
        value = json_value(line) if line.startswith("{") else None
        if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
            notes.warn("the recording is cut off")
            notes.puzzled(line)
            return
        try:
            event = event_from_json(value)
        except ValueError as error:
            notes.warn(f"event {str(value.get('seq', '?'))[:20]} cannot be used ({str(error)[:100]})")
            continue
        yield event


def apply(model: Model, event: Event, notes: Notes) -> None:
    """Apply an event; one that cannot be used is noted and passed over."""
    try:
        model.apply(event)
    except APPLY_ERRORS as error:
        notes.warn(f"event {event.seq} cannot be used ({str(error)[:100]})")


def replayed(text: str, notes: Notes) -> Model:
    """Return the model that a recording ends with."""
    model = Model()
    for event in events(text, notes):
        apply(model, event, notes)
    return model


def _parse_recording(text: str) -> Reading:
    notes = Notes()
    model = replayed(text, notes)
    try:
        found = rows(model)
    except APPLY_ERRORS as error:
        notes.warn(f"the recording does not hold together ({str(error)[:100]})")
        found = []
    values = {"nodes": [str(name) for name in model.nodes], "endpoints": [str(end) for end in model.endpoints]}
    return notes.reading({**values, **_summary(found, notes)})


def _likely_json(text: str) -> float:
    return 0.98 if re.search(r'^\s*\{\s*"format": ?\d+,\s*"software": ?"fabtui', text) else 0.0


FORMATS = [
    Format(
        "fabtui-csv",
        "a CSV snapshot of fabtui",
        (),
        {},
        lambda text: 0.99 if text.lstrip("\ufeff").startswith(_HEADING) else 0.0,
        _parse_csv,
    ),
    Format("fabtui-json", "a JSON snapshot of fabtui", (), {}, _likely_json, _parse_json),
    Format(
        "fabtui-recording",
        "a recording of fabtui",
        (),
        {},
        lambda text: 0.98 if re.match(r'\{[^\n]{0,200}"kind": ?"start"', text) else 0.0,
        _parse_recording,
    ),
]
