"""State of the mesh of addresses: measurements by address pair, scopes of faults, measurements explained so far."""

from __future__ import annotations

import ipaddress
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from fabtui.diagnosis.finding import AddressPair, Domain, Finding, Rule, Subject
from fabtui.diagnosis.finding import Kind as Component
from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.mesh.affected_components import (
    CERTAIN,
    EQUAL_PATHS,
    ComponentKind,
    How,
    Rail,
    Scope,
    Seat,
    scopes,
)
from fabtui.model.facts.node_view import Entry, dicts, number, yes
from fabtui.model.layers import MESH, Layer
from fabtui.model.measurement import Extra, Measurement, Verdict
from fabtui.model.records import listed
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.sanitize import one_line

#: Changes of the carrier within a session that are a flap: it went and came back.
_FLAP = 2
_WORKING = ("up", "unknown")
#: Loss (%) of packets of one flow at which connections fail by chance.
MUCH_LOSS = 10.0
DEAD = (Verdict.TIMEOUT, Verdict.FAILED)


# Interfaces whose nodes report a fault of them: down, or a link that comes and goes.
#
# Such a fault explains all that is bad at the interface. What passes there by chance, or over another interface of the
# node, is no evidence about other faults.
class Place(NamedTuple):
    """A data address of a node: its interface, rail (None: unknown), MAC address and network."""

    node: str
    address: str
    nic: str
    rail: int | None
    mac: str
    network: ipaddress.IPv4Interface | ipaddress.IPv6Interface


def places(model: Model) -> list[Place]:
    """Return the data addresses of all nodes whose netmask is known."""
    data_places = []
    for node, record in model.nodes.items():
        data = {str(entry.get("address")): entry for entry in listed(record, "data_addresses")}
        for nic in listed(record, "nics"):
            for entry in dicts(nic.get("addresses")):
                address = str(entry.get("address"))
                rail = data.get(address, {}).get("rail")
                try:
                    network = ipaddress.ip_interface(f"{address}/{entry.get('prefix')}")
                except ValueError:
                    continue
                if address in data:
                    name = one_line(str(nic.get("name")), 40)
                    mac = str(nic.get("mac")).lower()
                    data_places.append(
                        Place(node, address, name, rail if isinstance(rail, int) else None, mac, network)
                    )
    return data_places


class InterfaceFault(NamedTuple):
    """Fault of an interface, as its node reports it."""

    nic: str  #: The interface.
    flaps: int  #: How often the carrier changed during the session; 0 if it is down.
    enabled: bool | None  #: Whether the interface is switched on; None if unknown.

    @property
    def once(self) -> bool:
        return self.flaps == _FLAP


def interface_faults(model: Model, seats: Iterable[Seat]) -> dict[Seat, InterfaceFault]:
    nics: dict[str, dict[str, Entry]] = {}
    faults = {}
    for node, address in seats:
        if node not in nics:
            nics[node] = {str(nic.get("name")): nic for nic in listed(model.nodes.get(node), "nics")}
        name = model.addresses.seat(node, address).nic
        known, flaps = nics[node].get(name, {"state": "unknown"}), model.counters.carrier_changes[node, name]
        down = str(known.get("state")) not in _WORKING
        if flaps >= _FLAP or down:
            # One that was down when it was listed, and whose carrier has changed since, came and went too.
            counts = flaps >= _FLAP or (flaps > 0 and yes(known.get("enabled")) is not False)
            fault = InterfaceFault(one_line(name, 40), flaps if counts else 0, yes(known.get("enabled")))
            faults[node, address] = fault
    return faults


def paths_at(
    faults: Mapping[Seat, InterfaceFault], paths: Iterable[AddressPair], bad: set[AddressPair], rail: Rail
) -> dict[Seat, set[AddressPair]]:
    """Return the paths that each faulty interface may break.

    Hosts that do not route by source send to a rail over their interface there, and answer over it, from any
    address: where all of these paths are bad, they belong to the interface as well.
    """
    at_seat: dict[Seat, set[AddressPair]] = {seat: set() for seat in faults}
    through: dict[Seat, tuple[set[AddressPair], set[AddressPair]]] = {seat: (set(), set()) for seat in faults}
    on_rail = {
        (node, number): (node, address) for node, address in faults if (number := rail(node, address)) is not None
    }
    for path in paths:
        ends = (path.src, path.src_addr), (path.dst, path.dst_addr)
        touched = [seat for seat in ends if seat in at_seat]
        for seat in touched:
            at_seat[seat].add(path)
        if on_rail and not touched:
            for side, (node, (peer, address)) in enumerate(((path.src, ends[1]), (path.dst, ends[0]))):
                if (number := rail(peer, address)) is not None and (seat_ := on_rail.get((node, number))) is not None:
                    through[seat_][side].add(path)
    for seat, sides in through.items():
        for of_side in sides:
            if of_side <= bad:
                at_seat[seat] |= of_side
    return at_seat


