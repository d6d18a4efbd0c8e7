"""The patterns by which an ssh configuration distinguishes hosts: hosts that fit the same ones have the same settings.

ssh itself names the files that it read. They are searched only for patterns; where a file has any other condition, or a
line that may hide one, the patterns do not count.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_FILE = re.compile(r"debug1: Reading configuration data (.+)")
_LINE = re.compile(r"([A-Za-z0-9]+)(?:[ \t]*=[ \t]*|[ \t]+)(.*)")
#: Neither quotes, nor comments, nor escapes.
_PATTERNS = re.compile(r"[A-Za-z0-9_.:,/@*?!% \t-]+")
_MATCH_ALL = re.compile(r"((final|canonical)[ \t]+)?all", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class HostPatterns:
    """All patterns of a configuration, without their negations."""

    names: frozenset[str]  #: Those without wildcards.
    wild: tuple[re.Pattern[str], ...]

    @classmethod
    def read(cls, messages: str) -> Self | None:
        """Return the patterns of the files in the messages of ``ssh -v``; None if not they alone decide."""
        lines = messages.splitlines()
        if not lines or not lines[0].startswith("OpenSSH_"):
            return None
        found: set[str] = set()
        for path in {Path(match[1]) for line in lines if (match := _FILE.fullmatch(line))}:
            try:
                # A pipe would be read for ever.
                patterns = _patterns_of(path.read_bytes().decode()) if path.is_file() else None
            except (OSError, ValueError):
                return None
            if patterns is None:
                return None
            found |= patterns
        wild = sorted(pattern for pattern in found if "*" in pattern or "?" in pattern)
        return cls(frozenset(found.difference(wild)), tuple(re.compile(fnmatch.translate(text)) for text in wild))

    def fitting(self, name: str) -> tuple[object, ...] | None:
        """Return what is equal for names that fit the same patterns; None if ssh may change the name."""
        if not _NAME.fullmatch(name):
            return None
        return (name if name in self.names else "", *(pattern.match(name) is not None for pattern in self.wild))


def _patterns_of(text: str) -> set[str] | None:
    found: set[str] = set()
    for line in text.split("\n"):
        stripped = line.strip(" \t\r\f")
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        if match is None:
            return None
        keyword, value = match[1].lower(), match[2]
        if keyword == "host" and _PATTERNS.fullmatch(value):
            found.update(word.removeprefix("!") for word in value.split())
        elif (
            keyword == "host"
            or (keyword == "match" and not _MATCH_ALL.fullmatch(value))
            or (keyword == "include" and "%" in value)
            or keyword.startswith("canonical")
        ):
            return None
    return found
