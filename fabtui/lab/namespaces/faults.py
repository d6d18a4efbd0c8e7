"""Faults of a standing lab: which there are, and their syntax.

``n3.eth1=pull`` is a fault of a port, ``rail1=cut`` of a rail, and ``n2=stop`` of a node. ``n1.eth0>n2.eth0=drop`` is
one of the way from one port to the other, ``n1>n2=drop`` of all ways between two nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

from fabtui.lab.spec import parse_rate

Place = Literal["port", "way", "rail", "node"]
Value = Literal["", "percent", "rate", "bytes", "seconds"]

_LONGEST_TEXT = 200
_BYTES = (68, 9000)
_MOST_SECONDS = 3600.0


class FaultKind(NamedTuple):
    """A kind of fault.

    Attributes:
        name: As written after the ``=``.
        place: What has it.
        help: One line.
        value: What follows the colon: a percentage, bytes per second, bytes or seconds; "" for nothing.
        default: The value where none is given.
        rootless: Whether a lab without network namespaces can have it.
    """

    name: str
    place: Place
    help: str
    value: Value = ""
    default: str = ""
    rootless: bool = False

    @property
    def example(self) -> str:
        """A fault of this kind, as written on the command line."""
        where = {"port": "n003.eth1", "way": "n001>n002", "rail": "rail1", "node": "n002"}[self.place]
        return f"{where}={self.name}" + (f":{self.default}" if self.value else "")


KINDS = (
    FaultKind("pull", "port", "the cable is pulled: no carrier"),
    FaultKind("misplug", "port", "the cable is in a wrong VLAN: a carrier, and nobody there"),
    FaultKind("down", "port", "the interface is switched off on the node"),
    FaultKind("flap", "port", "the link goes and comes back, each for this time", "seconds", "1"),
    FaultKind("slow-in", "port", "what the node receives is limited to this rate", "rate", "6MB"),
    FaultKind("slow-out", "port", "what the node sends is limited to this rate", "rate", "6MB"),
    FaultKind("loss-in", "port", "this share of the packets to the node is lost", "percent", "5%"),
    FaultKind("loss-out", "port", "this share of the packets from the node is lost", "percent", "5%"),
    FaultKind("blackhole", "port", "packets of the node that are larger vanish", "bytes", "1500"),
    FaultKind("mtu", "port", "the interface has another MTU than the others", "bytes", "1500"),
    FaultKind("drop", "way", "nothing arrives; the other direction passes"),
    FaultKind("drop-tcp", "way", "no TCP arrives, as behind a firewall; ping passes"),
    FaultKind("loss", "way", "this share of the packets is lost", "percent", "20%"),
    FaultKind("blackhole", "way", "packets that are larger vanish", "bytes", "1500"),
    FaultKind("cut", "rail", "the switch of a rail is off"),
    FaultKind("crossed", "node", "the cables of its first two rails are swapped"),
    FaultKind("firewall", "node", "its firewall drops TCP connections that come in over the rails"),
    FaultKind("cut", "node", "all its cables are pulled, that of the management network too"),
    FaultKind("stop", "node", "everything on it stands still: logins never get an answer", rootless=True),
    FaultKind("down", "node", "everything on it is killed, and it refuses connections", rootless=True),
)

_SYNTAX = "expected WHERE=FAULT, as in n003.eth1=pull (fabtui lab fault --list)"


class LabShape(NamedTuple):
    """Nodes and rails of a lab.

    Attributes:
        nodes: The nodes' names.
        rails: The number of rails; 0 in a lab without network namespaces.
    """

    nodes: tuple[str, ...]
    rails: int


class Fault(NamedTuple):
    """A fault.

    Attributes:
        text: As written.
        kind: What it is.
        where: What has it, as written; a lab has at most one fault there.
        nodes: The node that has it, or source and destination; none for a rail.
        rails: The rail of each node (or the rail itself); none where all are meant.
        value: The number after the colon: percent, bytes per second, bytes or seconds; 0 without.
    """

    text: str
    kind: FaultKind
    where: str
    nodes: tuple[str, ...] = ()
    rails: tuple[int, ...] = ()
    value: float = 0.0


def kinds(rootless: bool) -> list[FaultKind]:
    """Return the kinds of faults of a lab with or without network namespaces."""
    return [kind for kind in KINDS if kind.rootless or not rootless]


def parse_fault(text: str, shape: LabShape) -> Fault:
    """Return the fault that a text describes.

    Raises:
        ValueError: The text is not a fault, or names what the lab does not have; the message is one line.
    """
    shown = repr(text[:_LONGEST_TEXT])
    where, equals, what = (word.strip() for word in text.strip().partition("="))
    if not equals or len(text) > _LONGEST_TEXT:
        raise ValueError(f"{shown} is not a fault; {_SYNTAX}")
    try:
        place, nodes, rails = _place(where, shape)
        name, colon, value = what.partition(":")
        kind = _kind(name, place, rootless=not shape.rails)
        if colon and not kind.value:
            raise ValueError(f"{name} takes no value")
        number = _number(kind, value or kind.default) if kind.value else 0.0
    except ValueError as error:
        raise ValueError(f"{shown}: {error}") from None
    return Fault(f"{where}={what}", kind, where, nodes, rails, number)


def parse_faults(texts: Iterable[str], shape: LabShape, planted: Iterable[Fault]) -> list[Fault]:
    """Return the faults that texts describe; a lab has at most one at a place, with those that are planted.

    Raises:
        ValueError: A text is not a fault, names what the lab does not have, or its place has a fault.
    """
    taken = {fault.where: fault for fault in planted}
    new = []
    for text in texts:
        fault = parse_fault(text, shape)
        if there := taken.get(fault.where):
            raise ValueError(f"{fault.text!r}: there is {there.text!r} already; heal that first")
        taken[fault.where] = fault
        new.append(fault)
    return new


def places_of(words: Sequence[str], planted: Collection[str]) -> list[str]:
    """Return the places that words name, with or without what is planted there; without words, all planted ones.

    Raises:
        ValueError: A place has no fault.
    """
    places = [word.partition("=")[0].strip() for word in words]
    for where in places:
        if where not in planted:
            raise ValueError(f"there is no fault at {where[:80]!r}; fabtui lab status lists what is planted")
    return list(dict.fromkeys(places)) or list(planted)


def _kind(name: str, place: Place, rootless: bool) -> FaultKind:
    there = [kind for kind in KINDS if kind.place == place]
    found = next((kind for kind in there if kind.name == name), None)
    if rootless and not (found and found.rootless):
        words = ", ".join(kind.name for kind in kinds(rootless=True))
        raise ValueError(f"this lab has no network of its own, which needs root; it has these faults of nodes: {words}")
    if found is None:
        raise ValueError(f"{name[:40]!r} is not a fault of a {place}; expected {', '.join(k.name for k in there)}")
    return found


def _place(where: str, shape: LabShape) -> tuple[Place, tuple[str, ...], tuple[int, ...]]:
    if rail := re.fullmatch(r"rail([0-9]{1,3})", where, re.ASCII):
        return "rail", (), (_rail(int(rail[1]), shape),)
    ends = [_end(word.strip(), shape) for word in where.split(">")]
    nodes = tuple(node for node, _ in ends)
    rails = tuple(rail for _, rail in ends if rail is not None)
    if len(ends) == 1:
        return ("port" if rails else "node"), nodes, rails
    if len(ends) != 2 or len(rails) == 1:
        raise ValueError("a way goes from a port to a port, or from a node to a node: n1.eth0>n2.eth0 or n1>n2")
    if nodes[0] == nodes[1]:
        raise ValueError(f"source and destination are the same node {nodes[0]}")
    return "way", nodes, rails


def _end(text: str, shape: LabShape) -> tuple[str, int | None]:
    node, dot, interface = text.partition(".")
    if node not in shape.nodes:
        there = shape.nodes[0] if len(shape.nodes) == 1 else f"{shape.nodes[0]} to {shape.nodes[-1]}"
        raise ValueError(f"the lab has no node {node[:40]!r} (it has {there})")
    if not dot:
        return node, None
    match = re.fullmatch(r"eth([0-9]{1,3})", interface, re.ASCII)
    if match is None:
        raise ValueError(f"{interface[:40]!r} is not an interface; expected eth0 or another")
    return node, _rail(int(match[1]), shape)


def _rail(number: int, shape: LabShape) -> int:
    # Without rails, `_kind` reports why.
    if shape.rails and number >= shape.rails:
        there = "only rail 0" if shape.rails == 1 else f"rails 0 to {shape.rails - 1}"
        raise ValueError(f"the lab has no rail {number} (it has {there})")
    return number


def _number(kind: FaultKind, text: str) -> float:
    if kind.value == "rate":
        return parse_rate(text)
    low, high, unit = {
        "percent": (1.0, 100.0, "%"),
        "bytes": (*_BYTES, ""),
        "seconds": (0.1, _MOST_SECONDS, "s"),
    }[kind.value]
    word = text.strip().removesuffix(unit).strip()
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", word, re.ASCII) or not low <= float(word) <= high:
        example = f"{kind.name}:{kind.default}"
        raise ValueError(f"{text[:40]!r} is not {low:g} to {high:g}{unit and ' ' + unit}; expected {example}")
    return float(word)


#: Places of commands besides the nodes: the network between the nodes, and the management network.
FABRIC, CONSOLE = "fabric", "console"

#: A bucket (bytes) that holds some frames, and the time after which what waits for it is dropped.
_BURST, _LATENCY = 64_000, "50ms"


class Step(NamedTuple):
    """A command: where it runs, its words, and its standard input."""

    place: str
    argv: tuple[str, ...]
    text: str = ""


class Effect(NamedTuple):
    """Effect of a fault.

    Attributes:
        plant: Commands that plant it; they may run again while it is there.
        heal: Commands that take it back.
        rules: What the network drops while it is there.
        loop: A script that runs in the network while it is there, or "".
    """

    plant: tuple[Step, ...] = ()
    heal: tuple[Step, ...] = ()
    rules: tuple[str, ...] = ()
    loop: str = ""


class Wiring(Protocol):
    """Properties of the network that effects depend on."""

    mtu: int
    rails: range

    def address(self, node: str, rail: int) -> str:
        """Return the address of a node on a rail."""

    def routes(self, node: str, rail: int) -> str:
        """Return the input of ``ip -batch`` that makes the routes of an interface."""

    def server(self, node: str) -> tuple[str, ...]:
        """Return the command that starts the SSH server of a node."""


def effect_of(fault: Fault, network: Wiring) -> Effect:
    """Return what a fault of a network does."""
    return _EFFECTS[fault.kind.place, fault.kind.name](fault, network)


def _link(place: str, *words: str) -> Step:
    return Step(place, ("ip", "link", "set", *words))


def _port(fault: Fault) -> str:
    return f"{fault.nodes[0]}r{fault.rails[0]}"


def _own(fault: Fault, network: Wiring) -> str:
    return network.address(fault.nodes[0], fault.rails[0])


def _pull(fault: Fault, network: Wiring) -> Effect:
    return Effect((_link(FABRIC, _port(fault), "down"),), (_link(FABRIC, _port(fault), "up"),))


def _misplug(fault: Fault, network: Wiring) -> Effect:
    port = _port(fault)
    # A bridge without an address and without other ports.
    return Effect(
        (_link(FABRIC, port, "master", "elsewhere"),), (_link(FABRIC, port, "master", f"br{fault.rails[0]}"),)
    )


def _crossed(fault: Fault, network: Wiring) -> Effect:
    (node,) = fault.nodes
    ends = ((f"{node}r0", f"{node}r1"), ("br0", "br1"))
    plant = tuple(_link(FABRIC, port, "master", bridge) for port, bridge in zip(ends[0], ends[1][::-1], strict=True))
    return Effect(plant, tuple(_link(FABRIC, port, "master", bridge) for port, bridge in zip(*ends, strict=True)))


def _interface_down(fault: Fault, network: Wiring) -> Effect:
    ((node,), (rail,)) = fault.nodes, fault.rails
    # Its routes go with it.
    routes = Step(node, ("ip", "-batch", "-"), network.routes(node, rail))
    return Effect((_link(node, f"eth{rail}", "down"),), (_link(node, f"eth{rail}", "up"), routes))


def _flap(fault: Fault, network: Wiring) -> Effect:
    port = _port(fault)
    states = " ".join(f"ip link set {port} {state}; sleep {fault.value:g};" for state in ("down", "up"))
    return Effect(heal=(_link(FABRIC, port, "up"),), loop=f"while :; do {states} done")


def _slow(inwards: bool) -> Callable[[Fault, Wiring], Effect]:
    def effect(fault: Fault, network: Wiring) -> Effect:
        # What a node receives is what the switch sends to it.
        place, device = (FABRIC, _port(fault)) if inwards else (fault.nodes[0], f"eth{fault.rails[0]}")
        rate, burst = f"{int(fault.value)}bps", str(max(_BURST, 2 * network.mtu))
        words = (
            "tc",
            "qdisc",
            "replace",
            "dev",
            device,
            "root",
            "tbf",
            "rate",
            rate,
            "burst",
            burst,
            "latency",
            _LATENCY,
        )
        return Effect((Step(place, words),), (Step(place, ("tc", "qdisc", "del", "dev", device, "root")),))

    return effect


def _percent(fault: Fault) -> str:
    return f"numgen random mod 1000 < {round(10 * fault.value)}"


def _mtu(fault: Fault, network: Wiring) -> Effect:
    ((node,), (rail,)) = fault.nodes, fault.rails
    device = f"eth{rail}"
    return Effect(
        (_link(node, device, "mtu", f"{fault.value:g}"),),
        (_link(node, device, "mtu", str(network.mtu)),),
    )


def _port_rule(match: Callable[[Fault], str], towards: str = "saddr") -> Callable[[Fault, Wiring], Effect]:
    return lambda fault, network: Effect(rules=(f"ip {towards} {_own(fault, network)} {match(fault)}",))


def _way_rule(match: Callable[[Fault], str]) -> Callable[[Fault, Wiring], Effect]:
    def effect(fault: Fault, network: Wiring) -> Effect:
        rails = fault.rails or tuple(network.rails)
        ends = [fault.rails] if fault.rails else [(a, b) for a in rails for b in rails]
        return Effect(
            rules=tuple(
                f"ip saddr {network.address(fault.nodes[0], a)} ip daddr {network.address(fault.nodes[1], b)} "
                f"{match(fault)}".rstrip()
                for a, b in ends
            )
        )

    return effect


def _rail_cut(fault: Fault, network: Wiring) -> Effect:
    bridge = f"br{fault.rails[0]}"
    return Effect((_link(FABRIC, bridge, "down"),), (_link(FABRIC, bridge, "up"),))


def _firewall(fault: Fault, network: Wiring) -> Effect:
    (node,) = fault.nodes
    interfaces = ", ".join(f'"eth{rail}"' for rail in network.rails)
    gone = "add table inet wall\ndelete table inet wall\n"
    rules = (
        "add table inet wall\nadd chain inet wall input { type filter hook input priority 0; policy accept; }\n"
        f"add rule inet wall input iifname {{ {interfaces} }} tcp flags & (syn|ack) == syn drop\n"
    )
    return Effect((Step(node, ("nft", "-f", "-"), gone + rules),), (Step(node, ("nft", "-f", "-"), gone),))


def _cut(fault: Fault, network: Wiring) -> Effect:
    (node,) = fault.nodes
    links = [(FABRIC, f"{node}r{rail}") for rail in network.rails] + [(CONSOLE, node)]
    return Effect(tuple(_link(*link, "down") for link in links), tuple(_link(*link, "up") for link in links))


def _signal(fault: Fault, name: str) -> Step:
    # To everything on the node but its first process, which holds the namespaces.
    return Step(fault.nodes[0], ("sh", "-c", f"kill -{name} -1 2>/dev/null || true"))


def _stop(fault: Fault, network: Wiring) -> Effect:
    return Effect((_signal(fault, "STOP"),), (_signal(fault, "CONT"),))


def _down(fault: Fault, network: Wiring) -> Effect:
    return Effect((_signal(fault, "KILL"),), (Step(fault.nodes[0], network.server(fault.nodes[0])),))


_EFFECTS: dict[tuple[str, str], Callable[[Fault, Wiring], Effect]] = {
    ("port", "pull"): _pull,
    ("port", "misplug"): _misplug,
    ("port", "down"): _interface_down,
    ("port", "flap"): _flap,
    ("port", "slow-in"): _slow(inwards=True),
    ("port", "slow-out"): _slow(inwards=False),
    ("port", "loss-in"): _port_rule(_percent, "daddr"),
    ("port", "loss-out"): _port_rule(_percent),
    ("port", "blackhole"): _port_rule(lambda fault: f"ip length > {fault.value:g}"),
    ("port", "mtu"): _mtu,
    ("way", "drop"): _way_rule(lambda fault: ""),
    ("way", "drop-tcp"): _way_rule(lambda fault: "ip protocol tcp"),
    ("way", "loss"): _way_rule(_percent),
    ("way", "blackhole"): _way_rule(lambda fault: f"ip length > {fault.value:g}"),
    ("rail", "cut"): _rail_cut,
    ("node", "crossed"): _crossed,
    ("node", "firewall"): _firewall,
    ("node", "cut"): _cut,
    ("node", "stop"): _stop,
    ("node", "down"): _down,
}
