"""Next steps as commands that can be run: on which node, with which words, whether they only read; their output."""

from __future__ import annotations

import functools
import itertools
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import msgspec

from fabtui.diagnosis.knowledge import load
from fabtui.model.session_logs import CommandRun
from fabtui.model.session_model import Model
from fabtui.nodeset import count
from fabtui.transport.registry import LAUNCHED, command_on_node

#: Maximum length of a line that is searched.
_LONGEST = 500
#: Options of ssh that take a value.
_SSH_VALUES = frozenset("BbcDEeFIiJLlmOopQRSWw")
#: What a shell would expand or take for itself.
_SHELL = re.compile(r"[$`\\\n*?\[\]{}~!#]")
#: Operators of a shell, as `shlex` separates them from words.
_OPERATOR = re.compile(r"[();<>|&]+")
#: Texts that mean the same to grep and to a comparison.
_LITERAL = re.compile(r"[\w ,:/=-]+")
_GREP = re.compile(r"-(?P<flags>[iE]*)(?:A(?P<after>\d{1,3}))?")
_TAIL = re.compile(r"-(?:n ?)?(\d{1,3})")
_ASSIGNMENT = re.compile(r"\w+=")


class CannotRunError(ValueError):
    """A next step cannot be run here; the text is a sentence with the reason."""


@dataclass(frozen=True)
class LineFilter:
    """Filter of lines, applied on the node: those with one of some texts, and a number of lines after each."""

    words: tuple[str, ...]
    ignore_case: bool = False
    after: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"words": list(self.words)}


@dataclass(frozen=True)
class StepCommand:
    """Command of a next step."""

    text: str  #: The next step as it is shown.
    node: str  #: Where it runs.
    argv: tuple[str, ...]  #: Its words.
    greps: tuple[LineFilter, ...] = ()  #: Filters of its lines, in turn.
    last: int = 0  #: Number of last lines to keep; 0 for all.

    @property
    def read_only(self) -> bool:
        """True if it is known to change nothing."""
        return is_read_only(self.argv)


@functools.cache
def _read_only_patterns() -> dict[str, re.Pattern[str]]:
    table = load("read_only_commands")
    word = table["word"]
    return {
        name: re.compile("|".join(f"(?:{one.replace('WORD', word)})" for one in shapes))
        for name, shapes in table["commands"].items()
    }


def is_read_only(argv: Sequence[str]) -> bool:
    """Return True if the list of read-only commands has a command with these arguments."""
    pattern = _read_only_patterns().get(argv[0])
    # A space within a word would let one argument pass for several.
    return (
        pattern is not None
        and not any(re.search(r"\s", word) for word in argv)
        and bool(pattern.fullmatch(" ".join(argv[1:])))
    )


def step_command(model: Model, text: str) -> StepCommand:
    """Return the command of a next step.

    Raises:
        CannotRunError: It is not a single command for a node of the session.
    """
    launched = _launched(model, text)
    first, *rest = _stages(text if launched is None else launched[1])
    if launched is not None:
        node = launched[0]
    elif first[0] == "fabtui":
        raise CannotRunError("This step runs fabtui itself on this machine, outside of this session.")
    elif first[0] == "ssh":
        node, remote = _after_ssh(first)
        # The shell of the node takes the words of ssh apart again.
        first, *there = _stages(remote)
        rest = [*there, *rest]
    else:
        raise CannotRunError("This step names no node to run on.")
    if node not in model.nodes:
        raise CannotRunError(f"{node} is not a node of this session.")
    if _is_of_shell(first[0]):
        raise CannotRunError(f"{first[0]} depends on a login shell on {node}, and steps run without a shell.")
    greps, last = _filters(rest)
    return StepCommand(str(text), node, tuple(first), greps, last)


def needs_shell(step: str) -> bool:
    """Return True if the command of a next step for a node works in a shell only, or in that of a login."""
    try:
        first, *rest = _stages(getattr(step, "remote", ""))
        if len(first) == 1:
            # The shell of the node takes a quoted command apart.
            first, *rest = _stages(first[0]) + rest
        _filters(rest)
    except (CannotRunError, IndexError):
        return True
    return _is_of_shell(first[0])


