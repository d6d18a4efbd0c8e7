"""Snapshots and recordings of fabtui's own, back into a model."""

from __future__ import annotations

import datetime
from typing import Any

from fabtui.export.csv import ARM_MARK
from fabtui.importers.formats.fabtui_files import events, replayed
from fabtui.importers.to_model.builder import Draft
from fabtui.model.event_schema import APPLY_ERRORS
from fabtui.model.events import Event
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui_node.parsers.base import Notes

_MOST_INDEX = 65_536


def recorded(text: str) -> list[Event]:
    """Return the events of a recording that a model can use."""
    model = Model()
    found = []
    for event in events(text, Notes()):
        try:
            model.apply(event)
        except APPLY_ERRORS:
            continue
        found.append(event)
    return found


def add_recording(draft: Draft, text: str) -> None:
    """Add the final state of a recording to the contents of other files."""
    model = replayed(text, Notes())
    for name, record in model.nodes.items():
        draft.node(name)
        if record.inventory:
            draft.inventories.setdefault(name, record.inventory)
    for end in model.endpoints:
        fields = {
            "kind": end.kind,
            "name": end.name,
            "uuid": end.uuid,
            "bus": end.bus,
            "nic": end.nic,
            "rail": end.rail,
        }
        draft.endpoint(end.node, end.index, **fields, address=end.address)
    _add_arms(draft, model.comparison)
    draft.measurements += [*model.measurements(), *model.arms()]
    for probe in model.options.get("probes", []):
        draft.probes.setdefault(str(probe))
    draft.untested += [(src, dst, why) for (src, dst), why in model.untested.items()]


def add_nodes(draft: Draft, nodes: list[Any]) -> None:
    """Add the nodes of a JSON snapshot, with their inventories."""
    for value in nodes:
        if isinstance(value, dict) and isinstance(value.get("name"), str):
            draft.node(value["name"])
            if isinstance(value.get("inventory"), dict):
                draft.inventories.setdefault(value["name"], value["inventory"])


def add_rows(draft: Draft, rows: list[Any], endpoints: list[Any]) -> None:
    """Add the measurements of a CSV or JSON snapshot.

    Args:
        draft: The contents of other files.
        rows: The measurements: rows of the CSV, or objects of the JSON.
        endpoints: The endpoints of the JSON, which knows more of them than the rows do.
    """
    for value in endpoints:
        if isinstance(value, dict) and isinstance(value.get("node"), str) and _index(value.get("index")) is not None:
            fields = {name: value.get(name) for name in ("kind", "name", "uuid", "bus", "nic", "rail", "address")}
            draft.endpoint(value["node"], value["index"], **fields)
    for row in rows:
        if not isinstance(row, dict):
            continue
        for side in ("src", "dst"):
            _place(draft, row, side)
        measured = _measurement(row)
        if measured is None:
            continue
        if measured.verdict is Verdict.UNTESTED:
            draft.untested.append((measured.src, measured.dst, measured.error or ""))
            continue
        if measured.arm is not None:
            # The first arm has no name in the rows.
            _add_arms(draft, [*([] if draft.arms else ["first arm"]), measured.arm])
        probe = {Layer.PING: "ping", Layer.P2P: "p2p", Layer.WORLD: "p2p", Layer.LATENCY: "p2p"}.get(measured.layer)
        draft.probes.setdefault(probe or "all_reduce")
        draft.measurements.append(measured)


def _add_arms(draft: Draft, arms: list[str]) -> None:
    draft.arms += [arm for arm in arms if arm not in draft.arms]


def _index(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < _MOST_INDEX else None


def _place(draft: Draft, row: dict[str, Any], side: str) -> None:
    """Make sure that the node and the endpoint of one side of a row are there."""
    node = row.get(f"{side}_node")
    index = _index(row.get(f"{side}_index"))
    if isinstance(node, str) and index is not None:
        known = draft.endpoints.get((node, index))
        if known is None:
            draft.endpoint(node, index)
    elif isinstance(node, str):
        draft.nowhere(node)


def _measurement(row: dict[str, Any]) -> Measurement | None:
    layer, _, arm = str(row.get("layer", "")).partition(ARM_MARK)
    value = {name: row[name] for name in Measurement.__slots__ if row.get(name) is not None}
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
