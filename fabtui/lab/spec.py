"""Shape of a lab (number of nodes, and of endpoints per node), its deliberate faults, and their syntax.

``n000:1>n001:2=drop`` (or ``refuse``, ``slow:10MB``, ``absent``, ``corrupt``, ``kill``, ``stop``) is a fault of an
ordered pair of endpoints, made by the rank hosts.
``n001=dead-after:3`` (or ``down``, ``hang``, ``env:NAME=VALUE``) is a fault of a node, made by the lab's server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_NODES = 256
MAX_ENDPOINTS = 64

_EXPECTED = "expected 2x4 (nodes x endpoints) or 2,3 (endpoints of each node)"


@dataclass(frozen=True, slots=True)
class LabSpec:
    """The shape of a lab: the number of endpoints of each node, in the order of the nodes."""

    endpoints: tuple[int, ...]

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
    def names(self) -> tuple[str, ...]:
        """The names of the nodes: n000, n001 and so on."""
        return tuple(f"n{number:03d}" for number in range(len(self.endpoints)))

    @property
    def nodes(self) -> dict[str, int]:
        """The number of endpoints by name of the node."""
        return dict(zip(self.names, self.endpoints, strict=True))


PAIR_KINDS = ("drop", "refuse", "slow", "absent", "corrupt", "kill", "stop")
LONGEST_LIFE = 86400.0
LONGEST_VALUE = 1000
#: Variables by which the lab finds and counts its own processes.
RESERVED_NAMES = frozenset({"FABTUI_LAB_MARK", "FABTUI_LAB_NODE", "FABTUI_LAB_ENDPOINTS"})

_PAIR_FAULTS = "drop, refuse, slow:10MB, absent, corrupt, kill or stop"
_NODE_FAULTS = "dead-after:3, down, hang or env:NAME=VALUE"

_UNITS = {"b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}


@dataclass(frozen=True, slots=True)
class PairFault:
    """Fault of an ordered pair of endpoints."""

    src: str
    dst: str
    #: ``drop`` (nothing arrives), ``refuse`` (an error at once), ``slow``, ``absent`` (the source stays away),
    #: ``corrupt`` (it sends a wrong byte), ``kill`` or ``stop`` (in mid-transfer its process is ended or stopped).
    kind: str
    rate: float | None  #: Bytes per second of ``slow``, else None.
    text: str


@dataclass(frozen=True, slots=True)
class NodeFault:
    """Fault of a node."""

    node: str
    #: ``dead-after`` (dies some seconds after its first command), ``down`` (refuses connections), ``hang`` (accepts
    #: connections and never answers) or ``env`` (all its processes get a wrong variable).
    kind: str
    after: float | None  #: Seconds of ``dead-after``, else None.
    text: str
    variable: tuple[str, str] | None = None  #: Name and value of ``env``, else None.


Fault = PairFault | NodeFault


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


def _known_node(name: str, nodes: Mapping[str, int]) -> str:
    if name not in nodes:
        names = list(nodes)
        there = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        raise ValueError(f"the lab has no node {name[:40]!r} (it has {there})")
    return name


def _endpoint(text: str, nodes: Mapping[str, int]) -> str:
    match = re.fullmatch(r"\s*([^\s:]+):([0-9]{1,4})\s*", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not an endpoint; expected one as n000:1")
    node, index = _known_node(match[1], nodes), int(match[2])
    if index >= nodes[node]:
        there = "only endpoint 0" if nodes[node] == 1 else f"endpoints 0 to {nodes[node] - 1}"
        raise ValueError(f"{node} has no endpoint {index} (it has {there})")
    return f"{node}:{index}"


def _pair_fault(text: str, where: str, what: str, nodes: Mapping[str, int]) -> PairFault:
    source, _, destination = where.partition(">")
    src, dst = _endpoint(source, nodes), _endpoint(destination, nodes)
    if src == dst:
        raise ValueError(f"source and destination are the same endpoint {src}")
    kind, colon, value = what.partition(":")
    if kind == "slow":
        if not colon:
            raise ValueError("slow needs a rate, as in slow:10MB")
        return PairFault(src, dst, kind, parse_rate(value), text)
    if kind in PAIR_KINDS and not colon:
        return PairFault(src, dst, kind, None, text)
    raise ValueError(f"{what[:40]!r} is not a fault of a pair; expected {_PAIR_FAULTS}")


def _node_fault(text: str, where: str, what: str, nodes: Mapping[str, int]) -> NodeFault:
    if ":" in where:
        raise ValueError(f"{where[:40]!r} is one endpoint; expected a pair as n000:1>n001:2, or a node as n001")
    node = _known_node(where.strip(), nodes)
    kind, colon, value = what.partition(":")
    if kind == "dead-after" and colon:
        if not re.fullmatch(r"\s*[0-9]{1,6}(\.[0-9]{1,6})?\s*s?\s*", value, re.ASCII):
            raise ValueError(f"{value[:40]!r} is not a number of seconds; expected dead-after:3")
        after = float(value.strip().removesuffix("s"))
        if after > LONGEST_LIFE:
            raise ValueError(f"{after:g} s are more than a day")
        return NodeFault(node, kind, after, text)
    if kind == "env" and colon:
        return NodeFault(node, kind, None, text, _variable(value))
    if kind in ("down", "hang") and not colon:
        return NodeFault(node, kind, None, text)
    raise ValueError(f"{what[:40]!r} is not a fault of a node; expected {_NODE_FAULTS}")


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", name, re.ASCII):
        raise ValueError(f"{text[:40]!r} is not NAME=VALUE; expected env:NCCL_SOCKET_IFNAME=nosuch")
    if name in RESERVED_NAMES:
        raise ValueError(f"{name} belongs to the lab itself")
    if not value.isprintable() or len(value) > LONGEST_VALUE:
        raise ValueError(f"the value of {name} is too long or not printable")
    return name, value


def _place(fault: Fault) -> tuple[str, ...]:
    """Return the key of a fault, unique within a lab: a pair, a node, or a variable of a node."""
    if isinstance(fault, PairFault):
        return fault.src, fault.dst
    return (fault.node,) if fault.variable is None else (fault.node, fault.variable[0])


def parse_faults(texts: Sequence[str], spec: LabSpec) -> list[Fault]:
    """Return the faults of texts in a lab of a shape.

    Raises:
        ValueError: A text is not a fault, or names an unknown node or endpoint; the message is one line.
    """
    faults: list[Fault] = []
    seen: dict[tuple[str, ...], str] = {}
    for text in texts:
        shown = repr(text[:80])
        where, equals, what = text.strip().partition("=")
        if not equals:
            raise ValueError(f"{shown} is not a fault; expected n000:1>n001:2=drop or n001=dead-after:3")
        read = _pair_fault if ">" in where else _node_fault
        try:
            fault: Fault = read(text, where, what.strip(), spec.nodes)
        except ValueError as error:
            raise ValueError(f"{shown}: {error}") from None
        place = _place(fault)
        if place in seen:
            where = (">" if isinstance(fault, PairFault) else " ").join(place)
            raise ValueError(f"{shown}: there is a fault for {where} already, {seen[place][:80]!r}")
        seen[place] = text
        faults.append(fault)
    return faults
