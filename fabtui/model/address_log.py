"""Measurements between addresses of nodes, and the rail of each address."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from fabtui.model.endpoints import PairClass
from fabtui.model.facts.node_view import dicts, field
from fabtui.model.layers import Layer
from fabtui.model.measurement import SEVERITY, Measurement
from fabtui.model.measurement_store import NONE, MeasurementStore
from fabtui.model.pair_results import MOST_ATTEMPTS

NodePair = tuple[str, str]
AddressPair = tuple[str, str]

_RANK = {verdict: rank for rank, verdict in enumerate(SEVERITY)}


class RailPort(NamedTuple):
    """Rail of an address or RDMA port (None: unknown), and its interface (or "")."""

    rail: int | None
    nic: str


class AddressLog:
    """The latest attempts by layer, ordered node pair and ordered address pair."""

    def __init__(self) -> None:
        #: Incremented by each measurement.
        self.version = 0
        #: Row of the latest attempt at each.
        self._found: dict[Layer, dict[NodePair, dict[AddressPair, int]]] = {}
        #: Each pair of addresses once, shared by all layers.
        self._pairs: dict[AddressPair, AddressPair] = {}
        self._kept = MeasurementStore()
        #: By node and address.
        self._seats: dict[str, dict[str, RailPort]] = {}
        #: Each of them once: the nodes of a cluster are alike.
        self._ports: dict[RailPort, RailPort] = {}

    def place(self, node: str, inventory: Any) -> None:
        seats = self._seats.setdefault(node, {})
        for listed in ("data_addresses", "down_addresses"):
            for entry in dicts(field(inventory, listed)):
                seats[str(entry.get("address"))] = self._port(entry.get("rail"), entry.get("nic"))
        for number, port in enumerate(dicts(field(inventory, "ib"))):
            seats[f"{port.get('ca')}:{port.get('port')}"] = self._port(number, port.get("netdev"))

    def _port(self, rail: Any, nic: Any) -> RailPort:
        whole = isinstance(rail, int) and not isinstance(rail, bool)
        port = RailPort(rail if whole else None, nic if isinstance(nic, str) else "")
        return self._ports.setdefault(port, port)

    def seat(self, node: str, address: str | None) -> RailPort:
        return self._seats.get(node, {}).get(address or "", RailPort(None, ""))

    def kind(self, measurement: Measurement) -> PairClass:
        """Return the class of a pair of addresses, by their rails if both are known."""
        here = self.seat(measurement.src, measurement.src_addr).rail
        there = self.seat(measurement.dst, measurement.dst_addr).rail
        if here is None or there is None:
            return PairClass.NODE_PAIR
        return PairClass.SAME_RAIL if here == there else PairClass.CROSS_RAIL

    @property
    def layers(self) -> Iterable[Layer]:
        return self._found.keys()

    def take(self, measurement: Measurement) -> Measurement | None:
        """Store a measurement; return the previous attempt, or None."""
        pairs = self._found.setdefault(measurement.layer, {}).setdefault((measurement.src, measurement.dst), {})
        key = (measurement.src_addr or "", measurement.dst_addr or "")
        before = pairs.get(key, NONE)
        row = pairs[self._pairs.setdefault(key, key)] = self._kept.add(measurement, before)
        rows = self._kept.attempts(row)
        if len(rows) > MOST_ATTEMPTS:
            # A session that watches for days tests bad pairs again and again.
            self._kept.remove(rows[-1], after=rows[-2])
        self.version += 1
        return None if before == NONE else self._kept.get(before)

    def attempts(self, layer: Layer, src: str, dst: str) -> list[Measurement]:
        """Return the latest measurements of an ordered node pair in a layer, oldest first."""
        kept, pairs = self._kept, self._found.get(layer, {}).get((src, dst), {})
        measurements = [kept.get(row) for last in pairs.values() for row in reversed(kept.attempts(last))]
        return sorted(measurements, key=lambda m: m.time)

    def latest(self, layer: Layer, src: str, dst: str) -> list[Measurement]:
        return [self._kept.get(row) for row in self._found.get(layer, {}).get((src, dst), {}).values()]

    def last(self, layer: Layer, src: str, dst: str, src_addr: str, dst_addr: str) -> Measurement | None:
        """Return the latest measurement of one address pair in a layer, or None."""
        row = self._found.get(layer, {}).get((src, dst), {}).get((src_addr, dst_addr), NONE)
        return None if row == NONE else self._kept.get(row)

    def pairs(self, layer: Layer) -> Iterator[Measurement]:
        for pair in self._found.get(layer, {}).values():
            for row in pair.values():
                yield self._kept.get(row)

    def node_pairs(self, layer: Layer) -> list[NodePair]:
        return list(self._found.get(layer, ()))

    def everything(self) -> Iterator[Measurement]:
        for layer in self._found:
            yield from self.pairs(layer)


def badness(measurement: Measurement) -> tuple[int, float]:
    """Return a sort key that orders measurements of a node pair from best to worst."""
    value = measurement.value or 0.0
    return _RANK[measurement.verdict], value if measurement.layer.spec.less_is_better else -value
