"""Output of the NCCL Inspector: bus bandwidth of the operations of a running job, by communicator and rank.

Grammar (NVIDIA/nccl, ``plugins/profiler/inspector``: README and ``inspector_json.cc``, ``inspector_prom.cc``): JSON
objects one after another, a line each or indented. They have ``header`` (communicator ``id``, ``rank``, ``n_ranks``,
``nnodes``), ``metadata`` (``hostname``, ``pid``, ``dump_timestamp_us``) and one of ``coll_perf`` and ``p2p_perf``; or
metrics of Prometheus, ``nccl_bus_bandwidth_gbs{labels} value``. RCCL has the same plugin.
"""

from __future__ import annotations

import re
import statistics
from typing import Any

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_number, json_object, json_objects, json_whole, number, plain_lines

_METRIC = re.compile(
    r"nccl_(p2p_)?(bus_bandwidth_gbs|(?:collective_)?exec_time_microseconds)\{([^{}]{0,2000})\} (\S{1,40})\s*"
)
_LABEL = re.compile(r'(\w{1,40})="((?:[^"\\]|\\.){0,300})"')
#: Maximum number of records that are read, and of operations and ranks that are listed.
_MOST, _MOST_ROWS = 500_000, 4096


class _Records:
    """Collects records by communicator, operation and size, and the last operation of each rank."""

    def __init__(self) -> None:
        self.versions: dict[str, None] = {}
        self.operations: dict[tuple[str, str, int], list[tuple[float, float | None, int]]] = {}
        self.communicators: dict[str, dict[str, Any]] = {}
        self.ranks: dict[tuple[str, int], dict[str, Any]] = {}

    def take(self, value: dict[str, Any]) -> bool:
        header, metadata = json_object(value, "header"), json_object(value, "metadata")
        kind = "coll" if "coll_perf" in value else "p2p"
        perf = json_object(value, f"{kind}_perf")
        name, rank, operation = header.get("id"), json_whole(header.get("rank")), perf.get(kind)
        if not isinstance(name, str) or rank is None or not isinstance(operation, str):
            return False
        version = metadata.get("inspector_output_format_version")
        if isinstance(version, str):
            self.versions.setdefault(version)
        known = self.communicators.setdefault(name, {"communicator": name, "name": header.get("comm_name")})
        known |= {"ranks": json_whole(header.get("n_ranks")), "nodes": json_whole(header.get("nnodes"))}
        size, busbw = json_whole(perf.get(f"{kind}_msg_size_bytes")), json_number(perf.get(f"{kind}_busbw_gbs"))
        if size is not None and busbw is not None:
            time = json_number(perf.get(f"{kind}_exec_time_us"))
            self.operations.setdefault((name, operation, size), []).append((busbw, time, rank))
        self._last(name, rank, operation if kind == "p2p" else "collective", perf.get(f"{kind}_sn"), metadata)
        return True

    def _last(self, name: str, rank: int, kind: str, serial: Any, metadata: dict[str, Any]) -> None:
        row = self.ranks.setdefault((name, rank), {"communicator": name, "rank": rank, "last": {}})
        row |= {"node": metadata.get("hostname"), "pid": json_whole(metadata.get("pid"))}
        number_of = json_whole(serial)
        if number_of is not None:
            row["last"][kind] = max(number_of, row["last"].get(kind, number_of))

    def values(self, notes: Notes) -> dict[str, Any]:
        rows = []
        for (name, operation, size), found in list(self.operations.items())[:_MOST_ROWS]:
            slowest = min(found)
            times = [time for _, time, _ in found if time is not None]
            rows.append(
                {
                    "communicator": name,
                    "operation": operation,
                    "bytes": size,
                    "count": len(found),
                    "busbw": round(statistics.median(busbw for busbw, _, _ in found), 6),
                    "busbw_min": slowest[0],
                    "rank_of_min": slowest[2],
                    "time": round(statistics.median(times), 6) if times else None,
                }
            )
        ranks = sorted(self.ranks.values(), key=lambda row: (row["communicator"], row["rank"]))
        for communicator in self.communicators:
            self._behind(communicator, notes)
        return {
            "version": " and ".join(self.versions) or None,
            "communicators": list(self.communicators.values())[:_MOST_ROWS],
            "operations": rows,
            "ranks": ranks[:_MOST_ROWS],
        }

    def _behind(self, communicator: str, notes: Notes) -> None:
        """Warn of ranks whose last collective is an earlier one; dumps of one moment differ by those that ran."""
        last = {
            rank: row["last"]["collective"]
            for (name, rank), row in self.ranks.items()
            if name == communicator and "collective" in row["last"]
        }
        if last and (behind := [rank for rank in sorted(last) if last[rank] < max(last.values()) - 1]):
            shown = ", ".join(f"{rank} ({last[rank]})" for rank in behind[:8])
            notes.warn(
                f"communicator {communicator}: the last collective is {max(last.values())}; behind: rank {shown}"
            )


