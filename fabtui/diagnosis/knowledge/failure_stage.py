"""Stages at which libraries and tools fail: what a line shows that has no entry in the catalogue of errors."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from fabtui.diagnosis.knowledge import load
from fabtui.diagnosis.knowledge.error_catalogue import Meaning, meanings
from fabtui.diagnosis.knowledge.error_numbers import number_in
from fabtui.diagnosis.knowledge.pattern_set import PatternSet

#: Maximum number of characters of a line that are searched.
_LONGEST = 1_000
#: How the ids of failures begin that are known by their stage.
_STAGE = "stage-"
#: A source file with its line; the first of a line is where it was printed.
_FILE = re.compile(
    r"(?:^|[\s\[(])((?:/|\.{1,2}/)?(?:[\w.+-]{1,80}/){0,16}[\w.+-]{1,80}\.(?:cc|cpp|cu|hpp|h|c)):\d{1,7}\b", re.ASCII
)
#: A call that returned a result other than success, in the log of NCCL: ``transport/nvls.cc:409 -> 1``.
_RETURNED = re.compile(r"\bNCCL INFO (?:\S{1,120}?)?[\w.-]{1,60}\.(?:cc|cu|h|cpp):\d{1,7} -> ([1-689])\b", re.ASCII)
#: A failure that a library reports, whose words show the stage.
_REPORTED = re.compile(
    r"\b[NR]CCL (?:WARN|ERROR)\b|\bDist(?:Backend|Network|Store)Error\b|\bRendezvous\w{0,20}Error\b"
    r"|\bgloo/\S{1,80}\.(?:cc|h):\d"
    r"|(?:^|[\s/])(?:include|transport|misc|graph)/[\w/.-]{1,60}:\d{1,7} WARN "
    r"|\[-?\d{1,3}\] \w{1,40}\.(?:cc|cu|h):\d{1,7} WARN "
    r"|(?:Error|Exception): .{0,200}\b(?:NCCL|RCCL|Gloo|GLOO|c10d|ProcessGroup\w{0,10}|process group|TCPStore)\b"
)
#: A failure of which only the source file shows the stage: logs of other programs look alike.
_LOGGED = re.compile(r"\[[EF] ?(?:\d{3,4} )?[^\]]{0,60}\.cpp:\d{1,7}\]")


class Stage(NamedTuple):
    """A stage at which a library or tool fails."""

    id: str  #: Stable name; entries of the catalogue of errors name it.
    files: str  #: Pattern of the source files that belong to it, or "".
    words: str  #: Pattern of the words of its lines.
    evident: bool  #: Whether the words alone show which program wrote a line.
    meaning: Meaning  #: What its failure means.

    def counts(self, reported: bool, programs: frozenset[str]) -> bool:
        """Return True if its words show the stage of a line, which a library has reported, in a log of programs."""
        return self.meaning.within in programs if self.meaning.within else reported or self.evident


@functools.cache
def stages() -> tuple[Stage, ...]:
    """Return the stages of ``stages.toml``; the first match counts."""
    return tuple(
        Stage(
            one["id"],
            one.get("files", ""),
            one["words"],
            one.get("evident", False),
            Meaning(
                **{"id": f"{_STAGE}{one['id']}", "code": one["code"], "prints": "", "pattern": None, "kind": ""},
                **{"text": f"{one['fails']} failed", "next": one["next"], "refines": "", "when": "", "follows": ()},
                commands=tuple(("node", command) for command in one.get("node", ())),
                role=one.get("role", "cause"),
                within=one.get("within", ""),
            ),
        )
        for one in load("stages")["stage"]
    )


def explained_errors() -> tuple[Meaning, ...]:
    """Return all that has a code of errors: the catalogue, then the stages."""
    return (*meanings(), *(stage.meaning for stage in stages()))


def is_stage(meaning: Meaning) -> bool:
    """Return True if a failure is known by its stage alone: the catalogue has no entry about it."""
    return meaning.id.startswith(_STAGE)


@functools.cache
def _patterns() -> PatternSet[Stage]:
    return PatternSet((stage, stage.words) for stage in stages())


def evident_patterns() -> Iterator[str]:
    """Yield patterns: each line that `stage_failure` knows by itself matches one of them."""
    yield from (_REPORTED.pattern, _LOGGED.pattern, _RETURNED.pattern)
    yield from (stage.words for stage in stages() if stage.evident)


@functools.lru_cache(maxsize=4096)
def stage_failure(
    line: str, reported: bool = False, returned: str = "", programs: frozenset[str] = frozenset()
) -> Meaning | None:
    """Return what a line reports as a failure, by its stage and the number of the error; None if it shows no stage.

    Args:
        line: The line.
        reported: Whether the lines before it show that a library reports a failure here.
        returned: The line of a call that returned this failure, whose file shows the stage.
        programs: The programs that the log names.
    """
    text, shows = line[:_LONGEST], returned[:_LONGEST] or line[:_LONGEST]
    found = None
    # Most lines name no file and have no words of a stage, and what reports a failure takes long to see.
    if (".c" in shows or ".h" in shows) and (file := _FILE.search(shows)):
        fails = reported or returned or any(form.search(text) for form in (_REPORTED, _LOGGED, _RETURNED))
        found = stage_of_file(file[1]) if fails else None
    if found is None and (shown := _patterns().owners(text)):
        reported = reported or _REPORTED.search(text) is not None
        counted = (stage for stage in shown if stage.counts(reported, programs))
        found = next((stage for stage in counted if re.search(stage.words, text)), None)
    if found is None:
        return None
    number = number_in(text) or (number_in(shows) if returned else None)
    # What a daemon returned is no status of a NIC.
    if number is None or (number.table == "completion" and found.id in ("service", "launcher")):
        return found.meaning._replace(prints=found.meaning.text)
    sentence = f"{found.meaning.text} with {number.sentence}"
    if number.alone:
        return found.meaning._replace(text=sentence, prints=sentence, next=number.advice, commands=())
    following = f"{number.advice} {found.meaning.next}".strip()
    return found.meaning._replace(text=sentence, prints=sentence, next=following)


def is_general(failure: Meaning) -> bool:
    """Return True for a failure in code that all stages use: the calls that returned it show its stage."""
    return failure.id in ("stage-gpu", "stage-init")


def returned_failure(line: str) -> bool:
    """Return True if a line of NCCL's log shows that a call failed: ``transport/nvls.cc:409 -> 1``."""
    return _RETURNED.search(line) is not None


@functools.lru_cache(maxsize=1024)
def stage_of_file(path: str) -> Stage | None:
    """Return the stage to which a source file belongs, or None."""
    return next((one for one in stages() if one.files and re.search(one.files, f"/{path}")), None)
