"""Comparison of facts: named values of nodes, which differ from others of a hardware kind, or from earlier ones."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from fabtui.model.facts.node_view import Hardware, ProbedNode, Value, kinds_of
from fabtui_node.parsers.lines import bytes_text

#: Values of an earlier preflight, by node and name of the fact.
Earlier = Mapping[str, Mapping[str, Value]]
#: Minimum number of nodes of which one can be the odd one; maximum numbers of values of a key that is compared by
#: `Compare.ODD`: before and after values that are nearly equal have become one.
_FEWEST, MOST_VALUES, _MOST_OTHERS = 3, 16, 2
#: Numbers from which on, and the share by which, two may differ and be alike.
_LARGE, _ROUGHLY = 1000, 0.02
#: Number of words from which on only those are shown that differ, and the maximum width of a value.
_MANY_WORDS, _WIDEST = 4, 60


class Compare(StrEnum):
    """Method of comparing the values of nodes.

    ``kind``: equal on all nodes of a hardware kind. ``all``: equal on all nodes of any kind. ``near``: close to
    the median of the hardware kind. ``near-all``: close to the median of all. ``unlike``: different on each node.
    ``odd``: equal to what most nodes of the hardware kind have; a value with more than two others, or without a
    majority, is not compared. ``none``: shown, not compared.
    """

    KIND = "kind"
    ALL = "all"
    NEAR = "near"
    NEAR_ALL = "near-all"
    UNLIKE = "unlike"
    ODD = "odd"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Fact:
    """Named value of a node, and how it is compared."""

    name: str  #: Identifier, one word.
    title: str  #: Display name.
    find: Callable[[ProbedNode], Value]  #: Reads the value from the probe results of a node; None if unknown.
    compare: Compare = Compare.KIND  #: Method of comparison.
    unit: str = ""  #: Unit of a number: ``B``, ``s``, ``Gb/s``; "".
    verdict: str = "warn"  #: Severity of a difference: ``bad`` (a test will fail or be slow), ``warn`` or ``note``.
    next: str = ""  #: Next command; ``{node}`` stands for a node that differs, ``{nic}`` for an interface of it.
    share: float = 0.0  #: With `Compare.NEAR`: maximum deviation from the median, as a share of it.
    floor: float = 0.0  #: The same in the unit of the value; the larger of the two applies.
    #: Additional tolerance of a node, for values that are not known exactly.
    slack: Callable[[ProbedNode], float] | None = None
    main: bool = False  #: Whether it is shown if nothing differs.
    judges: tuple[str, ...] = ()  #: Probes whose judgement of a single node reports the same problem.
    quiet: bool = False  #: Whether a difference is evidence for findings about its node, and not a finding.
    breaks: str = ""  #: What a difference can break, as a sentence.


class Odd(NamedTuple):
    """Fact in which nodes of one kind differ."""

    fact: Fact  #: The fact.
    kind: str  #: Hardware kind; "" if all nodes are compared, or are of one kind.
    usual: Value  #: Value of the majority; None if there is none.
    agreeing: tuple[str, ...]  #: Nodes that have it.
    values: dict[str, Value]  #: Value of each node that differs; of all nodes if there is no majority.

    @property
    def tie(self) -> bool:
        """Return True if there is no majority to compare with."""
        return not self.agreeing

    @property
    def group(self) -> tuple[str, ...]:
        """Nodes that differ; of two halves the one without the first node."""
        first = next(iter(self.values.values())) if self.tie else None
        return tuple(name for name, value in self.values.items() if not self.tie or value != first)

    def contrast(self, node: str) -> str:
        """Return the value of a node and that of most: ``8 KiB, 6 MiB on 3 others``."""
        value, usual = contrasted(self.fact, self.values[node], self.usual)
        return f"{value}, {usual} on {len(self.agreeing)} others"


@dataclass(slots=True)
class FactTable:
    """Facts of nodes."""

    nodes: list[str]
    kinds: dict[str, Hardware]  #: Hardware kind that each node is compared within.
    facts: list[Fact]  #: Facts known of at least one node.
    values: dict[str, dict[str, Value]]  #: Value of each fact on each node; None: unknown.
    odd: list[Odd] = field(default_factory=list)  #: Differences, in the order of the facts.

    def differences(self, node: str) -> list[str]:
        """Return the differences of the state of a node, a line each, those that can break the most first."""
        mine = [odd for odd in self.odd if odd.fact.compare is Compare.ODD and node in odd.values and not odd.tie]
        return [f"differs on {node}: {odd.fact.title} {odd.contrast(node)}" for odd in mine]

    def differing(self, node: str) -> set[str]:
        return {odd.fact.name for odd in self.odd if node in odd.values}


def fact_table(nodes: Sequence[ProbedNode], facts: Iterable[Fact]) -> Generator[None, None, FactTable]:
    """Return the facts of nodes, and where they differ; yield after each fact."""
    kinds = kinds_of(nodes)
    asked = list(facts)
    values: dict[str, dict[str, Value]] = {}
    for fact in asked:
        values[fact.name] = {node.name: _found(fact, node) for node in nodes}
        yield
    known = [fact for fact in asked if any(value is not None for value in values[fact.name].values())]
    table = FactTable([node.name for node in nodes], kinds, known, {fact.name: values[fact.name] for fact in known})
    for fact in known:
        slack = {node.name: fact.slack(node) for node in nodes} if fact.slack else {}
        for kind, group in _groups(fact, kinds).items():
            mine = {name: value for name in group if (value := values[fact.name][name]) is not None}
            near = fact.compare in (Compare.NEAR, Compare.NEAR_ALL)
            odd = _far(fact, kind, mine, slack) if near else _unequal(fact, kind, mine)
            if fact.compare is Compare.ODD:
                odd = _minority(fact, kind, mine)
            if odd is not None:
                table.odd.append(odd)
        yield
    # In thousands of settings only those are facts that differ.
    names = {odd.fact.name for odd in table.odd}
    table.facts = [fact for fact in known if fact.compare is not Compare.ODD or fact.name in names]
    table.values = {fact.name: values[fact.name] for fact in table.facts}
    return table


def _found(fact: Fact, node: ProbedNode) -> Value:
    try:
        return fact.find(node)
    except (TypeError, ValueError, AttributeError, KeyError, IndexError, OverflowError):
        # Malformed values of one node must not prevent the comparison of the others.
        return None


def _groups(fact: Fact, kinds: Mapping[str, Hardware]) -> dict[str, list[str]]:
    if fact.compare in (Compare.NONE, Compare.UNLIKE):
        return {}
    if fact.compare in (Compare.ALL, Compare.NEAR_ALL):
        return {"": list(kinds)}
    groups: dict[Hardware, list[str]] = {}
    for name, kind in kinds.items():
        groups.setdefault(kind, []).append(name)
    return {str(kind) if len(groups) > 1 else "": names for kind, names in groups.items()}


def _unequal(fact: Fact, kind: str, values: Mapping[str, Value]) -> Odd | None:
    # True and 1 are one key of a dictionary and two values to a reader; no fact mixes them.
    counts = Counter(values.values())
    if len(counts) < 2:
        return None
    usual, many = counts.most_common(1)[0]
    if many * 2 <= len(values):
        return Odd(fact, kind, None, (), dict(values))
    agreeing = tuple(name for name, value in values.items() if value == usual)
    return Odd(fact, kind, usual, agreeing, {name: value for name, value in values.items() if value != usual})


def _minority(fact: Fact, kind: str, values: Mapping[str, Value]) -> Odd | None:
    """Return the nodes whose value is not that of most; two halves of a fleet are a tie, two nodes are not compared."""
    counts = Counter(values.values())
    if len(values) < _FEWEST or not 1 < len(counts) <= MOST_VALUES:
        return None
    votes = {value: sum(many for other, many in counts.items() if alike(fact, value, other)) for value in counts}
    usual = max(votes, key=votes.__getitem__)
    odd = {name: value for name, value in values.items() if not alike(fact, value, usual)}
    others = set(odd.values())
    if not odd or len(others) > _MOST_OTHERS:
        return None
    if votes[usual] * 2 > len(values):
        return Odd(fact, kind, usual, tuple(name for name in values if name not in odd), odd)
    halves = len(others) == 1 and len(odd) * 2 == len(values)
    return Odd(fact, kind, None, (), dict(values)) if halves else None


def alike(fact: Fact, value: Value, other: Value) -> bool:
    """Return True for equal values, and for large numbers that are nearly equal, word by word.

    Many limits of a kernel are shares of the memory, which differs by a few pages between equal machines.
    """
    if value == other:
        return True
    pairs = list(zip(str(value).split(), str(other).split(), strict=False))
    if len(str(value).split()) != len(str(other).split()):
        return False
    return all(one == two or _near(fact, one, two) for one, two in pairs)


def _near(fact: Fact, one: str, two: str) -> bool:
    try:
        a, b = float(one), float(two)
    except ValueError:
        return False
    if fact.share or fact.floor:
        return abs(a - b) <= max(fact.floor, fact.share * max(abs(a), abs(b)))
    return min(a, b) >= _LARGE and abs(a - b) <= _ROUGHLY * max(a, b)


def _far(fact: Fact, kind: str, known: Mapping[str, Value], slack: Mapping[str, float]) -> Odd | None:
    values = {n: float(v) for n, v in known.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
    if len(values) < 2:
        return None
    median = statistics.median(values.values())
    room = max(fact.floor, fact.share * abs(median))
    far = {name: value for name, value in values.items() if abs(value - median) > room + slack.get(name, 0.0)}
    if len(values) == 2:
        a, b = values.values()
        far = values if abs(a - b) > room + sum(slack.get(name, 0.0) for name in values) else {}
    if len(far) * 2 >= len(values):
        return Odd(fact, kind, None, (), dict(values))
    return Odd(fact, kind, median, tuple(name for name in values if name not in far), dict(far)) if far else None


def differs(fact: Fact, before: Value, now: Value) -> bool:
    """Return True if a value differs from an earlier one by more than the fact tolerates."""
    if before is None or now is None or fact.compare is Compare.NONE:
        return False
    near = fact.compare in (Compare.NEAR, Compare.NEAR_ALL)
    if near and isinstance(before, (int, float)) and isinstance(now, (int, float)):
        return abs(now - before) > max(fact.floor, fact.share * abs(before + now) / 2)
    return before != now


def shown(value: Value, unit: str = "") -> str:
    """Return a value with its unit for display; ``-`` if unknown."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if unit == "B":
        return bytes_text(value)
    if unit == "s":
        return _duration(value)
    return f"{value:.4g} {unit}".rstrip() if isinstance(value, float) else f"{value} {unit}".rstrip()