def address_pair(measurement: Measurement) -> AddressPair:
    return AddressPair(measurement.src, measurement.src_addr or "", measurement.dst, measurement.dst_addr or "")


class Flows(NamedTuple):
    """Number of source ports of a pair by what became of them in several rounds."""

    tried: int
    always: int  #: Passed each time.
    never: int  #: Passed at no time.

    @property
    def unsteady(self) -> int:
        """Number of source ports that passed at one time and not at another."""
        return self.tried - self.always - self.never


@dataclass(slots=True)
class PathMeasurements:
    """Measurements of one ordered pair of addresses."""

    ping: Measurement | None = None
    mtu: Measurement | None = None
    udp: Measurement | None = None
    tcp: Measurement | None = None
    #: Extras are read once, as many paths' are packed together: here what became of flows of UDP and of TCP,
    _flows: tuple[Flows | None, Flows | None] | None = field(default=None, init=False, repr=False)
    #: and here the numbers of datagrams that were sent and that arrived.
    _datagrams: tuple[Entry | None, Entry | None] | None = field(default=None, init=False, repr=False)

    def of(self, layer: Layer) -> Measurement | None:
        measurement: Measurement | None = getattr(self, str(layer))
        return measurement

    @property
    def no_echo(self) -> bool:
        """Return True if no echo came back."""
        return self.ping is not None and self.ping.verdict in DEAD

    @property
    def lossy(self) -> bool:
        """Return True if some packets were lost, but not all."""
        if (flows := self.flows(Layer.UDP)) is not None and flows.always + flows.never == flows.tried != flows.always:
            # Whole flows are lost, and no packets of the others.
            return False
        slow = [m for m in (self.ping, self.mtu, self.udp) if m is not None and m.verdict is Verdict.SLOW]
        return any(not is_blocked(m) for m in slow)

    @property
    def echo(self) -> bool:
        """Return True if some echoes came back."""
        return self.ping is not None and self.ping.verdict in (Verdict.OK, Verdict.SLOW)

    @property
    def small_arrived(self) -> bool | None:
        """Return True if small datagrams arrived; None if unknown."""
        if self.udp is not None and self.udp.verdict is Verdict.OK:
            return True
        # Another source port may take another path.
        if (flows := self.flows(Layer.UDP)) is not None:
            return flows.never < flows.tried
        _, arrived = self._counted()
        return None if arrived is None else bool(arrived.get("small"))

    @property
    def large_arrived(self) -> bool | None:
        """Return True if datagrams that fill the MTU arrived; None if unknown or if none were sent."""
        if self.udp is not None and self.udp.verdict is Verdict.OK:
            return True if self.udp.bytes else None
        sent, arrived = self._counted()
        if self.udp is None or sent is None or arrived is None:
            return None
        if not sent.get("big"):
            return False if self.udp.verdict is Verdict.FAILED else None
        return bool(arrived.get("big"))

    def flows(self, layer: Layer) -> Flows | None:
        """Return what became of several source ports, of UDP or TCP; None if one was tried."""
        if self._flows is None:
            self._flows = (_flows_of(self.udp), _flows_of(self.tcp))
        return self._flows[layer is Layer.TCP]

    @property
    def last_hop(self) -> str | None:
        """Last router that answers for a flow that is lost."""
        hop: Any = (self.udp.extra or {}).get("last_hop") if self.udp is not None else None
        return hop if isinstance(hop, str) else None

    def _counted(self) -> tuple[Entry | None, Entry | None]:
        if self._datagrams is None:
            extra: Mapping[str, Any] = (self.udp.extra or {}) if self.udp is not None else {}
            sent, arrived = extra.get("sent"), extra.get("arrived")
            self._datagrams = (
                sent if isinstance(sent, dict) else None,
                arrived if isinstance(arrived, dict) else None,
            )
        return self._datagrams


