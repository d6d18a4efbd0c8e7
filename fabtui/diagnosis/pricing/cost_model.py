"""Time of a collective from the bandwidths of pairs: the busiest hop, NIC or GPU, and a latency for each step.

``seconds = factor x (steps x latency + bytes x max(share / rate))``: the alpha-beta model, as in NCCL's own tuning
(src/graph/tuning.cc), with measured rates in place of tables. ``factor`` is the measured time over that of
the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fabtui.diagnosis.finding import Steps, finished, in_steps
from fabtui.diagnosis.pricing.fabric_rates import FabricRates, fabric_rates
from fabtui.model.endpoints import FIRST_RANKS
from fabtui.model.layers import COLLECTIVES, busbw_factor
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.pair_table import Floats, Ints, quantile
from fabtui.model.session_model import Model

#: Shares of the message that a hop of a ring carries, times (n - 1) / n: nccl-tests, doc/PERFORMANCE.md.
_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


class HopTraffic(NamedTuple):
    """Hops of a collective with their shares of the message size, and the number of its steps."""

    source: Ints  #: Number of the endpoint that sends, for each hop.
    target: Ints  #: The one that receives.
    share: Floats  #: Share of the message size that goes over it.
    steps: int  #: Number of messages one after the other, each with one latency.


def traffic(
    kind: str, algorithm: str, ranks: Ints, node: Ints, port: Ints, rings: Sequence[Ints] = ()
) -> HopTraffic | None:
    """Return the traffic of a collective; None if the algorithm is not modelled.

    Args:
        kind: The collective, such as ``all_reduce``.
        algorithm: ``ring`` or ``tree``; an all to all has one of its own.
        ranks: Numbers of the endpoints that take part, in rank order.
        node: Number of the node of each endpoint of the session.
        port: Number of the NIC of each endpoint.
        rings: The rings of NCCL's channels, numbers of endpoints; without any, a ring per rail in rank order.
    """
    count = len(ranks)
    if count < 2:
        return None
    if kind == "alltoall":
        # Each rank sends an n-th of its buffer to every other.
        source, target = np.nonzero(~np.eye(count, dtype=bool))
        return HopTraffic(ranks[source], ranks[target], np.full(len(source), 1 / count), 1)
    if kind not in _PASSES:
        return None
    if algorithm == "ring":
        orders = [*rings] or _rings(ranks, node, port)
        source = np.concatenate(orders)
        target = np.concatenate([np.roll(order, -1) for order in orders])
        source, target = _by_rail(source, target, ranks, node, port, orders) if not rings else (source, target)
        passes = _PASSES[kind]
        share = passes * (count - 1) / count / len(orders)
        return HopTraffic(source, target, np.full(len(source), share), passes * (count - 1))
    if algorithm == "tree" and kind == "all_reduce":
        return _trees(ranks, node, port)
    return None


def _by_node(ranks: Ints, node: Ints) -> list[Ints]:
    return [ranks[node[ranks] == one] for one in dict.fromkeys(node[ranks].tolist())]


def _rails(groups: list[Ints], port: Ints) -> list[list[int]]:
    places = [
        list({number: at for at, number in reversed([*enumerate(port[mine].tolist())])}.values()) for mine in groups
    ]
    ordered = [sorted(mine) for mine in places]
    return [[mine[at] for mine in ordered] for at in range(min(map(len, ordered)))]


def _rings(ranks: Ints, node: Ints, port: Ints) -> list[Ints]:
    """Return a ring for each rail: node after node, and within a node from the endpoint of the rail on."""
    groups = _by_node(ranks, node)
    if len(groups) == 1:
        return [ranks]
    sizes = np.array([len(mine) for mine in groups])
    members, own = np.concatenate(groups), np.repeat(np.arange(len(groups)), sizes)
    within = np.arange(len(members)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # Turned within its node, so that the endpoint of the rail comes first.
    return [
        members[np.argsort(own * len(members) + (within - np.array(places)[own]) % sizes[own])]
        for places in _rails(groups, port)
    ]


def _by_rail(source: Ints, target: Ints, ranks: Ints, node: Ints, port: Ints, orders: list[Ints]) -> tuple[Ints, Ints]:
    """Return the hops with those between nodes on the rail of their ring: it leaves by the NIC that it entered by."""
    if len(set(node[ranks].tolist())) == 1:
        return source, target
    source = source.copy()
    crossing = node[source] != node[target]
    # The endpoint by which a ring enters a node is the first of this node in its order.
    at = 0
    for order in orders:
        part = slice(at, at + len(order))
        _, first, own = np.unique(node[order], return_index=True, return_inverse=True)
        source[part] = np.where(crossing[part], order[first[own]], source[part])
        at += len(order)
    return source, target


def _up(count: int) -> list[int]:
    """Return the parent of each node in NCCL's binary tree (ncclGetBtree of src/graph/trees.cc); -1: the root."""
    found = [-1]
    for number in range(1, count):
        bit = number & -number
        up = (number ^ bit) | (bit << 1)
        found.append(number ^ bit if up >= count else up)
    return found


