"""Result of reading one text: its kind, its values with their units, and lines not understood.

Lines may have prefixes, which are removed if the text then has a likelier format, or more values in the same one. Lines
that a terminal, a pager or a mail program cut at its width are joined again.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from fabtui.importers.catalogue import UNKNOWN, Guess, chosen, recognise
from fabtui.importers.sources import Source
from fabtui.sanitize import clean
from fabtui_node.parsers.base import UNKNOWN_LINES, Format, Reading
from fabtui_node.parsers.lines import without_escapes

# Prefixes of the lines of a text: rank tags, dates, logging frameworks, mail quotes, escape sequences, indents.
#
# A prefix is removed when most lines have it. Whether that was right is not decided by it: a date before a line of the
# kernel's log belongs to it, the same date before a table does not. Each variant is read, and the one that gives most
# is kept.

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
        # Logging frameworks: glog and PyTorch (E704 is 4 July), Python, loguru, container runtimes, syslog.
        rf"[IWEF]\d{{3,4}} {_TIME} +\d{{1,9}} [\w./-]{{1,120}}:\d{{1,6}}\]",
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


#: The prompt of a shell without a command, which is below what was copied, and the mark of quoted code.
_PROMPT_ALONE = re.compile(r"\s{0,8}\[?[\w.-]{1,60}@[\w.-]{1,80}[: ][^$#\n]{0,120}?\]?[$#]\s{0,8}", re.ASCII)
_FENCE = re.compile(r"^[ \t>]{0,8}(?:```|~~~)\w{0,20}[ \t\r]{0,8}$", re.MULTILINE)
#: A command after a prompt: the output of the next command begins.
_COMMAND = re.compile(r"^(?:\$|\[?[\w.-]{1,60}@[\w.-]{1,80}[: ][^$#\n]{0,120}?\]?[$#]) (?=[\w./])", re.MULTILINE)
#: A stamp, with its year, or the prompt of a shell before the first line alone; what follows it is in that line.
_FIRST = re.compile(
    rf"[ \t\n]{{0,20}}(?:(?>\[{_STAMP}\]|{_STAMP})"
    r"|\[?[\w.-]{1,60}@[\w.-]{1,80}[: ][^$#\n]{0,120}?\]?[$#]|[$%]) (?=[ \t]{0,80}\S)",
    re.ASCII,
)
#: Widths (characters) at which terminals and mail programs cut; prefixes such as ``> `` are on top of that.
_NARROWEST, _WIDEST = 80, 144
#: Maximum part of the lines that may be longer than the width: words around what was pasted.
_LONGER = 0.1
#: Maximum length of a text (characters): a copy out of a terminal is no longer.
_LONGEST = 8 << 20
_QUOTE = re.compile(r"(?:> ?)+|\| ")
_TOKEN = re.compile(r"[^\s\[]{0,2}\[?[^\s\[]{0,40}")
#: A time stamp with which a line of a log begins; a cut hardly falls just before one.
_LINE_STAMP = re.compile(r"\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?!\d)")
#: How a record of a program begins, and with how many characters two records of one may begin alike.
_HEAD = re.compile(
    r"(?:[\w.-]{2,40}(?:\[\d{1,9}\])?: (?:error|warning|Warning|fatal|info|debug)\b|(?:WARN|ERROR|INFO|DEBUG)\b"
    r"|\(\w{1,40} pid="
    r"|/\S{1,200}\.(?:c|cc|cpp|cu|h)[: ]|Traceback |E\d{4} |W\d{4} )",
    re.ASCII,
)
_SAME = 8
#: A day at the end of a line, whose time of day follows.
_DAY_AT_END = re.compile(r"\d{4}-\d\d-\d\d[T ]?$")
_LETTERS, _DIGITS = re.compile(r"[A-Za-z]+"), re.compile(r"\d+")
#: Characters at the beginning and at the end of a long text by which is decided what to remove.
_PART = 256 * 1024
#: A variant with at least this part of the values of the best one is no worse.
_ENOUGH = 0.8
#: Labels of processes that are shown.
_SHOWN = 4
#: A text whose cut lines are joined has at least this part of the values: the rests of lines were taken for lines.
_HALF = 0.5
#: Widths of terminals: at these a single line is cut by one, not the longest of the text by chance.
USUAL_WIDTHS = frozenset((80, 100, 120, 132, 138))
#: Depth to which values are counted.
_DEEP = 40
#: Maximum commands of a paste that are read one by one.
_MOST_COMMANDS = 64
#: Maximum characters kept of a text that is not recognised.
MOST_RAW = 256 * 1024


class Prefix(NamedTuple):
    """A prefix that most lines have."""

    pattern: re.Pattern[str]  #: The prefix, from the line's start.
    who: bool  #: True if it names of which process, host or file a line is, and there are several.
    weak: bool = False  #: True if so few lines have it that it may be the name of a program.


class Variant(NamedTuple):
    """A text with prefixes removed."""

    layers: tuple[Prefix, ...] = ()  #: What is removed, in this order.
    by_who: bool = False  #: True if lines of one process, host or file are put together.
    first: bool = False  #: True if a stamp or prompt before the first line is removed.

    def of(self, text: str) -> str:
        lines = normal_lines(_FIRST.sub("", text, count=1) if self.first and _FIRST.match(text) else text)
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
                matches = (match for line in lines if (match := layer.pattern.match(line)))
                return list(dict.fromkeys(match["who"].strip("[]()") for match in matches))
            lines = [layer.pattern.sub("", line, count=1) for line in lines]
        return []


def normal_lines(text: str) -> list[str]:
    """Return the lines of a text without escape sequences and trailing blanks; blanks that do not break are plain."""
    text = without_escapes(text).replace("\u00a0", " ").replace("\u200b", "")
    lines = [line.rstrip("\r ") for line in text.split("\n")]
    return ["" if "@" in line and _PROMPT_ALONE.fullmatch(line) else line for line in lines]


def variants(text: str) -> Iterator[Variant]:
    """Yield what may be removed from a text, from nothing but escape sequences to all layers."""
    layers: tuple[Prefix, ...] = ()
    lines = _sampled(normal_lines(text))
    yield Variant()
    if _FIRST.match(text):
        yield Variant(first=True)
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
        matches = [match for line in lines if (match := pattern.match(line)) and match.end()]
        if len(matches) < _SHARE * len(lines) or len(matches) <= best[0]:
            continue
        labels = collections.Counter(match["who"] for match in matches) if "who" in pattern.groupindex else None
        if labels is None or len(matches) >= min(_LINES_EACH, len(lines)) * len(labels):
            weak = len(lines) < _LINES_EACH and labels is not None and not pattern.pattern.startswith(_TAG)
            # The blank after it is part of it, if all lines have one: else it is an indent of some.
            blank = all(match.string[match.end() : match.end() + 1] in ("", " ") for match in matches)
            whole = re.compile(f"{pattern.pattern} ?", re.ASCII) if blank else pattern
            best = len(matches), Prefix(whole, labels is not None and len(labels) > 1, weak)
    return best[1]


def _together(lines: list[str], pattern: re.Pattern[str]) -> list[str]:
    """Return the lines by their label, in the order in which labels appear; one without goes with the line before."""
    by_label: dict[str, list[str]] = {}
    label = ""
    for line in lines:
        if (match := pattern.match(line)) and match.end():
            label = match["who"]
        by_label.setdefault(label, []).append(line)
    return [line for of_one in by_label.values() for line in of_one]


class Recognised(NamedTuple):
    """A format, and the reading of a text in it."""

    guess: Guess  #: The format, how likely it is, and others.
    reading: Reading | None  #: What was read; None if the format is not known.


@dataclass(frozen=True)
class _Candidate:
    """Format and reading of a variant of a text, which is read only where the format alone does not decide."""

    text: str
    variant: Variant
    guess: Guess

    @functools.cached_property
    def reading(self) -> Reading | None:
        return None if self.guess.format is None else self.guess.format.parse(self.text)

    @property
    def known(self) -> int:
        return 0 if self.reading is None else _count(self.reading.values)

    @property
    def missed(self) -> int:
        return 0 if self.reading is None else len(self.reading.unknown)


def recognised(text: str, named: Format | None = None) -> Recognised:
    """Return the format of a text, or the one that was named, and its reading.

    Prefixes are removed if the text then has a likelier format, or more values in the same one.
    """
    if (fences := _FENCE.split(text))[1:] and (quoted := "\n".join(fences[1::2])).strip():
        # A report has its outputs between marks, and talk around them.
        inside = recognised(quoted, named)
        if inside.reading is not None:
            return inside
    best = _best(text, named)
    joined = unwrapped(text)
    if joined is not None:
        other = _best(joined.text, named)
        if _read_better(other, best, ties=joined.cuts > 1 or joined.width in USUAL_WIDTHS):
            best, text = other, joined.text
        else:
            joined = None
    if (form := best.guess.format) is None:
        return Recognised(best.guess, None)
    part = _part(text)
    reading = best.reading if part is text else None
    if reading is None:
        reading = form.parse(best.variant.of(text))
    if joined is not None:
        warning = f"lines that were cut at {joined.width} characters are joined"
        reading = reading._replace(warnings=[warning, *reading.warnings][:UNKNOWN_LINES])
    if labels := best.variant.labels(part):
        more = f" and {len(labels) - _SHOWN} others" if len(labels) > _SHOWN else ""
        warning = f"outputs of {', '.join(labels[:_SHOWN])}{more} are read one after the other, without these names"
        reading = reading._replace(warnings=[warning, *reading.warnings][:UNKNOWN_LINES])
    return Recognised(best.guess, reading)


def _candidate(text: str, variant: Variant, named: Format | None) -> _Candidate:
    return _Candidate(text, variant, recognise(text) if named is None else Guess(named, 1.0, []))


def _part(text: str) -> str:
    """Return the part of a text by which is decided what to remove: all of it, or its two ends."""
    return text if len(text) <= 2 * _PART else text[:_PART] + "\n" + text[-_PART:]


def _best(text: str, named: Format | None) -> _Candidate:
    part = _part(text)
    plain = Variant()
    shown = plain.of(part)
    best = _candidate(shown, plain, named)
    seen = {shown}
    for variant in variants(part):
        shown = variant.of(part)
        if shown not in seen:
            seen.add(shown)
            other = _candidate(shown, variant, named)
            best = other if _better(other, best) else best
    return best


def _read_better(joined: _Candidate, best: _Candidate, ties: bool) -> bool:
    """Return True if a text with its lines joined is read better than before; with ``ties``, also if as well."""
    form = joined.guess.format
    if form is None:
        return False
    if form is not best.guess.format:
        return best.guess.format is None or joined.guess.sure > best.guess.sure
    if form.log and ties:
        # A line that is cut in two may have more values, and wrong ones.
        return joined.missed <= best.missed and joined.known >= _HALF * best.known
    if joined.missed < best.missed:
        # The rest of a cut row was taken for a row.
        return joined.known >= _HALF * best.known
    # More is shown of a whole line, even if it has no more values.
    return joined.missed == best.missed and (joined.known > best.known or (ties and joined.known == best.known))


def _better(other: _Candidate, best: _Candidate) -> bool:
    form = other.guess.format
    by_who = other.variant.by_who
    if form is None or (by_who and form.log):
        # Lines of a log stay in the order in which they happened.
        return False
    if best.guess.format is not form:
        return other.guess.sure > best.guess.sure or best.guess.format is None
    if other.guess.sure != best.guess.sure:
        return other.guess.sure > best.guess.sure
    if any(layer.weak for layer in other.variant.layers):
        return False
    if form.log:
        return other.known > best.known or (other.known == best.known and other.missed < best.missed)
    # A prefix is not part of a table: what more is read with it are mostly lines taken for something else. Outputs of
    # several processes, interleaved, may give as many values as one after another, and wrong ones.
    return other.missed < best.missed or (other.missed == best.missed and other.known >= _ENOUGH * best.known)


def _count(value: Any, depth: int = 0) -> int:
    if depth > _DEEP:
        return 0
    if isinstance(value, dict):
        return sum(_count(item, depth + 1) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_count(item, depth + 1) for item in value)
    return value is not None


class Result(NamedTuple):
    """Result of reading a text."""

    source: Source  #: The text and where it is from.
    kind: str  #: The name of its format, or ``unknown``.
    title: str  #: The title of the format.
    values: dict[str, Any]  #: What was understood; empty where the kind is unknown.
    units: dict[str, str]  #: The unit of each value in ``values`` that has one, by its name.
    warnings: list[str]  #: What the text complains of, and what makes it doubtful.
    unknown: list[str]  #: Lines that were not understood.
    others: list[str]  #: Other formats it may have, the most likely first.

    @property
    def known(self) -> bool:
        return self.kind != UNKNOWN

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object; the text itself is in it where its kind is unknown."""
        names = ("kind", "title", "values", "units", "warnings", "unknown")
        value: dict[str, Any] = {"file": self.source.name, **{name: getattr(self, name) for name in names}}
        if not self.known:
            value |= {"maybe": self.others, "raw": self.source.text[:MOST_RAW]}
        return _cleaned(value)  # type: ignore[no-any-return]


