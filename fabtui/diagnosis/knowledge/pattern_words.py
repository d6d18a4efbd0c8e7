"""Words without which a pattern cannot match, and the lines of a text that have them: other lines need no pattern."""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

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


class WordIndex:
    """Finds the lines of a text that have words, with the owners of these; more words take hardly more time."""

    #: Number of characters that are searched at once; the search needs ten times the memory.
    _AT_ONCE = 4 << 20

    def __init__(self, owned: Iterable[tuple[bytes, int]]) -> None:
        """Index words of at least three characters, each with the number of an owner."""
        owners: dict[bytes, set[int]] = defaultdict(set)
        for word, owner in owned:
            owners[word].add(owner)
        self._at: dict[int, list[tuple[bytes, int, frozenset[int]]]] = defaultdict(list)
        self._table = np.zeros(1 << 24, np.bool_)
        for word, found in owners.items():
            offset = max(range(len(word) - 2), key=lambda at: _rarity(word[at : at + 3]))
            code = int.from_bytes(word[offset : offset + 3])
            self._at[code].append((word, offset, frozenset(found)))
            self._table[code] = True

    def lines(self, form: bytes) -> dict[int, frozenset[int]]:
        """Return the owners of the words in each line of a form, by the number of the line; none for other lines."""
        found: dict[int, frozenset[int]] = {}
        line, start = 0, 0
        while start < len(form):
            end = len(form)
            if start + self._AT_ONCE < end:
                end = form.find(b"\n", start + self._AT_ONCE) + 1 or end
            part = form[start:end]
            for number, owners in self._hits(part):
                have = found.get(line + number)
                found[line + number] = owners if have is None or have == owners else have | owners
            line += part.count(b"\n")
            start = end
        return found

    def _hits(self, part: bytes) -> Iterator[tuple[int, frozenset[int]]]:
        if len(part) < 3:
            return
        text = np.frombuffer(part, np.uint8)
        codes = text[:-2].astype(np.uint32) << 16
        codes |= text[1:-1].astype(np.uint32) << 8
        codes |= text[2:]
        places = np.flatnonzero(self._table[codes])
        numbers = np.searchsorted(np.flatnonzero(text == 10), places)
        for place, code, number in zip(places.tolist(), codes[places].tolist(), numbers.tolist(), strict=True):
            for word, offset, owners in self._at[code]:
                if place >= offset and part.startswith(word, place - offset):
                    yield number, owners


def _rarity(letters: bytes) -> int:
    """Return how rare three letters are in lines of logs."""
    return sum(b" etaoinsrlcdmpugfh:.".find(letter) % 22 for letter in letters)
