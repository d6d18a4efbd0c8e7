"""Finds the lines of a text that have some words, all words at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from fabtui.diagnosis.knowledge.pattern_words import SHORTEST


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
        return {number: owners for number, (_, owners) in self.forms(form).items()}

    def forms(self, form: bytes) -> dict[int, tuple[bytes, frozenset[int]]]:
        """Return each line that has words, and their owners, by its number; equal lines are one object."""
        found: dict[int, tuple[bytes, frozenset[int]]] = {}
        first, start = 0, 0
        while start < len(form):
            end = len(form)
            if start + self._AT_ONCE < end:
                end = form.find(b"\n", start + self._AT_ONCE) + 1 or end
            lines = form[start:end].removesuffix(b"\n").split(b"\n")
            # Many lines of a log have one form, which is searched once.
            distinct = list(dict.fromkeys(lines))
            owners: dict[int, frozenset[int]] = {}
            for number, more in self._hits(b"\n".join(distinct)):
                have = owners.get(number)
                owners[number] = more if have is None or have == more else have | more
            owned = {distinct[number]: (distinct[number], found_here) for number, found_here in owners.items()}
            found.update((number, hit) for number, line in enumerate(lines, first) if (hit := owned.get(line)))
            first += len(lines)
            start = end
        return found

    def _hits(self, part: bytes) -> Iterator[tuple[int, frozenset[int]]]:
        if len(part) < SHORTEST:
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
