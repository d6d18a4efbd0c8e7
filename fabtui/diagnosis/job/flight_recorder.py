"""Dumps of PyTorch's flight recorder: the last collectives, sends and receives of one rank.

Keys after ``torch/csrc/distributed/c10d/FlightRecorder*`` (dump versions 2.0 to 2.10): ``version``, ``pg_config``
(name to ``desc`` and ``ranks``), ``pg_status`` (id to the last collective that was enqueued and completed),
``entries``. An entry has ``process_group`` (name and description), ``collective_seq_id``, ``profiling_name``
(``nccl:all_reduce``, ``nccl:send 1->2``), ``state`` (``scheduled``, ``started``, ``completed``), ``retired``,
``is_p2p``, sizes and ``frames``. A dump does not contain its rank: it is the number at the end of the file's name.
gloo leaves ``state`` as it was and has no names in ``pg_config``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fabtui.diagnosis.job.who_is_behind import (
    JobPlace,
    UnmatchedOperation,
    WhoIsBehind,
    at_rank,
    causes_first,
    has,
    ranks_text,
    stack_command,
    suspects,
)
from fabtui_node.parsers.lines import json_list, json_object, json_whole, whole

#: How many finished calls of a group are kept: those before are of no use for the question who is behind.
_FINISHED = 64
#: Maximum numbers of unfinished calls and of groups that are kept.
_UNFINISHED = 4096
_GROUPS = 4096
#: Files of PyTorch itself: where it is called from comes after them.
_OF_TORCH = re.compile(r"(?:^|/)(?:torch|torchgen)/|/torch/distributed/")
_PEERS = re.compile(r"(send|recv) (\d{1,9})(?:->|<-)(\d{1,9})")
_RANK_AT_END = re.compile(r"(\d{1,9})(?:\.(?:pickle|pkl|json|bin|dump))?(?:\.gz)?$")
#: Maximum numbers of commands, and of sentences of a kind.
_MOST = 4
#: Collectives whose inputs have the same size on all ranks.
_SAME_SIZES = ("all_reduce", "broadcast", "reduce")
#: What the flight recorder does not see.
BLIND = (
    "a rank that is stuck outside collectives does not show here, and gloo does not record send and recv: stacks show"
    " both"
)


class Call(NamedTuple):
    """A collective, send or receive."""

    number: int  #: Its sequence number: of collectives, or of sends and receives, of its process group.
    operation: str  #: ``all_reduce``, ``send``, ``recv``.
    #: Source and destination of a send or receive, as ranks of the group; None for a collective.
    peers: tuple[int, int] | None
    shape: str  #: Sizes and types of its inputs: ``4194304 Float``.
    done: bool  #: True if it has finished.
    site: str  #: Where it was called from: ``rank.py:16``; "" if unknown.
    order: int  #: Its number among all calls of the rank.


class GroupCalls(NamedTuple):
    """Calls of one process group."""

    name: str  #: Its name, unique in the job.
    description: str  #: ``default_pg``, ``TP 3``; the name where there is none.
    members: tuple[int, ...]  #: Its ranks in the job, in the order of the group; empty if unknown.
    called: int | None  #: The last collective that was called, or None.
    finished: int | None  #: The last collective that has finished, or None.
    calls: tuple[Call, ...]  #: Its last calls.

    @property
    def unfinished(self) -> list[Call]:
        return sorted((call for call in self.calls if not call.done), key=lambda call: (bool(call.peers), call.number))


class FlightDump(NamedTuple):
    """Dump of one rank."""

    version: str
    library: str
    entries: int
    groups: dict[str, GroupCalls]


def rank_of(name: str) -> int | None:
    """Return the rank of a dump from the name of its file, or None."""
    match = _RANK_AT_END.search(name)
    return int(match[1]) if match else None


def stem_of(name: str) -> str:
    """Return the name of a dump's file without its rank: equal for the dumps of one job."""
    return _RANK_AT_END.sub("", name)


def flight_dump(value: Any) -> FlightDump | None:
    """Return the dump in a value read from a pickle or from JSON; None if it is not a dump."""
    if not isinstance(value, dict) or not isinstance(value.get("entries"), (list, tuple)):
        return None
    entries = [entry for entry in value["entries"] if isinstance(entry, dict)]
    config = json_object(value, "pg_config")
    calls: dict[tuple[str, str], list[Call]] = {}
    ids: dict[tuple[str, str], str] = {}
    for entry in entries:
        key = _group(entry)
        call = _call(entry)
        if call is not None and (key in calls or len(calls) < _GROUPS):
            calls.setdefault(key, []).append(call)
            ids[key] = str(entry.get("pg_id"))
    groups = {}
    for key, found in calls.items():
        status = json_object(value, "pg_status", ids[key])
        groups[key[0]] = _calls_of(key, found, status, _members(json_object(config, key[0])))
    # The first entry has the id 0: nothing was overwritten, and groups without entries have called nothing.
    whole = any(entry.get("record_id") == 0 for entry in entries)
    for name, about in config.items():
        if name and name not in groups and len(groups) < _GROUPS and isinstance(about, dict):
            idle = _calls_of((name, _text(about.get("desc"))), [], {}, _members(about))
            groups[name] = idle._replace(called=0, finished=0) if whole else idle
    return FlightDump(_text(value.get("version")), _text(value.get("comm_lib_version")), len(entries), groups)


