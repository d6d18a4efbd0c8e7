"""Stages at which libraries and tools fail: what a line shows that has no entry in the catalogue of errors."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from fabtui.diagnosis.knowledge.error_catalogue import Meaning, meanings
from fabtui.diagnosis.knowledge.error_numbers import number_in, tables_of
from fabtui.diagnosis.knowledge.pattern_words import LinePattern, words_of
from fabtui.diagnosis.knowledge.toml_data import entries

#: Maximum number of characters of a line that are searched.
_LONGEST = 1_000
#: How the ids of failures begin that are known by their stage.
_STAGE = "stage-"
#: A source file with its line; the first of a line is where it was printed.
_FILE = re.compile(
    r"(?:^|[\s\[(])((?:/|\.{1,2}/)?(?:[\w.+-]{1,80}/){0,16}[\w.+-]{1,80}\.(?:cc|cpp|cu|hpp|h|c)):\d{1,7}\b", re.ASCII
)
#: A call that returned a result other than success, in the log of NCCL: ``transport/nvls.cc:409 -> 1``.
_RETURNED = LinePattern(r"\bNCCL INFO (?:\S{1,120}?)?[\w.-]{1,60}\.(?:cc|cu|h|cpp):\d{1,7} -> ([1-689])\b", re.ASCII)
#: A failure that a library reports, whose words show the stage.
_REPORTED = LinePattern(
    r"\b[NR]CCL (?:WARN|ERROR)\b|\bDist(?:Backend|Network|Store)Error\b|\bRendezvous\w{0,20}Error\b"
    r"|\bgloo/\S{1,80}\.(?:cc|h):\d"
    r"|(?:^|[\s/])(?:include|transport|misc|graph)/[\w/.-]{1,60}:\d{1,7} WARN "
    r"|\[-?\d{1,3}\] \w{1,40}\.(?:cc|cu|h):\d{1,7} WARN "
    r"|(?:Error|Exception): .{0,200}\b(?:NCCL|RCCL|Gloo|GLOO|c10d|ProcessGroup\w{0,10}|process group|TCPStore)\b"
)
#: A failure of which only the source file shows the stage: logs of other programs look alike.
_LOGGED = LinePattern(r"\[[EF] ?(?:\d{3,4} )?[^\]]{0,60}\.cpp:\d{1,7}\]")


class Stage(NamedTuple):
    """A stage at which a library or tool fails."""

    id: str  #: Stable name; entries of the catalogue of errors name it.
    files: LinePattern | None  #: Source files that belong to it.
    words: LinePattern  #: Words of its lines.
    evident: bool  #: Whether the words alone show which program wrote a line.
    meaning: Meaning  #: What its failure means.

    def counts(self, reported: bool, programs: frozenset[str]) -> bool:
        """Return True if its words show the stage of a line.

        Args:
            reported: Whether the line is the report of a library.
            programs: The programs that the log names.
        """
        return self.meaning.within in programs if self.meaning.within else reported or self.evident


@functools.cache
def stages() -> tuple[Stage, ...]:
    """Return the stages of ``stages.toml``; the first match counts."""
    return tuple(
        Stage(
            one["id"],
            LinePattern(one["files"]) if "files" in one else None,
            LinePattern(one["words"]),
            one.get("evident", False),
            Meaning(
                **{"id": f"{_STAGE}{one['id']}", "code": one["code"], "prints": "", "pattern": None, "kind": ""},
                **{"text": f"{one['fails']} failed", "next": one["next"], "refines": "", "when": "", "follows": ()},
                commands=tuple(("node", command) for command in one.get("node", ())),
                role=one.get("role", "cause"),
                within=one.get("within", ""),
            ),
        )
        for one in entries("stages", "stage")
    )


def explained_errors() -> tuple[Meaning, ...]:
    """Return all that has a code of errors: the catalogue, then the stages."""
    return (*meanings(), *(stage.meaning for stage in stages()))


def is_stage(meaning: Meaning) -> bool:
    """Return True if a failure is known by its stage alone: the catalogue has no entry about it."""
    return meaning.id.startswith(_STAGE)


@functools.cache
def stage_words() -> tuple[bytes, ...]:
    """Return words: the form (`form_of`) of each line that `stage_failure` knows by itself has one of them."""
    patterns = (_REPORTED, _LOGGED, *(one.words for one in stages() if one.evident))
    words = {word for pattern in patterns for word in words_of(pattern.pattern) or (b"",)}
    return (*words, *(f"{end}: -> ".encode() for end in (".cc", ".cu", ".h", ".cpp")))


def stage_of_file(path: str) -> str | None:
    """Return the id of the stage to which a source file belongs, or None."""
    found = _by_file(path)
    return None if found is None else found.id


class StageForm(NamedTuple):
    """Possible contents of the lines of one form, as to their stage."""

    stages: tuple[Stage, ...]  #: Stages whose words they may have.
    tables: tuple[str, ...]  #: Tables that may have their number (`number_in`).
    reported: bool  #: Whether a library may report a failure in them.


def stage_form(form: str) -> StageForm:
    """Return what lines of a form (`form_of`) may show of a stage."""
    found = tuple(one for one in stages() if one.words.may_match(form))
    return StageForm(found, tables_of(form), _REPORTED.may_match(form))


def stage_failure(
    line: str,
    reported: bool = False,
    returned: str = "",
    programs: frozenset[str] = frozenset(),
    form: StageForm | None = None,
) -> Meaning | None:
    """Return what a line reports as a failure, by its stage and the number of the error; None if it shows no stage.

    Args:
        line: The line.
        reported: Whether the lines before it show that a library reports a failure here.
        returned: The line of a call that returned this failure, whose file shows the stage.
        programs: The programs that the log names.
        form: What the form of the line lets it show; None to search for everything.
    """
    text, shows = line[:_LONGEST], returned[:_LONGEST] or line[:_LONGEST]
    reported = reported or ((form is None or form.reported) and _REPORTED.search(text) is not None)
    found = None
    if (reported or returned or _LOGGED.search(text) or _RETURNED.search(text)) and (file := _FILE.search(shows)):
        found = _by_file(file[1])
    if found is None:
        among = stages() if form is None else form.stages
        found = next((one for one in among if one.counts(reported, programs) and one.words.search(text)), None)
    if found is None:
        return None
    number = number_in(text, *(form.tables if form else ())) if form is None or form.tables else None
    number = number or (number_in(shows) if returned else None)
    if number is None:
        return found.meaning._replace(prints=found.meaning.text)
    sentence = f"{found.meaning.text} with {number.sentence}"
    following = f"{number.advice} {found.meaning.next}".strip()
    return found.meaning._replace(text=sentence, prints=sentence, next=following)


def is_general(failure: Meaning) -> bool:
    """Return True for a failure in code that all stages use: the calls that returned it show its stage."""
    return failure.id in ("stage-gpu", "stage-init")


def returned_failure(line: str) -> bool:
    """Return True if a line of NCCL's log shows that a call failed: ``transport/nvls.cc:409 -> 1``."""
    return _RETURNED.search(line) is not None


@functools.lru_cache(maxsize=1024)
def _by_file(path: str) -> Stage | None:
    return next((one for one in stages() if one.files is not None and one.files.search(f"/{path}")), None)
