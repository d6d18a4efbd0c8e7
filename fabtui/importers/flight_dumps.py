"""Flight recorder dumps of several ranks as one result: who is behind is seen only in all of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fabtui.importers.formats.flight_recorder import NAME, dump_of, values_of
from fabtui.importers.result import Result
from fabtui.importers.sources import Source
from fabtui.jobs.flight_recorder import FlightDump, answer, rank_of, stem_of
from fabtui_node.parsers.base import UNKNOWN_LINES


class FlightDumps:
    """Collects the dumps of ranks, by the folder and the beginning of their file names."""

    def __init__(self) -> None:
        self._dumps: dict[str, dict[int, FlightDump]] = {}
        self._titles: dict[str, str] = {}
        self._warnings: dict[str, list[str]] = {}

    def take(self, result: Result) -> bool:
        """Take a result in if it is a dump of a rank; return whether it is."""
        if result.kind != NAME:
            return False
        name = result.source.name
        job, rank = stem_of(name), rank_of(name)
        warnings = self._warnings.setdefault(job, [])
        dumps = self._dumps.setdefault(job, {})
        self._titles[job] = result.title
        warnings += [f"{Path(name).name}: {warning}" for warning in result.warnings][: UNKNOWN_LINES - len(warnings)]
        dump = dump_of(result.source.text)
        if dump is not None and rank is None:
            # A dump alone, such as one from standard input.
            rank = -1
        if dump is not None and rank is not None:
            dumps[rank] = dump
        return True

    def results(self) -> list[Result]:
        """Return one result for each job."""
        return [self._result(job, dumps) for job, dumps in self._dumps.items()]

    def _result(self, job: str, dumps: dict[int, FlightDump]) -> Result:
        warnings = self._warnings[job]
        known = {rank: dump for rank, dump in dumps.items() if rank >= 0}
        values = {
            **(answer(known).values() if known else {}),
            "dumps": len(dumps),
            "ranks": rows_of(dumps),
        }
        if len(known) < len(dumps):
            warnings = [*warnings, "the file's name does not end in a rank, so that it is not known whose dump it is"]
        ranks = f"{job}*" if len(dumps) > 1 else job + (str(next(iter(known))) if known else "")
        return Result(Source(ranks, ""), NAME, self._titles[job], values, {}, warnings, [], [])


def rows_of(dumps: Mapping[int, FlightDump]) -> list[dict[str, Any]]:
    """Return a row for each rank and process group, as JSON-able values."""
    return [
        {
            "rank": rank if rank >= 0 else None,
            **{name: value for name, value in one.items() if name != "groups"},
            **group,
        }
        for rank, dump in sorted(dumps.items())
        for one in [values_of(dump)]
        for group in one["groups"]
    ]