def _flows_of(m: Measurement | None) -> Flows | None:
    counted: Any = (m.extra or {}).get("flows") if m is not None else None
    if not isinstance(counted, dict):
        return None
    tried, always, never = (int(number(counted.get(name)) or 0) for name in Flows._fields)
    return Flows(tried, always, never) if tried > 0 <= min(always, never) and always + never <= tried else None


def is_blocked(m: Measurement) -> bool:
    """Return True if no echo that fills the MTU passes."""
    return m.layer is Layer.MTU and m.verdict.bad and bool((m.extra or {}).get("loss") == 100.0 or m.verdict in DEAD)


class LinkFact(NamedTuple):
    """An ordered pair of addresses with the rails of both."""

    source: str
    destination: str
    source_rail: int | None
    destination_rail: int | None


class ScopeFact(NamedTuple):
    """A scope, with all that its text needs."""

    kind: ComponentKind  #: What the address pairs have in common.
    nodes: tuple[str, ...]  #: The node, the two nodes (source first), or all nodes of groups.
    rails: tuple[int, ...]  #: Its rails, as far as they are known.
    interface: str  #: Interface and address, for a single address.
    direction: str  #: ``both``, ``out`` or ``in``.
    links: tuple[LinkFact, ...]  #: Its address pairs, for a scope of two nodes.
    every_rail: bool  #: Whether these are all that there are between the two nodes.
    node_pairs: int  #: How many pairs of nodes it covers.
    one_way_known: bool  #: Whether datagrams were counted, so that the lossy direction is known.
    reverse_passes: bool  #: Whether the opposite direction of one direction was measured, and passes.
    groups: tuple[str, ...] = ()  #: The groups of nodes that do not reach each other, the one that sends first.


class MeshRule(Rule["Mesh"]):
    """Base of the rules about the mesh of addresses."""

    domain = Domain.MESH


