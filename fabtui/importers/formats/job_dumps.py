"""Reports of running jobs about their ranks: dumps of PyTorch's flight recorder, NCCL RAS, the NCCL Inspector.

A dump is of one rank; a pickle has become JSON when its file was read. Reports of RAS are what ``ncclras -v`` and the
client of fabtui get, text or JSON. Records of the Inspector are those of
`fabtui_node.parsers.nccl.inspector_records`; or metrics of Prometheus (``inspector_prom.cc``),
``nccl_bus_bandwidth_gbs{labels} value``. RCCL has the same plugin.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from fabtui.diagnosis.job.flight_recorder import FlightDump, answer, flight_dump, rank_of, stem_of
from fabtui.diagnosis.job.inspector import InspectorTimes
from fabtui.diagnosis.job.ras_report import RasReport, report_of
from fabtui.diagnosis.job.ras_report import answer as ras_answer
from fabtui.importers.result import Result, parts, read
from fabtui.importers.sources import Source, sources
from fabtui.importers.tables import Values
from fabtui.nodeset import count
from fabtui_node.parsers.base import UNKNOWN_LINES, Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_objects, json_value, number, plain_lines, whole
from fabtui_node.parsers.nccl.inspector_records import CompletedOperation, operations

NAME = "flight-recorder"
INSPECTOR = "nccl-inspector"
_FLIGHT_LIKELY = first_of((0.97, r'"(?:collective_seq_id|p2p_seq_id)"\s*:'), (0.95, r'"pg_status"\s*:\s*\{'))
_RAS_LIKELY = first_of(
    (0.97, r'^SERVER PROTOCOL \d|"missing_ranks_count"\s*:|"communicators_count"\s*:'),
    (0.96, r"^Group +Comms +Nodes +Ranks +Ranks +Ranks +Status +Errors|^Communicators\.\.\. \([\d.]+s\)"),
    (0.9, r"^[ \t]*Communicator ranks have different (?:\w+ operation counts|status)$"),
    (0.9, r'"(?:missing_ranks|considered_dead|collective_counts)"\s*:|\(unreachable via the RAS network\)'),
    (0.9, r"^#\d{1,6}-\d{1,6} \([0-9a-f]{16}\) [A-Z]{2,20}"),
)
_report = partial(Format, hidden=("behind",))
_FLIGHT_TITLE = "PyTorch flight recorder: collectives, sends and receives of each rank, who is behind"
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
_LIKELY = first_of(
    (0.97, r'"(?:coll_busbw_gbs|p2p_busbw_gbs|inspector_output_format_version)"[ \t]*:'),
    (0.96, r"^nccl_(?:p2p_)?(?:bus_bandwidth_gbs|exec_time_microseconds|collective_exec_time_microseconds)\{"),
    (0.8, r'"(?:coll_perf|p2p_perf)"[ \t]*:[ \t]*\{'),
)
_TITLE = "NCCL Inspector: bus bandwidth of the operations of a job, by communicator and rank"
_UNITS = {"bytes": "B", "busbw": "GB/s", "busbw_min": "GB/s", "time": "us", "time_of_waiting": "us"}


def dump_of(text: str) -> FlightDump | None:
    return flight_dump(json_value(text[max(text.find("{"), 0) :]))


def _parse_dump(text: str) -> Reading:
    """Return what one rank has called and what is unfinished; who is behind takes the dumps of all ranks."""
    notes = Notes()
    dump = dump_of(text)
    if dump is None:
        notes.warn("the dump is incomplete: nothing of it can be read")
        return notes.reading({})
    return notes.reading(values_of(dump))


def values_of(dump: FlightDump) -> Values:
    return {
        "version": dump.version or None,
        "library": dump.library or None,
        "entries": dump.entries,
        "groups": [
            {
                "group": group.description,
                "name": group.name,
                "ranks": len(group.members) or None,
                "called": group.called,
                "finished": group.finished,
                "unfinished": len(group.unfinished),
                **({"waits_in": f"{call.operation} {call.number}", "site": call.site or None} if call else {}),
            }
            for group in dump.groups.values()
            for call in [next(iter(group.unfinished), None)]
        ],
    }


class FlightDumps:
    """Collects the dumps of ranks, by the folder and the beginning of their file names."""

    def __init__(self) -> None:
        #: Title, dumps by rank, and warnings of each job.
        self._jobs: dict[str, tuple[str, dict[int, FlightDump], list[str]]] = {}

    def take(self, result: Result) -> bool:
        """Take a result in if it is a dump of a rank; return whether it is."""
        if result.kind != NAME:
            return False
        name = result.source.name
        _, dumps, warnings = self._jobs.setdefault(stem_of(name), (result.title, {}, []))
        warnings += [f"{Path(name).name}: {warning}" for warning in result.warnings][: UNKNOWN_LINES - len(warnings)]
        if (dump := dump_of(result.source.text)) is not None:
            # A dump alone, such as one from standard input, has no rank.
            dumps[-1 if (rank := rank_of(name)) is None else rank] = dump
        return True

    def results(self) -> list[Result]:
        return [self._result(job, *known) for job, known in self._jobs.items()]

    def _result(self, job: str, title: str, dumps: dict[int, FlightDump], warnings: list[str]) -> Result:
        known = {rank: dump for rank, dump in dumps.items() if rank >= 0}
        values = {**(answer(known).values() if known else {}), "dumps": len(dumps), "ranks": rows_of(dumps)}
        if len(known) < len(dumps):
            warnings = [*warnings, "the file's name does not end in a rank, so it is not known whose dump it is"]
        ranks = f"{job}*" if len(dumps) > 1 else job + (str(next(iter(known))) if known else "")
        return Result(Source(ranks, ""), NAME, title, values, {}, warnings, [], [])


def results_of(files: list[str], kind: str | None = None) -> Iterator[Result]:
    """Yield the result of each file; dumps and Inspector files of the ranks of a job are one result, at the end."""
    dumps, inspected = FlightDumps(), list[Result]()
    for source in (part for each in sources(files) for part in (parts(each) if kind is None else [each])):
        result = read(source, kind)
        if result.kind == INSPECTOR and result.values.get("ranks"):
            inspected.append(result)
        elif not dumps.take(result):
            yield result
    yield from dumps.results()
    yield from _together(inspected)


def _together(inspected: Sequence[Result]) -> Iterator[Result]:
    """Yield Inspector files of ranks that share a communicator as one result: alone, none shows who comes last."""
    jobs: list[tuple[set[str], list[Result]]] = []
    for result in inspected:
        own = {row["communicator"] for row in result.values["communicators"]}
        job = next((job for job in jobs if job[0] & own), None)
        if job is None:
            jobs.append((own, [result]))
        else:
            job[0].update(own)
            job[1].append(result)
    for _, results in jobs:
        if len(results) == 1:
            yield results[0]
            continue
        name = f"{results[0].source.name} and {count(len(results) - 1, 'more file')}"
        yield read(Source(name, "\n".join(result.source.text for result in results)), INSPECTOR)


def rows_of(dumps: Mapping[int, FlightDump]) -> list[Values]:
    return [
        {"rank": rank if rank >= 0 else None, **values, **group}
        for rank, dump in sorted(dumps.items())
        for values in [values_of(dump)]
        for group in values.pop("groups")
    ]


def _parse_ras(text: str) -> Reading:
    """Return the report: ``answer`` and ``next`` first, then versions, totals, communicators, ranks and processes."""
    notes = Notes()
    report = report_of(text, notes)
    return notes.reading({**ras_answer(report).values(), **ras_values(report)})


def ras_values(report: RasReport) -> Values:
    every = report.communicators.values()
    return {
        **{name: getattr(report, name) for name in ("nccl", "cuda_runtime", "cuda_driver", "time")},
        "collection_time": report.seconds,
        **{name: getattr(report, name) for name in ("timeouts", "nodes", "processes", "gpus")},
        "groups": [row._asdict() for row in report.groups],
        "communicators": [
            {"communicator": comm.name, "ranks": comm.size, "silent": len(comm.silent), "errors": len(comm.errors)}
            for comm in every
        ],
        "ranks": [
            {
                "communicator": comm.name,
                "rank": rank,
                "node": comm.place(rank).node or None,
                "pid": comm.place(rank).pid,
                "gpu": comm.place(rank).gpu or None,
                "state": comm.silent.get(rank) or comm.states.get(rank),
                "error": comm.errors.get(rank),
                "launched": {name: counts[rank] for name, counts in comm.counts.items() if rank in counts},
            }
            for comm in every
            for rank in sorted({*comm.places, *comm.silent, *comm.errors, *comm.states})
        ],
        "silent_processes": [process._asdict() for process in report.missing],
    }


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
        own = [(rank, row["last"]) for (name, rank), row in self.ranks.items() if name == communicator]
        last = {rank: serials["collective"] for rank, serials in own if "collective" in serials}
        latest = max(last.values(), default=0)
        if behind := [rank for rank in sorted(last) if last[rank] < latest - 1]:
            shown = ", ".join(f"{rank} ({last[rank]})" for rank in behind[:8])
            notes.warn(f"communicator {communicator}: the last collective is {latest}; behind: rank {shown}")


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


def _parse_inspector(text: str) -> Reading:
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


FORMATS = [
    _report(NAME, _FLIGHT_TITLE, _FLIGHT_LIKELY, _parse_dump, aliases="torchfrtrace|nccl-trace|fr", job="flight"),
    _report(
        "nccl-ras",
        "NCCL RAS: launched collectives of each rank, silent processes, who is behind",
        _RAS_LIKELY,
        _parse_ras,
        units={"collection_time": "s"},
        aliases="ncclras|ras",
        job="ras",
    ),
    Format(INSPECTOR, _TITLE, _LIKELY, _parse_inspector, units=_UNITS, log=True, aliases="inspector|rccl-inspector"),
]