def _group(entry: dict[str, Any]) -> tuple[str, str]:
    group = entry.get("process_group")
    if isinstance(group, (list, tuple)) and len(group) == 2:
        return _text(group[0]), _text(group[1])
    return str(entry.get("pg_id", ""))[:200], ""


def _call(entry: dict[str, Any]) -> Call | None:
    name = _text(entry.get("profiling_name")).partition(":")
    operation = name[2] or name[0]
    peers = None
    if found := _PEERS.search(operation):
        operation = found[1]
        first, second = int(found[2]), int(found[3])
        peers = (first, second) if operation == "send" else (second, first)
    number = json_whole(entry.get("p2p_seq_id" if peers else "collective_seq_id", entry.get("seq_id")))
    if number is None or not operation:
        return None
    site = _site(json_list(entry.get("frames")))
    done = entry.get("state") == "completed" or entry.get("retired") is True
    return Call(number, operation[:60], peers, _shape(entry), done, site, json_whole(entry.get("record_id")) or 0)


def _shape(entry: dict[str, Any]) -> str:
    sizes, types = json_list(entry.get("input_sizes")), json_list(entry.get("input_dtypes"))
    texts = ["x".join(map(str, json_list(size)[:8])) for size in sizes[:4]]
    return " ".join([*texts, *(str(one)[:20] for one in types[:1])])[:120]


def _site(frames: list[Any]) -> str:
    """Return where the user's code called it: the first frame that is not of PyTorch."""
    for frame in frames[:64]:
        file = _text(frame.get("filename")) if isinstance(frame, dict) else ""
        if file and not _OF_TORCH.search(file):
            return f"{file.rpartition('/')[2]}:{json_whole(frame.get('line')) or 0}"[:120]
    return ""


def _calls_of(key: tuple[str, str], calls: list[Call], status: dict[str, Any], members: tuple[int, ...]) -> GroupCalls:
    collectives = [call for call in calls if call.peers is None]
    called = max((call.number for call in collectives), default=None)
    finished = max((call.number for call in collectives if call.done), default=None)
    if len(collectives) == len(calls):
        # The status counts sends and receives as well; without them it knows more than the entries that were kept.
        names = ("last_enqueued_collective", "last_completed_collective")
        known = [(number, json_whole(status.get(name))) for number, name in zip((called, finished), names, strict=True)]
        called, finished = (max((one for one in pair if one is not None), default=None) for pair in known)
    done = [call for call in calls if call.done][-_FINISHED:]
    open_calls = [call for call in calls if not call.done][:_UNFINISHED]
    return GroupCalls(key[0], key[1] or key[0], members, called, finished, (*done, *open_calls))


def _members(about: dict[str, Any]) -> tuple[int, ...]:
    """Return the ranks of a group: a text ``[0, 1]`` or a list."""
    ranks = about.get("ranks")
    texts: Iterable[Any] = re.findall(r"\d{1,9}", ranks) if isinstance(ranks, str) else json_list(ranks)
    numbers = (whole(text) if isinstance(text, str) else json_whole(text) for text in texts)
    return tuple(number for number in numbers if number is not None)


def _text(value: Any) -> str:
    return value[:200] if isinstance(value, str) else ""


Dumps = Mapping[int, FlightDump]
Places = Mapping[int, JobPlace]


class _Side(NamedTuple):
    """The calls of a rank in a process group."""

    place: JobPlace
    calls: GroupCalls

    @property
    def rank(self) -> int:
        return self.place.rank

    def at(self, number: int) -> Call | None:
        return next((call for call in self.calls.calls if call.peers is None and call.number == number), None)


def answer(dumps: Dumps, places: Places = MappingProxyType({})) -> WhoIsBehind:
    """Return who is behind, from the dumps of a job by rank; ``places``: where its ranks run, as far as known.

    A collective is compared by process group and sequence number, as ``torch/distributed/flight_recorder`` does it: the
    first that a rank has not finished, and the ranks that have not called it. Sends and receives between two ranks are
    compared in their order.
    """
    gaps: list[UnmatchedOperation] = []
    stuck: list[str] = []
    for name in dict.fromkeys(name for dump in dumps.values() for name in dump.groups):
        sides = [
            _Side(places.get(rank, JobPlace(rank)), dump.groups[name])
            for rank, dump in sorted(dumps.items())
            if name in dump.groups
        ]
        found, notes = _collectives(sides, set(dumps), places)
        transfers, standing = _transfers(sides, dumps, places)
        gaps += [*found, *transfers]
        stuck += [*notes, *standing]
    gaps = causes_first(gaps)
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
        sentences = _nothing(dumps)
    commands = [at_rank(place, stack_command(place)) for place in suspects(gaps)[:_MOST]]
    hangs = True if gaps or stuck else None
    return WhoIsBehind(sentences, list(dict.fromkeys(commands)), hangs, tuple(suspects(gaps)))