def parts(source: Source) -> list[Source]:
    """Return the outputs of several commands in one paste, each with its prompt; the text alone if it has one kind."""
    starts = [found.start() for found in _COMMAND.finditer(source.text)][:_MOST_COMMANDS]
    if len(starts) < 2:
        return [source]
    ends = [*starts[1:], len(source.text)]
    texts = [source.text[start:end] for start, end in zip([0, *starts[1:]], ends, strict=True)]
    kinds = [recognise(text).format for text in texts]
    if None in kinds or len({form.name for form in kinds if form}) < 2:
        return [source]
    return [
        source._replace(name=f"{source.name} ({number} of {len(texts)})", text=text)
        for number, text in enumerate(texts, 1)
    ]


def read(source: Source, kind: str | None = None) -> Result:
    """Parse a text in a format by its name; None: the likeliest.

    Raises:
        InputError: There is no format of that name.
    """
    guess, reading = recognised(source.text, None if kind is None else chosen(kind))
    form, others = guess.format, guess.others
    cut = [source.cut] if source.cut else []
    json = source.text.lstrip()[:1] in ("{", "[") and source.text.endswith(("}", "]"))
    if source.text.strip() and not json and not source.text.endswith(("\n", "\r")):
        cut.append("the text does not end with a newline: its last line may be cut off")
    if form is None or reading is None:
        why = "nothing in it" if not source.text.strip() else "format not recognised"
        if others:
            why = f"may be {' or '.join(others[:4])}; name it with --as"
        return Result(source, UNKNOWN, "not recognised", {}, {}, [*cut, why], [], others)
    names = _names(reading.values)
    units = {name: unit for name, unit in form.units.items() if name in names}
    warnings = [*cut, *reading.warnings]
    return Result(source, form.name, form.title, reading.values, units, warnings, reading.unknown, others)


