"""The preflight: what is wrong with nodes, and in what they differ, before anything is tested."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.knowledge.next_commands import typed
from fabtui.diagnosis.preflight.duplicate_identities import clashes
from fabtui.diagnosis.preflight.probe_judgements import judged
from fabtui.diagnosis.preflight.socket_interfaces import sockets
from fabtui.diagnosis.reports import Cause
from fabtui.model.facts.catalogue import facts_for
from fabtui.model.facts.compare import Compare, FactTable, Odd, fact_table, shown
from fabtui.model.facts.node_view import Looked, dicts, text
from fabtui.model.session_model import Model, NodeRecord
from fabtui.nodeset import count, fold
from fabtui.sanitize import one_line

ALL_WELL = 0
FOUND = 1
NOT_LOOKED_AT = 3

#: So many values of a fact without a majority are told.
_VALUES_TOLD = 4
_CAUSES_TOLD = 6
_WORDS = re.compile(r"[^\s,:]+")


class Preflight(NamedTuple):
    """What looking at nodes came to.

    Attributes:
        findings: What is wrong and what differs, the worst first.
        table: The facts.
        missing: What could not be looked at, and why, a line each.
    """

    findings: list[Finding]
    table: FactTable
    missing: list[str]

    @property
    def exit_code(self) -> int:
        """1 if something is wrong or differs, notes apart; else 3 if something could not be looked at; else 0."""
        if any(finding.verdict in ("bad", "warn") for finding in self.findings):
            return FOUND
        return NOT_LOOKED_AT if self.missing else ALL_WELL


def looked(record: NodeRecord) -> Looked:
    """Return a node as it was found."""
    return Looked(record.name, record.inventory or {}, record.looks)


def preflight(model: Model) -> Preflight:
    """Return what looking at the nodes of a session came to, as far as they were looked at."""
    nodes = [looked(record) for record in model.nodes.values() if record.inventory is not None]
    table = fact_table(nodes, facts_for(nodes))
    said = judged(nodes)
    # The nodes of a lab are one machine, by intent, and talk over its loopback.
    found = [] if model.lab else [*clashes(nodes), *sockets(nodes)]
    found += _with_odd(said, table.odd)
    found = [one._replace(next=typed(_of_interface(one, nodes), model)) for one in found]
    found.sort(key=lambda finding: (finding.rank, -len(finding.nodes)))
    return Preflight(found, table, list(_missing(model)))


_LATEST: WeakKeyDictionary[Model, tuple[int, Preflight]] = WeakKeyDictionary()


def latest_preflight(model: Model) -> Preflight:
    """Return `preflight` of a model, made anew only when more was found on a node."""
    known = _LATEST.get(model)
    if known is None or known[0] != model.looked:
        known = _LATEST[model] = (model.looked, preflight(model))
    return known[1]


def preflight_causes(model: Model) -> list[Cause]:
    """Return the findings that count as one line among the causes of a session, none where there are none."""
    serious = [finding for finding in latest_preflight(model).findings if finding.verdict != "note"]
    if not serious:
        return []
    bad = sum(finding.verdict == "bad" for finding in serious)
    words = [count(bad, "bad finding")] if bad else []
    words += [count(len(serious) - bad, "warning")] if len(serious) > bad else []
    told = tuple(f"{fold(finding.nodes)}: {finding.text}" for finding in serious[:_CAUSES_TOLD])
    commands = tuple(finding.next for finding in serious[:_CAUSES_TOLD] if finding.next)
    return [Cause(serious[0].verdict, f"preflight: {', '.join(words)}", evidence=told, next=commands)]


def _with_odd(said: list[Finding], odds: Iterable[Odd]) -> list[Finding]:
    """Return what probes said and what differs; a difference that a probe has said already is its evidence."""
    found = list(said)
    for odd in odds:
        one = odd_finding(odd)
        for at, other in enumerate(found):
            same = other.subject == one.subject or other.subject in odd.fact.judges
            if same and set(odd.values) <= set(other.nodes) and not odd.tie:
                told = f"{fold(one.nodes)}: {one.text}"
                worse = min(one, other, key=lambda finding: finding.rank).verdict
                # What is a note on one node alone may be more where the others do without it.
                found[at] = other._replace(verdict=worse, evidence=(*other.evidence, told))
                break
        else:
            found.append(one)
    return found


def odd_finding(odd: Odd) -> Finding:
    """Return the finding of a fact in which nodes differ."""
    fact = odd.fact
    by_value: dict[str, list[str]] = {}
    for name, value in odd.values.items():
        by_value.setdefault(shown(value, fact.unit), []).append(name)
    ranked = sorted(by_value.items(), key=lambda item: -len(item[1]))
    evidence = [f"{value}: {fold(names)}" for value, names in ranked]
    of_kind = f" with {odd.kind}" if odd.kind else ""
    if odd.tie:
        told = ", ".join(f"{value} on {fold(names)}" for value, names in ranked[:_VALUES_TOLD])
        if len(ranked) > _VALUES_TOLD:
            told += f", and {len(ranked) - _VALUES_TOLD} more values"
        text = f"{fact.title} differs, and no value has a majority{of_kind}: {told}"
    else:
        told = ", ".join(value for value, _ in ranked[:_VALUES_TOLD])
        usual = shown(odd.usual, fact.unit)
        near = "about " if fact.compare in (Compare.NEAR, Compare.NEAR_ALL) else ""
        others = count(len(odd.agreeing), "other")
        text = f"{fact.title}: {told}, not {near}{usual} as on {others}{of_kind}"
        # With one value the text says it all.
        evidence = [*evidence, f"{usual}: {fold(odd.agreeing)}"] if len(ranked) > 1 else []
    nodes = tuple(odd.values)
    return Finding(fact.verdict, fact.name, text, nodes, tuple(evidence), fact.next.replace("{node}", fold(nodes[:1])))


def _of_interface(one: Finding, nodes: Sequence[Looked]) -> str:
    """Return the next command of a finding with the interface it is about: one that it names, else a data interface."""
    if "{nic}" not in one.next:
        return one.next
    node = next((node for node in nodes if node.name in one.nodes), None)
    names = [text(entry.get("nic")) for entry in dicts(node.part("data_addresses"))] if node is not None else []
    known = [name for name in names if name]
    told = _WORDS.findall(one.text)
    nic = next((name for name in known if name in told), known[0] if known else "INTERFACE")
    return one.next.replace("{nic}", shlex.quote(one_line(nic, 40)))


def _missing(model: Model) -> Iterable[str]:
    failed: dict[str, list[str]] = {}
    for record in model.nodes.values():
        if record.state.gone:
            hint = f" (next: {record.hint})" if record.hint else ""
            yield one_line(f"{record.name}: {record.text or record.state}{hint}", 400)
        elif record.inventory is None:
            yield f"{fold([record.name])}: not looked at yet"
        for probe, look in record.looks.items():
            if look.keys() == {"error"}:
                failed.setdefault(f"{probe}: {one_line(str(look['error']), 300)}", []).append(record.name)
    yield from (f"{fold(names)}: {text}" for text, names in failed.items())
