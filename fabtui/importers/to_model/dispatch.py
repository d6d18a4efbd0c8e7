"""From what was read to a model: matrices, tables of pairs and collectives become measurements.

Nothing is invented: a benchmark that names no host gets a node named after its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fabtui.importers.formats.fabtui_files import apply
from fabtui.importers.result import Result
from fabtui.importers.to_model import collectives, matrices, pairs, snapshots
from fabtui.importers.to_model.builder import Draft
from fabtui.model.events import Event
from fabtui.model.session_model import Model
from fabtui_node.parsers.base import Notes

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
        return snapshots.recorded(found[0].source.text)
    draft = Draft()
    for result in found:
        if result.kind == "fabtui-recording":
            snapshots.add_recording(draft, result.source.text)
        elif (convert := _CONVERTERS.get(result.kind)) is not None:
            convert(draft, result.values, stem(result.source.name))
    return draft.events()


def model(results: Iterable[Result]) -> Model:
    """Return the model of the contents of files."""
    found = Model()
    notes = Notes()
    for one in events(results):
        apply(found, one, notes)
    return found


def stem(name: str) -> str:
    """Return what a file is called without its folder and endings: ``runs/n060.nccl.txt`` is ``n060.nccl``."""
    if name == "-":
        return "stdin"
    bare = Path(name).name.removesuffix(".gz")
    return bare.rpartition(".")[0] or bare


def _snapshot(draft: Draft, values: Values, name: str) -> None:
    snapshots.add_nodes(draft, values.get("nodes") or [])
    snapshots.add_rows(draft, values.get("measurements", []), values.get("endpoints") or [])


#: What these measure between pairs are different things: copies, NCCL, MPI, RDMA.
_OF_PAIRS = frozenset({"nvbandwidth", "p2pBandwidthLatencyTest", "osu", "perftest", "p2p-test"})

_CONVERTERS: dict[str, Callable[[Draft, Values, str], None]] = {
    "nccl-tests": collectives.nccl_tests,
    "all_reduce_bench": collectives.all_reduce_bench,
    "nvbandwidth": matrices.nvbandwidth,
    "p2pBandwidthLatencyTest": matrices.cuda_p2p,
    "osu": pairs.osu,
    "perftest": pairs.perftest,
    "iperf3": pairs.iperf3,
    "ping-csv": pairs.ping_csv,
    "p2p-test": pairs.p2p_runs,
    "fabtui-csv": _snapshot,
    "fabtui-json": _snapshot,
}
