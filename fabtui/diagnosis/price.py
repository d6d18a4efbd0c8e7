"""Price of a finding (docs/price.md): what a collective gains without its node, or once its links are as usual.

``seconds = factor x (steps x latency + bytes x max(share / rate))``, over hops, NICs and GPUs: the alpha-beta model of
NCCL's tuning (src/graph/tuning.cc), with measured rates. ``factor`` is the measured time over that of the model.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fabtui.diagnosis.finding import Finding, Severity, Steps, in_steps
from fabtui.diagnosis.job.judge import job_verdict
from fabtui.model.endpoints import FIRST_RANKS, Endpoint
from fabtui.model.layers import COLLECTIVES, Layer, busbw_factor
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.pair_table import SLOW, Flags, Floats, Ints, parts, quantile
from fabtui.model.session_model import Model

#: Shares of the message that a hop of a ring carries, times (n - 1) / n: nccl-tests, doc/PERFORMANCE.md.
_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
#: Collectives in the order in which they are asked for a price: the first that was measured.
_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
#: Algorithms by the first word that NCCL prints; Gloo and logs without one use rings.
_MODELLED = ("ring", "tree")
#: Greatest error of a model that gives numbers, and the share of the groups whose error is at most the one stated.
MOST_ERROR, _COVERED = 0.20, 0.8
#: Maximum number of measured groups that the model is compared with, and of findings that get a price.
_MOST_GROUPS, _MOST_PRICED = 64, 8


class Hops(NamedTuple):
    """Hops of a collective, each with the same share of the message size, and the number of its steps."""

    source: Ints  #: Number of the endpoint that sends, for each hop.
    target: Ints  #: The one that receives.
    share: float
    steps: int  #: Number of messages one after the other, each with one latency.


def traffic(kind: str, algorithm: str, ranks: Ints, node: Ints, port: Ints, rings: Sequence[Ints] = ()) -> Hops | None:
    """Return the traffic of a collective over endpoints (``ranks``, in rank order); None if it is not modelled.

    ``node`` and ``port`` are numbers of node and NIC of each endpoint of the session, ``rings`` those of NCCL's
    channels; without any, there is a ring per rail in rank order.
    """
    count = len(ranks)
    if count < 2:
        return None
    if kind == "alltoall":
        # Each rank sends an n-th of its buffer to every other.
        source, target = np.nonzero(~np.eye(count, dtype=bool))
        return Hops(ranks[source], ranks[target], 1 / count, 1)
    if kind not in _PASSES or algorithm not in _MODELLED or (algorithm == "tree" and kind != "all_reduce"):
        return None
    rails = _rails(ranks, node, port)
    if algorithm == "tree":
        trees = double_tree(len(rails[0]))
        edges = [edge for chains in rails for parents in trees for edge in _tree(chains, parents)]
        source, target = np.array([way for edge in edges for way in (edge, edge[::-1])], dtype=np.int64).T
        steps = 2 * (max(map(len, rails[0])) - 1 + max(1, len(rails[0]) - 1).bit_length())
        return Hops(source, target, 1 / (len(rails) * len(trees)), steps)
    orders = [list(_cycle(ring.tolist())) for ring in rings] or [_ring(chains) for chains in rails]
    source, target = np.array([hop for order in orders for hop in order], dtype=np.int64).T
    passes = _PASSES[kind]
    return Hops(source, target, passes * (count - 1) / count / len(orders), passes * (count - 1))


def _rails(ranks: Ints, node: Ints, port: Ints) -> list[list[list[int]]]:
    """Return for each rail the endpoints of each node, turned so that the one of the rail comes first."""
    members = [ranks[node[ranks] == number].tolist() for number in dict.fromkeys(node[ranks].tolist())]
    # The first endpoint of each NIC of a node, in their order.
    heads = [sorted({port[end]: at for at, end in reversed([*enumerate(ends)])}.values()) for ends in members]
    rails = zip(*heads, strict=False)
    return [[ends[at:] + ends[:at] for ends, at in zip(members, places, strict=True)] for places in rails]


def _cycle(ring: list[int]) -> Iterator[tuple[int, int]]:
    return zip(ring, [*ring[1:], ring[0]], strict=True)


def _ring(chains: list[list[int]]) -> list[tuple[int, int]]:
    """Return the hops of the ring of a rail: node after node, in and out by its NIC, and a chain within each node."""
    if len(chains) == 1:
        return list(_cycle(chains[0]))
    within = [hop for chain in chains for hop in itertools.pairwise(chain)]
    return [*within, *_cycle([chain[0] for chain in chains])]


def _tree(chains: list[list[int]], parents: list[int]) -> list[tuple[int, int]]:
    """Return the edges of a tree of a rail, upwards: between nodes, and along a chain within each."""
    edges = [(chains[child][0], chains[parent][0]) for child, parent in enumerate(parents) if parent >= 0]
    return edges + [hop[::-1] for chain in chains for hop in itertools.pairwise(chain)]


def double_tree(count: int) -> list[list[int]]:
    """Return the parents of each node in both of NCCL's trees (ncclGetDtree of src/graph/trees.cc); -1: the root."""
    up = [-1]
    for number in range(1, count):
        bit = number & -number
        parent = (number ^ bit) | (bit << 1)
        up.append(number ^ bit if parent >= count else parent)
    # The second is shifted by one, or mirrored for an even number.
    if count % 2:
        return [up, [-1 if up[at - 1] < 0 else (up[at - 1] + 1) % count for at in range(count)]]
    return [up, [-1 if parent < 0 else count - 1 - parent for parent in reversed(up)]]


