"""Faults of a standing lab: which there are, and their syntax.

``n3.eth1=pull`` is a fault of a port, ``rail1=cut`` of a rail, and ``n2=stop`` of a node. ``n1.eth0>n2.eth0=drop`` is
one of the way from one port to the other, ``n1>n2=drop`` of all ways between two nodes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple

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