class Mesh:
    """Measurements between addresses, and those that a finding explains."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.order = list(model.nodes)
        self.paths: dict[AddressPair, PathMeasurements] = {}
        #: What a node could not send for a reason of its own, by node and number of the error.
        self.unsent: dict[tuple[str, int], dict[tuple[Layer, AddressPair], Measurement]] = {}
        for layer in MESH:
            for measurement in model.addresses.pairs(layer):
                path, code = address_pair(measurement), (measurement.extra or {}).get("errno")
                tests = self.paths.setdefault(path, PathMeasurements())
                if isinstance(code, (int, float)) and measurement.verdict in DEAD:
                    self.unsent.setdefault((path.src, int(code)), {})[layer, path] = measurement
                else:
                    setattr(tests, str(layer), measurement)
        self.explained: set[tuple[Layer, AddressPair]] = set()
        self._mtu_extras: dict[frozenset[AddressPair], list[Extra]] = {}
        #: Paths that pass nothing.
        self.dead = {path for path in self.paths if self._is_dead(path)}
        seats = {(path.src, path.src_addr) for path in self.paths} | {(path.dst, path.dst_addr) for path in self.paths}
        self.faults: dict[Seat, InterfaceFault] = interface_faults(model, sorted(seats))
        self.at_fault = paths_at(self.faults, self.paths, self.dead, self._rail) if self.faults else {}
        #: Paths that a faulty interface may break: they are no evidence about anything else.
        self.clouded = set().union(*self.at_fault.values())

    @cached_property
    def places(self) -> list[Place]:
        return places(self.model)

    def _is_dead(self, path: AddressPair) -> bool:
        """Return True if nothing passes: echoes are lost, and so are datagrams where they were counted."""
        measured = self.paths[path]
        if measured.small_arrived is None:
            back = self.paths.get(path.reverse)
            # An echo is lost with either direction; the opposite one may be known to be the broken one.
            return measured.no_echo and not (back is not None and back.small_arrived is False and back.no_echo)
        return not measured.small_arrived and not measured.echo

    def scopes(
        self, bad: Iterable[AddressPair], tested: Iterable[AddressPair] | None = None, how: How = CERTAIN
    ) -> list[Scope]:
        """Return scopes that explain bad pairs. Pairs that pass nothing are no evidence about other faults."""
        bad = set(bad) - self.clouded
        if not bad:
            return []
        known = set(self.paths if tested is None else tested) - self.clouded
        return scopes(bad, (known - self.dead) | bad, self._rail, self.order, how)

    def _rail(self, node: str, address: str) -> int | None:
        return self.model.addresses.seat(node, address).rail

    def scope_of(self, seat: Seat) -> Scope:
        rail = self._rail(*seat)
        rails = () if rail is None else (rail,)
        return Scope(ComponentKind.ADDRESS, (seat[0],), rails, seat[1], "both", frozenset(self.at_fault[seat]))

    @cached_property
    def dead_scopes(self) -> list[Scope]:
        return self.scopes(self.dead)

    @cached_property
    def refusing(self) -> set[AddressPair]:
        """Paths that pass small packets and no TCP connection."""
        paths = ((path, found) for path, found in self.paths.items() if path not in self.clouded)
        tcp = {p for p, found in paths if found.tcp and found.tcp.verdict in DEAD and self.passes_small(p)}
        # Where much is lost, so are all SYNs now and then.
        return {p for p in tcp if all((loss(self, way) or 0.0) <= MUCH_LOSS for way in (p, p.reverse))}

    @cached_property
    def deaf(self) -> set[AddressPair]:
        """Paths that pass echoes and no datagram."""
        paths = ((path, found) for path, found in self.paths.items() if path not in self.clouded | self.dead)
        return {path for path, found in paths if found.small_arrived is False and found.echo}

    @cached_property
    def port_scopes(self) -> list[Scope]:
        """Scopes in which ephemeral ports get no connections or datagrams while pings pass."""
        return self.scopes(self.refusing | self.deaf, [path for path in self.paths if self.passes_small(path)])

    @cached_property
    def mtu_scopes(self) -> list[Scope]:
        """Scopes in which packets that fill the MTU are lost while small ones pass."""
        by_datagram = {
            path for path, found in self.paths.items() if found.small_arrived and found.large_arrived is False
        }
        bad = set(by_datagram)
        vague: set[AddressPair] = set()
        for path, found in self.paths.items():
            # A large echo is lost with either direction.
            back = self.paths.get(path.reverse, PathMeasurements())
            if found.mtu is None or not is_blocked(found.mtu) or {path, path.reverse} & by_datagram:
                continue
            if (found.mtu.extra or {}).get("outdated") is True:
                vague.add(path)
                continue
            # Chance may lose all large echoes where some of everything is lost.
            lossy = found.lossy or back.lossy
            (vague if lossy and found.large_arrived and back.large_arrived else bad).add(path)
        tested = {
            path for path, found in self.paths.items() if found.mtu is not None or found.large_arrived is not None
        }
        return self.scopes(bad, tested - vague, EQUAL_PATHS)

    def finding(
        self,
        rule: Rule[Mesh],
        scope: Scope,
        layers: Iterable[Layer],
        facts: Mapping[str, Any],
        command: str | Sequence[str] = "",
    ) -> Finding:
        """Return a finding about a scope. It explains what is bad in the layers and was not explained before."""
        bad = set()
        for path in scope.pairs:
            for one in (path, path.reverse):
                measured = self.paths.get(one)
                for layer in layers:
                    m = measured.of(layer) if measured is not None else None
                    if m is not None and m.verdict not in (Verdict.OK, Verdict.SKIPPED):
                        bad.add((layer, one))
        fresh = bad - self.explained
        self.explained |= bad
        nodes = scope.nodes or tuple(dict.fromkeys(node for path in scope.pairs for node in (path.src, path.dst)))
        place = {node: number for number, node in enumerate(self.order)}
        return rule.finding(
            nodes[0] if len(nodes) == 1 else "",
            nodes=sorted(nodes, key=lambda node: place.get(node, len(place))),
            cells={pair for path in {path for _, path in fresh} for pair in endpoint_pairs(self.model, path)},
            facts={"scope": self.describe(scope), "count": len(scope.pairs), "total": len(self.paths), **facts},
            commands=[one_line(one, 300) for one in ([command] if isinstance(command, str) else command) if one],
            measurements=fresh,
            weight=len(fresh),
            blames=self._subject(scope),
        )

    def _subject(self, scope: Scope) -> Subject | None:
        both = scope.direction == "both"
        match scope.kind:
            case ComponentKind.NODE:
                return Subject(Component.NODE, scope.nodes[0])
            case ComponentKind.ADDRESS:
                ends = [end for end in self.model.table.of_node(scope.nodes[0]) if end.address == scope.address]
                nic = ends[0].nic if ends else None
                nic = nic or self.model.addresses.seat(scope.nodes[0], scope.address).nic or scope.address
                return Subject(Component.NIC, f"{scope.nodes[0]} {nic}")
            case ComponentKind.RAIL:
                return Subject(Component.RAIL, str(scope.rails[0]))
            case ComponentKind.SPLIT:
                apart = (" - " if both else " > ").join(map(fold, scope.groups))
                rails = "" if self._is_every_rail(scope) else f" on rail {','.join(map(str, scope.rails))}"
                return Subject(Component.LEAF_CUT, apart + rails)
            case ComponentKind.PAIR:
                name = " - ".join(sorted(scope.nodes)) if both else " > ".join(scope.nodes)
                return Subject(Component.NODE_PAIR, name)
            case ComponentKind.ACROSS:
                if len(scope.rails) == 2:
                    return Subject(Component.RAIL_PAIR, f"{scope.rails[0]} {'-' if both else '>'} {scope.rails[1]}")
                return Subject(Component.CROSS_RAIL, "all rails" if len(scope.rails) != 1 else f"rail {scope.rails[0]}")
            case ComponentKind.EVERYTHING:
                return Subject(Component.CROSS_NODE, "all nodes")
            case _:
                return None

    def describe(self, scope: Scope) -> ScopeFact:
        """Return a scope with the rails, interfaces and counts that its text needs."""
        links: tuple[LinkFact, ...] = ()
        every_rail = False
        if scope.kind is ComponentKind.SPLIT:
            every_rail = self._is_every_rail(scope)
        if scope.kind is ComponentKind.PAIR:
            first, both = scope.nodes[0], scope.direction == "both"
            everything = {p for p in self.paths if {p.src, p.dst} == set(scope.nodes) and (both or p.src == first)}
            every_rail = scope.pairs >= everything and len(everything) > 2
            paths = sorted(path for path in scope.pairs if path.src == first) or sorted(scope.pairs)
            links = tuple(LinkFact(path.src_addr, path.dst_addr, *self.rails(path)) for path in paths)
        interface = ""
        if scope.kind is ComponentKind.ADDRESS:
            nic = self.model.addresses.seat(scope.nodes[0], scope.address).nic
            interface = f"{nic} {scope.address}" if nic else scope.address
        node_pairs = len({frozenset((path.src, path.dst)) for path in scope.pairs})
        known = all(self.paths[path].small_arrived is not None for path in scope.pairs if path in self.paths)
        backs = [self.paths.get(path.reverse, PathMeasurements()) for path in scope.pairs]
        passes = (all if scope.kind is ComponentKind.PAIR else any)(
            bool(back.small_arrived or back.echo) for back in backs
        )
        return ScopeFact(
            scope.kind,
            scope.nodes,
            scope.rails,
            interface,
            scope.direction,
            links,
            every_rail,
            node_pairs,
            known,
            passes,
            tuple(map(fold, scope.groups)),
        )

    def _is_every_rail(self, scope: Scope) -> bool:
        """Return True if a scope covers all of several rails."""
        known = {rail for path in self.paths for rail in self.rails(path) if rail is not None}
        return known <= set(scope.rails) and len(known) > 1

    def rails(self, path: AddressPair) -> tuple[int | None, int | None]:
        return self._rail(path.src, path.src_addr), self._rail(path.dst, path.dst_addr)

    def interface_state(self, scope: Scope) -> dict[str, object]:
        """Return what the node itself reports about the interface of a scope of one address."""
        if scope.kind is not ComponentKind.ADDRESS:
            return {}
        (node,) = scope.nodes
        nic = self.model.addresses.seat(node, scope.address).nic
        for entry in listed(self.model.nodes.get(node), "nics"):
            if nic and entry.get("name") == nic:
                state = str(entry.get("state"))
                return {"node": node, "interface": nic, "interface_state": state, "beyond": state == "up"}
        return {}

    def udp_errors(self, scope: Scope) -> dict[str, object]:
        """Return why the lossy direction is unknown: datagrams were not sent, or could not be counted."""
        paths = [self.paths[path] for path in scope.pairs]
        errors = Counter(
            one_line(one.udp.error, 120) for one in paths if one.small_arrived is None and one.udp and one.udp.error
        )
        if errors:
            return {"udp_error": errors.most_common(1)[0][0]}
        return {"echoes_only": any(one.small_arrived is None for one in paths)}

    def route_command(self, scope: Scope) -> str:
        """Return a command that inspects the interface of an address, or the route of the first pair."""
        if scope.kind is ComponentKind.ADDRESS:
            # A table of pings names addresses, but not interfaces.
            nic = one_line(self.model.addresses.seat(scope.nodes[0], scope.address).nic, 40)
            return on_node(
                scope.nodes[0], f"ip -s -s link show {shlex.quote(nic)}" if nic else "ip -s link show", self.model
            )
        path = self.first_path(scope)
        ends = f"{shlex.quote(path.dst_addr)} from {shlex.quote(path.src_addr)}"
        return on_node(path.src, f"ip route get {ends}", self.model)

    def first_path(self, scope: Scope) -> AddressPair:
        """Return the first path of a scope, within a rail if there is one; of a node or an address, that from it."""
        path = min(scope.pairs, key=lambda one: (len(set(self.rails(one))), one.src not in scope.nodes[:1], one))
        mine = scope.kind in (ComponentKind.NODE, ComponentKind.ADDRESS)
        return path.reverse if mine and path.src not in scope.nodes else path

    def echo_commands(self, scope: Scope, options: str = "-c3") -> list[str]:
        """Return commands that show what happens to packets on the first path of a scope, and where it begins.

        Counters of an interface do not move by what is lost beyond it: echoes show that, and entries of neighbours.
        """
        path = self.first_path(scope)
        here, there = shlex.quote(path.src_addr), shlex.quote(path.dst_addr)
        words = [f"ping {options} -I {here} {there}"]
        # What a router passes on has no entry there.
        words += [f"ip neigh show to {there}"] if len(set(self.rails(path))) == 1 else []
        commands = [on_node(path.src, command, self.model) for command in words]
        if scope.kind is ComponentKind.ADDRESS:
            nic = one_line(self.model.addresses.seat(scope.nodes[0], scope.address).nic, 40)
            counters = f"ip -s -s link show {shlex.quote(nic)}" if nic else "ip -s link show"
            return [*commands, on_node(scope.nodes[0], counters, self.model)]
        return [*commands, self.route_command(scope)]

    def mtu_extras(self, scope: Scope) -> list[Extra]:
        """Return the extras of large echoes in a scope, both directions. Several rules ask for them."""
        if scope.pairs not in self._mtu_extras:
            ends = (self.paths.get(one) for path in sorted(scope.pairs) for one in (path, path.reverse))
            echoes = [one.mtu for one in ends if one is not None and one.mtu is not None]
            self._mtu_extras[scope.pairs] = [m.extra or {} for m in echoes]
        return self._mtu_extras[scope.pairs]

    def passes_small(self, path: AddressPair) -> bool:
        """Return True if small packets pass in both directions."""
        found, back = self.paths[path], self.paths.get(path.reverse)
        if found.ping is not None:
            return found.echo
        return bool(found.small_arrived) and (back is None or back.small_arrived is not False)


def loss(mesh: Mesh, path: AddressPair) -> float | None:
    """Return the share (%) of the packets of one flow that are lost; None if none or all are."""
    measured = mesh.paths.get(path)
    if measured is None or not measured.lossy:
        return None
    if measured.udp is not None and measured.udp.verdict is Verdict.SLOW:
        return measured.udp.value
    shares = [(m.extra or {}).get("loss") for m in (measured.ping, measured.mtu) if m is not None]
    known = [share for share in shares if isinstance(share, (int, float)) and share > 0]
    return float(max(known)) if known else None


def endpoint_pairs(model: Model, path: AddressPair) -> Iterable[tuple[str, str]]:
    """Yield the pairs of endpoints whose data takes this path by default; if unknown, all of the two nodes."""
    for source in model.table.of_node(path.src):
        for target in model.table.of_node(path.dst):
            here, there = model.table.carriers(source, target)
            if here.address in (path.src_addr, None) and there.address in (path.dst_addr, None):
                yield str(source), str(target)
