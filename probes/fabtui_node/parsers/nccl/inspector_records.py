"""Records of the NCCL Inspector: operations that a rank has completed, of versions v4.0 to v5.

Grammar (NVIDIA/nccl, ``plugins/profiler/inspector``: ``inspector_json.cc`` and ``inspector_json_reader.py``): JSON
objects with ``header`` (communicator and rank), ``metadata`` (process, time) and ``coll_perf`` or ``p2p_perf``. From
v4.1 on a dump begins with an object that has ``dump_stats``. From v4.3 on header and metadata are in that object
only, and the objects after it, as many as it counts, have the operation alone.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, NamedTuple, Optional

from fabtui_node.parsers.lines import json_number, json_object, json_text, json_whole

_KINDS = ("coll", "p2p")


class CompletedOperation(NamedTuple):
    """An operation that a rank has completed; None where a value is unknown."""

    communicator: str  #: Its hash.
    rank: int  #: The rank in the communicator.
    ranks: Optional[int]  #: Number of ranks of the communicator.
    nodes: Optional[int]  #: Number of its nodes.
    name: Optional[str]  #: Name of the communicator.
    host: Optional[str]
    pid: Optional[int]
    version: Optional[str]  #: Version of the format.
    kind: str  #: ``coll`` or ``p2p``.
    operation: str  #: ``AllReduce``, ``Send``.
    serial: Optional[int]  #: Its number among the operations of its name on this rank.
    size: Optional[int]  #: Bytes of the message.
    time: Optional[float]  #: Duration (us); of a collective, on this rank, the wait for the last one included.
    source: Optional[str]  #: What the time was measured with: ``kernel_gpu``, ``collective_cpu``.
    busbw: Optional[float]  #: GB/s.


def operations(values: Iterable[Dict[str, Any]]) -> Iterator[Optional[CompletedOperation]]:
    """Yield the operations of records in the order of their file; None for an object of another kind.

    A record without a header of its own belongs to the dump that began before it. The end of a file may begin within a
    dump: such records are of an unknown communicator.
    """
    header: Dict[str, Any] = {}
    metadata: Dict[str, Any] = {}
    left = 0
    for value in values:
        if isinstance(value.get("dump_stats"), dict):
            header, metadata = json_object(value, "header"), json_object(value, "metadata")
            counts = [json_whole(value["dump_stats"].get(name + "_records")) or 0 for name in (*_KINDS, "proxy")]
            left = sum(max(0, count) for count in counts)
            continue
        if "header" in value:
            yield _operation(value, json_object(value, "header"), json_object(value, "metadata"))
            continue
        left -= 1
        if "proxy_trace" not in value:
            yield _operation(value, header if left >= 0 else {}, metadata)


def _operation(value: Dict[str, Any], header: Dict[str, Any], metadata: Dict[str, Any]) -> Optional[CompletedOperation]:
    kind = next((name for name in _KINDS if name + "_perf" in value), None)
    communicator, rank = header.get("id"), json_whole(header.get("rank"))
    if kind is None or not isinstance(communicator, str) or rank is None:
        return None
    perf = json_object(value, kind + "_perf")
    operation = perf.get(kind)
    if not isinstance(operation, str):
        return None
    return CompletedOperation(
        communicator[:64],
        rank,
        json_whole(header.get("n_ranks")),
        json_whole(header.get("nnodes")),
        json_text(header.get("comm_name"), 255),
        json_text(metadata.get("hostname"), 255),
        json_whole(metadata.get("pid")),
        json_text(metadata.get("inspector_output_format_version"), 255),
        kind,
        operation[:64],
        json_whole(perf.get(kind + "_sn")),
        json_whole(perf.get(kind + "_msg_size_bytes")),
        json_number(perf.get(kind + "_exec_time_us")),
        json_text(perf.get(kind + "_timing_source"), 255),
        json_number(perf.get(kind + "_busbw_gbs")),
    )
