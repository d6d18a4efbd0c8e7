"""Hosts that an ssh configuration does not tell apart: asking ``ssh -G`` of two of them answers for all.

Most clusters have one block for all their nodes, or none, and a process a node is most of what resolving costs. Nothing
of the configuration is interpreted here: ssh itself says which files it read, and they are looked through only for what
could tell hosts apart, the patterns of Host and Match. Hosts that the same patterns fit get the same settings. Two of
them are asked about all the same, and unless their answers differ in nothing but the name, so is every other. Whatever
is not understood, or depends on more than the name (``Match exec``, CanonicalizeHostname), ends in asking about each.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from fabtui.transport.ssh_config.resolve import Resolved

#: Asks ssh about a host, with further options, and returns what it found and what it wrote to standard error.
Ask = Callable[[list[str]], Awaitable[tuple[Resolved, str]]]

_NAME = re.compile(r"[a-z0-9._-]+\Z")
_LINE = re.compile(r"\s*([A-Za-z0-9]+)(?:\s*=\s*|\s+|\Z)(.*)\Z")
_FILE = re.compile(r"debug1: Reading configuration data (.+)\Z")
#: What Match may ask for, and whether it takes patterns, without more than the host's names and the user counting.
_CRITERIA = {"all": False, "canonical": False, "final": False, "host": True, "originalhost": True, "user": True}
_FILE_CAP = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Patterns:
    """The patterns by which a configuration tells hosts apart.

    Attributes:
        written: Names that are written out.
        wild: The patterns with wildcards.
    """

    written: frozenset[str] = frozenset()
    wild: tuple[re.Pattern[str], ...] = ()

    def fitting(self, name: str) -> tuple[int, ...] | None:
        """Return which patterns fit a name; None for one that is written out, or that ssh might read differently."""
        if name in self.written or not _NAME.match(name):
            return None
        return tuple(number for number, pattern in enumerate(self.wild) if pattern.match(name))


def files_read(said: str) -> list[Path] | None:
    """Return the files that ``ssh -v`` says it read, None if it says nothing that is understood."""
    lines = said.splitlines()
    if not lines or not lines[0].startswith("OpenSSH_"):
        return None
    return [Path(match[1]) for line in dict.fromkeys(lines) if (match := _FILE.match(line))]


def read_patterns(files: Iterable[Path]) -> Patterns | None:
    """Return the patterns of all files, None where they are not all that tells hosts apart."""
    found: set[str] = set()
    for path in files:
        try:
            with path.open("rb") as file:
                text = file.read(_FILE_CAP + 1).decode("utf-8")
        except (OSError, ValueError):
            return None
        if len(text) > _FILE_CAP:
            return None
        for line in text.splitlines():
            patterns = _patterns_of(line)
            if patterns is None:
                return None
            found.update(patterns)
    wild = sorted(pattern for pattern in found if "*" in pattern or "?" in pattern)
    return Patterns(frozenset(found.difference(wild)), tuple(map(_compiled, wild)))


def _patterns_of(line: str) -> list[str] | None:
    """Return the patterns of a line, None where it cannot be said what the line makes of a host."""
    if not line.strip() or line.lstrip().startswith("#"):
        return []
    match = _LINE.match(line)
    if match is None:
        return None
    keyword, rest = match[1].lower(), match[2]
    if keyword == "canonicalizehostname":
        return [] if rest.strip().lower() == "no" else None
    if keyword == "include":
        return None if "%" in rest else []
    if keyword not in ("host", "match"):
        return []
    if any(mark in rest for mark in "\"'\\#="):
        return None
    words = rest.split()
    if keyword == "host":
        return [word.lstrip("!") for word in words]
    patterns: list[str] = []
    while words:
        takes = _CRITERIA.get(words.pop(0).lstrip("!").lower())
        if takes is None or (takes and not words):
            return None
        if takes:
            patterns += [pattern.lstrip("!") for pattern in words.pop(0).lower().split(",")]
    return patterns


def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern of ssh_config as a regular expression: ``*`` and ``?`` alone are special."""
    return re.compile("".join({"*": ".*", "?": "."}.get(mark) or re.escape(mark) for mark in pattern) + r"\Z")


def named(known: Resolved, name: str) -> Resolved | None:
    """Return what would be found of another host that is configured like a known one, None where that is not clear."""
    before, found, after = known.hostname.partition(known.name)
    if known.hostname.rfind(known.name) > len(before):
        return None
    hostname = before + name + after if found else known.hostname
    settings = {**known.settings, "host": name, "hostname": hostname}
    if "host" not in known.settings:
        del settings["host"]
    return replace(known, name=name, hostname=hostname, settings=settings)


@dataclass(slots=True)
class _Group:
    """Hosts that the same patterns fit, and the two that were asked about."""

    asked: list[Resolved] = field(default_factory=list)
    alike: bool = True
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Alike:
    """Answers for the hosts of a session, with as few questions to ssh as possible."""

    def __init__(self) -> None:
        self._patterns: asyncio.Future[Patterns | None] | None = None
        self._groups: dict[tuple[tuple[int, ...], str | None, int | None], _Group] = {}

    async def resolve(self, host: str, user: str | None, port: int | None, ask: Ask) -> Resolved:
        """Return what the configuration says of a host.

        Args:
            host: The host's name.
            user: The login that counts over the configuration's, or None.
            port: The port that counts over the configuration's, or None.
            ask: Asks ssh about this host.

        Raises:
            Exception: What ``ask`` raises.
        """
        if self._patterns is None:
            return await self._first(host, user, port, ask)
        patterns = await asyncio.shield(self._patterns)
        fitting = None if patterns is None else patterns.fitting(host)
        if patterns is None or fitting is None:
            return (await ask([]))[0]
        group = self._groups.setdefault((fitting, user, port), _Group())
        if group.alike and len(group.asked) < 2:
            # One after the other, until it is known whether the others need to be asked about at all.
            async with group.turn:
                if group.alike and len(group.asked) < 2:
                    return await self._sample(group, ask)
        if group.alike:
            found = named(group.asked[0], host)
            # A configuration may be read a second time with the name that the first one led to.
            if found is not None and patterns.fitting(found.hostname) == patterns.fitting(group.asked[0].hostname):
                return found
        return (await ask([]))[0]

    async def _first(self, host: str, user: str | None, port: int | None, ask: Ask) -> Resolved:
        """Ask about the first host of all, and learn from it what the configuration consists of."""
        self._patterns = asyncio.get_running_loop().create_future()
        patterns: Patterns | None = None
        try:
            found, said = await ask(["-v"])
            files = files_read(said)
            patterns = None if files is None else await asyncio.to_thread(read_patterns, files)
            fitting = None if patterns is None else patterns.fitting(host)
            if fitting is not None:
                self._groups[fitting, user, port] = _Group([found])
            return found
        finally:
            self._patterns.set_result(patterns)

    async def _sample(self, group: _Group, ask: Ask) -> Resolved:
        try:
            found, _ = await ask([])
        except BaseException:
            group.alike = False
            raise
        group.asked.append(found)
        if len(group.asked) == 2:
            group.alike = named(group.asked[0], found.name) == found
        return found
