"""From what was read to a model: matrices, tables of pairs, collectives and snapshots become measurements.

Nothing is invented: a benchmark that names no host gets a node named after its file.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fabtui.export.csv import ARM_MARK, rows
from fabtui.importers.formats import fabtui_files
from fabtui.importers.result import Result
from fabtui.importers.to_model import benchmarks
from fabtui.importers.to_model.builder import Draft
from fabtui.model.events import APPLY_ERRORS, Event, NodeState
from fabtui.model.facts.node_view import dicts
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.records import NodeRecord
from fabtui.model.session_model import Model
from fabtui_node.parsers.base import Notes

_MOST_INDEX = 65_536
#: What a snapshot and a recording have of an endpoint.
_ENDPOINT = ("kind", "name", "uuid", "bus", "nic", "rail", "address")
Values = dict[str, Any]


def convertible(kind: str) -> bool:
    """Return True if outputs of a kind can be turned into measurements."""
    return kind in _CONVERTERS or kind == "fabtui-recording"


def rivals(results: Iterable[Result]) -> list[str]:
    """Return the kinds whose pairs would stand in one layer although they are measured in different ways."""
    found: dict[str, None] = {}
    for result in results:
        if result.kind.startswith("fabtui-"):
            found.setdefault("fabtui")
        elif result.kind in _OF_PAIRS:
            found.setdefault(result.kind)
    return list(found) if len(found) > 1 else []


def events(results: Iterable[Result]) -> list[Event]:
    """Return events with the contents of files, as if from a session; a single recording gives its own events.

    Nothing is in them for a file whose kind has no pairs and no collectives.
    """
    found = list(results)
    if len(found) == 1 and found[0].kind == "fabtui-recording":
        return _recorded(found[0].source.text)
    draft = Draft()
    for result in found:
        if result.kind == "fabtui-recording":
            _add_recording(draft, result.source.text)
        elif (convert := _CONVERTERS.get(result.kind)) is not None:
            convert(draft, result.values, stem(result.source.name))
    return draft.events()


def model(results: Iterable[Result]) -> Model:
    """Return the model of the contents of files."""
    return _applied(events(results))


def _applied(happened: Iterable[Event]) -> Model:
    found = Model()
    notes = Notes()
    for one in happened:
        fabtui_files.apply(found, one, notes)
    return found


def without_facts(found: Model) -> Model:
    """Return the model of what a CSV snapshot holds of a session: the measurements, and no facts of nodes."""
    draft = Draft()
    _add_snapshot(draft, {"measurements": rows(found)}, "")
    return _applied(draft.events())


def stem(name: str) -> str:
    """Return what a file is called without its folder and endings: ``runs/n060.nccl.txt`` is ``n060.nccl``."""
    if name == "-":
        return "stdin"
    bare = Path(name).name.removesuffix(".gz")
    return bare.rpartition(".")[0] or bare


def _recorded(text: str) -> list[Event]:
    """Return the events of a recording that a model can use."""
    model = Model()
    found = []
    for event in fabtui_files.events(text, Notes()):
        try:
            model.apply(event)
        except APPLY_ERRORS:
            continue
        found.append(event)
    return found


def _add_recording(draft: Draft, text: str) -> None:
    """Add the final state of a recording to the contents of other files."""
    found = fabtui_files.replayed(text, Notes())
    draft.lab = draft.lab or found.lab
    for name, record in found.nodes.items():
        draft.node(name)
        draft.records.setdefault(name, record)
    for end in found.endpoints:
        draft.endpoint(end.node, end.index, **{name: getattr(end, name) for name in _ENDPOINT})
    _add_arms(draft, found.comparison)
    draft.measurements += [*found.measurements(), *found.arms()]
    for probe in found.options.get("probes", []):
        draft.probes.setdefault(str(probe))
    draft.untested += [(src, dst, why) for (src, dst), why in found.untested.items()]


def _add_snapshot(draft: Draft, values: Values, name: str) -> None:
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
            draft.endpoint(value["node"], value["index"], **{name: value.get(name) for name in _ENDPOINT})
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
        _add_arms(draft, [*([] if draft.arms else ["first arm"]), measured.arm])
    probe = {Layer.PING: "ping", Layer.P2P: "p2p", Layer.WORLD: "p2p", Layer.LATENCY: "p2p"}.get(measured.layer)
    draft.probes.setdefault(probe or "all_reduce")
    draft.measurements.append(measured)


def _add_arms(draft: Draft, arms: list[str]) -> None:
    draft.arms += [arm for arm in arms if arm not in draft.arms]


def _index(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < _MOST_INDEX else None


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


#: What these measure between pairs are different things: copies, NCCL, MPI, RDMA.
_OF_PAIRS = frozenset({"nvbandwidth", "p2pBandwidthLatencyTest", "osu", "perftest", "p2p-test"})

_CONVERTERS: dict[str, Callable[[Draft, Values, str], None]] = {
    "nccl-tests": benchmarks.nccl_tests,
    "all_reduce_bench": benchmarks.all_reduce_bench,
    "deepspeed-comm": benchmarks.collective_tables,
    "mscclpp": benchmarks.collective_tables,
    "busbw-table": benchmarks.busbw_tables,
    "nvbandwidth": benchmarks.nvbandwidth,
    "p2pBandwidthLatencyTest": benchmarks.cuda_p2p,
    "osu": benchmarks.osu,
    "perftest": benchmarks.perftest,
    "iperf3": benchmarks.iperf3,
    "ping-csv": benchmarks.ping_csv,
    "p2p-test": benchmarks.p2p_runs,
    "fabtui-csv": _add_snapshot,
    "fabtui-json": _add_snapshot,
}
