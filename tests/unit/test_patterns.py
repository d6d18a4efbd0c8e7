"""No regular expression of fabtui or its node side takes long on a line that was made for that."""

from __future__ import annotations

import importlib
import pkgutil
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from types import FrameType, ModuleType
from typing import Any

import pytest

import fabtui
import fabtui_node
from fabtui.sharing.identities import Identities
from fabtui.sharing.rewriter import Rewriter

#: Half of the longest line that the readers of texts look at.
LENGTH = 10_000
#: CPU seconds for one line; a linear pattern takes a millisecond, half a second or more if it is quadratic.
MOST = 0.5
_PROBED = ' a0-_.:/,|=\t"[](){}<>#*%+A\x01'
_SINGLE = (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN)
_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT)
_METHODS = re.compile(r"(\w+)(?:\[[^\]]*\])?\.(search|finditer|findall|sub|subn|split)\(")
Node = tuple[Any, Any]


def modules() -> Iterator[ModuleType]:
    for package in (fabtui, fabtui_node):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def patterns(value: Any, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    """Yield the patterns in a value of a module."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 4 and isinstance(value, (list, tuple, set, frozenset)):
        for one in list(value)[:1000]:
            yield from patterns(one, depth + 1)
    elif depth < 4 and isinstance(value, dict):
        yield from patterns(list(value.values()), depth)
    elif depth < 4 and type(value).__module__.startswith(("fabtui", "fabtui_node")) and not isinstance(value, type):
        yield from patterns(list(getattr(value, "__dict__", {}).values()), depth + 1)


def used() -> dict[re.Pattern[Any], tuple[str, set[str]]]:
    """Return each pattern with the name of one place and the kinds of matching that some source uses it for."""
    found: dict[re.Pattern[Any], tuple[str, set[str]]] = {}
    for module in modules():
        source = Path(module.__file__ or "").read_text(encoding="utf-8")
        unanchored = {name for name, _ in _METHODS.findall(source)}
        for name, value in list(vars(module).items()):
            for pattern in patterns(value):
                _, kinds = found.setdefault(pattern, (f"{module.__name__}.{name}", {"match"}))
                if name in unanchored:
                    kinds.add("search")
    return found


def characters(node: Node) -> str:
    """Return some characters that a node for one character takes."""
    kind, value = node
    if kind is sre.LITERAL:
        return chr(value)
    if kind is sre.NOT_LITERAL:
        return _PROBED.replace(chr(value), "")
    if kind is sre.ANY:
        return _PROBED
    return "".join(c for c in _PROBED + literals(value) if takes(value, c))


def literals(members: list[Node]) -> str:
    return "".join(chr(v if op is sre.LITERAL else v[0]) for op, v in members if op in (sre.LITERAL, sre.RANGE))


_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    sre.CATEGORY_DIGIT: str.isdigit,
    sre.CATEGORY_SPACE: str.isspace,
    sre.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
    sre.CATEGORY_NOT_DIGIT: lambda c: not c.isdigit(),
    sre.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    sre.CATEGORY_NOT_WORD: lambda c: not (c.isalnum() or c == "_"),
}


def takes(members: list[Node], character: str) -> bool:
    negated, found = False, False
    for op, value in members:
        if op is sre.NEGATE:
            negated = True
        elif op is sre.LITERAL:
            found |= ord(character) == value
        elif op is sre.RANGE:
            found |= value[0] <= ord(character) <= value[1]
        elif op is sre.CATEGORY:
            found |= _CATEGORIES[value](character)
    return found != negated


def shortest(nodes: Any) -> str:
    """Return a short text that nodes take."""
    text = ""
    for op, value in nodes:
        if op in _SINGLE:
            some = characters((op, value))
            text += next((c for c in some if not c.isspace()), some[:1])
        elif op in _REPEATS:
            text += shortest(value[2]) * value[0]
        elif op is sre.SUBPATTERN:
            text += shortest(value[3])
        elif op is sre.BRANCH:
            text += shortest(value[1][0])
    return text


def attacks(nodes: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield for each repetition the text before it, and one that it takes again and again."""
    for op, value in nodes:
        if op in _REPEATS:
            inner = list(value[2])
            if value[1] > 20:
                single = len(inner) == 1 and inner[0][0] in _SINGLE
                some = characters(inner[0]) if single else [shortest(inner), *" a0.-"]
                yield from ((before, one) for one in dict.fromkeys(some) if one)
            yield from attacks(inner, before)
        elif op is sre.SUBPATTERN:
            yield from attacks(value[3], before)
        elif op is sre.BRANCH:
            for branch in value[1]:
                yield from attacks(branch, before)
        before += shortest([(op, value)])


class TooLongError(Exception):
    """A match took too long."""


@pytest.fixture
def limited() -> Iterator[Callable[[Callable[[str], object], Any], float]]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGVTALRM, ring)

    def cost(match: Callable[[Any], object], text: Any) -> float:
        begun = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST)
        try:
            match(text)
        except TooLongError:
            return MOST
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return time.process_time() - begun

    yield cost
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.slow
def test_no_pattern_takes_long_on_a_long_line(limited: Callable[[Callable[[Any], object], Any], float]) -> None:
    slow = []
    identities = Identities()
    identities.gather({"nodes": ["n060", "rack1-n060.cluster.example"], "user": "alice_b", "job_name": "train"})
    every = used() | {Rewriter(identities, b"").pattern: ("the pattern of a Rewriter", {"match", "search"})}
    assert len(every) > 400
    for pattern, (name, kinds) in every.items():
        tree = parser.parse(pattern.pattern, pattern.flags)
        texts = dict.fromkeys(
            text + one * (LENGTH // len(one)) + "\x00!" for before, one in attacks(tree) for text in (before, "")
        )
        for text in texts:
            line: Any = text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text
            if any(limited(getattr(pattern, kind), line) >= MOST for kind in kinds):
                slow.append((name, text[:30], pattern.pattern))
                break
    assert not slow, "\n".join(map(str, slow))
