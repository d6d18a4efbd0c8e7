"""Snapshots of sessions, CSV or JSON, as the contents of a draft."""

from __future__ import annotations

import datetime
from typing import Any

from fabtui.export.csv import ARM_MARK
from fabtui.importers.to_model.builder import Draft
from fabtui.model.events import NodeState
from fabtui.model.facts.node_view import dicts
from fabtui.model.measurement import FIELDS, Measurement, Verdict
from fabtui.model.records import NodeRecord

_MOST_INDEX = 65_536
#: What a snapshot and a recording have of an endpoint.
ENDPOINT_FIELDS = ("kind", "name", "uuid", "bus", "nic", "rail", "address")
Values = dict[str, Any]


def add_snapshot(draft: Draft, values: Values, name: str) -> None:
    """Add the nodes, endpoints and measurements of a CSV or JSON snapshot; a CSV has rows of measurements only."""
    for value in dicts(values.get("nodes")):
        if isinstance(value.get("name"), str):
            draft.records.setdefault(draft.node(value["name"]), _record(value))
    if isinstance(values.get("lab"), str):
        draft.lab = values["lab"]
    draft.untested += [
        (one["src"], one["dst"], str(one.get("error") or ""))
        for one in dicts(values.get("untested"))
        if isinstance(one.get("src"), str) and isinstance(one.get("dst"), str)
    ]
    for value in dicts(values.get("endpoints")):
        if isinstance(value.get("node"), str) and _index(value.get("index")) is not None:
            draft.endpoint(value["node"], value["index"], **{name: value.get(name) for name in ENDPOINT_FIELDS})
    for row in dicts(values.get("measurements")):
        _add_row(draft, row)


def _record(value: Values) -> NodeRecord:
    """Return what a JSON snapshot holds of a node."""
    state, hint, found = value.get("state"), value.get("hint"), value.get("inventory")
    return NodeRecord(
        value["name"],
        NodeState(state) if state in list(NodeState) else NodeState.READY,
        text=str(value.get("text") or ""),
        hint=hint if isinstance(hint, str) else None,
        note=str(value.get("note") or ""),
        inventory=found if isinstance(found, dict) else None,
        probe_results=_objects(value.get("looks")),
        first_probe_results=_objects(value.get("first_looks")),
    )


def _objects(value: Any) -> dict[str, Values]:
    return {name: one for name, one in value.items() if isinstance(one, dict)} if isinstance(value, dict) else {}


def _add_row(draft: Draft, row: dict[str, Any]) -> None:
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


def add_arms(draft: Draft, arms: list[str]) -> None:
    """Add arms of a comparison that the draft does not have yet."""
    draft.arms += [arm for arm in arms if arm not in draft.arms]


def _index(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < _MOST_INDEX else None


def _measurement(row: dict[str, Any]) -> Measurement | None:
    layer, _, arm = str(row.get("layer", "")).partition(ARM_MARK)
    value = {name: row[name] for name in FIELDS if row.get(name) is not None}
    value.update({"layer": layer, "time": _seconds(row.get("time")), "arm": row.get("arm") or arm or None})
    for name in ("value", "bytes", "attempts"):
        if name in value and (isinstance(value[name], bool) or not isinstance(value[name], (int, float))):
            del value[name]
    try:
        found = Measurement.from_json(value)
    except ValueError:
        return None
    return found if isinstance(found.src, str) and isinstance(found.dst, str) else None


def _seconds(text: Any) -> float:
    if not isinstance(text, str):
        return 0.0
    try:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0
