"""Answer of flight recorder dumps of several ranks to the question who is behind.

A collective is compared by process group and sequence number, as ``torch/distributed/flight_recorder`` does it: the
first that a rank has not finished, and the ranks that have not called it. Sends and receives between two ranks are
compared in their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from fabtui.jobs.flight_recorder import Call, FlightDump, GroupCalls
from fabtui.jobs.who_is_behind import (
    Answer,
    Gap,
    Place,
    at_rank,
    causes_first,
    has,
    ranks_text,
    stack_command,
    suspects,
)

#: Maximum numbers of commands, and of sentences of a kind.
_MOST = 4
#: Collectives whose inputs have the same size on all ranks.
_SAME_SIZES = ("all_reduce", "broadcast", "reduce")
#: What the flight recorder does not see.
BLIND = (
    "a rank that stands outside of collectives does not show here, and gloo records no send and recv: stacks show it"
)
Dumps = Mapping[int, FlightDump]
Places = Mapping[int, Place]


class _Side(NamedTuple):
    """The calls of a rank in a process group."""

    place: Place
    calls: GroupCalls

    @property
    def rank(self) -> int:
        """Its number in the job."""
        return self.place.rank

    def at(self, number: int) -> Call | None:
        """Return the collective with a number, if it is among the last ones."""
        return next((call for call in self.calls.calls if call.peers is None and call.number == number), None)


def answer(dumps: Dumps, places: Places = MappingProxyType({})) -> Answer:
    """Return who is behind, from the dumps of a job by rank; ``places``: where its ranks run, as far as known."""
    gaps: list[Gap] = []
    stuck: list[str] = []
    for name in dict.fromkeys(name for dump in dumps.values() for name in dump.groups):
        sides = [
            _Side(places.get(rank, Place(rank)), dump.groups[name])
            for rank, dump in sorted(dumps.items())
            if name in dump.groups
        ]
        found, notes = _collectives(sides, set(dumps), places)
        transfers, standing = _transfers(sides, dumps, places)
        gaps += [*found, *transfers]
        stuck += [*notes, *standing]
    gaps = causes_first(gaps)
    waiting = _waiting(dumps)
    sentences = [gap.sentence() for gap in gaps[:1]]
    if gaps:
        sentences += [
            text for place in suspects(gaps)[:_MOST] if (text := _last_call(dumps.get(place.rank), place.rank))
        ]
        circle = _circle(gaps)
        if circle:
            sentences.append(f"ranks {', '.join(map(str, circle))} wait for each other: a deadlock")
    if len(gaps) > 1:
        sentences.append(f"{len(gaps) - 1} more wait in other groups or for other ranks, which may be a consequence")
    sentences += stuck[:_MOST]
    if not sentences:
        sentences = _nothing(dumps, waiting)
    commands = [at_rank(place, stack_command(place)) for place in suspects(gaps)[:_MOST]]
    hangs = True if gaps or stuck else None
    return Answer(sentences, list(dict.fromkeys(commands)), hangs, tuple(suspects(gaps)))


def _waiting(dumps: Dumps) -> dict[int, Call]:
    """Return the first unfinished call of each rank that has one."""
    found = {}
    for rank, dump in dumps.items():
        calls = [call for group in dump.groups.values() for call in group.unfinished[:1]]
        if calls:
            found[rank] = calls[0]
    return found


def _nothing(dumps: Dumps, waiting: dict[int, Call]) -> list[str]:
    if not waiting:
        return ["no rank waits: everything that is recorded has finished", BLIND]
    rank, call = next(iter(waiting.items()))
    where = f" at {call.site}" if call.site else ""
    return [f"rank {rank} waits in {call.operation} {call.number}{where}; the dumps of the other ranks are needed"]


def _collectives(sides: list[_Side], dumped: set[int], places: Places) -> tuple[list[Gap], list[str]]:
    """Return who has not called the first collective of a group that is unfinished, or why it does not finish."""
    pending = [(call.number, side) for side in sides for call in side.calls.unfinished if call.peers is None]
    if not pending:
        return [], []
    first = min(number for number, _ in pending)
    calls = {side.rank: call for side in sides if (call := side.at(first)) is not None}
    operation = Counter(call.operation for call in calls.values()).most_common(1)[0][0]
    late = [
        side for side in sides if side.rank not in calls and side.calls.called is not None and side.calls.called < first
    ]
    group = sides[0].calls
    members = set(group.members) or {side.rank for side in sides}
    notes = [*_mismatch(first, calls, group.description), *_absent(members - dumped, first, operation, group)]
    if not late:
        if not notes and len(calls) == len(members) and len(members) > 1:
            notes = [
                f"{operation} {first} of {group.description} ({len(members)} ranks): all ranks have called it and it"
                " does not finish: the network, a GPU or the driver stands, not a rank"
            ]
        return [], notes
    last = min(side.calls.called or 0 for side in late)
    behind = tuple(side.place for side in late)
    waiting = tuple(places.get(rank, Place(rank)) for rank, call in calls.items() if not call.done)
    sites = Counter(call.site for call in calls.values() if call.site and not call.done)
    where = f" at {sites.most_common(1)[0][0]}" if sites else ""
    who = ranks_text(waiting)
    rest = f"{who} {'waits' if len(waiting) == 1 else 'wait'}{where}" if waiting else ""
    size = f" ({len(members)} ranks)"
    head = f"{operation} {first} of {group.description}{size}: {ranks_text(behind)} {has(len(behind))} not called it"
    text = f"{head} (last {last})" + (f"; {rest}" if rest else "")
    highest = max(side.calls.called or 0 for side in sides)
    return [Gap(operation, first, group.description, len(members), behind, 0, waiting, highest, text)], notes


def _mismatch(number: int, calls: dict[int, Call], group: str) -> list[str]:
    """Return what differs between the ranks that have called the same number of a group."""
    kinds: dict[str, list[int]] = {}
    for rank, call in calls.items():
        kinds.setdefault(call.operation, []).append(rank)
    if len(kinds) == 1 and next(iter(kinds)).removeprefix("_") in _SAME_SIZES:
        kinds = {}
        for rank, call in calls.items():
            kinds.setdefault(f"{call.operation} of {call.shape}", []).append(rank)
    if len(kinds) < 2:
        return []
    texts = [f"{ranks_text(map(Place, ranks))} called {kind}" for kind, ranks in list(kinds.items())[:_MOST]]
    return [f"collective {number} of {group} differs: {', '.join(texts)}: the program calls them in another order"]


def _absent(ranks: set[int], number: int, operation: str, group: GroupCalls) -> list[str]:
    if not ranks:
        return []
    who = f"{ranks_text(map(Place, ranks))} of {group.description}"
    return [f"no dump of {who}, so that it is not known whether {operation} {number} was called there"]


def _transfers(sides: list[_Side], dumps: Dumps, places: Places) -> tuple[list[Gap], list[str]]:
    """Return the sends and receives that one of two ranks has not called, and those that do not finish."""
    group, members = sides[0].calls.description, sides[0].calls.members
    open_calls: dict[tuple[int, int], dict[str, list[tuple[int, Call]]]] = {}
    for side in sides:
        for call in side.calls.unfinished:
            if call.peers is not None:
                open_calls.setdefault(call.peers, {"send": [], "recv": []})[call.operation].append((side.rank, call))
    gaps, notes = [], []
    for peers, calls in open_calls.items():
        # Peers are ranks of the group.
        source, target = (members[peer] if peer < len(members) else peer for peer in peers)
        matched = min(map(len, calls.values()))
        operation, other = ("recv", "send") if len(calls["recv"]) > matched else ("send", "recv")
        late = source if other == "send" else target
        if len(calls[operation]) == matched:
            notes.append(f"send {source}->{target} of {group}: both ranks have called it and it does not finish")
            continue
        rank, call = calls[operation][matched]
        where = f" at {call.site}" if call.site else ""
        waits = f"rank {rank} waits in recv from" if operation == "recv" else f"rank {rank} waits in send to"
        text = f"{operation} {call.number} of {group}: {waits} rank {late}{where}; "
        if late not in dumps:
            notes.append(f"{text}no dump of rank {late}")
            continue
        text += f"{ranks_text([places.get(late, Place(late))])} has not called {other}"
        size = len(members) or None
        behind, waiting = places.get(late, Place(late)), places.get(rank, Place(rank))
        gaps.append(Gap(other, call.number, group, size, (behind,), 0, (waiting,), call.number, text))
    return gaps, notes


def _last_call(dump: FlightDump | None, rank: int) -> str:
    """Return the last call of a rank that waits for nothing."""
    calls = [(group, call) for group in (dump.groups.values() if dump else ()) for call in group.calls]
    if not calls or any(not call.done for _, call in calls):
        return ""
    group, call = max(calls, key=lambda one: one[1].order)
    where = f" at {call.site}" if call.site else ""
    return (
        f"the last call of rank {rank} that is recorded: {call.operation} {call.number} of {group.description}{where}"
    )


def _circle(gaps: list[Gap]) -> list[int]:
    """Return ranks that wait for each other in a circle, none if there is none."""
    waits_for = {place.rank: gap.behind[0].rank for gap in gaps for place in gap.waiting if gap.behind}
    for start in waits_for:
        seen = [start]
        while (after := waits_for.get(seen[-1])) is not None:
            if after in seen:
                return sorted(seen[seen.index(after) :])
            seen.append(after)
    return []
