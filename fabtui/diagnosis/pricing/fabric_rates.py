"""Bandwidth and latency between endpoints, with the NICs and GPUs that pairs share: the input of the cost model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fabtui.diagnosis.finding import Steps
from fabtui.model.endpoints import Endpoint
from fabtui.model.layers import Layer
from fabtui.model.pair_table import SLOW, Flags, Floats, Ints, parts
from fabtui.model.session_model import Model

#: Number of measurements per step whose extras are read.
_EXTRAS = 32
#: Latencies are in microseconds.
_MICROSECOND = 1e-6


class Capacity(NamedTuple):
    """Most that NICs and GPUs carry, GB/s: the best of their pairs; minus infinity without a value."""

    sends: Floats  #: Each NIC, to other nodes.
    receives: Floats  #: Each NIC, from other nodes.
    out: Floats  #: Each endpoint, within its node or NVLink domain.
    into: Floats  #: The same, what it receives.

    def take(self, rates: FabricRates, source: Ints, target: Ints, value: Floats) -> None:
        """Raise what carries some pairs to the rates of these; pairs without one change nothing."""
        within = rates.within(source, target)
        known = np.isfinite(value)
        for mine, first, second, ends in (
            (known & ~within, self.sends, self.receives, rates.port),
            (known & within, self.out, self.into, np.arange(len(rates.ends))),
        ):
            np.maximum.at(first, ends[source[mine]], value[mine])
            np.maximum.at(second, ends[target[mine]], value[mine])


@dataclass(frozen=True)
class FabricRates:
    """Known rates of ordered pairs of endpoints; rows send, columns receive."""

    rate: Floats  #: One way, GB/s; NaN where nothing passes or nothing is known.
    usual: Floats  #: What is usual in the class of the pair, GB/s; NaN if unknown.
    slow: Flags  #: Whether a pair is slow.
    latency: Floats | None  #: Half a round trip of a small message, s; NaN if unknown, None if none was measured.
    node: Ints  #: Number of the node of each endpoint.
    domain: Ints  #: Number of its NVLink domain; a negative one of its own without a domain.
    port: Ints  #: Number of the NIC of each endpoint; endpoints that share a NIC have the same.
    ends: list[Endpoint]  #: The endpoints.
    capacity: Capacity  #: What they carry together.

    def within(self, source: Ints, target: Ints) -> Flags:
        """Return whether pairs use no NIC: they are within a node or an NVLink domain."""
        found: Flags = (self.node[source] == self.node[target]) | (self.domain[source] == self.domain[target])
        return found

    def with_usual(self, source: Ints, target: Ints) -> FabricRates:
        """Return the rates as they would be if some pairs had what is usual."""
        rate = self.rate.copy()
        rate[source, target] = np.fmax(rate[source, target], self.usual[source, target])
        capacity = Capacity(*(one.copy() for one in self.capacity))
        capacity.take(self, source, target, rate[source, target])
        return replace(self, rate=rate, capacity=capacity)


def fabric_rates(model: Model) -> Steps[FabricRates | None]:
    """Return the rates of a session; None if no pair of endpoints has a value.

    Pairs that a lab slows by itself are unknown: a collective does not meet such a fault.
    """
    ends, table = model.endpoints, model.pair_table(Layer.P2P)
    if not len(table):
        return None
    made, found = _made(model), _empty(model)
    both = bool(model.options.get("both"))
    yield
    for part in parts(len(table)):
        one = table.where(part)
        at = one.source, one.target
        # A value of 0 is not a rate to reckon with.
        value = np.where(~made[one.row] & (one.value > 0), one.value, np.nan)
        if both:
            value = yield from _bidirectional(model, one.row, value)
        found.rate[at] = value
        found.usual[at] = one.value / np.exp(one.share)
        found.slow[at] = (one.verdict == SLOW) & ~made[one.row]
        found.capacity.take(found, *at, value)
        yield
    if not any(np.isfinite(one).any() for one in found.capacity):
        return None
    if Layer.LATENCY not in model.layers:
        return found
    latency = _unknown(len(ends))
    for _ in model.pair_tables(Layer.LATENCY):
        yield
    trips = model.pair_table(Layer.LATENCY)
    for part in parts(len(trips)):
        latency[trips.source[part], trips.target[part]] = trips.value[part] * _MICROSECOND
        yield
    return replace(found, latency=latency)


def _bidirectional(model: Model, rows: Ints, values: Floats) -> Steps[Floats]:
    """Return the values of pairs, or what they have while the opposite direction runs, if that is less and known.

    In a collective every endpoint sends and receives at once.
    """
    found = values.copy()
    for at, row in enumerate(rows.tolist()):
        both = (model.results.store.get(row).extra or {}).get("both_ways")
        if isinstance(both, (int, float)) and both > 0:
            found[at] = min(found[at], both)
        if at % _EXTRAS == 0:
            yield
    return found


def _unknown(count: int) -> Floats:
    """Return a matrix without values; of half the usual size, as a step must be short."""
    return np.full((count, count), np.nan, dtype=np.float32)


def _empty(model: Model) -> FabricRates:
    """Return the places of the endpoints without rates."""
    ends = model.endpoints
    count = len(ends)
    names = {name: at for at, name in enumerate(dict.fromkeys(end.node for end in ends))}
    ports = {key: at for at, key in enumerate(dict.fromkeys(map(_port, ends)))}
    domains = {name: at for at, name in enumerate(dict.fromkeys(model.table.domains.values()))}
    domain = np.array([-1 - at for at in range(count)], dtype=np.int64)
    for number, name in model.table.domains.items():
        domain[number] = domains[name]
    sizes = (len(ports), len(ports), count, count)
    return FabricRates(
        _unknown(count),
        _unknown(count),
        np.zeros((count, count), dtype=bool),
        None,
        np.array([names[end.node] for end in ends], dtype=np.int64),
        domain,
        np.array([ports[_port(end)] for end in ends], dtype=np.int64),
        ends,
        Capacity(*(np.full(size, -np.inf) for size in sizes)),
    )


def _made(model: Model) -> Flags:
    """Return for each row of the store whether a lab made its result, or it is of a different layer."""
    shapes, shape_of, _ = model.results.store.columns()
    made = np.array([shape is None or shape.made or shape.layer is not Layer.P2P for shape in shapes], dtype=bool)
    found: Flags = made[np.array(shape_of)]
    return found


def _port(end: Endpoint) -> tuple[str, object]:
    """Return what names the NIC of an endpoint; without a NIC its rail or index does, as in classes of pairs."""
    return end.node, end.nic or (end.index if end.rail is None else end.rail)
