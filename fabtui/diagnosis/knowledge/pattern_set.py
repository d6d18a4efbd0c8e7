"""Patterns that are searched all at once, in time that grows with the text alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Generic, TypeVar

import re2

T = TypeVar("T")

#: One part of a pattern without groups.
_PART = r"[^()\\\[]|\\.|\[\^?\]?(?:[^\]\\]|\\.)*\]"
#: What is left out of a pattern: conditions on the text around a match, which RE2 does not know.
_AROUND = re.compile(rf"\(\?<?[=!](?:{_PART}|\((?:{_PART}|\((?:{_PART})*\))*\))*\)")
#: A text that has several parts in any order: the first of them is looked for.
_ALL_OF = re.compile(r"\\A\(\?=\(\?s:\.\*\)(.+?)\)(?=\(\?=)")
#: The bounds of a repeat: counting makes its states many.
_BOUNDS = re.compile(r"(?<!\\)\{\d{1,4},\d{0,4}\}")
#: Bytes for the states of a set, which are made as texts need them.
_MEMORY = 32 << 20


class PatternSet(Generic[T]):
    """Finds out which of many patterns of Python a text may match, so that few are tried."""

    def __init__(self, owned: Iterable[tuple[T, str]]) -> None:
        """Take patterns, each with its owner; one owner may have several."""
        options = re2.Options()
        options.max_mem = _MEMORY
        self._set = re2.Set.SearchSet(options)
        self._owners: list[T] = []
        for owner, pattern in owned:
            self._set.Add(_BOUNDS.sub("*", _AROUND.sub("", _ALL_OF.sub(r"(?:\1)", pattern))))
            self._owners.append(owner)
        self._set.Compile()

    def owners(self, text: str) -> list[T]:
        """Return the owners of the patterns that may match in a text, in their order; all others match nowhere."""
        # Before a last line end "$" matches in Python alone.
        numbers = self._set.Match(text.rstrip("\n").encode("utf-8", "replace"))
        return list(dict.fromkeys([self._owners[number] for number in sorted(numbers)])) if numbers else []
