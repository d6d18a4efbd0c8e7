"""Facts compared by the preflight: built-in ones, declared ones, and ones that user probes have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fabtui.model.facts.compare import Compare, Fact
from fabtui.model.facts.gpu import GPU_FACTS
from fabtui.model.facts.network import NETWORK_FACTS
from fabtui.model.facts.node_view import ProbedNode, Value, field, number, single, text
from fabtui.model.facts.system import SYSTEM_FACTS
from fabtui_node import registry

FACTS: tuple[Fact, ...] = (*GPU_FACTS, *NETWORK_FACTS, *SYSTEM_FACTS)
#: Maximum number of values compared per user probe.
MOST_OWN = 40
_OWN_COMPARED = ("kind", "all", "near", "near-all", "none")


def facts_for(nodes: Sequence[ProbedNode]) -> list[Fact]:
    """Return the facts to compare on these nodes."""
    specs = registry.PROBES.values()
    declared = [_declared_fact(spec, path, mode) for spec in specs for path, mode in spec.compare.items()]
    return [*FACTS, *declared, *_own(nodes)]


def _declared_fact(spec: registry.ProbeSpec, path: str, mode: str) -> Fact:
    label = next((label for label, shown in spec.view if shown == path), path)
    return Fact(
        f"{spec.name}.{path}",
        f"{spec.name}: {label}",
        lambda node: single(node.seen(spec.name, *path.split("."))),
        Compare(mode),
        spec.units.get(path, ""),
        next=spec.next,
        share=0.2,
        main=True,
    )


def _own(nodes: Iterable[ProbedNode]) -> list[Fact]:
    """Return a fact for each scalar of the user probes."""
    found: dict[str, Fact] = {}
    for node in nodes:
        for probe, look in node.probe_results.items():
            value = look.get("value")
            if look.get("own") is not True or not isinstance(value, dict):
                continue
            for name, one in list(value.items())[:MOST_OWN]:
                if isinstance(one, (str, int, float)) and f"{probe}.{name}" not in found:
                    found[f"{probe}.{name}"] = _own_fact(probe, name, one, look)
    return list(found.values())


def _own_fact(probe: str, name: str, value: Any, look: Mapping[str, Any]) -> Fact:
    """Return the fact of a value; texts and booleans are compared by default, numbers if declared."""
    default = "none" if number(value) is not None else "kind"
    word = text(field(look.get("compare"), name)) or default
    compare = Compare(word) if word in _OWN_COMPARED else Compare.NONE
    unit, title = text(field(look.get("units"), name)) or "", text(f"{probe}: {name}") or probe

    def find(node: ProbedNode) -> Value:
        return single(node.seen(probe, "value", name)) if node.seen(probe, "own") is True else None

    return Fact(f"{probe}.{name}", title, find, compare, unit, share=0.2, main=True)
