"""Files of fabtui itself: CSV and JSON snapshots, and recordings."""

from __future__ import annotations

import csv
import datetime
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from fabtui.export.csv import ARM_MARK, COLUMNS, INTEGERS, NUMBERS, rows
from fabtui.export.formats import unescaped, when
from fabtui.importers.to_model.session_draft import SessionDraft
from fabtui.model.events import APPLY_ERRORS, Event, NodeState, event_from_json
from fabtui.model.facts.node_view import dicts
from fabtui.model.measurement import FIELDS, Measurement, Verdict
from fabtui.model.records import NodeRecord
from fabtui.model.session_model import Model
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_object, json_value, number, whole

#: Time (s since the epoch) up to which a report may have been made: the year 2100.
_LATEST = 4_102_444_800
_MOST_INDEX = 65_536
#: What a snapshot and a recording have of an endpoint.
ENDPOINT_FIELDS = ("kind", "name", "uuid", "bus", "nic", "rail", "address")
Values = dict[str, Any]


def csv_rows(text: str, notes: Notes) -> list[Values]:
    """Return the rows of a CSV snapshot; numbers are numbers, and what is not known is None."""
    reader = csv.reader(io.StringIO(text.lstrip("\ufeff")))
    read: list[Values] = []
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
            read.append(_csv_row(cells, notes))
    except csv.Error as error:
        notes.warn(f"the CSV cannot be read further: {error}")
    return read


def _csv_row(cells: list[str], notes: Notes) -> Values:
    row: Values = {}
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


def _summary(measured: list[Values], notes: Notes, of_job: bool = False) -> Values:
    if not measured and not of_job:
        notes.warn("no measurement")
    return {"verdicts": dict(Counter(str(row.get("verdict")) for row in measured)), "measurements": measured}


def _parse_json(text: str) -> Reading:
    notes = Notes()
    value = json_object(json_value(text)) if text.lstrip().startswith("{") else {}
    if str(value.get("software", "")).startswith("fabtui") and isinstance(value.get("measurements"), list):
        return notes.reading(value)
    notes.warn("the JSON snapshot of fabtui is incomplete or too large")
    return notes.reading({})


def _parse_job(text: str) -> Reading:
    notes = Notes()
    value = json_object(json_value(text))
    if not isinstance(value.get("verdict") or value.get("sentence"), str):
        notes.warn("the report of the job is incomplete")
        return notes.reading({})
    if value.get("state") in ("hangs", "slow", "diverges"):
        notes.warn(str(value.get("sentence")))
    for finding in dicts(value.get("findings")):
        if finding.get("severity") in ("bad", "warn"):
            notes.warn(f"{finding.get('rule')}: {finding.get('text')}")
    shown = {name: item for name, item in value.items() if name not in ("kind", "format", "$schema")}
    made = value.get("when")
    known = made if isinstance(made, (int, float)) and 0 < made < _LATEST else 0.0
    return notes.reading(shown | {"when": when(known)})


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


def applied(happened: Iterable[Event], notes: Notes) -> Model:
    """Return the model of events; one that cannot be used is noted and passed over."""
    model = Model()
    for event in happened:
        try:
            model.apply(event)
        except APPLY_ERRORS as error:
            notes.warn(f"event {event.seq} cannot be used ({str(error)[:100]})")
    return model


def _parse_recording(text: str) -> Reading:
    notes = Notes()
    model = applied(events(text, notes), notes)
    measured: list[Values] = []
    try:
        measured = rows(model)
    except APPLY_ERRORS as error:
        notes.warn(f"the recording does not hold together ({str(error)[:100]})")
    values = {"nodes": [str(name) for name in model.nodes], "endpoints": [str(end) for end in model.endpoints]}
    return notes.reading({**values, **_summary(measured, notes, bool(model.job))})


def add_snapshot(draft: SessionDraft, values: Values, name: str) -> None:
    """Add the nodes, endpoints and measurements of a CSV or JSON snapshot; a CSV has rows of measurements only."""
    for value in dicts(values.get("nodes")):
        if isinstance(value.get("name"), str):
            draft.records.setdefault(draft.node(value["name"]), _record(value))
    if isinstance(values.get("lab"), str):
        draft.lab = values["lab"]
    draft.untested += [
        (pair["src"], pair["dst"], str(pair.get("error") or ""))
        for pair in dicts(values.get("untested"))
        if isinstance(pair.get("src"), str) and isinstance(pair.get("dst"), str)
    ]
    for value in dicts(values.get("endpoints")):
        if isinstance(value.get("node"), str) and _index(value.get("index")) is not None:
            draft.endpoint(value["node"], value["index"], **{name: value.get(name) for name in ENDPOINT_FIELDS})
    for row in dicts(values.get("measurements")):
        _add_row(draft, row)


