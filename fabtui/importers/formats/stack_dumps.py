"""Stacks of processes: dumps of py-spy, pystack, gdb and Python's faulthandler, of one process or of many."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fabtui.diagnosis.job.who_is_behind import (
    JobPlace,
    RankStack,
    WhoIsBehind,
    grouped,
    stack_command,
    stack_tree,
)
from fabtui.diagnosis.knowledge import load
from fabtui.importers.tables import Values
from fabtui.nodeset import count
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import plain_lines

_LIKELY = first_of(
    (0.96, r"^\s{0,8}Thread (?:0x)?[0-9a-fA-Fx]{1,18} \((?:idle|active)[^)]{0,40}\)"),
    (0.95, r"^\s{0,8}(?:Current thread|Thread) 0x[0-9a-f]{4,18} .{0,60}\(most recent call first\)"),
    (0.96, r"^Traceback for thread \d{1,9} "),
    (0.95, r"^Thread \d{1,6} \((?:Thread 0x|LWP|process)"),
    (0.85, r"^#0 {1,3}(?:0x[0-9a-f]{4,18} in )?\S"),
)
_PROCESS = re.compile(
    r"Process (\d{1,9}): (.{0,400})|\[New LWP (\d{1,9})\]"
    r"|(?:==> ?|#{2,4} |=== ?)(.{1,200}?)(?: ?<==| ===)?$"
)
_RANK = re.compile(r"\b(?:local[-_]?)?rank[ =_:-]{0,2}(\d{1,7})\b", re.I)
_THREAD = re.compile(
    r"(?:Thread|Current thread) (?:0x)?([0-9a-fA-Fx]{1,18}) ?(?:\((idle|active)[^)]{0,40}\))?:? ?"
    r"(?:\"([^\"]{0,80})\")?.{0,120}"
    r"|Thread (\d{1,6}) \((?:Thread 0x\w{1,18} )?\(?(?:LWP|process) (\d{1,9})\)?.{0,80}"
    r"|Traceback for thread (\d{1,9}) .{0,120}"
)
_FRAMES = (
    re.compile(r"\s{2,}(\S{1,200}) \(([^()]{1,300}:\d{1,7})\)"),
    re.compile(r'\s{1,12}(?:\(\w{1,12}\) )?File "([^"]{1,300})", line (\d{1,7}),? in (\S{1,200})'),
    re.compile(
        r"\s{0,4}#\d{1,4} {1,3}(?:0x[0-9a-f]{4,18} in )?([^\s(]{1,200}) ?\(.{0,400}\)(?: (?:at|from) (\S{1,300}))?"
    ),
)
#: Maximum numbers of processes, and of frames of a thread.
_MOST, _DEEP = 4096, 200


class _Stack:
    """Main thread of a process, as far as it is read."""

    def __init__(self, number: int, pid: int | None, about: str) -> None:
        rank = next((found for text in reversed(about.split("\n")) if (found := _RANK.search(text))), None)
        self.pid = pid
        self.rank = int(rank[1]) if rank else number
        self.named = rank is not None
        self.current = False  #: Whether its current thread was named.
        self.threads: list[tuple[str, str, list[str]]] = []  #: Name, activity and frames, from the innermost.

    @property
    def main(self) -> tuple[str, str, list[str]]:
        """The main thread; without a name the one that waits for something known, else the last one."""
        named = [one for one in self.threads if one[0] in ("MainThread", str(self.pid), "1")]
        known = [one for one in self.threads if _wait(one[2]) is not None]
        return next(iter([*named, *known, *reversed(self.threads)]), ("", "", []))


class _Wait(NamedTuple):
    """Wait that a stack shows."""

    text: str
    next: str
    calls: bool  #: Whether it waits for other ranks.


def _wait(frames: Sequence[str]) -> _Wait | None:
    rows = load("stack_frames")["frame"]
    for frame in frames:
        for row in rows:
            if re.search(row["pattern"], frame):
                return _Wait(row["waits"], row["next"], row.get("calls", False))
    return None


def _stacks(lines: Sequence[str], notes: Notes) -> list[_Stack]:
    stacks: list[_Stack] = []
    about = ""
    outermost_first = False
    for line in lines:
        if (process := _PROCESS.match(line.strip())) and len(stacks) < _MOST:
            if process[1]:
                stacks.append(_Stack(len(stacks), int(process[1]), f"{about}\n{process[2]}"))
                about = ""
            about = process[4] or about
        elif (thread := _THREAD.match(line.strip())) and (len(stacks) < _MOST or stacks[-1].threads):
            pid = int(thread[5] or thread[6]) if thread[5] or thread[6] else None
            # One dump of faulthandler shows one current thread, as one of pystack is of one thread.
            current = line.lstrip().startswith("Current thread")
            if not stacks or thread[6] or about or (current and stacks[-1].current):
                stacks.append(_Stack(len(stacks), pid, about))
                about = ""
            stacks[-1].current = stacks[-1].current or current
            stacks[-1].threads.append((thread[3] or thread[1] or thread[4] or thread[6], thread[2] or "", []))
            outermost_first = bool(thread[6])
        elif frame := _frame(line):
            if not stacks:
                stacks.append(_Stack(0, None, about))
            if not stacks[-1].threads:
                stacks[-1].threads.append(("", "", []))
            frames = stacks[-1].threads[-1][2]
            if len(frames) < _DEEP:
                frames.insert(0 if outermost_first else len(frames), frame)
        elif line.strip() and not line.startswith(("Python v", "[", "Using host", "0x")):
            notes.puzzled(line)
    return [stack for stack in stacks if any(frames for _, _, frames in stack.threads)]


def _frame(line: str) -> str:
    for number, form in enumerate(_FRAMES):
        if found := form.match(line):
            name, site = (found[3], f"{found[1]}:{found[2]}") if number == 1 else (found[1], found[2] or "")
            return f"{name} ({'/'.join(site.split('/')[-3:])})" if site else name
    return ""


def _answer(stacks: Sequence[_Stack]) -> WhoIsBehind:
    """Return what the processes wait for, in groups, and the one apart from most."""
    ranks = _ranks(stacks)
    groups = grouped(ranks)
    sentences, steps = [], []
    for group in groups:
        wait = _wait(group[0].frames)
        who = _who(stacks, [one.place.rank for one in group])
        where = " <- ".join(group[0].frames[:3])
        sentences.append(f"{who}: {f'waits {wait.text}' if wait else 'no wait that is known here'}; in {where}")
        steps += [wait.next] if wait else []
    waits = [(group, _wait(group[0].frames)) for group in groups]
    others = [group for group, wait in waits if wait is not None and wait.calls]
    apart = [group for group, wait in waits if wait is None or not wait.calls]
    if not apart and len(groups) > 1 and 2 * len(groups[0]) < len(ranks):
        apart = groups[:1]
    behind = tuple(one.place for group in apart for one in group) if others and apart else ()
    if behind and 2 * len(behind) < len(ranks):
        who = _who(stacks, [place.rank for place in behind])
        sentences.insert(
            0, f"{who} {'is' if len(behind) == 1 else 'are'} elsewhere: the others wait for it in a collective"
        )
        steps += [stack_command(place) for place in behind[:3]]
    else:
        behind = ()
    return WhoIsBehind(sentences, list(dict.fromkeys(steps)), True if behind else None, behind)


def _ranks(stacks: Sequence[_Stack]) -> list[RankStack]:
    return [RankStack(JobPlace(one.rank, "", one.pid), tuple(one.main[2]), one.main[1] or "waiting") for one in stacks]


def _who(stacks: Sequence[_Stack], ranks: Sequence[int]) -> str:
    mine = [one for one in stacks if one.rank in ranks]
    names = [f"rank {one.rank}" if one.named else f"process {one.pid or one.rank}" for one in mine[:6]]
    return ", ".join(names) + (f" and {len(mine) - 6} more" if len(mine) > 6 else "")


def _rows(stacks: Sequence[_Stack]) -> Iterator[Values]:
    for one in stacks:
        _, activity, frames = one.main
        wait = _wait(frames)
        yield {
            "pid": one.pid,
            "rank": one.rank if one.named else None,
            "threads": len(one.threads),
            "activity": activity or None,
            "waits": wait.text if wait else None,
            "frames": frames[:8],
        }


def _parse(text: str) -> Reading:
    """Return what the processes wait for: ``answer`` and ``next``, then ``processes`` with the innermost frames."""
    notes = Notes()
    stacks = _stacks(plain_lines(text), notes)
    if not stacks:
        notes.warn("no stack can be read")
    title = count(len(stacks), "process", "processes")
    tree = [line for branch in stack_tree(_ranks(stacks)) for line in branch.lines()] if len(stacks) > 1 else []
    return notes.reading({**_answer(stacks).values(), "dumps": title, "tree": tree, "processes": list(_rows(stacks))})


FORMATS = [
    Format(
        "stacks",
        "stacks of processes by py-spy, pystack, gdb or faulthandler: what each waits for, and who is elsewhere",
        _LIKELY,
        _parse,
        log=True,
        aliases="py-?spy|pystack|gdb|faulthandler|stack",
        job="stacks",
        errors=True,
    )
]
