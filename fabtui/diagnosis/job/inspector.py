"""Ranks that come last to their collectives, from records of the NCCL Inspector of several ranks.

A collective ends on all ranks at about the same time. It takes long on the ranks that wait in it, and is short on the
rank that comes last: that rank is late, while the least bandwidth is measured on those that wait for it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fabtui.diagnosis.job.who_is_behind import JobPlace, ranks_text
from fabtui.model.facts.node_view import dicts
from fabtui.nodeset import count
from fabtui_node.parsers.lines import bytes_text, json_list, json_number, json_whole

#: Number of the latest collectives of a name and size that are compared, and least number of them.
_RECENT, _LEAST = 32, 4
#: A rank waits in a collective that takes this many times as long, and this much longer (us), than on another rank.
_RATIO, _WAIT = 2.0, 1000.0
#: Ranks come last together within this share of the wait.
_TOGETHER = 0.25
#: Least share of the latest collectives in which ranks wait, and of those in which the same rank comes last.
_SHARE = 0.5
#: Maximum numbers of communicators, ranks, and collectives of a rank.
_MOST_RANKS, _MOST_TIMES = 65_536, 4096
BLIND = "the Inspector shows completed operations: a collective that hangs is not among them"


class LateRank(NamedTuple):
    """A rank that comes last to a collective, again and again."""

    place: JobPlace
    communicator: str
    operation: str
    size: int  #: Bytes of the message.
    time: float  #: Usual duration (us) on this rank.
    longest: float  #: Usual duration (us) on the rank that waits longest.
    waiting: JobPlace  #: That rank.
    last: int  #: In how many of the compared collectives it came last.
    compared: int  #: Number of collectives that were compared.

    def sentence(self) -> str:
        """Return who comes last, and by how much."""
        return (
            f"{ranks_text([self.place])} arrives last at {self.operation} of {bytes_text(self.size)}: it takes"
            f" {_time(self.time)} there and {_time(self.longest)} on {ranks_text([self.waiting])}, which waits"
            f" ({self.last} of the last {self.compared})"
        )


@dataclass
class InspectorTimes:
    """Collects the durations of collectives by communicator, name, size, number and rank. Memory is bounded."""

    times: dict[tuple[str, str, int], dict[int, dict[int, float]]] = field(default_factory=dict)
    places: dict[tuple[str, int], JobPlace] = field(default_factory=dict)

    def place(self, communicator: str, rank: int, node: str, pid: int | None) -> None:
        if len(self.places) < _MOST_RANKS:
            self.places[communicator, rank] = JobPlace(rank, node, pid)

    def take(self, communicator: str, rank: int, operation: str, size: int, serial: int, time: float) -> None:
        """Take the duration (us) of a collective on a rank."""
        kept = self.times.setdefault((communicator, operation, size), {}) if len(self.times) < _MOST_TIMES else {}
        if serial not in kept and len(kept) >= _MOST_TIMES:
            # Those that came first are the oldest.
            del kept[next(iter(kept))]
        kept.setdefault(serial, {})[rank] = time

    def late(self) -> list[LateRank]:
        """Return the ranks that come last, the one that is waited for longest first; each once."""
        found: dict[object, LateRank] = {}
        rows = [row for key, serials in self.times.items() if (row := self._late(key, serials)) is not None]
        for row in sorted(rows, key=lambda row: row.time - row.longest):
            found.setdefault(row.place.process, row)
        return list(found.values())

    def _late(self, key: tuple[str, str, int], serials: Mapping[int, Mapping[int, float]]) -> LateRank | None:
        communicator, operation, size = key
        compared = [serials[serial] for serial in sorted(serials) if len(serials[serial]) > 1][-_RECENT:]
        last: dict[int, list[Mapping[int, float]]] = {}
        uneven = 0
        for times in compared:
            low, high = min(times.values()), max(times.values())
            if high < _RATIO * low or high - low < _WAIT:
                continue
            uneven += 1
            those = [rank for rank, time in times.items() if time <= low + _TOGETHER * (high - low)]
            # Where most are short, a few had to wait for something else.
            if 2 * len(those) <= len(times):
                for rank in those:
                    last.setdefault(rank, []).append(times)
        if len(compared) < _LEAST or uneven < _SHARE * len(compared) or not last:
            return None
        rank = max(last, key=lambda one: len(last[one]))
        if len(last[rank]) < _SHARE * uneven:
            return None
        longest = max(last[rank][-1], key=last[rank][-1].__getitem__)
        return LateRank(
            self._place(communicator, rank),
            communicator,
            operation,
            size,
            statistics.median(times[rank] for times in last[rank]),
            statistics.median(max(times.values()) for times in last[rank]),
            self._place(communicator, longest),
            len(last[rank]),
            len(compared),
        )

    def _place(self, communicator: str, rank: int) -> JobPlace:
        return self.places.get((communicator, rank), JobPlace(rank))


def conclusion(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the values of the probe ``inspector`` by node show together: the value of the source Inspector."""
    times = InspectorTimes()
    ranks = 0
    for node, value in values.items():
        ranks += sum(_take(times, node, row) for row in dicts(value.get("ranks")))
    late = times.late()
    if late:
        sentences = [one.sentence() for one in late[:2]]
    elif ranks > 1:
        sentences = [f"in the latest collectives of {count(ranks, 'rank')} no rank is repeatedly the last to arrive"]
    else:
        sentences = [f"records of {count(ranks, 'rank')}: nothing to compare with"] if ranks else []
    suspects = [one.place._asdict() for one in late[:4]]
    return {"sentences": sentences, "suspects": suspects, "hangs": None, "blind": BLIND}


def _take(times: InspectorTimes, node: str, row: Mapping[str, Any]) -> bool:
    communicator, rank = row.get("communicator"), json_whole(row.get("rank"))
    if not isinstance(communicator, str) or rank is None:
        return False
    times.place(communicator, rank, node, json_whole(row.get("pid")))
    for one in json_list(row.get("operations")):
        if not isinstance(one, list) or len(one) != 4 or not isinstance(one[0], str):
            continue
        size, serial, time = json_whole(one[1]), json_whole(one[2]), json_number(one[3])
        if size is not None and serial is not None and time is not None:
            times.take(communicator, rank, one[0][:40], size, serial, time)
    return True


def _time(microseconds: float) -> str:
    return f"{microseconds / 1000:.3g} ms" if microseconds >= 1000 else f"{microseconds:.0f} us"
