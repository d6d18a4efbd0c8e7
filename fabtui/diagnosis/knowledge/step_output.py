"""Judgement of the output of next steps: which lines are abnormal, and what they show."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from fabtui.diagnosis.knowledge import toml_data
from fabtui.model.session_logs import CommandRun

#: Maximum length of a line that is searched.
_LONGEST = 500


class OutputJudgement(NamedTuple):
    """Judgement of the output of a command."""

    sentence: str = ""  #: What it means; "" if nothing is known of such outputs.
    marked: frozenset[int] = frozenset()  #: Numbers of the abnormal lines, from 0 on.


class _Known(NamedTuple):
    """Known output of a command, see ``step_outputs.toml``."""

    command: re.Pattern[str]
    lines: re.Pattern[str]
    found: str
    clear: str
    mark: bool
    counters: frozenset[str]


@functools.cache
def _known() -> tuple[_Known, ...]:
    return tuple(
        _Known(
            re.compile(one["command"]),
            re.compile(one["lines"]),
            one["found"],
            one["clear"],
            one.get("mark", True),
            frozenset(one.get("counters", ())),
        )
        for one in toml_data.load("step_outputs")["output"]
    )


def judged_output(run: CommandRun, lines: Sequence[str]) -> OutputJudgement:
    """Return what the output of a command shows; ``lines``: its lines."""
    words = [word for at, word in enumerate(run.start.argv) if at or word != "sudo"]
    known = next((one for one in _known() if one.command.fullmatch(" ".join(words))), None)
    if known is None or run.end is None:
        return OutputJudgement()
    found = {at for at, line in enumerate(lines) if known.lines.search(line[:_LONGEST])}
    found.update(_counted(lines, known.counters) if known.counters else ())
    if found:
        # `fabtui.nodeset.count` would load ClusterShell before the first frame.
        text = known.found.replace("{count}", f"{len(found)} line{'s' * (len(found) != 1)}")
        return OutputJudgement(text, frozenset(found) if known.mark else frozenset())
    complete = run.end.exit == 0 and not run.end.problem and not run.end.dropped
    return OutputJudgement(known.clear if complete else "")


def _counted(lines: Sequence[str], counters: Collection[str]) -> Iterator[int]:
    for at, (heading, line) in enumerate(itertools.pairwise(lines), 1):
        # The numbers are below the last words of the heading: "RX: bytes packets errors", "RX errors: length crc".
        names = heading[:_LONGEST].rpartition(":")[2].split()
        numbers = line[:_LONGEST].split()
        if len(names) == len(numbers) and any(
            name in counters and number.isdigit() and int(number) for name, number in zip(names, numbers, strict=True)
        ):
            yield at
