"""Components of a fabric by the identity of their hardware, so that renames and swaps keep their history."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from fabtui.model.counter_log import CounterLog, is_error
from fabtui.model.facts.leaf_switches import Port, guids_of, ports_of
from fabtui.model.facts.node_view import dicts, field, number, text
from fabtui.model.records import NodeRecord, listed, probed

if TYPE_CHECKING:
    from fabtui.diagnosis.finding import Finding
    from fabtui.model.session_model import Model

#: Values that firmware and containers give where there is no number.
_NO_IDENTITY = frozenset({"", "none", "unknown", "n/a", "[n/a]", "0", "0x0000000000000000", "uninitialized"})


class PartKind(StrEnum):
    """Kind of a component whose course is kept."""

    NODE = "node"  #: By its machine id.
    GPU = "gpu"  #: By its UUID.
    NVLINK = "nvlink"  #: One link of a GPU: the UUID of the GPU, and the index of the link.
    PORT = "port"  #: RDMA port of a node, by its port GUID.
    CABLE = "cable"  #: Cable or module in a port, by its serial number.

    @property
    def words(self) -> str:
        return {PartKind.GPU: "GPU", PartKind.NVLINK: "NVLink"}.get(self, str(self))


@dataclass(frozen=True, slots=True, order=True)
class Component:
    """A component, with the place where it was seen last."""

    kind: PartKind  #: Kind of component.
    identity: str  #: Identity of the hardware; the place if `by_name`.
    #: Where it was seen last, in the names of the session: ``n061``, ``n061:3``, ``n061:3 link 7``, ``n061 mlx5_0/1``.
    place: str = ""
    by_name: bool = False  #: Whether no hardware identity is known: another part at this place would be taken for it.

    @property
    def key(self) -> tuple[PartKind, str]:
        return self.kind, self.identity

    @property
    def node(self) -> str:
        return node_at(self.place)

    def __str__(self) -> str:
        return self.place or self.identity


def node_at(place: str) -> str:
    """Return the node of a place in it: ``n061`` of ``n061:3`` and of ``n061 mlx5_0/1``."""
    return place.partition(" ")[0].partition(":")[0]


class Counted(NamedTuple):
    """Counter of a component."""

    component: Component
    name: str  #: Name of the counter.
    total: int | None  #: Its value at the end of the session; None if only its increase is known.
    increase: int  #: Its increase in the session.


def date_of(seconds: float) -> str:
    """Return the day of a time (epoch seconds) in UTC: ``2026-11-12``."""
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def rule_of(finding: Finding) -> str:
    """Return the id of the rule of a finding, with the code of the error catalogue where there is one."""
    return f"{finding.rule.id} {finding.code}".strip()


def known_identity(value: Any) -> str | None:
    word = (text(value) or "").strip()
    return None if word.lower() in _NO_IDENTITY else word


def _component(kind: PartKind, identity: str | None, place: str) -> Component:
    return Component(kind, identity or place, place, by_name=identity is None)


def _node(record: NodeRecord) -> Component:
    """Return a node by its machine id; several nodes of a container or a lab would share one, and go by their names."""
    identity = field(record.probe_results.get("host"), "identity")
    machine = known_identity(field(identity, "machine_id")) if not field(identity, "container") else None
    return _component(PartKind.NODE, machine, record.name)


class Parts:
    """Components of a session: each once, though several nodes may report the same identity.

    An identity that two places of one session report identifies neither: clones of a machine have one machine id.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.nodes: dict[str, Component] = {}  #: By the name of the node.
        self.gpus: dict[str, Component] = {}  #: By the name of the endpoint.
        self.ports: dict[tuple[str, str], Component] = {}  #: By node and port (``mlx5_0/1``).
        self.ports_of: dict[str, list[Component]] = {}  #: By the name of the endpoint.
        self.cables: dict[str, Component] = {}  #: By the place of their port, if the kernel shows their serial number.
        for record in model.nodes.values():
            if record.inventory is None:
                continue
            self.nodes[record.name] = _node(record)
            self._add_ports(record)
        for end in model.endpoints:
            if end.kind != "none":
                # A CPU rank goes by its name.
                self.gpus[str(end)] = _component(PartKind.GPU, known_identity(end.uuid), str(end))
        self._part_twins()
        for end in model.endpoints:
            ports = [self.ports.get((end.node, str(port))) for port in ports_of(end, model.nodes.get(end.node))]
            self.ports_of[str(end)] = [port for port in ports if port is not None]

    def _add_ports(self, record: NodeRecord) -> None:
        guids = guids_of(record)
        for entry in listed(record, "ib"):
            ca, port_number = text(entry.get("ca")), entry.get("port")
            if ca is None or not isinstance(port_number, int):
                continue
            port = Port(ca, port_number)
            guid = guids.get(port) or text(entry.get("guid"))
            self.ports[record.name, str(port)] = _component(
                PartKind.PORT, known_identity(guid), f"{record.name} {port}"
            )
        ports = probed(record, "rdma", "ports")
        interfaces = {text(port.get("netdev")): f"{text(port.get('ca'))}/{port.get('port')}" for port in ports}
        for nic in probed(record, "rdma", "nics"):
            interface = text(nic.get("interface"))
            if (serial := known_identity(field(nic.get("module"), "serial"))) is not None:
                place = f"{record.name} {interfaces.get(interface, interface)}"
                self.cables[place] = Component(PartKind.CABLE, serial, place)

    def _part_twins(self) -> None:
        kinds: tuple[dict[Any, Component], ...] = (self.nodes, self.gpus, self.ports)
        for components in kinds:
            times = Counter(part.key for part in components.values())
            for place, part in components.items():
                if times[part.key] > 1:
                    components[place] = Component(part.kind, part.place, part.place, by_name=True)
        # A cable has one number at both of its ends, as have the ends of one that splits.
        times = Counter(part.key for part in self.cables.values())
        self.cables = {place: part for place, part in self.cables.items() if times[part.key] == 1}

    def all(self) -> list[Component]:
        """Return all components but links, each once."""
        return [*self.nodes.values(), *self.gpus.values(), *self.ports.values(), *self.cables.values()]

    def named(self, place: str) -> Component | None:
        """Return the component of a name of the session: ``n061:3``, ``n061 mlx5_0``, ``n061 mlx5_0/1``, ``n061``."""
        node, _, port = place.partition(" ")
        if known := self.gpus.get(place) or self.nodes.get(place) or self.ports.get((node, port)):
            return known
        mine = [part for (name, other), part in self.ports.items() if name == node and other.startswith(f"{port}/")]
        return mine[0] if len(mine) == 1 else None

    def blamed(self, place: str) -> list[Component]:
        """Return the component of a name, and the cable in it: what is wrong with a port may be its cable."""
        known = self.named(place)
        cable = self.cables.get(known.place) if known is not None and known.kind is PartKind.PORT else None
        return [part for part in (known, cable) if part is not None]

    def counted(self) -> Iterator[Counted]:
        """Yield the counters of errors of all components; a link of a GPU only where it has counted anything.

        A link without counters of its own has counted nothing where its GPU has: the GPU's is the sum of its links.
        """
        for record in self._model.nodes.values():
            yield from self._of_links(record)
            yield from self._of_ports(record, self._model.counters)

    def _of_links(self, record: NodeRecord) -> Iterator[Counted]:
        first = {gpu.get("uuid"): gpu for gpu in dicts(field(record.first_probe_results.get("nvlink"), "gpus"))}
        by_uuid = {end.uuid: end for end in self._model.table.of_node(record.name) if end.uuid}
        for gpu in probed(record, "nvlink", "gpus"):
            end = by_uuid.get(text(gpu.get("uuid")) or "")
            component = self.gpus.get(str(end)) if end is not None else None
            if component is None:
                continue
            before = {link.get("link"): link for link in dicts(first.get(component.identity, {}).get("links"))}
            totals, increases = Counter[str](), Counter[str]()
            for link in dicts(gpu.get("links")):
                for name, count in _counts(link.get("counters")):
                    # A counter that went down was reset.
                    increase = max(0, count - (number(field(before.get(link.get("link")), "counters", name)) or 0))
                    increase = int(increase) if link.get("link") in before else 0
                    totals[name] += count
                    increases[name] += increase
                    if count:
                        yield Counted(_link(component, link.get("link")), name, count, increase)
            for name, total in totals.items():
                yield Counted(component, name, total, increases[name])

    def _of_ports(self, record: NodeRecord, counters: CounterLog) -> Iterator[Counted]:
        moved = counters.between(record.name, 0.0, float("inf")).get("hca", {})
        for port in probed(record, "rdma", "ports"):
            place = f"{text(port.get('ca'))}/{port.get('port')}"
            component = self.ports.get((record.name, place))
            if component is None or not isinstance(port.get("errors"), dict):
                continue
            totals, full = dict(_counts(port["errors"])), port.get("saturated")
            names = [name for name in {*totals, *moved.get(place, {})} if is_error(name)]
            for name in names:
                total = totals.get(name, 0)
                # A counter at its limit has stopped: its total is unknown from then on.
                stopped = isinstance(full, list) and name in full
                yield Counted(component, name, None if stopped else total, moved.get(place, {}).get(name, 0))
            if not names:
                yield Counted(component, "errors", 0, 0)


def _link(gpu: Component, index: Any) -> Component:
    return Component(PartKind.NVLINK, f"{gpu.identity}/{index}", f"{gpu.place} link {index}", by_name=gpu.by_name)


def _counts(value: Any) -> Iterator[tuple[str, int]]:
    for name, count in value.items() if isinstance(value, dict) else ():
        if isinstance(name, str) and len(name) <= 64 and type(count) is int and 0 <= count < 1 << 62:
            yield name, count