def _is_of_shell(word: str) -> bool:
    return bool(_ASSIGNMENT.match(word)) or word in load("read_only_commands")["shell_only"]


def _stages(text: str) -> list[list[str]]:
    if "\n" in text:
        raise CannotRunError("This step needs a shell (several lines), and steps run without one.")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise CannotRunError(f"This step is not a complete command ({error}).") from None
    stages: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            stages.append([])
        elif _OPERATOR.fullmatch(word):
            raise CannotRunError(f"This step needs a shell ({word}), and steps run without one.")
        else:
            stages[-1].append(word)
    if not all(stages):
        raise CannotRunError("This step is not a complete command.")
    # The first word of a later stage decides what its other words may be.
    for word in stages[0] if stages[0][0] != "ssh" else ():
        if found := _SHELL.search(word):
            raise CannotRunError(f"This step needs a shell ({found[0]!r}), and steps run without one.")
    return stages


def _after_ssh(words: Sequence[str]) -> tuple[str, str]:
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at][-1] in _SSH_VALUES and len(words[at]) == 2 else 1
    if len(words) < at + 2:
        raise CannotRunError("This step only logs in.")
    return words[at], " ".join(words[at + 1 :])


def _launched(model: Model, text: str) -> tuple[str, str] | None:
    """Return the node and the command of a step that is written for a launcher; None for any other."""
    for node, record in model.nodes.items():
        if record.backend in LAUNCHED:
            prefix = command_on_node(model.options, node, "", record.backend).strip() + " "
            if text.startswith(prefix):
                return node, text[len(prefix) :]
    return None


def _filters(stages: Sequence[Sequence[str]]) -> tuple[tuple[LineFilter, ...], int]:
    """Return the filters that the later commands of a pipe are; only plain ones can be applied faithfully."""
    greps: list[LineFilter] = []
    last = 0
    for stage in stages:
        name, words = stage[0], stage[1:]
        if name == "tail" and not last and (found := _TAIL.fullmatch(" ".join(words) or "-10")):
            last = int(found[1])
        elif name == "grep" and not last and (one := _grep(words)) is not None:
            greps.append(one)
        else:
            raise CannotRunError(f"This step pipes into {shlex.join(stage)}, and steps run without a shell.")
    return tuple(greps), last


def _grep(words: Sequence[str]) -> LineFilter | None:
    *options, pattern = words or [""]
    flags, after = "", 0
    for option in options:
        match = _GREP.fullmatch(option)
        if match is None:
            return None
        flags += match["flags"]
        after = int(match["after"] or after)
    texts = pattern.split("|") if "E" in flags else [pattern]
    if not all(_LITERAL.fullmatch(text) for text in texts):
        return None
    return LineFilter(tuple(texts), "i" in flags, after)


class OutputJudgement(NamedTuple):
    """Judgement of the output of a command."""

    sentence: str = ""  #: What it means; "" if nothing is known of such outputs.
    marked: frozenset[int] = frozenset()  #: Numbers of the abnormal lines, from 0 on.


class _Known(msgspec.Struct, frozen=True):
    """Known output of a command, see ``step_outputs.toml``."""

    command: re.Pattern[str]
    lines: re.Pattern[str]
    found: str
    clear: str
    mark: bool = True
    counters: frozenset[str] = frozenset()


@functools.cache
def _known() -> tuple[_Known, ...]:
    return msgspec.convert(load("step_outputs")["output"], tuple[_Known, ...], dec_hook=lambda _, p: re.compile(p))


def judged_output(run: CommandRun, lines: Sequence[str]) -> OutputJudgement:
    """Return what the output of a command shows; ``lines``: its lines."""
    words = [word for at, word in enumerate(run.start.argv) if at or word != "sudo"]
    known = next((one for one in _known() if one.command.fullmatch(" ".join(words))), None)
    if known is None or run.end is None:
        return OutputJudgement()
    marked = {at for at, line in enumerate(lines) if known.lines.search(line[:_LONGEST])}
    marked.update(_counted(lines, known.counters) if known.counters else ())
    if marked:
        text = known.found.replace("{count}", count(len(marked), "line"))
        return OutputJudgement(text, frozenset(marked) if known.mark else frozenset())
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