def contrasted(fact: Fact, value: Value, usual: Value) -> tuple[str, str]:
    """Return two values of a state as they are shown: of lists the words that only one of them has."""
    words, others = str(value).split(), str(usual).split()
    if len(words) == len(others) > 1:
        pairs = [pair for pair in zip(words, others, strict=True) if pair[0] != pair[1]]
        words, others = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    elif min(len(words), len(others)) > _MANY_WORDS:
        words, others = [w for w in words if w not in others], [w for w in others if w not in words]
    texts = (" ".join(_sized(word, fact.unit) for word in some) or "without" for some in (words, others))
    value_text, usual_text = (text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..." for text in texts)
    return value_text, usual_text


def _sized(word: str, unit: str) -> str:
    return bytes_text(int(word)) if unit == "B" and word.isdecimal() and int(word) >= _LARGE else word


def _duration(seconds: float) -> str:
    if abs(seconds) >= 172_800:
        return f"{seconds / 86_400:.1f} days"
    if abs(seconds) >= 7200:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds * 1000:.3g} ms" if 0 < abs(seconds) < 1 else f"{seconds:.4g} s"


class FactChange(NamedTuple):
    """A changed fact: its title, both values with their unit, and the nodes with this change."""

    title: str
    before: str
    now: str
    nodes: list[str]