def _gauges(text: str, notes: Notes) -> list[dict[str, Any]]:
    """Return the metrics of Prometheus: bandwidth and time of the same labels together."""
    found: dict[str, dict[str, Any]] = {}
    for line in plain_lines(text):
        metric = _METRIC.fullmatch(line.strip()[:3000])
        if metric is None:
            if line.strip().startswith("nccl_") and "exec_time" not in line and "_total" not in line:
                notes.puzzled(line)
            continue
        labels = dict(_LABEL.findall(metric[3]))
        row = found.setdefault(
            (metric[1] or "") + metric[3],
            {
                "job": labels.get("slurm_job_id"),
                "node": labels.get("node"),
                "gpu": labels.get("gpu"),
                "communicator": labels.get("comm_name"),
                "ranks": int(labels["nranks"]) if re.fullmatch("[0-9]{1,9}", labels.get("nranks", "")) else None,
                "operation": labels.get("collective") or labels.get("p2p_operation"),
                "size": labels.get("message_size"),
                "algorithm": labels.get("algo_proto"),
                "busbw": None,
                "time": None,
            },
        )
        row["busbw" if metric[2].startswith("bus") else "time"] = number(metric[4])
    return list(found.values())[:_MOST]


def parse(text: str) -> Reading:
    """Return ``communicators``, ``operations`` (median and least bus bandwidth), ``ranks``; or ``metrics``."""
    notes = Notes()
    records = _Records()
    if re.search(r"^nccl_(?:p2p_)?(?:bus|exec|collective)\w+\{", text, re.M):
        return notes.reading({**records.values(notes), "metrics": _gauges(text, notes)})
    found, broken = json_objects("\n".join(line.rstrip() for line in text.split("\n")), _MOST)
    others = sum(not records.take(value) for value in found)
    if broken:
        notes.warn(f"{broken} records are cut off or damaged")
    if others:
        notes.warn(f"{others} objects are no collective and no send or receive")
    if not records.ranks:
        notes.warn("no operation")
    return notes.reading({**records.values(notes), "metrics": []})


_LIKELY = first_of(
    (0.97, r'"(?:coll_busbw_gbs|p2p_busbw_gbs|inspector_output_format_version)"[ \t]*:'),
    (0.96, r"^nccl_(?:p2p_)?(?:bus_bandwidth_gbs|exec_time_microseconds|collective_exec_time_microseconds)\{"),
    (0.8, r'"(?:coll_perf|p2p_perf)"[ \t]*:[ \t]*\{'),
)
_TITLE = "NCCL Inspector: bus bandwidth of the operations of a job, by communicator and rank"
_UNITS = {"bytes": "B", "busbw": "GB/s", "busbw_min": "GB/s", "time": "us"}
FORMATS = [Format("nccl-inspector", _TITLE, _LIKELY, parse, units=_UNITS, log=True, aliases="inspector|rccl-inspector")]
