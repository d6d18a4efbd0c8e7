"""Lines that a terminal, a pager or a mail program cut at its width, joined again."""

from __future__ import annotations

import collections
import re
from itertools import pairwise
from typing import NamedTuple

from fabtui_node.parsers.lines import without_escapes

#: Widths (characters) at which terminals and mail programs cut; prefixes such as ``> `` are on top of that.
_NARROWEST, _WIDEST = 80, 144
#: Maximum part of the lines that may be longer than the width: words around what was pasted.
_LONGER = 0.1
#: Maximum length of a text (characters): a copy out of a terminal is no longer.
_LONGEST = 8 << 20
_QUOTE = re.compile(r"(?:> ?)+|\| ")
_TOKEN = re.compile(r"[^\s\[]{0,2}\[?[^\s\[]{0,40}")
#: A time stamp with which a line of a log begins; a cut hardly falls just before one.
_STAMP = re.compile(r"\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?!\d)")
#: A day at the end of a line, whose time of day follows.
_DAY = re.compile(r"\d{4}-\d\d-\d\d[T ]?$")
_LETTERS, _DIGITS = re.compile(r"[A-Za-z]+"), re.compile(r"\d+")


class Unwrapped(NamedTuple):
    """A text whose cut lines are joined."""

    text: str
    width: int  #: Where its lines were cut (characters).
    cuts: int  #: How many were.


def unwrapped(text: str, keep_count: bool = False) -> Unwrapped | None:
    """Return a text with its hard-wrapped lines joined, None if it does not look as if it had some.

    Cut lines have one length, and the next line continues in the middle of a word or sentence: it does not begin as
    lines begin that follow a shorter one. Use the joined text only if it is read better: a table may look so, too.

    Args:
        text: The text.
        keep_count: Whether an empty line replaces each line that was joined to the one before it.
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
    if _STAMP.match(line) and not _DAY.search(before):
        return False
    if before[-1] in "|+":
        # The border of a table.
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
