"""Output of the NCCL Inspector: bus bandwidth of the operations of a running job, by communicator and rank.

Records are those of `fabtui_node.parsers.nccl.inspector_records`; or metrics of Prometheus (``inspector_prom.cc``),
``nccl_bus_bandwidth_gbs{labels} value``. RCCL has the same plugin.
"""

from __future__ import annotations

import re
import statistics
from typing import Any

from fabtui.diagnosis.running_job.inspector import InspectorTimes
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_objects, number, plain_lines
from fabtui_node.parsers.nccl.inspector_records import CompletedOperation, operations

_METRIC = re.compile(
    r"nccl_(p2p_)?(bus_bandwidth_gbs|(?:collective_)?exec_time_microseconds)\{([^{}]{0,2000})\} (\S{1,40})\s*"
)
_LABEL = re.compile(r'(\w{1,40})="((?:[^"\\]|\\.){0,300})"')
#: Maximum number of records that are read, of operations and ranks that are listed, and of late ranks with a sentence.
_MOST, _MOST_ROWS, _MOST_LATE = 500_000, 4096, 4


class _Records:
    """Collects operations by communicator, name and size, and the last one of each rank."""

    def __init__(self) -> None:
        self.versions: dict[str, None] = {}
        self.operations: dict[tuple[str, str, int], list[tuple[float, float | None, int]]] = {}
        self.communicators: dict[str, dict[str, Any]] = {}
        self.ranks: dict[tuple[str, int], dict[str, Any]] = {}
        self.times = InspectorTimes()

    def take(self, one: CompletedOperation) -> None:
        if one.version is not None:
            self.versions.setdefault(one.version)
        name = one.communicator
        known = self.communicators.setdefault(name, {"communicator": name, "name": one.name})
        known |= {"ranks": one.ranks, "nodes": one.nodes}
        if one.size is not None and one.busbw is not None:
            kept = self.operations.setdefault((name, one.operation, one.size), [])
            kept.append((one.busbw, one.time, one.rank))
        row = self.ranks.setdefault((name, one.rank), {"communicator": name, "rank": one.rank, "last": {}})
        row |= {"node": one.host, "pid": one.pid}
        if one.serial is not None:
            kind = one.operation if one.kind == "p2p" else "collective"
            row["last"][kind] = max(one.serial, row["last"].get(kind, one.serial))
        if one.kind == "coll" and one.source in (None, "kernel_gpu") and None not in (one.size, one.serial, one.time):
            self.times.place(name, one.rank, one.host or "", one.pid)
            self.times.take(name, one.rank, one.operation, one.size or 0, one.serial or 0, one.time or 0.0)

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
        late = self.times.late()
        for one in late[:_MOST_LATE]:
            notes.warn(one.sentence())
        return {
            "version": " and ".join(self.versions) or None,
            "late": [
                {
                    **{"communicator": one.communicator, "rank": one.place.rank, "node": one.place.node or None},
                    **{"operation": one.operation, "bytes": one.size, "time": one.time, "time_of_waiting": one.longest},
                }
                for one in late
            ],
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
    """Return ``communicators``, ``operations`` (median and least bus bandwidth), ``ranks``; or ``metrics``.

    ``late`` has the ranks that come last to collectives, whose collectives are short. The rank with the least bandwidth
    waits for them.
    """
    notes = Notes()
    records = _Records()
    if re.search(r"^nccl_(?:p2p_)?(?:bus|exec|collective)\w+\{", text, re.M):
        return notes.reading({**records.values(notes), "metrics": _gauges(text, notes)})
    found, broken = json_objects("\n".join(line.rstrip() for line in text.split("\n")), _MOST)
    others = 0
    for one in operations(found):
        if one is None:
            others += 1
        else:
            records.take(one)
    if broken:
        notes.warn(f"{broken} records are cut off or damaged")
    if others:
        notes.warn(f"{others} objects are neither a collective nor a send or receive")
    if not records.ranks:
        notes.warn("no operation")
    return notes.reading({**records.values(notes), "metrics": []})


_LIKELY = first_of(
    (0.97, r'"(?:coll_busbw_gbs|p2p_busbw_gbs|inspector_output_format_version)"[ \t]*:'),
    (0.96, r"^nccl_(?:p2p_)?(?:bus_bandwidth_gbs|exec_time_microseconds|collective_exec_time_microseconds)\{"),
    (0.8, r'"(?:coll_perf|p2p_perf)"[ \t]*:[ \t]*\{'),
)
_TITLE = "NCCL Inspector: bus bandwidth of the operations of a job, by communicator and rank"
_UNITS = {"bytes": "B", "busbw": "GB/s", "busbw_min": "GB/s", "time": "us", "time_of_waiting": "us"}
FORMATS = [Format("nccl-inspector", _TITLE, _LIKELY, parse, units=_UNITS, log=True, aliases="inspector|rccl-inspector")]