@dataclass(frozen=True)
class FabricRates:
    """Known rates of ordered pairs of endpoints; rows send, columns receive."""

    rate: Floats  #: One way, GB/s; NaN where nothing passes or nothing is known.
    usual: Floats  #: What is usual in the class of the pair, GB/s; NaN if unknown.
    slow: Flags  #: Whether a pair is slow.
    latency: Floats | None  #: Half a round trip of a small message, s; NaN if unknown, None if none was measured.
    within: Flags  #: Whether a pair uses no NIC: it is within a node or an NVLink domain.
    node: Ints  #: Number of the node of each endpoint.
    port: Ints  #: Number of the NIC of each endpoint; endpoints that share a NIC have the same.
    ends: list[Endpoint]  #: The endpoints.

    @functools.cached_property
    def most(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Most that NICs send and receive, and endpoints within their node or domain, GB/s: the best of their pairs."""
        across, inside = (np.where(where, np.nan_to_num(self.rate), 0.0) for where in (~self.within, self.within))
        sends, receives = (np.zeros(len(self.ends)) for _ in range(2))
        np.maximum.at(sends, self.port, across.max(axis=1))
        np.maximum.at(receives, self.port, across.max(axis=0))
        return sends, receives, inside.max(axis=1), inside.max(axis=0)

    def with_usual(self, source: Ints, target: Ints) -> FabricRates:
        """Return the rates as they would be if some pairs had what is usual."""
        rate = self.rate.copy()
        rate[source, target] = np.fmax(rate[source, target], self.usual[source, target])
        return replace(self, rate=rate)

    def seconds(self, kind: str, algorithm: str, ranks: Ints, size: int, rings: Sequence[Ints] = ()) -> float | None:
        """Return the time (s) of a collective; None if it is not modelled, or a rate on the way is unknown."""
        hops = traffic(kind, algorithm, ranks, self.node, self.port, rings)
        if hops is None:
            return None
        source, target = hops.source, hops.target
        rate = self.rate[source, target]
        if np.isnan(rate).any():
            return None
        _, first, hop = np.unique(source * len(self.ends) + target, return_index=True, return_inverse=True)
        inside = self.within[source, target]
        sends, receives, out, into = self.most
        parts = (
            (hop, rate[first]),
            *((self.port[source[~inside]], sends), (self.port[target[~inside]], receives)),
            *((source[inside], out), (target[inside], into)),
        )
        shares = [np.bincount(at, minlength=len(most)) / np.where(most > 0, most, np.inf) for at, most in parts]
        longest = size / 1e9 * hops.share * max(float(share.max(initial=0.0)) for share in shares)
        # An unknown latency is left out: the calibration has it, at the size that was measured.
        waits = np.empty(0) if self.latency is None else self.latency[source, target]
        waits = waits[np.isfinite(waits)]
        return longest + (hops.steps * quantile(waits) if len(waits) else 0.0)


def fabric_rates(model: Model) -> Steps[FabricRates | None]:
    """Return the rates of a session; None if no pair has a value. Those that a lab slows by itself count as unknown."""
    ends, table = model.endpoints, model.pair_table(Layer.P2P)
    shapes, shape_of, _ = model.results.store.columns()
    made = np.array([shape is None or shape.made or shape.layer is not Layer.P2P for shape in shapes], dtype=bool)
    made = made[np.array(shape_of)]
    # Half the usual size, as a step must be short.
    rate, usual = (np.full((len(ends), len(ends)), np.nan, dtype=np.float32) for _ in range(2))
    slow = np.zeros(rate.shape, dtype=bool)
    yield
    for part in parts(len(table)):
        some = table.where(part)
        at = some.source, some.target
        # A value of 0 is not a rate to reckon with.
        value = np.where(~made[some.row] & (some.value > 0), some.value, np.nan)
        if model.options.get("both"):
            # In a collective every endpoint sends and receives at once.
            extras = [model.results.store.get(row).extra or {} for row in some.row.tolist()]
            both = [extra.get("both_ways") for extra in extras]
            known = [each if isinstance(each, (int, float)) and each > 0 else math.inf for each in both]
            value = np.minimum(value, known)
        rate[at], usual[at] = value, some.value / np.exp(some.share)
        slow[at] = (some.verdict == SLOW) & ~made[some.row]
        yield
    if np.isnan(rate).all():
        return None
    latency = None
    if Layer.LATENCY in model.layers:
        latency, trips = np.full(rate.shape, np.nan, dtype=np.float32), model.pair_table(Layer.LATENCY)
        yield
        # From microseconds.
        latency[trips.source, trips.target] = trips.value * 1e-6
    node, port = _numbers(end.node for end in ends), _numbers(map(_port, ends))
    domain = _numbers(model.table.domains.get(end.number, end.number) for end in ends)
    within = (node[:, None] == node) | (domain[:, None] == domain)
    return FabricRates(rate, usual, slow, latency, within, node, port, ends)


def _numbers(names: Iterator[object]) -> Ints:
    """Return a number for each name, the same for the same."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def _port(end: Endpoint) -> tuple[str, object]:
    """Return what names the NIC of an endpoint; without a NIC its rail or index does, as in classes of pairs."""
    return end.node, end.nic or _rail(end)


def _rail(end: Endpoint) -> int:
    return end.index if end.rail is None else end.rail


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
    """Predicts the busbw of collectives of a session with some rates."""

    def __init__(self, model: Model, rates: FabricRates) -> None:
        self.rates = rates
        self._model = model

    def busbw(self, of: Calibration, ranks: Ints, rates: FabricRates | None = None) -> float | None:
        """Return the busbw (GB/s) of a collective over some endpoints; None if a rate on its way is unknown."""
        # Rings of a log count for its own ranks only.
        rings = of.rings if len(ranks) == len(of.ranks) and set(ranks.tolist()) == set(of.ranks.tolist()) else ()
        seconds = (rates or self.rates).seconds(of.kind, of.algorithm, ranks, of.bytes, rings)
        return None if seconds is None else of.bytes / 1e9 * busbw_factor(of.kind, len(ranks)) / seconds / of.factor

    def calibrated(self, kind: str) -> Steps[Calibration | None]:
        """Return the model beside what was measured of a collective; None if nothing comparable was measured."""
        groups: list[tuple[Ints, Measurement, float, tuple[int, str, bool]]] = []
        for some in in_steps(_groups(self._model, kind), 16):
            for ranks, measured, busbw in some:
                # Gloo reports no algorithm, and uses rings.
                algorithm = str((measured.extra or {}).get("algorithm") or "ring").lower().partition("/")[0]
                if algorithm in _MODELLED:
                    spans = bool((self.rates.node[ranks] != self.rates.node[ranks[0]]).any())
                    groups.append((ranks, measured, busbw, (measured.asked_bytes or 0, algorithm, spans)))
            yield
        if not groups:
            return None
        largest = max(groups, key=lambda group: (len(group[0]), group[3][0]))
        whole, measured, busbw, (size, algorithm, _) = largest
        rings = _rings_of(measured, whole)
        plain = self.rates.seconds(kind, algorithm, whole, size, rings)
        if plain is None:
            return None
        factor, errors = _measured_seconds(kind, whole, size, busbw) / plain, list[float]()
        alike = [group for group in groups if group[3] == largest[3] and group is not largest]
        for ranks, _, value, _ in alike[:: max(1, len(alike) // _MOST_GROUPS)]:
            if (other := self.rates.seconds(kind, algorithm, ranks, size)) is not None:
                errors.append(abs(_measured_seconds(kind, ranks, size, value) / other / factor - 1))
            yield
        error = quantile(np.array(errors), _COVERED) if errors else abs(1 / factor - 1)
        return Calibration(kind, whole, size, algorithm, rings, busbw, factor, error, len(errors))


def _measured_seconds(kind: str, ranks: Ints, size: int, busbw: float) -> float:
    return size / 1e9 * busbw_factor(kind, len(ranks)) / busbw


def _rings_of(measured: Measurement, ranks: Ints) -> tuple[Ints, ...]:
    """Return the rings of a log, as numbers of endpoints; none if they are not over exactly these ranks."""
    rings = (measured.extra or {}).get("rings")
    rings = rings if isinstance(rings, list) else []
    if any(
        not isinstance(ring, list) or sorted(map(str, ring)) != sorted(map(str, range(len(ranks)))) for ring in rings
    ):
        return ()
    return tuple(ranks[np.array(ring, dtype=np.int64)] for ring in rings)


def _groups(model: Model, kind: str) -> Iterator[tuple[Ints, Measurement, float]]:
    """Yield the groups of a collective that passed, each with its ranks and its busbw (GB/s)."""
    of_node = {name: [end for end in model.table.of_node(name) if end.kind != "none"] for name in model.nodes}
    ends = [end for mine in of_node.values() for end in mine]
    for row in model.measurements(COLLECTIVES[kind]):
        if row.arm is not None or row.value is None or not math.isfinite(row.value) or row.value <= 0:
            continue
        if row.verdict not in (Verdict.OK, Verdict.SLOW) or not row.asked_bytes or row.made:
            continue
        if row.src == row.dst == "all":
            group = ends
        elif row.src in of_node and row.dst in of_node:
            group = [end for name in dict.fromkeys((row.src, row.dst)) for end in of_node[name]]
        elif (first := FIRST_RANKS.fullmatch(row.src)) is not None:
            group = ends[: int(first[1])]
        else:
            group = [end for end in ends if f"rail{_rail(end)}" == row.src]
        # Ranks that were left out of a group are not known by name.
        if (row.extra or {}).get("ranks") == len(group) > 1:
            yield np.array([end.number for end in group], dtype=np.int64), row, row.value


class Gain(NamedTuple):
    """Gain of a change."""

    busbw: float  #: Busbw that the model expects then, GB/s.
    ratio: float  #: The same over what the session measured.


class PriceFact(NamedTuple):
    """Price of a finding: its collective, what was measured, and what the cost model expects of a change."""

    collective: str  #: Name of the collective.
    bytes: int  #: Message size.
    nodes: int  #: Number of nodes that took part.
    busbw: float  #: Measured busbw over all of them, GB/s.
    node: str | None  #: The node that is left out for `without`; None if the finding is not about one.
    without: Gain | None  #: Without that node; None if unknown.
    fixed: Gain | None  #: With all slow pairs of the finding as usual; None if unknown.
    share: float | None  #: Time of one such collective as a share of an iteration of the job; None without its log.
    error: float  #: Relative error of the model.
    compared: int  #: Number of measured collectives that `error` is about; 0: the model has no other to compare.
    fits: bool  #: Whether the error is small enough; without that there are no gains.


def priced(model: Model, findings: Sequence[Finding]) -> Steps[list[Finding]]:
    """Return findings with their prices, the first on bandwidth; none without a collective over several nodes."""
    listed = list(findings)
    if not listed or not model.layers & set(COLLECTIVES.values()) or not len(model.pair_table(Layer.P2P)):
        return listed
    rates = yield from fabric_rates(model)
    if rates is None:
        return listed
    wanted: list[tuple[int, list[tuple[int, int]]]] = []
    for at, finding in enumerate(listed):
        cells = yield from _slow_cells(model, rates, finding)
        if cells and len(wanted) < _MOST_PRICED:
            wanted.append((at, cells))
    costs, of = CostModel(model, rates), None
    for kind in _KINDS if wanted else ():
        of = of or (yield from costs.calibrated(kind))
    if of is None or len(np.unique(rates.node[of.ranks])) < 2:
        return listed
    verdict = job_verdict(model)
    share = iteration_share(of, verdict.per_minute if verdict is not None else None)
    for at, cells in wanted:
        yield
        fact = yield from _price(costs, of, listed[at].subject.node, cells, share)
        listed[at] = listed[at].replace(facts={**listed[at].facts, "price": fact})
    return listed


def iteration_share(of: Calibration, per_minute: float | None) -> float | None:
    """Return the time of one measured collective as a share of an iteration; None if the log shows no iterations."""
    return _measured_seconds(of.kind, of.ranks, of.bytes, of.busbw) * per_minute / 60.0 if per_minute else None


def _slow_cells(model: Model, rates: FabricRates, finding: Finding) -> Steps[list[tuple[int, int]]]:
    """Return the slow pairs of a finding on bandwidth, as numbers of endpoints; none of those that a lab made."""
    found: list[tuple[int, int]] = []
    if finding.severity is Severity.NOTE or finding.facts.get("made_by_lab"):
        return found
    number = model.table.number
    for some in in_steps(finding.cells):
        pairs = [(number(src), number(dst)) for src, dst in some]
        found += [(a, b) for a, b in pairs if a is not None and b is not None and rates.slow[a, b]]
        yield
    return found


def _price(
    costs: CostModel, of: Calibration, node: str | None, cells: list[tuple[int, int]], share: float | None
) -> Steps[PriceFact]:
    def gain(busbw: float | None) -> Gain | None:
        return None if busbw is None else Gain(busbw, busbw / of.busbw)

    rates = costs.rates
    nodes = len(np.unique(rates.node[of.ranks]))
    without = fixed = None
    if of.fits:
        if node is not None and nodes > 2:
            left = [number for number in of.ranks.tolist() if rates.ends[number].node != node]
            without = gain(costs.busbw(of, np.array(left, dtype=np.int64)))
            yield
        # An array takes ten times as long to make of tuples.
        ends = np.fromiter(itertools.chain.from_iterable(cells), np.int64, 2 * len(cells))
        fixed = gain(costs.busbw(of, of.ranks, rates.with_usual(ends[::2], ends[1::2])))
        yield
    return PriceFact(of.kind, of.bytes, nodes, of.busbw, node, without, fixed, share, of.error, of.others, of.fits)
