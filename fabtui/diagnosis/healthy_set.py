"""Nodes and endpoints that are healthy together, and an order of the nodes that keeps slow links out of their ring."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fabtui.diagnosis.finding import Finding, Kind, Pair, Severity
from fabtui.diagnosis.mesh.addresses import explained_endpoints, nodes_by_chance
from fabtui.diagnosis.node_bandwidth import values_at
from fabtui.diagnosis.node_faults import node_faults
from fabtui.diagnosis.pairs.busy_cores import BusyCores
from fabtui.diagnosis.pairs.pair_context import crosses_nodes
from fabtui.diagnosis.pairs.tally import Tally
from fabtui.diagnosis.rank_order import Hop, rank_order
from fabtui.model.endpoints import Endpoint, node_of
from fabtui.model.facts.nvlink_domains import domain_names
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.pair_table import DEAD, OK, SLOW, Flags, Floats, Ints, PairTable
from fabtui.model.places import Places
from fabtui.model.session_model import Model
from fabtui.nodeset import count, fold

#: Maximum number of items with bad pairs for which the search is exact, and its maximum number of steps (0.3 s).
_MOST_EXACT, _MOST_STEPS = 64, 3000
#: Maximum number of items with bad pairs; those with most bad pairs are left out (memory: its square in bytes).
_MOST_ITEMS = 4096
#: Rules about values that are low and whose cause nothing shows: of CPU ranks, that may be the load of their cores.
_LOW_VALUES = frozenset({"FT020", "FT021", "FT023", "FT026"})
#: Rings of fewer nodes are all the same.
_FEWEST_OF_RING = 4
#: Number of stray pairs of a node that are named.
_FEW = 2


class Ring(NamedTuple):
    """The slowest hops of a ring over the nodes, in their given order and in the order found."""

    before: Hop
    after: Hop


@dataclass(frozen=True, slots=True)
class HealthySet:
    """Nodes and endpoints that no fault of their own keeps from working together."""

    nodes: tuple[str, ...]  #: The largest set of nodes with all their endpoints, in rank order.
    endpoints: tuple[Endpoint, ...]  #: Their endpoints, in rank order.
    joining: tuple[Endpoint, ...]  #: Endpoints of other nodes that are healthy with all of these and with each other.
    most: tuple[Endpoint, ...]  #: The largest set of endpoints, if it is larger than both together; else empty.
    #: The other nodes, each with the finding or the reason for it.
    left_out: dict[str, Finding | str] = field(default_factory=dict)
    drain: tuple[str, ...] = ()  #: The nodes among them that a finding blames alone.
    #: Number of endpoints of the session that are known; endpoints of a node that never answered are unknown.
    total: int = 0
    exact: bool = True  #: Whether there is no larger set of nodes; else none was found.
    relayed: int = 0  #: Number of bad pairs across rails that count as healthy, because NCCL relays for them.
    untested: int = 0  #: Number of ordered pairs of these nodes between which nothing was tested.
    #: The slowest hops of a ring over the nodes; None if unknown, or for fewer than four nodes.
    ring: Ring | None = None
    #: Nodes of the set in each NVLink domain, by its name; empty if none has two of them.
    domains: dict[str, list[str]] = field(default_factory=dict)
    strays: dict[Pair, Verdict] = field(default_factory=dict)  #: Stray bad pairs of these nodes, to test again first.


def healthy_set(model: Model, tally: Tally, findings: Sequence[Finding], *, strict: bool = False) -> HealthySet | None:
    """Return what is healthy together, or None if no pair of endpoints was tested.

    Stray bad pairs (`NodeFaults.strays`) leave no node out, unless that is ``strict``: then no pair of the set is bad.
    """
    table, places, ends = tally.table, tally.places, model.endpoints
    if table is None or places is None or not len(table):
        return None
    names, node, relayed = list(dict.fromkeys(end.node for end in ends)), places.node, _relayed(tally, findings)
    ok, bad = table.verdict == OK, np.isin(table.verdict, (SLOW, *DEAD))
    strays = node_faults(tally, findings).strays
    spared = [*relayed, *_slow_by_load(tally, findings)]
    ok[spared], bad[spared] = True, False
    by_chance = {name: one for one in findings for name in nodes_by_chance(one)}
    fit = _fit(model, table, ok, findings)
    if not strict:
        bad[[tally.place[pair] for pair in strays]] = False
    a, b = table.source[bad], table.target[bad]
    later = np.isin(names, [name for one in findings for name in one.at_fault])
    whole = ~np.array([name in by_chance for name in names])
    whole[node[~fit]] = False
    whole[node[a[node[a] == node[b]]]] = False
    chosen, exact = independent(whole, node[a], node[b], later)
    kept = chosen[node]
    beside = fit & ~kept
    # Those that are bad with a node of the set cannot join it.
    beside[b[kept[a]]] = False
    beside[a[kept[b]]] = False
    joining, _ = independent(beside, a, b, later[node])
    most, _ = independent(fit, a, b, later[node])
    most &= most.sum() > kept.sum() + joining.sum()
    numbers, domains = _by_domain(model, places, chosen)
    kinds = [model.table.of_node(names[number])[0].name for number in numbers.tolist()]
    order, ring = _ordered(names, numbers, _hops(model, table, ok, node, numbers), kinds)
    hit = {names[number] for number in set(node[np.concatenate((a, b))].tolist())}
    reasons, chosen_names = _reasons(model), frozenset(order)
    left_out: dict[str, Finding | str] = {}
    for name in dict.fromkeys((*model.nodes, *names)):
        if name in by_chance:
            left_out[name] = by_chance[name]
        elif name not in chosen_names and (name in hit or model.gone(name)):
            left_out[name] = _cause(model, name, findings, strays, chosen_names)
        elif name not in chosen_names:
            left_out[name] = _reason(model, name, fit, reasons)
    tested = sum(1 for one, other in tally.between if one != other and {one, other} <= chosen_names)
    return HealthySet(
        tuple(order),
        tuple(end for name in order for end in model.table.of_node(name)),
        _of(ends, joining),
        _of(ends, most),
        left_out,
        tuple(name for name, cause in left_out.items() if _to_drain(model, tally, name, cause)),
        sum(end.kind != "none" for end in ends),
        exact,
        len(relayed),
        len(order) * (len(order) - 1) - tested,
        ring,
        domains,
        {} if strict else {pair: strays[pair] for pair in strays if chosen_names.issuperset(_nodes(pair))},
    )


def _fit(model: Model, table: PairTable, ok: Flags, findings: Sequence[Finding]) -> Flags:
    """Return which endpoints passed a test, are on a node that is there, and do not work by chance."""
    ends = model.endpoints
    fit: Flags = np.zeros(len(ends), dtype=bool)
    for column in (table.source, table.target):
        fit[column[ok]] = True
    lost = frozenset[str]().union(*(explained_endpoints(model, one) for one in findings if nodes_by_chance(one)))
    fit &= np.array([model.gone(end.node) is None and str(end) not in lost for end in ends])
    return fit


def _nodes(pair: Pair) -> set[str]:
    return set(map(node_of, pair))


def _by_domain(model: Model, places: Places, chosen: Flags) -> tuple[Ints, dict[str, list[str]]]:
    """Return the numbers of the chosen nodes, those of an NVLink domain together, and the nodes of each domain.

    Nodes of no domain come last, without a name.
    """
    numbers = np.flatnonzero(chosen)
    found: dict[str, list[int]] = {}
    words = domain_names(model.table.domains.values())
    for number in numbers.tolist():
        own = {model.table.domains.get(end.number) for end in model.table.of_node(places.nodes[number])}
        domain = own.pop() if len(own) == 1 else None
        found.setdefault("" if domain is None else words[domain], []).append(number)
    named = {name: nodes for name, nodes in found.items() if name}
    if all(len(nodes) < 2 for nodes in named.values()):
        return numbers, {}
    ordered = [number for nodes in (*named.values(), found.get("", [])) for number in nodes]
    return np.array(ordered), {name: [places.nodes[one] for one in nodes] for name, nodes in named.items()}


def _to_drain(model: Model, tally: Tally, name: str, finding: Finding | str) -> bool:
    """Return True if a cause is a finding that blames a node, and the load of its CPU ranks does not explain it.

    Ranks of one node use no link. With other nodes, a slow NIC beside a good one is not a matter of load.
    """
    if isinstance(finding, str) or name not in finding.at_fault:
        return False
    facts = finding.facts
    shown = [*facts.get("known", ()), *(one for one in facts.get("related", ()) if one.rule.id != "FT034")]
    slow = finding.rule.id in _LOW_VALUES and all(tally.bad.get(pair) is Verdict.SLOW for pair in finding.cells)
    if shown or not slow or facts.get("made_by_lab"):
        return True
    if any(end.kind != "cpu" for end in model.table.of_node(finding.nodes[0])):
        return True
    if not any(map(crosses_nodes, finding.cells)):
        return False
    separate = finding.subject.kind is Kind.NIC and all(rival.kind is not Kind.NODE for rival in finding.rivals)
    return separate or BusyCores(model).enough


def _of(ends: Sequence[Endpoint], where: Flags) -> tuple[Endpoint, ...]:
    return tuple(ends[number] for number in np.flatnonzero(where).tolist())


def _relayed(tally: Tally, findings: Sequence[Finding]) -> list[int]:
    """Return the places of bad pairs of a rail-isolated fabric that pass in world: jobs run in spite of them."""
    return [
        tally.place[pair]
        for one in findings
        if one.subject.kind is Kind.CROSS_RAIL
        for pair in one.cells
        if pair in tally.place and tally.inside.get(pair) is Verdict.OK
    ]


def _slow_by_load(tally: Tally, findings: Sequence[Finding]) -> list[int]:
    busy = [one for one in findings if one.subject.kind is Kind.CORES]
    return [tally.place[pair] for one in busy for pair in one.cells if pair in tally.place]


def _cause(
    model: Model, name: str, findings: Sequence[Finding], strays: Mapping[Pair, Verdict], chosen: Collection[str]
) -> Finding | str:
    """Return why a node is left out: the finding that blames it, else that about its bad pairs with the chosen nodes.

    Of stray ones, which are left for the strict set, no finding about many pairs is the reason.
    """
    about = [one for one in findings if one.severity is Severity.BAD and name in one.nodes]
    if (own := next((one for one in about if name in one.at_fault), None)) is not None:
        return own
    if record := model.gone(name):
        return record.text or str(record.state)

    def mine(pairs: Iterable[Pair]) -> list[Pair]:
        return [pair for pair in pairs if name in (ends := _nodes(pair)) and (ends - {name} or ends) <= {name, *chosen}]

    others = [one for one in about if mine(one.cells - strays.keys())]
    if not others and (own_strays := sorted(mine(strays))):
        text = f"{count(len(own_strays), 'stray pair')}: {', '.join(' > '.join(pair) for pair in own_strays[:_FEW])}"
        return f"{text}{', ...' if len(own_strays) > _FEW else ''}; retest"
    return next((one for one in (*others, *about) if one.cells or len(one.nodes) == 1), "some of its pairs are bad")


def _reasons(model: Model) -> dict[str, str]:
    """Return why endpoints were not tested; such a reason begins with the name of the endpoint."""
    ends = ((end, why) for pair, why in model.untested.items() for end in pair)
    return {end: why for end, why in ends if why.startswith((f"{end}:", f"{end} "))}


def _reason(model: Model, name: str, fit: Flags, reasons: dict[str, str]) -> str:
    """Return why a node without bad pairs is left out."""
    unfit = [str(end) for end in model.table.of_node(name) if not fit[end.number]]
    record = model.nodes.get(name)
    note = record.note if record is not None else ""
    return next((reasons[end] for end in unfit if end in reasons), note or f"{fold(unfit) or name} was not tested")


# -- largest set without bad pairs --------------------------------------------------------------------------------


def independent(members: Flags, a: Ints, b: Ints, later: Flags) -> tuple[Flags, bool]:
    """Return the largest set of some items without a bad pair, and True if there is provably no larger one.

    Args:
        members: Which items may be in the set.
        a: One item of each bad pair.
        b: The other items of the bad pairs.
        later: Items to leave out rather than others where sets are equally large.
    """
    both = members[a] & members[b]
    a, b = a[both], b[both]
    degree = np.bincount(a, minlength=len(members)) + np.bincount(b, minlength=len(members))
    chosen = members & (degree == 0)
    items = np.flatnonzero(degree)
    if len(items) > _MOST_ITEMS:
        items = np.sort(items[np.argsort(degree[items], kind="stable")[:_MOST_ITEMS]])
    place = np.full(len(members), -1)
    place[items] = np.arange(len(items))
    near = np.zeros((len(items), len(items)), dtype=bool)
    known = (place[a] >= 0) & (place[b] >= 0)
    near[place[a[known]], place[b[known]]] = True
    near |= near.T
    taken, exact = _greedy(near, later[items]), not len(items)
    if 0 < len(items) <= _MOST_EXACT:
        search = _Search(near, later[items], taken)
        exact = search.run()
        taken = np.array([search.best >> at & 1 for at in range(len(items))], dtype=bool)
    chosen[items[taken]] = True
    return chosen, exact


def _greedy(near: Flags, later: Flags) -> Flags:
    """Return a set that takes the item with the fewest bad pairs left, again and again."""
    cost = 2 * near.sum(axis=1) + later
    left, taken = np.ones(len(near), dtype=bool), np.zeros(len(near), dtype=bool)
    while left.any():
        at = int(np.argmin(np.where(left, cost, 4 * len(near))))
        gone = near[at] & left
        taken[at], left[at] = True, False
        left &= ~gone
        cost -= 2 * near[gone].sum(axis=0)
    return taken


class _Search:
    """Branch and bound for the heaviest set without a bad pair; sets are bits of integers."""

    def __init__(self, near: Flags, later: Flags, first: Flags) -> None:
        bits = [1 << at for at in range(len(near))]
        self._near = [sum(bits[at] for at in np.flatnonzero(row).tolist()) for row in near]
        # One more item always weighs more than all preferences together.
        self._weight = [len(near) + 1 - int(one) for one in later]
        self._steps = _MOST_STEPS
        self.best = sum(bits[at] for at in np.flatnonzero(first).tolist())
        self._heaviest = sum(self._weight[at] for at in np.flatnonzero(first).tolist())

    def run(self) -> bool:
        """Search for `best`; return True if the search came to its end."""
        self._branch((1 << len(self._near)) - 1, 0, 0)
        return self._steps > 0

    def _branch(self, left: int, taken: int, weight: int) -> None:
        self._steps -= 1
        if self._steps <= 0 or weight + self._bound(left) <= self._heaviest:
            return
        at = max(_bits(left), key=lambda one: (self._near[one] & left).bit_count())
        if not self._near[at] & left:
            self.best, self._heaviest = taken | left, weight + sum(self._weight[one] for one in _bits(left))
            return
        self._branch(left & ~(1 << at), taken, weight)
        self._branch(left & ~(1 << at | self._near[at]), taken | 1 << at, weight + self._weight[at])

    def _bound(self, left: int) -> int:
        """Return a weight that no set reaches: of a group in which every pair is bad, it has at most one."""
        bound = 0
        while left:
            at = (left & -left).bit_length() - 1
            left &= ~(1 << at)
            heaviest, group = self._weight[at], left & self._near[at]
            while group:
                at = (group & -group).bit_length() - 1
                left &= ~(1 << at)
                group &= self._near[at]
                heaviest = max(heaviest, self._weight[at])
            bound += heaviest
        return bound


def _bits(number: int) -> list[int]:
    return [at for at in range(number.bit_length()) if number >> at & 1]


# -- ring over the nodes ------------------------------------------------------------------------------------------


def _hops(model: Model, table: PairTable, ok: Flags, node: Ints, chosen: Ints) -> Floats:
    """Return the value of the best pair between any two of some nodes, in the slower direction; NaN if unknown."""
    place = np.full(int(node.max(initial=-1)) + 1, -1)
    place[chosen] = np.arange(len(chosen))
    source, target = place[node[table.source]], place[node[table.target]]
    mine = ok & (source >= 0) & (target >= 0) & (source != target)
    values = values_at(model, Layer.P2P, table.row[mine])
    if np.isnan(values).all():
        values = values_at(model, Layer.WORLD, table.row[mine])
    best = np.full((len(chosen), len(chosen)), -np.inf)
    np.maximum.at(best, (source[mine], target[mine]), np.where(np.isnan(values), -np.inf, values))
    best[np.isinf(best)] = np.nan
    slower: Floats = np.fmin(best, best.T)
    return slower


def _ordered(names: Sequence[str], chosen: Ints, hops: Floats, kinds: Sequence[str]) -> tuple[list[str], Ring | None]:
    nodes = [names[number] for number in chosen.tolist()]
    if len(nodes) < _FEWEST_OF_RING or np.isnan(hops).all():
        return nodes, None
    order = rank_order(nodes, hops, kinds)
    ring = None if order.before is None or order.after is None else Ring(order.before, order.after)
    return order.nodes, ring