def _nothing(dumps: Dumps) -> list[str]:
    groups = ((rank, group) for rank, dump in dumps.items() for group in dump.groups.values())
    waits = next(((rank, group.unfinished[0]) for rank, group in groups if group.unfinished), None)
    if waits is None:
        return ["no rank waits: everything that is recorded has finished", BLIND]
    rank, call = waits
    where = f" at {call.site}" if call.site else ""
    return [f"rank {rank} waits in {call.operation} {call.number}{where}; the dumps of the other ranks are needed"]


def _collectives(sides: list[_Side], dumped: set[int], places: Places) -> tuple[list[UnmatchedOperation], list[str]]:
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
    notes = _mismatch(first, calls, group.description)
    if absent := members - dumped:
        who = f"{ranks_text(map(JobPlace, absent))} of {group.description}"
        notes.append(f"no dump of {who}, so whether {operation} {first} was called there is unknown")
    if not late:
        if not notes and len(calls) == len(members) and len(members) > 1:
            notes = [
                f"{operation} {first} of {group.description} ({len(members)} ranks): all ranks have called it, but it"
                " does not finish: the network, a GPU or the driver is at fault, not a rank"
            ]
        return [], notes
    last = min(side.calls.called or 0 for side in late)
    behind = tuple(side.place for side in late)
    waiting = tuple(places.get(rank, JobPlace(rank)) for rank, call in calls.items() if not call.done)
    sites = Counter(call.site for call in calls.values() if call.site and not call.done)
    where = f" at {sites.most_common(1)[0][0]}" if sites else ""
    who = ranks_text(waiting)
    rest = f"{who} {'waits' if len(waiting) == 1 else 'wait'}{where}" if waiting else ""
    size = f" ({len(members)} ranks)"
    head = f"{operation} {first} of {group.description}{size}: {ranks_text(behind)} {has(len(behind))} not called it"
    text = f"{head} (last {last})" + (f"; {rest}" if rest else "")
    highest = max(side.calls.called or 0 for side in sides)
    return [
        UnmatchedOperation(operation, first, group.description, len(members), behind, 0, waiting, highest, text)
    ], notes


def _mismatch(number: int, calls: dict[int, Call], group: str) -> list[str]:
    kinds: dict[str, list[int]] = {}
    for rank, call in calls.items():
        kinds.setdefault(call.operation, []).append(rank)
    if len(kinds) == 1 and next(iter(kinds)).removeprefix("_") in _SAME_SIZES:
        kinds = {}
        for rank, call in calls.items():
            kinds.setdefault(f"{call.operation} of {call.shape}", []).append(rank)
    if len(kinds) < 2:
        return []
    texts = [f"{ranks_text(map(JobPlace, ranks))} called {kind}" for kind, ranks in list(kinds.items())[:_MOST]]
    return [f"collective {number} of {group} differs: {', '.join(texts)}: the program calls them in a different order"]


def _transfers(sides: list[_Side], dumps: Dumps, places: Places) -> tuple[list[UnmatchedOperation], list[str]]:
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
            notes.append(f"send {source}->{target} of {group}: both ranks have called it, but it does not finish")
            continue
        rank, call = calls[operation][matched]
        where = f" at {call.site}" if call.site else ""
        waits = f"rank {rank} waits in recv from" if operation == "recv" else f"rank {rank} waits in send to"
        text = f"{operation} {call.number} of {group}: {waits} rank {late}{where}; "
        if late not in dumps:
            notes.append(f"{text}no dump of rank {late}")
            continue
        text += f"{ranks_text([places.get(late, JobPlace(late))])} has not called {other}"
        size = len(members) or None
        behind, waiting = places.get(late, JobPlace(late)), places.get(rank, JobPlace(rank))
        gaps.append(UnmatchedOperation(other, call.number, group, size, (behind,), 0, (waiting,), call.number, text))
    return gaps, notes


def _last_call(dump: FlightDump | None, rank: int) -> str:
    calls = [(group, call) for group in (dump.groups.values() if dump else ()) for call in group.calls]
    if not calls or any(not call.done for _, call in calls):
        return ""
    group, call = max(calls, key=lambda one: one[1].order)
    where = f" at {call.site}" if call.site else ""
    return f"the last recorded call of rank {rank}: {call.operation} {call.number} of {group.description}{where}"


def _circle(gaps: list[UnmatchedOperation]) -> list[int]:
    """Return ranks that wait for each other in a circle; empty without a circle."""
    waits_for = {place.rank: gap.behind[0].rank for gap in gaps for place in gap.waiting if gap.behind}
    for start in waits_for:
        seen = [start]
        while (after := waits_for.get(seen[-1])) is not None:
            if after in seen:
                return sorted(seen[seen.index(after) :])
            seen.append(after)
    return []
