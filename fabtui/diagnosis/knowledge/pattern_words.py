"""Requirements of patterns on a line: words, and a form without digits."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

#: The parser of regular expressions; Python has no public one.
_PARSER: Any = importlib.import_module("re._parser")
_DIGITS = b"0123456789"
#: A shorter word is in too many lines.
SHORTEST = 3
#: Words of many lines that report no failure of a library.
_COMMON = (b"error", b"fail", b"failed", b"failure", b"timeout", b"fatal", b"nccl", b"warn", b"info")


def form_of(text: str) -> bytes:
    """Return a text in lower case and without digits: lines that report the same have one form."""
    return text.lower().encode("utf-8", "replace").translate(None, _DIGITS)


def words_of(pattern: str) -> frozenset[bytes] | None:
    """Return words: the form of each text that a pattern matches has one of them; None if there are none."""
    found = _needed(_PARSER.parse(pattern))
    return None if found is None else frozenset(found)


def _needed(parsed: Iterable[tuple[Any, Any]], before: str = "") -> set[bytes] | None:
    """Return the best of the sets of words of a sequence of parts: the one whose shortest word is the longest."""
    return max(_sets(parsed, before), key=_worth, default=None)


def _worth(words: set[bytes]) -> int:
    return min(0 if word.strip() in _COMMON else len(word) for word in words)


def _sets(parsed: Iterable[tuple[Any, Any]], before: str) -> Iterator[set[bytes]]:
    """Yield sets of words; one of each set is needed. ``before``: the characters just before the parts."""
    run = before
    for kind, value in parsed:
        name = str(kind)
        if name == "LITERAL":
            run += chr(value)
        if name in ("LITERAL", "AT"):
            continue
        yield from _run(run)
        if name == "BRANCH":
            branches = [_needed(branch, run) for branch in value[1]]
            if all(branches):
                yield {word for branch in branches for word in branch or ()}
        elif name == "ASSERT":
            yield from _sets(value[1], "")
        elif name == "SUBPATTERN" or (name in ("MAX_REPEAT", "MIN_REPEAT") and value[0] > 0):
            yield from _sets(value[-1], run)
        run = ""
    yield from _run(run)


def _run(text: str) -> Iterator[set[bytes]]:
    if len(word := form_of(text)) >= SHORTEST:
        yield {word}


class LinePattern:
    """A regular expression for lines, compiled when it is first needed: few of a catalogue are in one run."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern = pattern
        self._flags = flags
        self._compiled: re.Pattern[str] | None = None
        self._loose: re.Pattern[str] | None = None

    def search(self, text: str) -> re.Match[str] | None:
        """Return its first match in a text, or None."""
        return self.compile().search(text)

    def compile(self) -> re.Pattern[str]:
        """Return the compiled expression, kept from the first use on."""
        if self._compiled is None:
            self._compiled = re.compile(self.pattern, self._flags)
        return self._compiled

    @property
    def is_compiled(self) -> bool:
        """Return True if it is compiled: that takes about 1 ms."""
        return self._compiled is not None

    def may_match(self, form: str) -> bool:
        """Return False if it matches in no line of this form (`form_of`)."""
        if self._loose is None:
            loose = _loose_sequence(_PARSER.parse(self.pattern, self._flags))
            self._loose = re.compile(loose or "", re.IGNORECASE)
        return self._loose.search(form) is not None


def _loose_sequence(parsed: Iterable[tuple[Any, Any]]) -> str | None:
    """Return a pattern for the forms of lines in which parts of a pattern match; None where it would take too long."""
    parts = [_loose(str(kind), value) for kind, value in parsed]
    return None if None in parts else "".join(part or "" for part in parts)


def _loose(name: str, value: Any) -> str | None:
    if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
        return _loose_repeat(1, 1, name, value)
    if name == "BRANCH":
        branches = [_loose_sequence(branch) for branch in value[1]]
        return None if None in branches else f"(?:{'|'.join(branch or '' for branch in branches)})"
    if name == "SUBPATTERN":
        return None if (part := _loose_sequence(value[-1])) is None else f"(?:{part})"
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, repeated = value
        if len(repeated) == 1 and str(repeated[0][0]) in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            return _loose_repeat(least, most, str(repeated[0][0]), repeated[0][1])
        part = _loose_sequence(repeated)
        # A group whose parts may be missing, several times: the search would try all ways to divide the text.
        return None if part is None or most > 1 else f"(?:{part}){'' if least else '?'}"
    # Positions and the text around a match: a form has other words beside each other.
    return "" if name in ("AT", "ASSERT", "ASSERT_NOT") else None


def _loose_repeat(least: int, most: int, name: str, value: Any) -> str:
    """Return a pattern for a repeated character; one that may be a digit may be missing in a form."""
    letters, digit = ".", True
    if name == "LITERAL":
        digit = chr(value) in "0123456789"
        letters = "" if digit else re.escape(chr(value))
    elif name == "IN" and str(value[0][0]) != "NEGATE":
        pairs = [_letters_of(str(kind), item) for kind, item in value]
        digit = any(one for _, one in pairs)
        letters = "".join(text for text, _ in pairs)
        letters = f"[{letters}]" if letters else ""
    if not letters or (least, most) == (1, 1):
        return f"{letters}?" if letters and digit else letters
    return f"{letters}{{{0 if digit else least},{min(most, 4000)}}}"


#: Characters of a category of a set, and whether digits are among them.
_CATEGORIES = {
    "CATEGORY_DIGIT": ("", True),
    "CATEGORY_NOT_DIGIT": (r"\D", False),
    "CATEGORY_SPACE": (r"\s", False),
    "CATEGORY_NOT_SPACE": (r"\S", True),
    "CATEGORY_WORD": (r"\w", True),
    "CATEGORY_NOT_WORD": (r"\W", False),
}


def _letters_of(name: str, value: Any) -> tuple[str, bool]:
    """Return the characters of an item of a set, and whether digits are among them."""
    if name == "CATEGORY":
        return _CATEGORIES[str(value)]
    first, last = (value, value) if name == "LITERAL" else value
    digit = first <= ord("9") and last >= ord("0")
    if digit and first >= ord("0") and last <= ord("9"):
        return "", True
    return f"{re.escape(chr(first))}-{re.escape(chr(last))}", digit
