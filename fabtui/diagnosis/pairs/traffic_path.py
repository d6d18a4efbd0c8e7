"""Carriers of bytes between nodes, RDMA or TCP, by the counters of both nodes and by what the library reports.

Counters include other traffic. A way is ruled out if one of the nodes moved less over it than one message of the pair;
then the other way remains. If none is ruled out, or both are, the counters do not show it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple, TypeVar

from fabtui.model.counter_log import NodeTraffic
from fabtui.model.endpoints import node_of
from fabtui.model.facts.node_view import active_ports
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.pair_table import PairTable, joined
from fabtui.model.records import listed
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.sanitize import one_line
from fabtui_node.parsers.nccl.transports import Path, transport_of

Text = TypeVar("Text", bound=str)

#: Bytes on the wire per byte that an IPoIB interface counts, at most: headers.
_HEADERS = 1.1
#: Number of pairs in a step, which takes a millisecond or two.
_STEP = 32


class Way(StrEnum):
    """A way of bytes between nodes."""

    RDMA = "RDMA"
    TCP = "TCP"


_COUNTERS = {Way.RDMA: "HCA counters", Way.TCP: "interface counters"}


class Carrier(NamedTuple):
    """Carrier of the bytes of a measurement."""

    counted: Way | None  #: The way by the counters of both nodes, or None.
    why: str  #: Why the counters do not show it, or "".
    reported: Way | None  #: The way by what the library reports, or None.
    by: str  #: What the library reports, such as ``NCCL: NET/IB/0``, or "".

    @property
    def disagree(self) -> bool:
        return None not in (self.counted, self.reported) and self.counted is not self.reported

    @property
    def text(self) -> str:
        """One line: the way, and how that is known."""
        if self.counted is None:
            return (
                f"{self.reported} ({self.by}); {one_line(self.why, 300)}"
                if self.reported
                else f"unknown: {one_line(self.why, 300)}"
            )
        how = f"{self.counted} ({_COUNTERS[self.counted]} of both nodes"
        if self.disagree:
            return f"{how}), but {self.by}: they disagree"
        return f"{how}; {self.by})" if self.reported else f"{how})"


def carrier(model: Model, measurement: Measurement) -> Carrier | None:
    """Return what carried the bytes of a measurement; None if it did not pass, or is not between two nodes."""
    passed = measurement.layer in (Layer.P2P, Layer.WORLD) and measurement.verdict is Verdict.OK
    if not passed or node_of(measurement.src) == node_of(measurement.dst):
        return None
    counted, why = _counted(model, measurement)
    reported, by = _reported(measurement.transport)
    return Carrier(counted, why, reported, by)


def _reported(transport: str | None) -> tuple[Way | None, str]:
    """Return the way that the library names. A plug-in (``NET/OFI``) may use either."""
    named = transport_of(transport)
    if named.path is Path.GLOO:
        return Way.TCP, "gloo uses TCP only"
    return (Way(named.way), f"NCCL: {one_line(transport or '', 60)}") if named.way else (None, "")


def _counted(model: Model, m: Measurement) -> tuple[Way | None, str]:
    """Return the way by the counters of both nodes, or why they do not show it."""
    nodes = (node_of(m.src), node_of(m.dst))
    traffic = model.counters.traffic(m)
    if missing := tuple(node for node in nodes if node not in traffic):
        return None, f"no counters of {' and '.join(missing)} while it ran"
    if inexact := [node for node in nodes if not traffic[node].exact]:
        return None, f"a counter of {fold(inexact)} was reset or is at its limit"
    if not m.bytes:
        return None, "the size of its messages is unknown"
    rdma = min(_by_rdma(model, node, traffic[node])[end] for end, node in enumerate(nodes))
    tcp = min(sum(moved[end] for moved in traffic[node].interfaces.values()) for end, node in enumerate(nodes))
    if rdma >= m.bytes > tcp:
        return Way.RDMA, ""
    if tcp >= m.bytes > rdma:
        blind = [f"{port} of {node}" for node in nodes for port in _uncounted(model, node, traffic[node])]
        return (None, f"no counters of data: {', '.join(blind[:2])}") if blind else (Way.TCP, "")
    if rdma >= m.bytes:
        return None, "RDMA ports and interfaces of both nodes moved enough for it at that time"
    return None, "neither RDMA ports nor interfaces of both nodes counted as much as it moved"


def _by_rdma(model: Model, node: str, traffic: NodeTraffic) -> tuple[float, float]:
    """Return what a node sent and received over RDMA ports, without the traffic of IPoIB, which they count as well."""
    ports = listed(model.nodes.get(node), "ib")
    lower = {str(port.get("netdev")) for port in ports if port.get("link_layer") == "InfiniBand"}
    inside = [moved for name, moved in traffic.interfaces.items() if name.split(".")[0] in lower]
    over = traffic.ports.values()
    sent, received = (sum(p[end] for p in over) - _HEADERS * sum(i[end] for i in inside) for end in (0, 1))
    return max(sent, 0.0), max(received, 0.0)


def _uncounted(model: Model, node: str, traffic: NodeTraffic) -> list[str]:
    """Return the active RDMA ports that count no data (soft RoCE, some drivers): an interface may count it."""
    ports = active_ports(listed(model.nodes.get(node), "ib"))
    names = [one_line(f"{port.get('ca')}/{port.get('port')}", 60) for port in ports]
    return [name for name in names if name not in traffic.ports]


class Carriers(NamedTuple):
    """Carriers of all pairs between nodes: numbers of pairs."""

    total: int
    counted: Counter[Way]
    reported: Counter[Way]  #: Paths of pairs whose counters do not show it.
    disagree: int
    reasons: Counter[str]
    active: dict[str, list[str]]  #: Active RDMA devices by node, of nodes that were inspected.

    @property
    def sentence(self) -> str:
        """One sentence about the session; "" if no pair between nodes passed, or nothing is known of its nodes."""
        if not self.total or not (self.active or self.counted or self.reported):
            return ""
        of = f"of {self.total} pairs between nodes"
        counted = [(way, self.counted[way]) for way in Way if self.counted[way]]
        parts = [f"{way} was used for {number} {of} ({_COUNTERS[way]} of both sides)" for way, number in counted]
        parts += [f"the library reports {way} for {self.reported[way]} {of}" for way in Way if self.reported[way]]
        if unknown := self.total - self.counted.total() - self.reported.total():
            parts.append(f"what carried {unknown} {of} is unknown")
        if self.counted[Way.RDMA] == self.total:
            parts.append("0 over TCP")
        if self.reasons:
            parts.append(f"counters do not show all: {one_line(self.reasons.most_common(1)[0][0], 300)}")
        if self.disagree:
            parts.append(f"counters and the library disagree about {self.disagree}")
        if self.counted[Way.TCP] or self.reported[Way.TCP]:
            parts.append(self._although())
        return f"{parts[0][0].upper()}{'; '.join(parts)[1:]}."

    def _although(self) -> str:
        names = [fold(names) for names in self.active.values() if names]
        if not names:
            return "no node has an active RDMA port"
        usual, count = Counter(names).most_common(1)[0]
        return f"although {count} of {len(self.active)} nodes have active RDMA ports ({one_line(usual, 120)})"


def carriers(model: Model) -> Carriers:
    """Return what carried the bytes of all pairs between nodes, each in p2p, or in world where p2p has no value."""
    return next(last for last in in_steps(model) if last is not None)


def in_steps(model: Model) -> Iterator[Carriers | None]:
    """Yield None after each small step of the same, and then what it is."""
    counts: Counter[Carrier] = Counter()
    places, (_, shape_of, _) = model.results.places(), model.results.store.columns()
    # Without counters of a node, all pairs of two nodes over one transport are alike.
    alike = _latest(model).alike(places.node, [model.counters.known(name) for name in places.nodes], shape_of)
    for at, (row, number) in enumerate(alike):
        if (one := carrier(model, model.results.store.get(row))) is not None:
            counts[one] += number
        if at % _STEP == _STEP - 1:
            yield None
    inspected = {name: record for name, record in model.nodes.items() if record.inventory is not None}
    active = {
        node: sorted({str(port.get("ca")) for port in active_ports(listed(record, "ib"))})
        for node, record in inspected.items()
    }
    yield Carriers(
        counts.total(),
        _tally((one.counted, number) for one, number in counts.items()),
        _tally((one.reported, number) for one, number in counts.items() if not one.counted),
        sum(number for one, number in counts.items() if one.disagree),
        _tally((one.why, number) for one, number in counts.items()),
        active,
    )


def _tally(found: Iterable[tuple[Text | None, int]]) -> Counter[Text]:
    counts: Counter[Text] = Counter()
    for what, number in found:
        if what:
            counts[what] += number
    return counts


def latest_pairs(model: Model) -> list[Measurement]:
    """Return the latest measurement of each ordered pair in p2p, or in world where it has none in p2p."""
    return list(map(model.results.store.get, _latest(model).row.tolist()))


def _latest(model: Model) -> PairTable:
    *_, found = joined(model.pair_table(Layer.P2P), model.pair_table(Layer.WORLD), len(model.endpoints))
    assert found is not None
    return found
