"""Outcome of the search for what makes a collective of many slow, in one sentence, and as a finding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fabtui.diagnosis.finding import Domain, Finding, Kind, Rule, Severity, Subject, register
from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.model.endpoints import node_of
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement
from fabtui.model.session_model import Model
from fabtui.nodeset import count, fold
from fabtui.sanitize import one_line


def _searched(model: Model) -> str:
    """Return what the search is about: ``all_reduce of 64 nodes``."""
    start = model.bisection.start
    assert start is not None
    kind = "node" if start.units and start.units[0] in model.nodes else "rank"
    return f"{one_line(start.collective, 20)} of {count(len(start.units), kind)}"


def what_failed(model: Model) -> str:
    """Return what is wrong with it: ``all_reduce of 64 nodes is slow``."""
    verdicts = {group.verdict for entry in model.bisection.rounds.values() for group in entry.groups}
    how = next((how for how in ("wrong", "failed", "timeout") if how in verdicts), "slow")
    words = {"wrong": "has wrong data", "failed": "fails", "timeout": "times out", "slow": "is slow"}
    return f"{_searched(model)} {words[how]}"


def because(model: Model, units: Sequence[str]) -> str:
    """Return a culprit with what pairs show about it: ``n013 > n021`` if these two are a bad pair."""
    known, names = set(units), [one_line(name, 60) for name in units]

    def unit_of(end: str) -> str:
        return end if end in known else node_of(end)

    def concerns(one: Measurement) -> bool:
        ends = {unit_of(one.src), unit_of(one.dst)}
        return ends <= known and len(ends) == 2 if len(units) > 1 else bool(ends & known)

    bad = [one for one in model.bad_measurements(Layer.P2P) if concerns(one)]
    if not bad:
        tested = any(concerns(one) for one in model.measurements(Layer.P2P))
        return " with ".join(names) + (", though no pair shows it" if tested else "")
    worst = min(bad, key=lambda one: one.value or 0.0)
    pair = f"{one_line(worst.src, 60)} > {one_line(worst.dst, 60)}"
    verdict = model.verdict(worst).words
    if len(units) == 1:
        return f"{names[0]}: {pair} is {verdict} by itself"
    return f"{one_line(unit_of(worst.src), 60)} > {one_line(unit_of(worst.dst), 60)}: {pair} is {verdict} as a pair"


def outcome_sentence(model: Model) -> str:
    """Return how the search stands, or its outcome; "" without one."""
    log = model.bisection
    if log.start is None:
        return ""
    last, total = log.last, len(log.start.units)
    if last is None or not last.outcome:
        left = total if last is None else len(last.left)
        known = " and of ".join(because(model, log.names(one)) for one in (last.culprits if last is not None else ()))
        slow = f"searching what makes {one_line(log.start.collective, 20)} slow"
        return f"{slow}{f' besides {known}' if known else ''}: {left} of {total} are left"
    if last.outcome == "undecided":
        return f"the search has no answer: {one_line(last.problem or 'unknown', 200)}"
    if last.outcome == "nothing":
        return f"{_searched(model)} is as fast as its parts: nothing was found"
    if last.outcome == "whole":
        return f"{what_failed(model)} only with all together: every half and every mix of two halves is good"
    culprits = "; and of ".join(because(model, log.names(culprit)) for culprit in last.culprits)
    more = "; the others are still slow without them" if last.outcome == "more" else ""
    return f"{what_failed(model)} because of {culprits}{more}"


@register
class FoundByHalves(Rule[Model]):
    """A search by halves found nodes or ranks that make a collective of many slow or fail, alone or only together."""

    id = "FT047"
    name = "found-by-halves"
    title = "a collective of many is bad because of a few"
    lasts = False
    domain = Domain.LINKS
    message = "{sentence}"
    evidence = ("{rounds} rounds of groups side by side, {cleared} of {units} were cleared",)
    next_step = (
        "Leave the named nodes out of the job, and test their links and switch ports; search again without them."
    )

    def check(self, model: Model) -> Iterator[Finding]:
        last = model.bisection.last
        if last is None or last.outcome not in ("found", "more", "whole") or model.bisection.start is None:
            return
        names = model.bisection.names(unit for culprit in last.culprits for unit in culprit)
        whole = last.outcome == "whole"
        ends = [] if whole else [name if name in model.nodes else node_of(name) for name in names]
        nodes = [name for name in dict.fromkeys(ends) if name in model.nodes]
        total = len(model.bisection.start.units)
        facts = {
            "sentence": outcome_sentence(model),
            "rounds": last.number,
            "cleared": total - (total if whole else len(names)),
            "units": total,
        }
        yield self.finding(
            nodes[0] if len(nodes) == 1 else "",
            severity=Severity.BAD,
            nodes=nodes,
            facts=facts,
            commands=[on_node(node, "ibstat", model) for node in nodes[:1]],
            blames=Subject(Kind.NODES, fold(nodes)) if len(nodes) > 1 else None,
        )
