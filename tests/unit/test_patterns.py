"""No regular expression of fabtui or its node side takes more than linear time on texts that were made for that."""

import ast
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
from fabtui.diagnosis.knowledge import load
from fabtui.diagnosis.knowledge.error_catalogue import meanings
from fabtui.diagnosis.knowledge.failure_stage import stages
from fabtui.importers.catalogue import formats
from fabtui.importers.tables import Tables
from fabtui.sharing.identities import Identities
from fabtui.sharing.rewriter import Rewriter
from fabtui.transport import launcher
from fabtui_node.parsers.ib import perftest
from fabtui_node.parsers.nvidia import values

#: Length of a line; readers of texts look at 20,000 characters of one.
LENGTH = 2_000
#: CPU seconds for one line; a linear pattern takes less than a millisecond.
MOST = 0.5
#: CPU seconds from which it is looked how the time grows with the line, and the growth with a line four times as long:
#: 4 if it is linear, 16 if it is quadratic.
NOTICED, GROWTH = 0.001, 8.0
_PROBED = ' a0-_.:/,|=\t"[](){}<>#*%+A\x01\n'
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
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 4 and isinstance(value, (list, tuple, set, frozenset)):
        for one in list(value)[:1000]:
            yield from patterns(one, depth + 1)
    elif depth < 4 and isinstance(value, dict):
        yield from patterns(list(value.values()), depth)
    elif isinstance(value, type) and issubclass(value, Tables):
        yield from patterns(vars(value).get("_lines"))
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


#: Functions of ``re`` that take a pattern, and what matching with it is like for this test.
_CALLS = {
    **dict.fromkeys(("search", "sub", "subn", "split", "findall", "finditer"), "search"),
    **dict.fromkeys(("match", "fullmatch"), "match"),
}
_IN_CALL = re.compile(rf"\bre\.(?:{'|'.join(_CALLS)})\(")
#: Patterns that are made where they are used: of names that are escaped, of the user's own files, or of other patterns.
_MADE = {
    "fabtui.config.file",
    "fabtui.importers.formats.collective_tables",
    "fabtui.importers.formats.slurm",
    "fabtui.importers.result",
    "fabtui.diagnosis.job.logs.job_logs",
}


def _tables() -> dict[str, list[tuple[str, int]]]:
    """Return patterns that tables hold as texts, with their flags, by the module that uses them."""
    likely = [one for form in formats().values() for one in getattr(form.likely, "needs", ())]
    assert len(likely) > 100
    any_case = re.ASCII | re.IGNORECASE
    return {
        "fabtui.diagnosis.knowledge.error_catalogue": [(one.pattern, 0) for one in meanings() if one.pattern],
        "fabtui.diagnosis.knowledge.failure_stage": [(text, 0) for one in stages() for text in (one.files, one.words)],
        "fabtui.diagnosis.links.lone_counters": [(row["pattern"], 0) for row in load("counters")["counter"]],
        "fabtui.importers.formats.stack_dumps": [(row["pattern"], 0) for row in load("stack_frames")["frame"]],
        "fabtui.importers.catalogue": [(form.aliases, 0) for form in formats().values() if form.aliases],
        "fabtui.transport.launcher": [
            *((rule.pattern, 0) for rule in launcher.VIA),
            *((row[0], 0) for row in launcher._OPENSSH),
        ],
        "fabtui_node.parsers.base": [(one, re.MULTILINE) for one in likely],
        "fabtui_node.parsers.ib.perftest": [(pattern, 0) for _, pattern in perftest._ERRORS],
        "fabtui_node.parsers.nvidia.values": [(pattern, any_case) for _, pattern in values._ERRORS],
    }


def in_calls() -> Iterator[tuple[str, re.Pattern[Any], str]]:
    """Yield module, pattern and kind of matching of each call like ``re.split("...", text)``."""
    tables = _tables()
    for module in modules():
        source = Path(module.__file__ or "").read_text(encoding="utf-8")
        for call in ast.walk(ast.parse(source)) if _IN_CALL.search(source) else ():
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
                continue
            if ast.unparse(call.func.value) != "re" or (kind := _CALLS.get(call.func.attr)) is None:
                continue
            given = [one.value for one in call.keywords if one.arg == "flags"]
            given += [one for one in call.args[1:] if ast.unparse(one).startswith("re.")]
            names = vars(module)
            try:
                flags = sum(eval(ast.unparse(one), names) for one in given)
                yield module.__name__, re.compile(eval(ast.unparse(call.args[0]), names), flags), kind
            except NameError:
                made = tables.get(module.__name__, ())
                assert made or module.__name__ in _MADE, f"{module.__name__}, line {call.lineno}: a pattern made there"
                for pattern, flags in made:
                    yield module.__name__, re.compile(pattern, flags), kind


def characters(node: Node) -> str:
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
@pytest.mark.timeout(480)
def test_no_pattern_takes_long_on_a_long_line(limited: Callable[[Callable[[Any], object], Any], float]) -> None:
    slow = []
    identities = Identities()
    identities.gather({"nodes": ["n060", "rack1-n060.cluster.example"], "user": "alice_b", "job_name": "train"})
    every = used() | {Rewriter(identities, b"").pattern: ("the pattern of a Rewriter", {"match", "search"})}
    assert len(every) > 400
    for name, pattern, kind in in_calls():
        every.setdefault(pattern, (name, set()))[1].add(kind)
    # That of `fabtui.nodeset`.
    assert re.compile(r"\[([^\[\]]*)\]") in every
    for pattern, (name, kinds) in every.items():
        tree = parser.parse(pattern.pattern, pattern.flags)
        pieces = dict.fromkeys((text, one) for before, one in attacks(tree) for text in (before, ""))
        for text, one in pieces:
            # On a busy machine a match may take long by chance; it does not do so three times.
            tries = [(getattr(pattern, kind), text, one, pattern) for kind in kinds]
            if any(all(_grows(limited, *one_try) for _ in range(3)) for one_try in tries):
                slow.append((name, text[:30] + one * 3, pattern.pattern))
                break
    assert not slow, "\n".join(map(str, slow))


def _grows(
    limited: Callable[[Callable[[Any], object], Any], float],
    match: Callable[[Any], object],
    before: str,
    one: str,
    pattern: re.Pattern[Any],
) -> bool:
    """Return whether matching takes more than linear time for a text and what is repeated after it."""

    def seconds(length: int) -> float:
        text: Any = before + one * (length // len(one)) + "\x00!"
        return limited(match, text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text)

    if (taken := seconds(LENGTH)) < NOTICED:
        return False
    # The smallest of some: a busy machine adds to any of them.
    times = [(seconds(LENGTH), seconds(4 * LENGTH)) for _ in range(2 if taken < MOST else 0)]
    short, long = (min(column) for column in zip(*times, strict=True)) if times else (MOST, MOST)
    return taken >= MOST or long >= MOST or (short >= NOTICED and long > GROWTH * short)