def double_tree(count: int) -> list[list[int]]:
    """Return the parents of both trees (ncclGetDtree): the second is shifted by one, or mirrored for an even number."""
    up = _up(count)
    if count % 2:
        second = [-1 if up[(at - 1) % count] < 0 else (up[(at - 1) % count] + 1) % count for at in range(count)]
    else:
        second = [-1 if up[count - 1 - at] < 0 else count - 1 - up[count - 1 - at] for at in range(count)]
    return [up, second]


def _trees(ranks: Ints, node: Ints, port: Ints) -> HopTraffic:
    """Return the traffic of both trees on each rail: up and down between nodes, and along a chain within each."""
    groups = _by_node(ranks, node)
    rails = _rails(groups, port)
    trees = double_tree(len(groups))
    pairs: list[tuple[int, int]] = []
    for places in rails:
        for parents in trees:
            heads = [int(mine[at]) for mine, at in zip(groups, places, strict=True)]
            edges = [(heads[child], heads[parent]) for child, parent in enumerate(parents) if parent >= 0]
            for mine, at in zip(groups, places, strict=True):
                chain = np.roll(mine, -at).tolist()
                edges += list(zip(chain[1:], chain, strict=False))
            pairs += [way for a, b in edges for way in ((a, b), (b, a))]
    source, target = np.array(pairs, dtype=np.int64).T
    steps = 2 * (max(len(mine) for mine in groups) - 1 + max(1, len(groups) - 1).bit_length())
    return HopTraffic(source, target, np.full(len(pairs), 1 / (len(rails) * len(trees))), steps)


#: Greatest error of a model that gives numbers.
MOST_ERROR = 0.20
#: Maximum number of measured groups that the model is compared with.
_MOST_GROUPS = 64
#: Number of groups that are read per step.
_GROUPS_AT_ONCE = 16
#: Share of these groups whose error is at most the one that is stated.
_COVERED = 0.8
#: Algorithms by the first word that NCCL prints; Gloo and logs without one use rings.
_MODELLED = ("ring", "tree")


class Calibration(NamedTuple):
    """Collective over the largest measured group, beside the model."""

    kind: str  #: The collective.
    ranks: Ints  #: Endpoints of the group, in rank order.
    bytes: int  #: Message size.
    algorithm: str  #: ``ring`` or ``tree``.
    rings: tuple[Ints, ...]  #: The rings of NCCL's channels in its log; empty: a ring per rail, in rank order.
    busbw: float  #: What was measured, GB/s.
    factor: float  #: Measured time over time of the model.
    error: float  #: Relative error of the calibrated model in the other groups; without any, that of the plain model.
    others: int  #: Number of these groups.

    @property
    def fits(self) -> bool:
        """True if the model may give numbers."""
        return self.error <= MOST_ERROR