def _names(value: Any, depth: int = 0) -> set[str]:
    if depth > 40:
        return set()
    if isinstance(value, dict):
        return {str(name) for name in value}.union(*(_names(item, depth + 1) for item in value.values()))
    if isinstance(value, (list, tuple)):
        # Rows of a list are alike; the first ones suffice.
        return set().union(*(_names(item, depth + 1) for item in value[:50]))
    return set()


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(name)): _cleaned(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(item) for item in value]
    return value


class Unwrapped(NamedTuple):
    """A text whose cut lines are joined."""

    text: str
    width: int  #: Where its lines were cut (characters).
    cuts: int  #: How many were.


def unwrapped(text: str, keep_count: bool = False) -> Unwrapped | None:
    """Return a text with its hard-wrapped lines joined, None if it does not look as if it had some.

    Cut lines have one length, and the next line continues in the middle of a word or sentence: it does not begin as
    lines begin that follow a shorter one. Use the joined text only if it is read better: a table may look so, too.
    ``keep_count``: an empty line replaces each line that was joined to the one before it.
    """
    if len(text) > _LONGEST:
        return None
    lines = [line.rstrip("\r") for line in without_escapes(text).split("\n")]
    shown = [line for line in lines if line.strip()]
    if shown and all(_QUOTE.match(line) for line in shown):
        lines = [_QUOTE.sub("", line, count=1) for line in lines]
    width = _width(lines)
    if width is None:
        return None
    if sum(len(line) == width for line in lines) == 1:
        # The longest line of any text is followed by some line: here only the middle of a word shows a cut.
        lines_cut = [at for at, line in enumerate(lines[:-1]) if len(line) == width]
        if not all(_in_word(lines[at], lines[at + 1]) for at in lines_cut):
            return None
    after_short = {now for before, now in pairwise(["", *lines]) if len(before) < width - 1}
    starts = {_shape(now) for now in after_short if now.strip()}
    # The rows of a table that is wider than a usual terminal have rests of one length, which may begin with blanks.
    rests = collections.Counter(len(after) for before, after in pairwise(lines) if len(before) == width)
    table = 0 < 0.6 * sum(rests.values()) <= max(rests.values()) > 2 and max(rests) < width == _NARROWEST
    joined: list[str] = []
    cuts = 0
    for before, line in pairwise(["", *lines]):
        if joined and ((table and len(before) == width and line.strip()) or _goes_on(before, line, width, starts)):
            at = next(at for at in range(len(joined) - 1, -1, -1) if joined[at])
            joined[at] += line if len(before) == width else f" {line}"
            cuts += 1
            if keep_count:
                joined.append("")
        else:
            joined.append(line)
    return Unwrapped("\n".join(joined), width, cuts) if cuts else None


