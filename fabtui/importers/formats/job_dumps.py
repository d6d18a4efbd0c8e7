"""Reports of running jobs about their ranks: dumps of PyTorch's flight recorder, and reports of NCCL RAS.

A dump is of one rank; a pickle has become JSON when its file was read. Reports of RAS are what ``ncclras -v`` and the
client of fabtui get, text or JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fabtui.diagnosis.running_job.flight_recorder import FlightDump, answer, flight_dump, rank_of, stem_of
from fabtui.diagnosis.running_job.ras_report import RasReport, report_of
from fabtui.diagnosis.running_job.ras_report import answer as ras_answer
from fabtui.importers.result import Result, parts, read
from fabtui.importers.sources import Source, sources
from fabtui.importers.tables import Values
from fabtui.nodeset import count
from fabtui_node.parsers.base import UNKNOWN_LINES, Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_value

NAME = "flight-recorder"
INSPECTOR = "nccl-inspector"


def dump_of(text: str) -> FlightDump | None:
    """Return the dump in a text, None if it has none that is complete."""
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
    """Return the dump of a rank as JSON-able values."""
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
    for source in (part for whole in sources(files) for part in (parts(whole) if kind is None else [whole])):
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
    """Return a row for each rank and process group, as JSON-able values."""
    return [
        {"rank": rank if rank >= 0 else None, **values, **group}
        for rank, dump in sorted(dumps.items())
        for values in [values_of(dump)]
        for group in values.pop("groups")
    ]


_LIKELY = first_of((0.97, r'"(?:collective_seq_id|p2p_seq_id)"\s*:'), (0.95, r'"pg_status"\s*:\s*\{'))
FLIGHT_RECORDER = Format(
    NAME,
    "PyTorch flight recorder: collectives, sends and receives of each rank, who is behind",
    _LIKELY,
    _parse_dump,
    aliases="torchfrtrace|nccl-trace|fr",
    hidden=("behind",),
    job="flight",
)


def _parse_ras(text: str) -> Reading:
    """Return the report: ``answer`` and ``next`` first, then versions, totals, communicators, ranks and processes."""
    notes = Notes()
    report = report_of(text, notes)
    return notes.reading({**ras_answer(report).values(), **ras_values(report)})


def ras_values(report: RasReport) -> Values:
    """Return a report as JSON-able values."""
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


_RAS_LIKELY = first_of(
    (0.97, r'^SERVER PROTOCOL \d|"missing_ranks_count"\s*:|"communicators_count"\s*:'),
    (0.96, r"^Group +Comms +Nodes +Ranks +Ranks +Ranks +Status +Errors|^Communicators\.\.\. \([\d.]+s\)"),
    (0.9, r"^[ \t]*Communicator ranks have different (?:\w+ operation counts|status)$"),
    (0.9, r'"(?:missing_ranks|considered_dead|collective_counts)"\s*:|\(unreachable via the RAS network\)'),
    (0.9, r"^#\d{1,6}-\d{1,6} \([0-9a-f]{16}\) [A-Z]{2,20}"),
)
RAS = Format(
    "nccl-ras",
    "NCCL RAS: launched collectives of each rank, silent processes, who is behind",
    _RAS_LIKELY,
    _parse_ras,
    units={"collection_time": "s"},
    aliases="ncclras|ras",
    hidden=("behind",),
    job="ras",
)
FORMATS = [FLIGHT_RECORDER, RAS]
