"""Stacks of the ranks of a job, equal ones together: the rank that stands alone is the suspect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fabtui.jobs.who_is_behind import JobPlace, ranks_text
from fabtui_node.parsers.lines import json_list, json_number

#: Maximum number of frames that a line shows.
_SHOWN = 4
STOPPED = "stopped (kill -CONT lets it go on)"
#: Share of a processor from which a main thread is busy.
_BUSY = 0.5


class RankStack(NamedTuple):
    """Place in the program of a rank.

    Attributes:
        place: Its rank, node and process.
        frames: Functions from the innermost, such as ``all_reduce (distributed_c10d.py:3068)``; none if unknown.
        activity: What the kernel shows: ``running``, ``sleeping in hrtimer_nanosleep``, ``stopped``.
        problem: Why there are no frames, or "".
    """

    place: JobPlace
    frames: tuple[str, ...]
    activity: str
    problem: str


class StackGroup(NamedTuple):
    """Ranks with the same stack and activity."""

    ranks: tuple[RankStack, ...]

    def sentence(self) -> str:
        """Return the ranks and where they are."""
        first = self.ranks[0]
        where = " <- ".join([*first.frames[:_SHOWN], *(["..."] if len(first.frames) > _SHOWN else [])])
        text = f"{ranks_text(one.place for one in self.ranks)}: {first.activity}"
        return f"{text}, in {where}" if where else text


def rank_stacks(node: str, value: Mapping[str, Any]) -> list[RankStack]:
    """Return the ranks in a value of the probe ``stacks``."""
    found = []
    for one in json_list(value.get("ranks")):
        if not isinstance(one, dict) or not isinstance(one.get("rank"), int) or not isinstance(one.get("pid"), int):
            continue
        place = JobPlace(one["rank"], node, one["pid"])
        frames = [frame for frame in json_list(one.get("frames")) if isinstance(frame, dict)]
        names = tuple(f"{frame.get('name')} ({frame.get('site')})" for frame in frames)
        problem = one.get("problem")
        found.append(RankStack(place, names, _activity(one), problem if isinstance(problem, str) else ""))
    return found


def grouped(stacks: Iterable[RankStack]) -> list[StackGroup]:
    """Return ranks with equal stacks together, the smallest group first."""
    groups: dict[tuple[str, ...], list[RankStack]] = {}
    for one in sorted(stacks, key=lambda one: one.place.rank):
        # What the kernel shows changes from moment to moment; it counts only where nothing better is known.
        known = one.frames and one.activity != STOPPED
        groups.setdefault(one.frames if known else (one.activity,), []).append(one)
    return sorted((StackGroup(tuple(ranks)) for ranks in groups.values()), key=lambda group: len(group.ranks))


def _activity(one: Mapping[str, Any]) -> str:
    """Return what the kernel shows of a main thread."""
    state, wait, cpu = one.get("state"), one.get("wait"), json_number(one.get("cpu"))
    if state in ("T", "t"):
        return STOPPED
    if cpu is not None and cpu >= _BUSY:
        return "running"
    where = f" in {wait}" if isinstance(wait, str) else ""
    return f"waiting for the driver or a file system{where}" if state == "D" else f"sleeping{where}"