def _record(value: Values) -> NodeRecord:
    state, hint, inventory = value.get("state"), value.get("hint"), value.get("inventory")
    return NodeRecord(
        value["name"],
        NodeState(state) if state in list(NodeState) else NodeState.READY,
        text=str(value.get("text") or ""),
        hint=hint if isinstance(hint, str) else None,
        note=str(value.get("note") or ""),
        inventory=inventory if isinstance(inventory, dict) else None,
        probe_results=_objects(value.get("looks")),
        first_probe_results=_objects(value.get("first_looks")),
    )


def _objects(value: Any) -> dict[str, Values]:
    return {name: item for name, item in json_object(value).items() if isinstance(item, dict)}


def _add_row(draft: SessionDraft, row: Values) -> None:
    for side in ("src", "dst"):
        node, index = row.get(f"{side}_node"), _index(row.get(f"{side}_index"))
        if isinstance(node, str) and index is None:
            draft.nowhere(node)
        elif isinstance(node, str) and index is not None and (node, index) not in draft.endpoints:
            draft.endpoint(node, index)
    measured = _measurement(row)
    if measured is None:
        return
    if measured.verdict is Verdict.UNTESTED:
        draft.untested.append((measured.src, measured.dst, measured.error or ""))
        return
    if measured.arm is not None:
        # The first arm has no name in the rows.
        add_arms(draft, [*([] if draft.arms else ["first arm"]), measured.arm])
    if (probe := measured.layer.spec.probe) is not None:
        draft.probes.setdefault(probe)
    draft.measurements.append(measured)


def add_arms(draft: SessionDraft, arms: list[str]) -> None:
    draft.arms += [arm for arm in arms if arm not in draft.arms]


def _index(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < _MOST_INDEX else None


def _measurement(row: Values) -> Measurement | None:
    layer, _, arm = str(row.get("layer", "")).partition(ARM_MARK)
    value = {name: row[name] for name in FIELDS if row.get(name) is not None}
    value.update({"layer": layer, "time": _seconds(row.get("time")), "arm": row.get("arm") or arm or None})
    for name in ("value", "bytes", "attempts"):
        if name in value and (isinstance(value[name], bool) or not isinstance(value[name], (int, float))):
            del value[name]
    try:
        measured = Measurement.from_json(value)
    except ValueError:
        return None
    return measured if isinstance(measured.src, str) and isinstance(measured.dst, str) else None


def _seconds(text: Any) -> float:
    if not isinstance(text, str):
        return 0.0
    try:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


_LIKELY_CSV = first_of((0.99, "\\A\ufeff*" + re.escape(",".join(COLUMNS))))
_LIKELY_JSON = first_of((0.98, r'\A\s*\{\s*"format": ?\d+,\s*"software": ?"fabtui'))
_LIKELY_RECORDING = first_of((0.98, r'\A\{[^\n]{0,200}"kind": ?"start"'))
_LIKELY_JOB = first_of((0.98, r'\A\s*\{\s*"kind": ?"fabtui job"'))
#: Units of numbers of a job's report.
_JOB_UNITS = {
    **dict.fromkeys(("elapsed", "limit", "quiet", "silence_limit", "median", "seconds", "age", "gpus_age"), "s"),
    # Both iterations and memory have a "total".
    **{"used": "B", "power": "W", "utilization": "%"},
}
FORMATS = [
    Format("fabtui-csv", "a CSV snapshot of fabtui", _LIKELY_CSV, _parse_csv, convert=add_snapshot),
    Format("fabtui-json", "a JSON snapshot of fabtui", _LIKELY_JSON, _parse_json, convert=add_snapshot),
    Format("job-report", "the report of fabtui job as JSON", _LIKELY_JOB, _parse_job, units=_JOB_UNITS),
    Format("fabtui-recording", "a recording of fabtui", _LIKELY_RECORDING, _parse_recording),
]
