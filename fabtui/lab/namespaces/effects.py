"""Effects of the faults of a network: commands that plant them and take them back, and rules of the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from fabtui.lab.namespaces.faults import Fault

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
