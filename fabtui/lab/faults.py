"""Shape of a lab, the kinds of its faults, and their syntax: ``WHERE=FAULT``.

``n000:1>n001:2=drop`` is a fault of a pair of endpoints, made by the rank hosts, and ``n001=down`` one of a node.
A lab with a network has more places: ``n003.eth1=pull`` is a fault of a port, and ``rail1=cut`` of a rail.
``n001.eth0>n002.eth0=drop`` is one of the way from port to port, ``n001>n002=drop`` of all ways between two nodes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

MAX_NODES = 256
MAX_ENDPOINTS = 64

_EXPECTED = "expected 2x4 (nodes x endpoints) or 2,3 (endpoints of each node)"

#: How a lab is made: for one session (``--lab``), by ``fabtui lab up`` on loopback addresses, or with a network (root).
LabType = Literal["--lab", "loopback", "root"]
Place = Literal["pair", "node", "port", "way", "rail"]
Value = Literal["", "percent", "rate", "bytes", "period", "delay", "variable"]
_SESSION: tuple[LabType, ...] = ("--lab",)
_ANY: tuple[LabType, ...] = ("--lab", "loopback", "root")
#: Further names of kinds of faults of a node.
_ALIASES = {"hang": "stop"}
_LONGEST_SHOWN = 80
_LONGEST_TEXT = 1200
_LONGEST_VALUE = 1000
#: Variables by which the lab finds and counts its own processes.
RESERVED_NAMES = frozenset({"FABTUI_LAB_MARK", "FABTUI_LAB_NODE", "FABTUI_LAB_ENDPOINTS"})
_UNITS = {"b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
#: Least and greatest value, and the unit.
_RANGES: dict[str, tuple[float, float, str]] = {
    "percent": (1.0, 100.0, "%"),
    "bytes": (68.0, 9000.0, ""),
    "period": (0.1, 3600.0, "s"),
    "delay": (0.0, 86400.0, "s"),
}


@dataclass(frozen=True, slots=True)
class LabSpec:
    """The shape of a lab."""

    endpoints: tuple[int, ...]  #: The number of endpoints of each node.
    rails: int = 0  #: The number of rails; 0: loopback addresses, without network namespaces.
    standing: bool = False  #: Whether `fabtui lab` made it, and no session.
    names: tuple[str, ...] = ()  #: The nodes' names: n000, n001 and so on.
    gpus: int = 0  #: The number of GPUs of this machine, which its nodes share; 0: they have CPU ranks.

    def __post_init__(self) -> None:
        if not self.names:
            object.__setattr__(self, "names", tuple(f"n{number:03d}" for number in range(len(self.endpoints))))

    @classmethod
    def parse(cls, text: str) -> LabSpec:
        """Return the spec of a text like ``2x4`` or ``2,3``.

        Raises:
            ValueError: The text is not a shape, or exceeds the maximum; the message is one line.
        """
        shown = repr(text[:40])
        if product := re.fullmatch(r"\s*([0-9]{1,6})\s*[xX]\s*([0-9]{1,6})\s*", text, re.ASCII):
            endpoints = (int(product[2]),) * int(product[1])
        elif re.fullmatch(r"\s*[0-9]{1,6}\s*(,\s*[0-9]{1,6}\s*)*", text, re.ASCII):
            endpoints = tuple(int(word) for word in text.split(","))
        else:
            raise ValueError(f"{shown} is not the shape of a lab; {_EXPECTED}")
        if len(endpoints) > MAX_NODES:
            raise ValueError(f"{shown}: {len(endpoints)} nodes are more than the {MAX_NODES} a lab may have")
        if not endpoints:
            raise ValueError(f"{shown}: a lab has at least one node; {_EXPECTED}")
        for count in endpoints:
            if not 1 <= count <= MAX_ENDPOINTS:
                raise ValueError(f"{shown}: a node of a lab has 1 to {MAX_ENDPOINTS} endpoints, not {count}")
        return cls(endpoints)

    @property
    def nodes(self) -> dict[str, int]:
        return dict(zip(self.names, self.endpoints, strict=True))

    @property
    def type(self) -> LabType:
        return "root" if self.rails else "loopback" if self.standing else "--lab"


class FaultKind(NamedTuple):
    """A kind of fault."""

    name: str  #: As written after the ``=``.
    place: Place  #: What has it.
    help: str  #: One line.
    value: Value = ""  #: What follows the colon; "" for nothing.
    default: str = ""  #: The value where none is given; in a lab of a session, an example of the value that is needed.
    labs: tuple[LabType, ...] = ("root",)  #: The labs that can have it.

    @property
    def example(self) -> str:
        places = {"pair": "n000:1>n001:2", "port": "n003.eth1", "way": "n001>n002", "rail": "rail1", "node": "n002"}
        return f"{places[self.place]}={self.name}" + (f":{self.default}" if self.value else "")


KINDS = (
    FaultKind("drop", "pair", "nothing from the first endpoint arrives at the second", labs=_SESSION),
    FaultKind("refuse", "pair", "the pair fails at once", labs=_SESSION),
    FaultKind("slow", "pair", "the pair is limited to this rate", "rate", "10MB", _SESSION),
    FaultKind("absent", "pair", "the first endpoint never joins its test with the second", labs=_SESSION),
    FaultKind("corrupt", "pair", "one byte of the data is wrong", labs=_SESSION),
    FaultKind("kill", "pair", "in mid-transfer, the rank host of the first endpoint kills itself", labs=_SESSION),
    FaultKind("stop", "pair", "in mid-transfer, it stops itself and answers nothing", labs=_SESSION),
    FaultKind("pull", "port", "the cable is pulled: no carrier"),
    FaultKind("misplug", "port", "the cable is in the wrong VLAN: there is a carrier, but nobody answers"),
    FaultKind("down", "port", "the interface is switched off on the node"),
    FaultKind("flap", "port", "the link goes down and comes back up, each for this time", "period", "1"),
    FaultKind("slow-in", "port", "what the node receives is limited to this rate", "rate", "6MB"),
    FaultKind("slow-out", "port", "what the node sends is limited to this rate", "rate", "6MB"),
    FaultKind("loss-in", "port", "this share of the packets to the node is lost", "percent", "5%"),
    FaultKind("loss-out", "port", "this share of the packets from the node is lost", "percent", "5%"),
    FaultKind("blackhole", "port", "packets of the node that are larger vanish", "bytes", "1500"),
    FaultKind("mtu", "port", "the interface has a different MTU from the others", "bytes", "1500"),
    FaultKind("drop", "way", "nothing arrives; the other direction passes"),
    FaultKind("drop-tcp", "way", "no TCP arrives, as behind a firewall; ping passes"),
    FaultKind("loss", "way", "this share of the packets is lost", "percent", "20%"),
    FaultKind("blackhole", "way", "packets that are larger vanish", "bytes", "1500"),
    FaultKind("cut", "rail", "the switch of a rail is off"),
    FaultKind("crossed", "node", "the cables of its first two rails are swapped"),
    FaultKind("firewall", "node", "its firewall drops TCP connections that come in over the rails"),
    FaultKind("cut", "node", "all its cables are pulled, the cable of the management network too"),
    FaultKind("stop", "node", "everything on it is frozen: logins never get an answer", labs=_ANY),
    FaultKind("down", "node", "everything on it is killed, and it refuses connections", labs=_ANY),
    FaultKind("dead-after", "node", "it dies this time (s) after its first command", "delay", "3", _SESSION),
    FaultKind("env", "node", "its processes have this variable", "variable", "NCCL_DEBUG=INFO", _SESSION),
)


class Fault(NamedTuple):
    """A fault."""

    text: str  #: As written.
    kind: FaultKind  #: What it is.
    where: str  #: What has it, without blanks; a lab has at most one fault there.
    nodes: tuple[str, ...] = ()  #: The node that has it, or source and destination; none for a rail.
    rails: tuple[int, ...] = ()  #: The rail of each node (or the rail itself); none where all are meant.
    value: float = 0.0  #: The number after the colon: percent, bytes per second, bytes or seconds; 0 without.
    variable: tuple[str, str] | None = None  #: Name and value of a variable, or None.


def kinds(lab: LabType) -> list[FaultKind]:
    return [kind for kind in KINDS if lab in kind.labs]


def parse_fault(text: str, spec: LabSpec) -> Fault:
    """Return the fault that a text describes in a lab of a shape.

    Raises:
        ValueError: The text is not a fault, or names what the lab does not have; the message is one line.
    """
    shown = repr(text[:_LONGEST_SHOWN])
    where, equals, what = (word.strip() for word in text.partition("="))
    if not equals or len(text) > _LONGEST_TEXT:
        example = "n000:1>n001:2=drop or n001=down" if spec.type == "--lab" else "n003.eth1=pull"
        raise ValueError(f"{shown} is not a fault; expected WHERE=FAULT, as in {example} (fabtui lab fault --list)")
    try:
        place, where, nodes, rails = _place("".join(where.split()), spec)
        name, colon, value = what.partition(":")
        kind = _kind(name, place, spec.type)
        if colon and not kind.value:
            raise ValueError(f"{name} takes no value; {_expected(place, spec.type)}")
        if kind.value and not colon and spec.type == "--lab":
            raise ValueError(f"{name} needs a {kind.value}, as in {name}:{kind.default}")
        value = value if spec.type == "--lab" else value or kind.default
        variable = _variable(value) if kind.value == "variable" else None
        number = _number(kind, value) if kind.value and variable is None else 0.0
    except ValueError as error:
        raise ValueError(f"{shown}: {error}") from None
    where = f"{where} {variable[0]}" if variable else where
    return Fault(text, kind, where, nodes, rails, number, variable)


def parse_faults(texts: Iterable[str], spec: LabSpec, planted: Iterable[Fault] = ()) -> list[Fault]:
    """Return the faults that texts describe; a lab has at most one at a place, with those that are planted.

    Raises:
        ValueError: A text is not a fault, names what the lab does not have, or its place has a fault.
    """
    taken = {fault.where: fault for fault in planted}
    new = []
    for text in texts:
        fault = parse_fault(text, spec)
        if there := taken.get(fault.where):
            heal = "; heal that first" if spec.standing else ""
            raise ValueError(f"{text[:_LONGEST_SHOWN]!r}: there is {there.text[:_LONGEST_SHOWN]!r} already{heal}")
        taken[fault.where] = fault
        new.append(fault)
    return new


def places_of(words: Sequence[str], planted: Collection[str]) -> list[str]:
    """Return the places that words name, with or without what is planted there; without words, all planted ones.

    Raises:
        ValueError: A place has no fault.
    """
    places = ["".join(word.partition("=")[0].split()) for word in words]
    for where in places:
        if where not in planted:
            raise ValueError(f"there is no fault at {where[:80]!r}; fabtui lab status lists what is planted")
    return list(dict.fromkeys(places)) or list(planted)


def _expected(place: Place, lab: LabType) -> str:
    *names, last = (kind.name for kind in kinds(lab) if kind.place == place)
    return f"expected a fault of a {place}: {', '.join(names)}{' or ' if names else ''}{last}"


def _kind(name: str, place: Place, lab: LabType) -> FaultKind:
    name = _ALIASES.get(name, name) if place == "node" else name
    there = kinds(lab)
    fitting = next((kind for kind in there if (kind.place, kind.name) == (place, name)), None)
    if fitting is None and lab == "loopback":
        words = ", ".join(kind.name for kind in there)
        raise ValueError(f"this lab has no network of its own, which needs root; it has these faults of nodes: {words}")
    if fitting is None:
        raise ValueError(f"{name[:40]!r} is not a fault of a {place}; {_expected(place, lab)}")
    return fitting


def _place(where: str, spec: LabSpec) -> tuple[Place, str, tuple[str, ...], tuple[int, ...]]:
    """Return the place that a text without blanks names, the text with plain numbers, the nodes and the rails."""
    if spec.type == "--lab":
        if ">" not in where and ":" in where:
            raise ValueError(
                f"{where[:40]!r} is one endpoint; expected a pair such as n000:1>n001:2, or a node such as n001"
            )
        if ">" not in where:
            return "node", where, (_node(where, spec),), ()
        pair = tuple(_endpoint(word, spec) for word in where.split(">", 1))
        if pair[0] == pair[1]:
            raise ValueError(f"source and destination are the same endpoint {pair[0]}")
        return "pair", ">".join(pair), tuple(end.partition(":")[0] for end in pair), ()
    if rail := re.fullmatch(r"rail([0-9]{1,3})", where, re.ASCII):
        return "rail", where, (), (_rail(int(rail[1]), spec),)
    ends = [_port(word, spec) for word in where.split(">")]
    nodes = tuple(node for node, _ in ends)
    rails = tuple(rail for _, rail in ends if rail is not None)
    if len(ends) == 1:
        return ("port" if rails else "node"), where, nodes, rails
    if len(ends) != 2 or len(rails) == 1:
        raise ValueError(
            "a direction is from one port to another, or from one node to another: n1.eth0>n2.eth0 or n1>n2"
        )
    if nodes[0] == nodes[1]:
        raise ValueError(f"source and destination are the same node {nodes[0]}")
    return "way", where, nodes, rails


def _node(name: str, spec: LabSpec) -> str:
    if name not in spec.names:
        there = spec.names[0] if len(spec.names) == 1 else f"{spec.names[0]} to {spec.names[-1]}"
        raise ValueError(f"the lab has no node {name[:40]!r} (it has {there})")
    return name


def _endpoint(text: str, spec: LabSpec) -> str:
    match = re.fullmatch(r"([^\s:]+):([0-9]{1,4})", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not an endpoint; expected one such as n000:1")
    node, index = _node(match[1], spec), int(match[2])
    count = spec.nodes[node]
    if index >= count:
        there = "only endpoint 0" if count == 1 else f"endpoints 0 to {count - 1}"
        raise ValueError(f"{node} has no endpoint {index} (it has {there})")
    return f"{node}:{index}"


def _port(text: str, spec: LabSpec) -> tuple[str, int | None]:
    """Return a node and the rail of its port, or None for all of it."""
    if ":" in text:
        raise ValueError("faults of endpoints belong to a session: fabtui --lab 2x4 --lab-fault SPEC")
    name, dot, interface = text.partition(".")
    node = _node(name, spec)
    if not dot:
        return node, None
    match = re.fullmatch(r"eth([0-9]{1,3})", interface, re.ASCII)
    if match is None:
        raise ValueError(f"{interface[:40]!r} is not an interface; expected one such as eth0")
    return node, _rail(int(match[1]), spec)


def _rail(number: int, spec: LabSpec) -> int:
    # Without rails, `_kind` reports why.
    if spec.rails and number >= spec.rails:
        there = "only rail 0" if spec.rails == 1 else f"rails 0 to {spec.rails - 1}"
        raise ValueError(f"the lab has no rail {number} (it has {there})")
    return number


def _number(kind: FaultKind, text: str) -> float:
    if kind.value == "rate":
        return parse_rate(text)
    low, high, unit = _RANGES[kind.value]
    word = text.strip().removesuffix(unit).strip()
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", word, re.ASCII) or not low <= float(word) <= high:
        example = f"{kind.name}:{kind.default}"
        raise ValueError(f"{text[:40]!r} is not {low:g} to {high:g}{unit and ' ' + unit}; expected {example}")
    return float(word)


def parse_rate(text: str) -> float:
    """Return the bytes per second of a text like ``10MB`` or ``1.5 GiB/s``.

    Raises:
        ValueError: The text is not a rate.
    """
    match = re.fullmatch(r"\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([A-Za-z]{1,3}(?:/s)?)\s*", text, re.ASCII)
    factor = _UNITS.get(match[2].lower().removesuffix("/s")) if match else None
    if match is None or factor is None or float(match[1]) <= 0:
        raise ValueError(f"{text[:40]!r} is not a rate; expected a number and kB, MB, GB, KiB, MiB or GiB, as in 10MB")
    return float(match[1]) * factor


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", name, re.ASCII):
        raise ValueError(f"{text[:40]!r} is not NAME=VALUE; expected env:NCCL_SOCKET_IFNAME=nosuch")
    if name in RESERVED_NAMES:
        raise ValueError(f"{name} belongs to the lab itself")
    if not value.isprintable() or len(value) > _LONGEST_VALUE:
        raise ValueError(f"the value of {name} is too long or not printable")
    return name, value