def _width(lines: list[str]) -> int | None:
    """Return the length that most of the long lines have, if hardly any line is longer."""
    lengths = collections.Counter(map(len, lines))
    usual = [length for length in lengths if _NARROWEST <= length <= _WIDEST]
    if not usual:
        return None
    longest = max(lengths)
    # A single line that was cut is the longest one.
    width = max(usual, key=lambda length: (lengths[length] + (length == longest), length))
    longer = sum(count for length, count in lengths.items() if length > width)
    return width if longer <= _LONGER * len(lines) else None


def _goes_on(before: str, line: str, width: int, starts: set[str]) -> bool:
    """Return True if a line continues the one before it."""
    if len(before) == width - 1:
        # A blank at the end of a line is lost in a copy.
        return line[:1].islower() and _shape(line) not in starts
    if len(before) != width or not line.strip() or line[:2] == "  ":
        return False
    if _LINE_STAMP.match(line) and not _DAY_AT_END.search(before):
        return False
    if before[-1] in "|+" or _HEAD.match(line) or line[:_SAME] == before[:_SAME]:
        # The border of a table, and the beginning of a record.
        return False
    shape = _shape(line)
    # A host or a rank begins with letters too, and has digits.
    return shape not in starts or ("9" not in shape and line[0].islower())


def _in_word(before: str, line: str) -> bool:
    """Return True if the next line begins in the middle of a word or sentence."""
    if before[-1:].isalnum():
        return line[:1].isalnum() or line[:1] in ",.;:)=/_-" or (line[:1] == " " and line[1:2].isalnum())
    return line[:1].islower() or before[-1:] in " /:=,.-_([<"


def _shape(line: str) -> str:
    """Return how a line begins: its first word with ``a`` for letters and ``9`` for digits."""
    word = _TOKEN.match(line)
    return _DIGITS.sub("9", _LETTERS.sub("a", word[0] if word else ""))
