"""The rule about facts that differ from the values that the user expects."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from fabtui.diagnosis.finding import Finding, register
from fabtui.diagnosis.preflight.context import NodeContext, NodeRule
from fabtui.errors import InputError
from fabtui.model.facts.catalogue import facts_for
from fabtui.model.facts.compare import Fact, shown
from fabtui.model.facts.node_view import Value
from fabtui.nodeset import fold


def expectations(texts: Sequence[str]) -> dict[str, str]:
    """Return expected values by the name of the fact: ``FACT=VALUE``.

    Raises:
        InputError: There is no such fact, or no value.
    """
    known = {fact.name for fact in facts_for([])}
    found: dict[str, str] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if not value:
            raise InputError(f"--expect: {text[:60]!r} is not FACT=VALUE; expected something like gpus='8 x H200'")
        if name not in known:
            near = difflib.get_close_matches(name, known, 3, 0.4) or sorted(known)
            raise InputError(f"--expect: no fact {name[:40]!r}; similar facts: {', '.join(near)}")
        found[name] = value
    return found


def _as_expected(fact: Fact, value: Value, wanted: str) -> bool:
    """Return True if a value is the expected one, written as in JSON or as in the table."""
    words = {str(value), shown(value, fact.unit)}
    return wanted.casefold() in {word.casefold() for word in words}


def unknown(context: NodeContext) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the expected facts that are unknown of nodes: the nodes, and a line about them."""
    for fact, wanted, values in _expected(context):
        if nodes := tuple(node for node, value in values.items() if value is None):
            yield nodes, f"{fold(nodes)}: {fact.title}: unknown, expected {wanted}"


def _expected(context: NodeContext) -> Iterator[tuple[Fact, str, Mapping[str, Value]]]:
    facts = {fact.name: fact for fact in facts_for([])}
    nothing: dict[str, Value] = dict.fromkeys(node.name for node in context.nodes)
    for name, wanted in context.expected.items():
        values = dict(context.table.values.get(name, nothing))
        for node in context.nodes if name == "gpus" else ():
            # A node that lost all of its GPUs has no models to count.
            if values[node.name] is None and node.part("gpus") == [] == node.part("pci_gpus"):
                values[node.name] = "none"
        yield facts[name], wanted, values


@register
class UnexpectedValue(NodeRule):
    """A fact of a node is not what ``--expect`` asks for: GPUs, power limit, CPUs, NUMA nodes, or any other."""

    id = "FT303"
    name = "unexpected-value"
    title = "Fact is not as expected"
    message = "{title}: {found}, expected {wanted}"
    next_step = "Drain the node and find out what changed, or correct the expectation."

    def check(self, context: NodeContext) -> Iterator[Finding]:
        for fact, wanted, values in _expected(context):
            groups: dict[str, list[str]] = {}
            for node, value in values.items():
                if value is not None and not _as_expected(fact, value, wanted):
                    groups.setdefault(shown(value, fact.unit), []).append(node)
            for found, nodes in groups.items():
                commands = [fact.next.replace("{node}", fold(nodes[:1]))] if fact.next else []
                facts = {"title": fact.title, "found": found, "wanted": wanted}
                yield self.finding(fact.name, nodes=nodes, facts=facts, commands=commands)
