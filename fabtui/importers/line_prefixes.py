"""Prefixes of the lines of a text: rank tags, dates, logging frameworks, mail quotes, escape sequences, indents.

A prefix is removed when most lines have it. Whether that was right is not decided here: a date before a line of the
kernel's log belongs to it, the same date before a table does not. The caller reads each variant and keeps the one that
gives most.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator
from typing import NamedTuple

from fabtui_node.parsers.lines import without_escapes

#: The part of all lines that has a prefix, and how many lines are looked at.
_SHARE = 0.6
_LOOK = 400
#: More layers than a launcher, a logging framework and a container's log put before a line.
_MOST_LAYERS = 6
#: A label of hosts or files is one of few: at least this number of lines have the same.
_LINES_EACH = 3

_DAY = r"\d{4}[-/]\d\d[-/]\d\d"
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_ZONE = r"(?:\s?Z|\s?[+-]\d\d:?\d\d|\s(?:UTC|GMT))?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|SUCCESS|WARN|WARNING|ERROR|CRITICAL|FATAL)"
_STAMP = (
    rf"(?:{_DAY}[T ]{_TIME}{_ZONE}|(?:[A-Z][a-z]{{2}} )?{_MONTH} [ \d]?\d {_TIME}(?: [A-Z]{{2,5}})?(?: \d{{4}})?"
    rf"|{_TIME}|\d{{10}}\.\d{{3,9}})"
)
#: The PCI address of a device is a value, not a prefix with colons.
_NO_DEVICE = r"(?![0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"
#: How a tag begins that is one by its brackets, even on a single line.
_TAG = rf"[ \t]*{_NO_DEVICE}(?:(?P<who>\["
#: Prefixes; a group ``who`` is the process, the host or the file that a line is of.
_PATTERNS = tuple(
    re.compile(rf"[ \t]*{_NO_DEVICE}(?:{pattern})", re.ASCII)
    for pattern in (
        # mpirun --tag-output, torchrun, PyTorch's own tag, Ray, kubectl --prefix, docker compose.
        r"(?P<who>\[\d{1,6},\d{1,6}\])<(?:std(?:out|err)|\.{3})>:?",
        r"(?P<who>\[[^\]\s]{1,80}:\d{1,9}\])<std(?:out|err)>:?",
        r"(?P<who>\[(?:default|rank|Rank |r)?\d{1,6}\]):?",
        r"(?P<who>\([\w.:]{1,60} pid=\d{1,9}(?:, ip=[\d.:a-f]{1,45})?\))",
        r"(?P<who>\[(?:pod|container|job|task|node|host)[\w./=: -]{1,120}\]):?",
        r"(?P<who>[\w.-]{1,80}) {1,20}\|",
        # Mail, and a table pasted into one.
        r"(?:> ?)*>",
        r"\|",
        # Logging frameworks: glog, Python, loguru, container runtimes, syslog.
        rf"[IWEF]\d{{4}} {_TIME} +\d{{1,9}} [\w./-]{{1,120}}:\d{{1,6}}\]",
        rf"{_LEVEL}:[\w.]{{1,80}}:",
        rf"{_LEVEL} \d\d-\d\d {_TIME} (?:\[[\w./-]{{1,120}}:\d{{1,6}}\]|[\w./-]{{1,120}}:\d{{1,6}}\])",
        rf"{_MONTH} [ \d]?\d {_TIME} (?P<who>[\w.-]{{1,253}}) [\w./@-]{{1,80}}(?:\[\d{{1,9}}\])?:",
        rf"{_DAY}T{_TIME}{_ZONE} (?P<who>[\w.-]{{1,253}}) [\w./@-]{{1,80}}(?:\[\d{{1,9}}\])?:",
        rf"{_STAMP} std(?:out|err) [FP]",
        rf"{_STAMP} \| {_LEVEL} {{0,10}}\| [\w.:<>-]{{1,200}} -",
        rf"(?:\[{_STAMP}\]|{_STAMP})(?: ?[-:](?= ))?",
        rf"\[{_LEVEL} {{0,4}}\](?: ?[-:](?= ))?",
        rf"(?:- ?)?{_LEVEL} {{0,4}}-",
        rf"(?:\| ?)?{_LEVEL} {{0,10}}\|",
        rf"{_LEVEL} {{0,4}}:?",
        r"\[[\w.<>/-]{1,120}\.py:\d{1,6}(?::[\w.<>]{1,80})?\]:?",
        r"[\w.]{1,80} -(?= )",
        # Numbers of lines, srun --label, pdsh, grep over several files.
        r"\d{1,9}\t",
        r"(?P<who>\d{1,7}):",
        r"(?P<who>[\w./-]{1,200}):",
        r"\d{1,9}:",
    )
)


#: A word that a page shows in bold: ``**5544.28**``.
_BOLD = re.compile(r"\*\*([\w.][^*\s]{0,80})\*\*")


class Prefix(NamedTuple):
    """A prefix that most lines have.

    Attributes:
        pattern: The prefix, from the line's start.
        who: True if it names of which process, host or file a line is, and there are several.
        weak: True if so few lines have it that it may be the name of a program.
    """

    pattern: re.Pattern[str]
    who: bool
    weak: bool = False


class Variant(NamedTuple):
    """A text with prefixes removed.

    Attributes:
        layers: What is removed, in this order.
        by_who: True if lines of one process, host or file are put together.
    """

    layers: tuple[Prefix, ...] = ()
    by_who: bool = False

    def of(self, text: str) -> str:
        """Return the text without these prefixes."""
        lines = normal_lines(text)
        for layer in self.layers:
            if layer.who and self.by_who:
                lines = _together(lines, layer.pattern)
            lines = [layer.pattern.sub("", line, count=1) for line in lines]
        return "\n".join(lines)

    def labels(self, text: str) -> list[str]:
        """Return whose lines are put together, in the order in which they appear."""
        lines = normal_lines(text)
        for layer in self.layers:
            if layer.who and self.by_who:
                found = (match for line in lines if (match := layer.pattern.match(line)))
                return list(dict.fromkeys(match["who"].strip("[]()") for match in found))
            lines = [layer.pattern.sub("", line, count=1) for line in lines]
        return []


def normal_lines(text: str) -> list[str]:
    """Return the lines of a text without escape sequences, trailing blanks and marks of bold words.

    Blanks that do not break are plain ones.
    """
    text = without_escapes(text).replace("\u00a0", " ").replace("\u200b", "")
    if "**" in text:
        text = _BOLD.sub(r"\1", text)
    return [line.rstrip("\r ") for line in text.split("\n")]


def variants(text: str) -> Iterator[Variant]:
    """Yield what may be removed from a text, from nothing but escape sequences to all layers."""
    layers: tuple[Prefix, ...] = ()
    lines = _sampled(normal_lines(text))
    yield Variant()
    while lines and len(layers) < _MOST_LAYERS:
        layer = _prefix(lines)
        if layer is None:
            return
        layers = (*layers, layer)
        yield Variant(layers)
        if any(layer.who for layer in layers):
            yield Variant(layers, by_who=True)
        lines = [rest for line in lines if (rest := layer.pattern.sub("", line, count=1)).strip()]


def _sampled(lines: list[str]) -> list[str]:
    """Return lines from the beginning, the middle and the end, without blank ones."""
    lines = [line for line in lines if line.strip()]
    if len(lines) <= 3 * _LOOK:
        return lines
    middle = len(lines) // 2
    return lines[:_LOOK] + lines[middle : middle + _LOOK] + lines[-_LOOK:]


def _prefix(lines: list[str]) -> Prefix | None:
    """Return the prefix that most of the lines have; of two that equally many have, the more particular one."""
    if indent := min(len(line) - len(line.lstrip(" \t")) for line in lines):
        return Prefix(re.compile(rf"[ \t]{{{indent}}}"), False)
    best: tuple[int, Prefix | None] = (0, None)
    for pattern in _PATTERNS:
        found = [match for line in lines if (match := pattern.match(line)) and match.end()]
        if len(found) < _SHARE * len(lines) or len(found) <= best[0]:
            continue
        labels = collections.Counter(match["who"] for match in found) if "who" in pattern.groupindex else None
        if labels is None or len(found) >= min(_LINES_EACH, len(lines)) * len(labels):
            weak = len(lines) < _LINES_EACH and labels is not None and not pattern.pattern.startswith(_TAG)
            best = len(found), Prefix(_with_blank(pattern, found), labels is not None and len(labels) > 1, weak)
    return best[1]


def _with_blank(pattern: re.Pattern[str], found: list[re.Match[str]]) -> re.Pattern[str]:
    """Return the pattern with the blank after it, if all lines have one: else it is an indent of some."""
    every = all(match.string[match.end() : match.end() + 1] in ("", " ") for match in found)
    return re.compile(f"{pattern.pattern} ?", re.ASCII) if every else pattern


def _together(lines: list[str], pattern: re.Pattern[str]) -> list[str]:
    """Return the lines by their label, in the order in which labels appear; one without goes with the line before."""
    found: dict[str, list[str]] = {}
    label = ""
    for line in lines:
        if (match := pattern.match(line)) and match.end():
            label = match["who"]
        found.setdefault(label, []).append(line)
    return [line for of_one in found.values() for line in of_one]
