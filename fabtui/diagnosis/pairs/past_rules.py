"""Past trouble of a session: one event for all intervals that have a time and a component in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from fabtui.diagnosis.finding import Finding, Kind, Pair, Rule, Severity, Steps, Subject, in_steps, register
from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.pairs.pair_context import PairContext
from fabtui.model.endpoints import node_of
from fabtui.model.interval_log import Interval, IntervalKind
from fabtui.model.layers import COLLECTIVES, Layer
from fabtui.model.measurement import DEAD
from fabtui.model.session_model import Model
from fabtui.nodeset import count, fold

#: Maximum time (s) between two intervals of one event: a pair is tested again within it.
_SLACK = 3.0
#: Maximum number of events that are reported, the latest ones.
_MOST_EVENTS = 12
#: Weight that puts them before other findings of their severity.
_WEIGHT = 1 << 10
#: Components in the order in which they are preferred if they explain the same results.
_NARROWEST = (Kind.PAIR, Kind.GPU, Kind.NODE_PAIR, Kind.NODE)
_COLLECTIVES = frozenset(COLLECTIVES.values())


class PastFact(NamedTuple):
    """Something that was bad, in numbers."""

    since: float  #: Its first sign (epoch seconds).
    until: float  #: Its last sign.
    start_seen: bool  #: Whether it began then; else it may have begun before.
    pairs: tuple[Pair, ...]  #: Pairs of endpoints that failed, and groups by their two names.
    passes_now: bool  #: Whether nothing fails now that has a part in it.


class PastEvent(NamedTuple):
    """Intervals at the same time that have a cause or a component in common."""

    cause: list[Interval]  #: Those that explain the others, or all.
    effects: list[Interval]  #: Results that failed meanwhile.
    subject: Subject | None  #: What they have in common; None: nothing.

    @property
    def kind(self) -> IntervalKind:
        return self.cause[0].kind

    @property
    def is_vague(self) -> bool:
        """True for results of one pair, or of several that have nothing but the time in common."""
        return self.kind is IntervalKind.RESULT and (self.subject is None or self.subject.kind is Kind.PAIR)

    @property
    def longest(self) -> float:
        """Longest of its intervals (s)."""
        return max(one.until - one.since for one in self.cause)

    @property
    def keys(self) -> set[tuple[Any, ...]]:
        """Layers and ends of the results."""
        return {(one.layer, *one.ends) for one in (*self.cause, *self.effects) if one.layer is not None}


_EVENTS: WeakKeyDictionary[PairContext, list[PastEvent]] = WeakKeyDictionary()


def past_events(context: PairContext) -> Steps[list[PastEvent]]:
    """Return what was bad and no longer is, in the order of time; it is found once for a context."""
    if (known := _EVENTS.get(context)) is None:
        known = _EVENTS[context] = yield from _found(context)
    return known


def of_one_event(context: PairContext) -> Steps[set[tuple[Any, ...]]]:
    """Return the layers and ends of pairs that were bad once, together with others or for long: they do not flap."""
    times = Counter((one.layer, *one.ends) for one in context.model.intervals.ended)
    events = [one for one in (yield from past_events(context)) if not one.is_vague or one.longest >= _SLACK]
    return {key for event in events for key in event.keys if times[key] == 1}


def _found(context: PairContext) -> Steps[list[PastEvent]]:
    model, results = context.model, list[Interval]()
    ended = [one for one in model.intervals.ended if one.since >= model.resumed]
    for some in in_steps(ended):
        results += [one for one in some if one.layer is not None and _passes(model, one)]
        yield
    # All are gone while this machine sleeps.
    others = [one for one in ended if one.layer is None and one.ends[0] in model.nodes and "slept" not in one.text]
    others = [one for one in others if not model.gone(one.ends[0])]
    events = []
    for cluster in _clusters(one for one in others if not _follows(context, one, others)):
        everywhere = len(model.nodes) > 1 and {one.ends[0] for one in cluster} == model.nodes.keys()
        alike: dict[str, list[Interval]] = {}
        for one in cluster:
            alike.setdefault("" if everywhere else one.text.replace(one.ends[0], ""), []).append(one)
        for mine in alike.values():
            effects, left = list[Interval](), list[Interval]()
            for some in in_steps(results):
                for one in some:
                    (effects if any(_meets(model, one, other) for other in mine) else left).append(one)
                yield
            results = left
            events.append(PastEvent(mine, effects, None))
    # The communicator of all ranks breaks as a whole.
    for inside in (True, False):
        for cluster in _clusters(one for one in results if (one.layer is Layer.WORLD) is inside):
            subject = _component(model, cluster)
            yield
            if not _is_bad_still(context, subject):
                events.append(PastEvent(cluster, [], subject))
    return sorted(events, key=lambda event: event.cause[0].since)[-_MOST_EVENTS:]


def _passes(model: Model, one: Interval) -> bool:
    assert one.layer is not None
    now = model.results.verdict_between(one.layer, one.ends[0], one.ends[1])
    return now not in DEAD and not any(map(model.gone, _nodes_of(model, one)))


def _nodes_of(model: Model, one: Interval) -> tuple[str, ...]:
    """Return the nodes of the ends of an interval; all of them for a group that is not of one or two nodes."""
    nodes = tuple(dict.fromkeys(one.ends if one.layer in (None, *_COLLECTIVES) else map(node_of, one.ends)))
    return nodes if model.nodes.keys() >= set(nodes) else tuple(model.nodes)


def _meets(model: Model, one: Interval, other: Interval) -> bool:
    """Return True if an interval overlaps one of a node, and is about the same node."""
    near = one.since <= other.until + _SLACK and other.since <= one.until + _SLACK
    return near and other.ends[0] in _nodes_of(model, one)


def _follows(context: PairContext, one: Interval, others: Iterable[Interval]) -> bool:
    """Return True if a rank host ended with its node, or by what fails there still."""
    if one.kind is not IntervalKind.RANK_HOST:
        return False
    away = (other for other in others if other.kind is not IntervalKind.RANK_HOST)
    return one.ends[0] in _broken(context) or any(_meets(context.model, other, one) for other in away)


def _broken(context: PairContext) -> set[str]:
    """Return the nodes of which a pair fails now."""
    return {node_of(end) for pair, verdict in context.tally.bad.items() if verdict in DEAD for end in pair}


def _is_bad_still(context: PairContext, subject: Subject | None) -> bool:
    """Return True if most pairs that are bad now have the node of a component; slow ranks may wait for busy cores."""
    bad = [pair for pair, verdict in context.tally.bad.items() if verdict in DEAD or not context.cores.busy]
    counts = Counter(node for pair in bad for node in set(map(node_of, pair)))
    nodes = subject.name.split(" - ") if subject is not None else []
    return any(2 * max(counts[node], counts[node_of(node)]) > len(bad) for node in nodes)


def _clusters(intervals: Iterable[Interval]) -> list[list[Interval]]:
    """Return intervals in groups that overlap, in the order of time."""
    clusters: list[list[Interval]] = []
    end = float("-inf")
    for one in sorted(intervals, key=lambda one: one.since):
        if one.since > end + _SLACK:
            clusters.append([])
        clusters[-1].append(one)
        end = max(end, one.until)
    return clusters


def _component(model: Model, results: list[Interval]) -> Subject | None:
    """Return the narrowest component that all of some results have in common, if there is one."""
    # A collective of all nodes is one of any of them.
    known = [parts for one in results if (parts := _components(model, one))]
    common = set.intersection(*known) if known else set[Subject]()
    return min(common, key=lambda one: (_NARROWEST.index(one.kind), one.name), default=None)


def _components(model: Model, one: Interval) -> set[Subject]:
    nodes = sorted(_nodes_of(model, one))
    whole = set[Subject]()
    # All results of two nodes have both in common.
    if len(nodes) <= 2 < len(model.nodes):
        whole |= {Subject(Kind.NODE, node) for node in nodes} | {Subject(Kind.NODE_PAIR, " - ".join(nodes))}
    if one.layer in _COLLECTIVES:
        return whole
    # A node with one endpoint is the same as this.
    ends = {Subject(Kind.GPU, end) for end in one.ends if len(model.table.of_node(node_of(end))) > 1}
    return whole | ends | {Subject(Kind.PAIR, " - ".join(sorted(one.ends)))}


@register
class WasBad(Rule[PairContext]):
    """Tests failed, a node was silent, or a process of the ranks ended, for a time that is over.

    What was bad at the same time and has a component in common is one finding.
    """

    id = "FT035"

    def check(self, context: PairContext) -> Iterator[Finding | None]:
        flapping = context.model.results.flapping.keys() - (yield from of_one_event(context))
        for event in (yield from past_events(context)):
            yield None
            # What flaps is reported as such.
            if event.kind is not IntervalKind.ABSENCE and not (event.is_vague and event.keys <= flapping):
                yield past_finding(self, context, event)


def past_finding(rule: Rule[PairContext], context: PairContext, event: PastEvent) -> Finding:
    model, cause, subject = context.model, event.cause, event.subject
    of = {subject.node} if subject and subject.node else {node for one in cause for node in _nodes_of(model, one)}
    nodes = [name for name in model.nodes if name in of]
    ends = tuple(sorted({(key[1], key[2]) for key in event.keys}))
    since, until = min(one.since for one in cause), max(one.until for one in cause)
    is_result = event.kind is IntervalKind.RESULT
    passes = is_result or of.isdisjoint(_broken(context))
    fact = PastFact(since, until, all(one.start_seen for one in cause), ends, passes)
    facts: dict[str, Any] = {"past": fact, "reason": cause[0].text or None, **_words(model, event, nodes, fact)}
    facts |= {"moment": since} if round(until) == round(since) else {"since": since, "until": until}
    if event.effects:
        facts["failed"] = f"{_counted(event.effects)} failed meanwhile, and {_pass(ends)} now"
    # Among many others that wait for a core, one rank of the world communicator comes too late.
    by_load = cause[0].layer is Layer.WORLD and context.by_cores(ends)
    command = "uptime" if event.kind in (IntervalKind.ABSENCE, IntervalKind.SILENCE) else "dmesg -T | tail -n 40"
    return rule.finding(
        nodes[0] if len(nodes) == 1 else "",
        severity=Severity.NOTE if by_load else Severity.WARN,
        nodes=nodes,
        facts=facts,
        commands=["ip -s link" if facts.get("here") else on_node(nodes[0], command, model)] if nodes else [],
        weight=_WEIGHT + len(ends),
        blames=subject,
    )


def _words(model: Model, event: PastEvent, nodes: list[str], fact: PastFact) -> dict[str, Any]:
    """Return the facts of the sentence about an event."""
    if event.kind is IntervalKind.RESULT:
        did = " or ".join(sorted({one.verdict for one in event.cause})).replace("wrong data", "had wrong data")
        is_pair = event.subject is not None and event.subject.kind is Kind.PAIR
        return {"who": _who(event, fact), "did": did, "now": f" and {_pass(fact.pairs[: 1 if is_pair else None])} now"}
    if event.kind is IntervalKind.RANK_HOST:
        one = len(nodes) == 1
        who = event.cause[0].text.partition(": ")[0] if one else f"rank hosts of {fold(nodes)} ended"
        return {"who": who.rpartition(" ")[0], "did": who.rpartition(" ")[2], "now": ", and ranks were started again"}
    seconds = f"{'' if fact.start_seen else 'at least '}{max(1.0, fact.until - fact.since):.0f} s"
    here = 1 < len(nodes) == len(model.nodes)
    if event.kind is IntervalKind.ABSENCE and here:
        state = f"was cut off for {seconds}: {fold(nodes)} were gone at once, and all are back"
        return {"node": "this machine, or its link,", "state": state, "here": True}
    if event.kind is IntervalKind.ABSENCE:
        return {"node": fold(nodes), "state": f"was gone for {seconds}, and is back", "here": None}
    now = ": all at once: this machine, or its link" if here else f": {event.cause[0].text}"
    return {"who": fold(nodes), "did": f"was silent for {seconds}", "now": now, "reason": None, "here": here or None}


def _pass(pairs: tuple[Pair, ...]) -> str:
    return "passes" if len(pairs) == 1 else "pass"


def _who(event: PastEvent, fact: PastFact) -> str:
    subject = event.subject
    if subject is None:
        return _counted(event.cause)
    if subject.kind is Kind.PAIR:
        return " > ".join(fact.pairs[0]) if len(fact.pairs) == 1 else subject.name
    word = "of" if subject.kind is Kind.NODE_PAIR else "with"
    return f"{_counted(event.cause)} {word} {subject.name.replace(' - ', ' and ')}"


def _counted(results: Iterable[Interval]) -> str:
    """Return how many pairs and collectives some results are of: ``6 pairs and 1 all_reduce``."""
    keys = {(one.layer if one.layer in _COLLECTIVES else None, one.ends) for one in results}
    counts = Counter("pair" if layer is None else str(layer.spec.collective) for layer, _ in keys)
    named = [count(number, what) if what == "pair" else f"{number} {what}" for what, number in sorted(counts.items())]
    return " and ".join(named[::-1])
