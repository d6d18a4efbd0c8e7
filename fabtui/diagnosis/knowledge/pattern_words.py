"""Words without which a pattern cannot match, so that most lines of a log need no pattern at all."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import Any

#: The parser of regular expressions; Python has no public one.
_PARSER: Any = importlib.import_module("re._parser")
_DIGITS = b"0123456789"
#: A shorter word is in too many lines.
_SHORTEST = 3
#: Words of many lines that report no failure of a library.
_COMMON = (b"error", b"fail", b"failed", b"failure", b"timeout", b"fatal", b"nccl", b"warn", b"info")


def form_of(text: str) -> bytes:
    """Return a text in lower case and without digits: lines that report the same have one form."""
    return text.lower().encode("utf-8", "replace").translate(None, _DIGITS)


def words_of(pattern: str) -> frozenset[bytes] | None:
    """Return words one of which is in the form of each text in which a pattern matches; None if there are none."""
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
        elif name == "SUBPATTERN" or (name in ("MAX_REPEAT", "MIN_REPEAT") and value[0] > 0):
            yield from _sets(value[-1], run)
        run = ""
    yield from _run(run)


def _run(text: str) -> Iterator[set[bytes]]:
    if len(word := form_of(text)) >= _SHORTEST:
        yield {word}
