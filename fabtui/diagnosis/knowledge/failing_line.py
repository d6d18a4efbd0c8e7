"""Lines that sound like a failure, of any program: how loud they are, what printed them, and what they advise."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from enum import IntEnum

from fabtui.diagnosis.knowledge import load
from fabtui.diagnosis.knowledge.pattern_set import PatternSet
from fabtui.sanitize import one_line

#: Length of a line that is examined, and of a quotation.
_LONGEST = 1_000
_QUOTED = 300
#: Maximum number of lines below a failure that belong to its message.
AROUND = 12
_FILE_ABOVE = re.compile(r"\bFile [\"\u201c]([^\"\u201d]{1,300})[\"\u201d], line (\d{1,7}), in (\S{1,80})")
#: The exception that a traceback ends with, behind labels of processes and of logging frameworks.
EXCEPTION = re.compile(
    r"^(?:.{0,160}?[\])|] {1,4}|.{0,60}: )?((?:[A-Za-z_]\w{0,60}\.){0,8}"
    r"[A-Z]\w{0,60}(?:Error|Exception|Exit|Interrupt|Timeout|Expired|NotFound|Failure))(?:: (.{0,600})|$)"
)
#: Forms of what printed a line, the first that fits.
_PRINTERS = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        r"\b([\w./+-]{2,80}\.(?:cpp|cc|cu|cuh|c|hpp|h|py|go|rs):\d{1,6})\b",
        r"\b([\w./+-]{2,80}\.(?:cpp|cc|cu|cuh|c|hpp|h)(?::\w{1,60})?[: ]\d{1,6})\b",
        r"\((\w{2,40}(?:_\w{1,20})?) pid=\d{1,9}",
        r"^(?:\S{1,60} ){0,4}?(?!error|warning|fatal)([a-z][\w/-]{2,40})(?:\[\d{1,9}\])?: ",
    )
)
#: Labels of processes and of logging frameworks before the source of a frame.
_LABELS = re.compile(r"^.{0,160}?\]:? {2,20}|^\s{1,20}")
#: An indented line, and a line of a source that a library shows with its number.
_CODE = re.compile(r"(?:.{0,160}?(?:\[rank\d{1,7}|[\w./-]{1,60}\.py:\d{1,6})\]:?)?\s{2,}\S")
_BOXED = re.compile(r"\W{0,8}\d{1,5} [│|] ")
#: Maximum number of lines of the source of a frame.
_SOURCE = 4
#: The number of an error in a chain of them, and what follows the innermost reason of nested ones.
_LINK = re.compile(r"^\s{1,12}(?:\d{1,3}: )?")
_AFTER_REASON = re.compile(r'(?:: unknown)?\.?$|", details: .{0,400}$')
#: An error that wraps another, and how many of them make a line nested.
_WRAPS = re.compile(r"\b(?:[Ff]ail\w{0,3}|[Ee]rror|caused|[Uu]nable|[Cc]annot)\b[^:]{0,400}: ")
_NESTED = 3
#: An option whose name has a word of failures.
_OPTION = re.compile(r"(?<!\w)--?[\w-]{0,40}(?:timeout|error|fail)\w{0,20}")
_SENTENCE = re.compile(r"(?<=[.!;]) +(?=[A-Z`\"'])|\n")


@functools.cache
def _form(name: str) -> re.Pattern[str]:
    ignore = re.IGNORECASE if name in ("sounds", "harmless") else re.NOFLAG
    return re.compile("|".join(load("failing_lines")["patterns"][name]), ignore)


@functools.cache
def _forms() -> PatternSet[str]:
    forms = {name: _form(name) for name in ("loud", "sounds", "informs", "harmless", "frame")}
    return PatternSet(
        (name, f"(?i){form.pattern}" if form.flags & re.I else form.pattern) for name, form in forms.items()
    )


def sounds() -> tuple[str, str]:
    """Return two patterns: each line that sounds like a failure matches one of them."""
    return _form("loud").pattern, f"(?i){_form('sounds').pattern}"


class Loudness(IntEnum):
    """Clearness with which a line names a failure."""

    NONE = 0
    FRAME = 1  #: It reports the failure of another.
    WORDS = 2  #: It has words of failures.
    LOUD = 3  #: It is an exception, or has the level of an error.


def loudness(line: str) -> Loudness:
    """Return how clearly a line names a failure."""
    text = _OPTION.sub("", line[:_LONGEST]) if "-" in line else line[:_LONGEST]
    possible = _forms().owners(text)

    def has(form: str) -> bool:
        return form in possible and _form(form).search(text) is not None

    if (
        has("informs")
        or not (loud := has("loud")) | has("sounds")
        or _form("table").match(text)
        or (has("harmless") and not EXCEPTION.match(text))
    ):
        return Loudness.NONE
    if has("frame"):
        return Loudness.FRAME
    return Loudness.LOUD if loud else Loudness.WORDS


def printer(line: str, above: Sequence[str] = ()) -> str:
    """Return what printed a line: the function that raised it (lines above), a source file, a program; or ""."""
    if EXCEPTION.match(line):
        for other in reversed(above):
            if frame := _FILE_ABOVE.search(other):
                return f"{frame[1].rpartition('site-packages/')[2]}:{frame[2]}, in {frame[3]}"
    return next((found[1] for form in _PRINTERS if (found := form.search(line[:_QUOTED]))), "")


def message_of(line: str, above: Sequence[str] = ()) -> str:
    """Return a line with its message: that of an assertion without one, or of an index, is the source above it."""
    message = EXCEPTION.match(line)
    if message is not None and message[1].endswith("AssertionError") and not message[2]:
        code = next((other for other in reversed(above) if "assert " in other), "")
        return f"{line}: {code[code.index('assert ') :]}" if code else line
    if message is not None and message[1] in ("IndexError", "KeyError"):
        frames = range(len(above) - 1, 0, -1)
        code = next((above[at] for at in frames if _FILE_ABOVE.search(above[at - 1]) and "[" in above[at]), "")
        return f"{line}: {_LABELS.sub('', code)}" if code else line
    return line


def in_chain(lines: Sequence[str], number: int) -> str:
    """Return a line below "Caused by:" behind the error that it caused, whose object it lacks; any other as it is."""
    at = number
    while at and lines[at].startswith(" ") and number - at < AROUND:
        at -= 1
    if at == number or lines[at].strip() != "Caused by:":
        return lines[number]
    outer = next((line.strip() for line in reversed(lines[max(0, at - 2) : at]) if line.strip()), "")
    return f"{outer}: {_LINK.sub('', lines[number])}"


def reason_of(line: str) -> str:
    """Return the innermost reason of errors that are nested in one line ("A: B: C: reason"), or ""."""
    text = _AFTER_REASON.sub("", line.strip())
    if len(_WRAPS.findall(text)) < _NESTED:
        return ""
    parts = text.split(": ")
    # A word before them is what they are about: a library, a file.
    least = 3 if len(parts) > 2 and re.fullmatch(r"\S{0,200}[./]\S{1,200}", parts[-3]) else 2
    return ": ".join(parts[-least:]).strip("\"' ")


def quotation(line: str, most: int) -> str:
    """Return a line in at most some characters: both ends of nested errors, else the beginning."""
    text = one_line(line, _LONGEST)
    half = most // 2 - 2
    return f"{text[:half]} … {text[-half:]}" if len(text) > most and reason_of(line) else one_line(line, most)


def is_code(lines: Sequence[str], number: int) -> bool:
    """Return True if a line shows the source of a frame of a traceback, by the lines above and below it."""
    line, last = lines[number], lines[number - 1] if number else ""
    # Most lines are neither indented nor below the place of a frame, which is seen sooner.
    indented = line[:2].isspace() or (" " * 2) in line[:200].partition("]")[2][:3]
    framed = '", line ' in last and _FILE_ABOVE.search(last) is not None
    if not (indented or framed or "│" in line[:20]) or EXCEPTION.match(line):
        return False
    if framed:
        return True
    if _CODE.match(line) is None:
        return _BOXED.match(line) is not None
    for above in reversed(lines[max(0, number - _SOURCE) : number]):
        if _FILE_ABOVE.search(above):
            return True
        if _CODE.match(above) is None:
            break
    below = lines[number + 1] if number + 1 < len(lines) else ""
    return _FILE_ABOVE.search(below) is not None or (EXCEPTION.match(below) is not None and _CODE.match(below) is None)


def advised(lines: Sequence[str]) -> str:
    """Return what the sentences of a message advise, in its own words, or ""."""
    sentences = (part.strip() for line in lines for part in _SENTENCE.split(line[:_LONGEST]))
    parts = dict.fromkeys(part for part in sentences if part and _form("advice").search(part))
    # A message that is one sentence is quoted as the line.
    return "" if list(parts) == [lines[0].strip()] else one_line(" ".join(parts), _QUOTED)
