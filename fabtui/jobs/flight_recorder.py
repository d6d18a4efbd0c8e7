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
from collections.abc import Iterable
from typing import Any, NamedTuple

from fabtui_node.parsers.lines import json_list, json_object

#: How many finished calls of a group are kept: those before are of no use for the question who is behind.
_FINISHED = 64
#: Maximum numbers of unfinished calls and of groups that are kept.
_UNFINISHED = 4096
_GROUPS = 4096
#: Files of PyTorch itself: where it is called from comes after them.
_OF_TORCH = re.compile(r"(?:^|/)(?:torch|torchgen)/|/torch/distributed/")
_PEERS = re.compile(r"(send|recv) (\d{1,9})(?:->|<-)(\d{1,9})")
_RANK_AT_END = re.compile(r"(\d{1,9})(?:\.(?:pickle|pkl|json|bin|dump))?(?:\.gz)?$")


class Call(NamedTuple):
    """A collective, send or receive.

    Attributes:
        number: Its sequence number: of collectives, or of sends and receives, of its process group.
        operation: ``all_reduce``, ``send``, ``recv``.
        peers: Source and destination of a send or receive, as ranks of the group; None for a collective.
        shape: Sizes and types of its inputs: ``4194304 Float``.
        done: True if it has finished.
        site: Where it was called from: ``rank.py:16``; "" if unknown.
        order: Its number among all calls of the rank.
    """

    number: int
    operation: str
    peers: tuple[int, int] | None
    shape: str
    done: bool
    site: str
    order: int


class GroupCalls(NamedTuple):
    """Calls of one process group.

    Attributes:
        name: Its name, unique in the job.
        description: ``default_pg``, ``TP 3``; the name where there is none.
        members: Its ranks in the job, in the order of the group; empty if unknown.
        called: The last collective that was called, or None.
        finished: The last collective that has finished, or None.
        calls: Its last calls.
    """

    name: str
    description: str
    members: tuple[int, ...]
    called: int | None
    finished: int | None
    calls: tuple[Call, ...]

    @property
    def unfinished(self) -> list[Call]:
        """Calls that have not finished, collectives first, by their number."""
        return sorted((call for call in self.calls if not call.done), key=lambda call: (bool(call.peers), call.number))


class FlightDump(NamedTuple):
    """Dump of one rank."""

    version: str
    library: str
    entries: int
    groups: dict[str, GroupCalls]


def rank_of(name: str) -> int | None:
    """Return the rank of a dump from the name of its file, or None."""
    found = _RANK_AT_END.search(name)
    return int(found[1]) if found else None


def stem_of(name: str) -> str:
    """Return the name of a dump's file without its rank: equal for the dumps of one job."""
    return _RANK_AT_END.sub("", name)


def flight_dump(value: Any) -> FlightDump | None:
    """Return the dump in a value read from a pickle or from JSON; None if it is none."""
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
            found_none = _calls_of((name, _text(about.get("desc"))), [], {}, _members(about))
            groups[name] = found_none._replace(called=0, finished=0) if whole else found_none
    return FlightDump(_text(value.get("version")), _text(value.get("comm_lib_version")), len(entries), groups)


def _group(entry: dict[str, Any]) -> tuple[str, str]:
    """Return name and description of the process group of an entry."""
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
    number = _whole(entry.get("p2p_seq_id" if peers else "collective_seq_id", entry.get("seq_id")))
    if number is None or not operation:
        return None
    site = _site(json_list(entry.get("frames")))
    done = entry.get("state") == "completed" or entry.get("retired") is True
    return Call(number, operation[:60], peers, _shape(entry), done, site, _whole(entry.get("record_id")) or 0)


def _shape(entry: dict[str, Any]) -> str:
    sizes, types = json_list(entry.get("input_sizes")), json_list(entry.get("input_dtypes"))
    texts = ["x".join(map(str, json_list(size)[:8])) for size in sizes[:4]]
    return " ".join([*texts, *(str(one)[:20] for one in types[:1])])[:120]


def _site(frames: list[Any]) -> str:
    """Return where the user's code called it: the first frame that is not of PyTorch."""
    for frame in frames[:64]:
        file = _text(frame.get("filename")) if isinstance(frame, dict) else ""
        if file and not _OF_TORCH.search(file):
            return f"{file.rpartition('/')[2]}:{_whole(frame.get('line')) or 0}"[:120]
    return ""


def _calls_of(key: tuple[str, str], calls: list[Call], status: dict[str, Any], members: tuple[int, ...]) -> GroupCalls:
    collectives = [call for call in calls if call.peers is None]
    called = max((call.number for call in collectives), default=None)
    finished = max((call.number for call in collectives if call.done), default=None)
    if len(collectives) == len(calls):
        # The status counts sends and receives as well; without them it knows more than the entries that were kept.
        called = max(_known(called, status.get("last_enqueued_collective")), default=None)
        finished = max(_known(finished, status.get("last_completed_collective")), default=None)
    done = [call for call in calls if call.done][-_FINISHED:]
    open_calls = [call for call in calls if not call.done][:_UNFINISHED]
    return GroupCalls(key[0], key[1] or key[0], members, called, finished, (*done, *open_calls))


def _known(*numbers: Any) -> list[int]:
    return [number for one in numbers if (number := _whole(one)) is not None]


def _members(about: dict[str, Any]) -> tuple[int, ...]:
    """Return the ranks of a group: a text ``[0, 1]`` or a list."""
    ranks = about.get("ranks")
    texts: Iterable[Any] = re.findall(r"\d{1,9}", ranks) if isinstance(ranks, str) else json_list(ranks)
    return tuple(int(text) for text in texts if isinstance(text, str) or _whole(text) is not None)


def _text(value: Any) -> str:
    return value[:200] if isinstance(value, str) else ""


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None