class PreflightChanges(NamedTuple):
    """Changed facts in the order of the facts, nodes without earlier values, and nodes with earlier values only."""

    changes: list[FactChange]
    new: list[str]
    gone: list[str]

    @property
    def any(self) -> bool:
        """Return True if anything changed."""
        return bool(self.changes or self.new or self.gone)


def earlier_of(table: FactTable) -> Earlier:
    return {node: {fact.name: table.values[fact.name][node] for fact in table.facts} for node in table.nodes}


def changes_since(before: Earlier, now: FactTable) -> PreflightChanges:
    """Return the changes since an earlier preflight; a value that was unknown at one time is not a change."""
    changes: list[FactChange] = []
    both = [node for node in now.nodes if node in before]
    for fact in now.facts:
        groups: dict[tuple[str, str], list[str]] = {}
        for node in both:
            old, new = before[node].get(fact.name), now.values[fact.name][node]
            if differs(fact, old, new):
                groups.setdefault((shown(old, fact.unit), shown(new, fact.unit)), []).append(node)
        if fact.name == "boot_id" and groups:
            changes.append(
                FactChange("rebooted", "-", "since then", [node for nodes in groups.values() for node in nodes])
            )
            continue
        for words, nodes in groups.items():
            parts = [[node] for node in nodes] if fact.compare is Compare.UNLIKE else [nodes]
            changes += [FactChange(fact.title, *words, part) for part in parts]
    added = [node for node in now.nodes if node not in before]
    return PreflightChanges(changes, added, [node for node in before if node not in now.nodes])
