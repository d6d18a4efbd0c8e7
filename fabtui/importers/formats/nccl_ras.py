"""Reports of NCCL RAS, text and JSON: what ``ncclras -v`` and fabtui's own client get, with who is behind."""

from __future__ import annotations

from typing import Any

from fabtui.jobs.ras_formats import report_of
from fabtui.jobs.ras_report import RasReport, answer
from fabtui_node.parsers.base import Format, Notes, Reading, first_of


def parse(text: str) -> Reading:
    """Return the report: ``answer`` and ``next`` first, then versions, totals, communicators, ranks and processes."""
    notes = Notes()
    report = report_of(text, notes)
    return notes.reading({**answer(report).values(), **values_of(report)})


def values_of(report: RasReport) -> dict[str, Any]:
    """Return a report as JSON-able values."""
    every = report.communicators.values()
    return {
        "nccl": report.nccl,
        "cuda_runtime": report.cuda_runtime,
        "cuda_driver": report.cuda_driver,
        "time": report.time,
        "collection_time": report.seconds,
        "timeouts": report.timeouts,
        "nodes": report.nodes,
        "processes": report.processes,
        "gpus": report.gpus,
        "groups": [row._asdict() for row in report.groups],
        "communicators": [
            {"communicator": one.name, "ranks": one.size, "silent": len(one.silent), "errors": len(one.errors)}
            for one in every
        ],
        "ranks": [
            {
                "communicator": one.name,
                "rank": rank,
                "node": one.place(rank).node or None,
                "pid": one.place(rank).pid,
                "gpu": one.place(rank).gpu or None,
                "state": one.silent.get(rank) or one.states.get(rank),
                "error": one.errors.get(rank),
                "launched": {name: counts[rank] for name, counts in one.counts.items() if rank in counts},
            }
            for one in every
            for rank in sorted({*one.places, *one.silent, *one.errors, *one.states})
        ],
        "silent_processes": [process._asdict() for process in report.missing],
    }


_LIKELY = first_of(
    (0.97, r'^SERVER PROTOCOL \d|"missing_ranks_count"\s*:|"communicators_count"\s*:'),
    (0.96, r"^Group +Comms +Nodes +Ranks +Ranks +Ranks +Status +Errors|^Communicators\.\.\. \([\d.]+s\)"),
    (0.9, r"^[ \t]*Communicator ranks have different (?:\w+ operation counts|status)$"),
)
_TITLE = "NCCL RAS: launched collectives of each rank, silent processes, who is behind"
FORMATS = [Format("nccl-ras", _TITLE, _LIKELY, parse, units={"collection_time": "s"}, aliases="ncclras|ras")]