class CostModel:
    """Predicts the busbw of collectives of a session.

    Args:
        model: The session model.
        rates: Its rates.
    """

    def __init__(self, model: Model, rates: FabricRates) -> None:
        self.rates = rates
        self._model = model
        self._calibrations: dict[str, Calibration | None] = {}

    def calibration(self, kind: str) -> Calibration | None:
        """Return the model beside what was measured of a collective; None if nothing comparable was measured."""
        return finished(self.calibrated(kind))

    def calibrated(self, kind: str) -> Steps[Calibration | None]:
        if kind not in self._calibrations:
            self._calibrations[kind] = yield from self._calibrate(kind)
        return self._calibrations[kind]

    def busbw(self, of: Calibration, ranks: Ints, rates: FabricRates | None = None) -> float | None:
        """Return the busbw (GB/s) of a collective over some endpoints, at the size and by the algorithm measured.

        None if a rate on its way is unknown. Rings of a log count for its own ranks only.
        """
        rings = of.rings if len(ranks) == len(of.ranks) and set(ranks.tolist()) == set(of.ranks.tolist()) else ()
        found = self._seconds(of.kind, of.algorithm, ranks, of.bytes, rings, self.rates if rates is None else rates)
        return None if found is None else _busbw(of.kind, len(ranks), of.bytes, found * of.factor)

    def _seconds(
        self, kind: str, algorithm: str, ranks: Ints, size: int, rings: Sequence[Ints], rates: FabricRates
    ) -> float | None:
        made = traffic(kind, algorithm, ranks, rates.node, rates.port, rings)
        return None if made is None else seconds(made, size, rates)

    def _calibrate(self, kind: str) -> Steps[Calibration | None]:
        groups: list[tuple[Ints, Measurement, tuple[int, str, bool]]] = []
        for some in in_steps(_groups(self._model, kind), _GROUPS_AT_ONCE):
            for ranks, one in some:
                if (algorithm := _algorithm(one)) in _MODELLED:
                    spans = bool((self.rates.node[ranks] != self.rates.node[ranks[0]]).any())
                    groups.append((ranks, one, (one.asked_bytes or 0, algorithm, spans)))
            yield
        if not groups:
            return None
        whole, most, shape = max(groups, key=lambda group: (len(group[0]), group[2][0]))
        size, algorithm, _ = shape
        compared: list[tuple[int, float]] = []
        alike = [(ranks, one) for ranks, one, of in groups if of == shape]
        step = max(1, len(alike) // _MOST_GROUPS)
        rings = _rings_of(most, whole)
        for ranks, one in [(whole, most), *(group for group in alike[::step] if group[1] is not most)]:
            plain = self._seconds(kind, algorithm, ranks, size, rings if one is most else (), self.rates)
            yield
            assert one.value is not None
            if plain is None:
                if one is most:
                    return None
                continue
            compared.append((len(ranks), _seconds_of(kind, len(ranks), size, one.value) / plain))
        factor = compared[0][1]
        errors = np.array([abs(other / factor - 1) for _, other in compared[1:]])
        error = quantile(errors, _COVERED) if len(errors) else abs(1 / factor - 1)
        assert most.value is not None
        return Calibration(kind, whole, size, algorithm, rings, most.value, factor, error, len(errors))


def cost_model(model: Model) -> CostModel | None:
    """Return the cost model of a session; None if no pair of its endpoints has a value."""
    rates = finished(fabric_rates(model))
    return None if rates is None else CostModel(model, rates)


def seconds(made: HopTraffic, size: int, rates: FabricRates) -> float | None:
    """Return the time (s) of a message size; None if a rate on the way is unknown.

    An unknown latency is left out: the calibration has it, at the size that was measured.
    """
    rate = rates.rate[made.source, made.target]
    if np.isnan(rate).any():
        return None
    load = made.share * size / 1e9
    count = len(rates.ends)
    _, first, hop = np.unique(made.source * count + made.target, return_index=True, return_inverse=True)
    longest = float((np.bincount(hop, load) / rate[first]).max(initial=0.0))
    within = rates.within(made.source, made.target)
    sends, receives, out, into = rates.capacity
    parts = (
        (rates.port[made.source[~within]], load[~within], sends),
        (rates.port[made.target[~within]], load[~within], receives),
        (made.source[within], load[within], out),
        (made.target[within], load[within], into),
    )
    for numbers, loads, most in parts:
        longest = max(longest, _busiest(numbers, loads, most))
    if rates.latency is None:
        return longest
    waits = rates.latency[made.source, made.target]
    waits = waits[np.isfinite(waits)]
    return longest + made.steps * (quantile(waits) if len(waits) else 0.0)


def _busiest(numbers: Ints, loads: Floats, most: Floats) -> float:
    if not len(numbers):
        return 0.0
    carried = np.bincount(numbers, loads, minlength=len(most))
    used = carried > 0
    return float((carried[used] / most[used]).max(initial=0.0))


def _busbw(kind: str, ranks: int, size: int, time: float) -> float:
    return size / time / 1e9 * busbw_factor(kind, ranks)


def _seconds_of(kind: str, ranks: int, size: int, busbw: float) -> float:
    return size / 1e9 * busbw_factor(kind, ranks) / busbw


def _algorithm(one: Measurement) -> str:
    """Return the algorithm of a collective, as it was reported; Gloo reports none, and uses rings."""
    word = str((one.extra or {}).get("algorithm") or "ring").lower()
    return word.partition("/")[0]


def _rings_of(one: Measurement, ranks: Ints) -> tuple[Ints, ...]:
    """Return the rings of a log, as numbers of endpoints; none if they are not over exactly these ranks."""
    rings = (one.extra or {}).get("rings")
    found = []
    for ring in rings if isinstance(rings, list) else ():
        if not isinstance(ring, list) or sorted(map(str, ring)) != sorted(map(str, range(len(ranks)))):
            return ()
        found.append(ranks[np.array(ring, dtype=np.int64)])
    return tuple(found)


def _groups(model: Model, kind: str) -> Iterator[tuple[Ints, Measurement]]:
    layer = COLLECTIVES.get(kind)
    if layer is None:
        return
    ends = [end for name in model.nodes for end in model.table.of_node(name) if end.kind != "none"]
    of_node = {name: [end.number for end in model.table.of_node(name)] for name in model.nodes}
    for one in model.measurements(layer):
        if one.arm is not None or one.value is None or not math.isfinite(one.value) or one.value <= 0:
            continue
        if one.verdict not in (Verdict.OK, Verdict.SLOW) or not one.asked_bytes or one.made:
            continue
        if one.src == one.dst == "all":
            ranks = [end.number for end in ends]
        elif one.src in of_node and one.dst in of_node:
            ranks = [number for name in dict.fromkeys((one.src, one.dst)) for number in of_node[name]]
        elif (first := FIRST_RANKS.fullmatch(one.src)) is not None:
            ranks = [end.number for end in ends[: int(first[1])]]
        else:
            rails = {f"rail{end.index if end.rail is None else end.rail}" for end in ends}
            if one.src not in rails:
                continue
            ranks = [e.number for e in ends if f"rail{e.index if e.rail is None else e.rail}" == one.src]
        # Ranks that were left out of a group are not known by name.
        if (one.extra or {}).get("ranks") == len(ranks) > 1:
            yield np.array(ranks, dtype=np.int64), one
