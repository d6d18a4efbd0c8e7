"""Output of the NCCL Inspector: bus bandwidth of the operations of a running job, by communicator and rank.

Records are those of `fabtui_node.parsers.nccl.inspector_records`; or metrics of Prometheus (``inspector_prom.cc``),
``nccl_bus_bandwidth_gbs{labels} value``. RCCL has the same plugin.
"""

from __future__ import annotations

import re
import statistics

from fabtui.diagnosis.running_job.inspector import InspectorTimes
from fabtui.importers.tables import Values
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_objects, number, plain_lines, whole
from fabtui_node.parsers.nccl.inspector_records import CompletedOperation, operations

_METRIC = re.compile(
    r"nccl_(p2p_)?(bus_bandwidth_gbs|(?:collective_)?exec_time_microseconds)\{([^{}]{0,2000})\} (\S{1,40})\s*"
)
_LABEL = re.compile(r'(\w{1,40})="((?:[^"\\]|\\.){0,300})"')
#: Labels by the names of ours.
_LABELS = {
    "job": "slurm_job_id", "node": "node", "gpu": "gpu", "communicator": "comm_name", "ranks": "nranks",
    "operation": "operation", "size": "message_size", "algorithm": "algo_proto",
}  # fmt: skip
#: Maximum number of records that are read, of operations and ranks that are listed, and of late ranks with a sentence.
_MOST, _MOST_ROWS, _MOST_LATE = 500_000, 4096, 4


class _Records:
    """Collects operations by communicator, name and size, and the last one of each rank."""

    def __init__(self) -> None:
        self.versions: dict[str, None] = {}
        self.operations: dict[tuple[str, str, int], list[tuple[float, float | None, int]]] = {}
        self.communicators: dict[str, Values] = {}
        self.ranks: dict[tuple[str, int], Values] = {}
        self.times = InspectorTimes()

    def take(self, done: CompletedOperation) -> None:
        if done.version is not None:
            self.versions.setdefault(done.version)
        name = done.communicator
        known = self.communicators.setdefault(name, {"communicator": name, "name": done.name})
        known |= {"ranks": done.ranks, "nodes": done.nodes}
        if done.size is not None and done.busbw is not None:
            kept = self.operations.setdefault((name, done.operation, done.size), [])
            kept.append((done.busbw, done.time, done.rank))
        row = self.ranks.setdefault((name, done.rank), {"communicator": name, "rank": done.rank, "last": {}})
        row |= {"node": done.host, "pid": done.pid}
        if done.serial is not None:
            kind = done.operation if done.kind == "p2p" else "collective"
            row["last"][kind] = max(done.serial, row["last"].get(kind, done.serial))
        if (
            done.kind == "coll"
            and done.source in (None, "kernel_gpu")
            and None not in (done.size, done.serial, done.time)
        ):
            self.times.place(name, done.rank, done.host or "", done.pid)
            self.times.take(name, done.rank, done.operation, done.size or 0, done.serial or 0, done.time or 0.0)

    def values(self, notes: Notes) -> Values:
        rows = []
        for (name, operation, size), kept in list(self.operations.items())[:_MOST_ROWS]:
            least, _, slowest = min(kept)
            times = [time for _, time, _ in kept if time is not None]
            row = {"communicator": name, "operation": operation, "bytes": size, "count": len(kept)}
            row |= {"busbw": round(statistics.median(busbw for busbw, _, _ in kept), 6), "busbw_min": least}
            time = round(statistics.median(times), 6) if times else None
            rows.append({**row, "rank_of_min": slowest, "time": time})
        ranks = sorted(self.ranks.values(), key=lambda row: (row["communicator"], row["rank"]))
        for communicator in self.communicators:
            self._behind(communicator, notes)
        late = self.times.late()
        for last in late[:_MOST_LATE]:
            notes.warn(last.sentence())
        return {
            "version": " and ".join(self.versions) or None,
            "late": [
                {
                    **{"communicator": last.communicator, "rank": last.place.rank, "node": last.place.node or None},
                    **{"operation": last.operation, "bytes": last.size, "time": last.time},
                    "time_of_waiting": last.longest,
                }
                for last in late
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


def _gauges(text: str, notes: Notes) -> list[Values]:
    """Return the metrics of Prometheus: bandwidth and time of the same labels together."""
    rows: dict[str, Values] = {}
    for line in plain_lines(text):
        metric = _METRIC.fullmatch(line.strip()[:3000])
        if metric is None:
            if line.strip().startswith("nccl_") and "exec_time" not in line and "_total" not in line:
                notes.puzzled(line)
            continue
        labels = dict(_LABEL.findall(metric[3]))
        labels |= {"operation": labels.get("collective") or labels.get("p2p_operation")}
        start: Values = {ours: labels.get(name) for ours, name in _LABELS.items()}
        start |= {"ranks": whole(start["ranks"] or ""), "busbw": None, "time": None}
        row = rows.setdefault((metric[1] or "") + metric[3], start)
        row["busbw" if metric[2].startswith("bus") else "time"] = number(metric[4])
    return list(rows.values())[:_MOST]


def parse(text: str) -> Reading:
    """Return ``communicators``, ``operations`` (median and least bus bandwidth), ``ranks``; or ``metrics``.

    ``late`` has the ranks that come last to collectives, whose collectives are short. The rank with the least bandwidth
    waits for them.
    """
    notes = Notes()
    records = _Records()
    if re.search(r"^nccl_(?:p2p_)?(?:bus|exec|collective)\w+\{", text, re.M):
        return notes.reading({**records.values(notes), "metrics": _gauges(text, notes)})
    objects, broken = json_objects("\n".join(line.rstrip() for line in text.split("\n")), _MOST)
    others = 0
    for done in operations(objects):
        if done is None:
            others += 1
        else:
            records.take(done)
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
