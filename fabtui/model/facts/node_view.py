"""Safe readers for probe results of a node, and its hardware kind: no shape is assumed, and every text is cleaned."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from fabtui.model.endpoints import Endpoint
from fabtui.sanitize import one_line

#: Maximum length of a text that is compared.
LONGEST = 160
#: Maximum number of differing devices listed by name.
_NAMED = 3

#: Value of a fact.
Value = str | int | float | bool | None
#: An object in what a node reported: any of its values may have any type.
Entry = dict[str, Any]


class ProbedNode(NamedTuple):
    """Value of the inventory probe on a node, or empty, and of each probe by its name."""

    name: str
    inventory: Mapping[str, Any]
    probe_results: Mapping[str, Mapping[str, Any]]

    def part(self, *path: str) -> Any:
        """Return the value at a path of the inventory, or None."""
        return field(self.inventory, *path)

    def seen(self, probe: str, *path: str) -> Any:
        """Return the value at a path of a probe result, or None."""
        return field(self.probe_results.get(probe), *path)


def field(value: Any, *path: str) -> Any:
    """Return the value at a path of nested mappings, or None."""
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def dicts(value: Any) -> list[Entry]:
    """Return the objects of a list; empty if it is not a list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def gpu_of(gpus: Any, end: Endpoint) -> Entry:
    """Return the entry of a GPU in a list of a probe, by its UUID or else its index; {} if there is none."""
    same = (gpu for gpu in dicts(gpus) if end.uuid and gpu.get("uuid") == end.uuid)
    return next(same, next((gpu for gpu in dicts(gpus) if gpu.get("index") == end.index), {}))


def active_ports(ports: Any) -> list[Entry]:
    """Return the active RDMA ports among those of an inventory (``ib``)."""
    return [port for port in dicts(ports) if port.get("state") == "Active"]


def is_efa(port: Mapping[str, Any]) -> bool:
    """Return True for a port of an Elastic Fabric Adapter of AWS, whose link layer is unspecified."""
    names = str(port.get("ca")).startswith(("efa", "rdmap"))
    return port.get("type") == "EFA" or (names and port.get("link_layer") not in ("InfiniBand", "Ethernet"))


def connections(matrix: Any) -> dict[tuple[str, str], str]:
    """Return the words of a topology matrix by the names of row and column."""
    lists = (field(matrix, key) for key in ("rows", "columns", "cells"))
    rows, columns, cells = (value if isinstance(value, list) else [] for value in lists)
    return {
        (str(row), str(column)): word
        for row, words in zip(rows, cells, strict=False)
        if isinstance(words, list)
        for column, word in zip(columns, words, strict=False)
        if isinstance(word, str)
    }


def text(value: Any) -> str | None:
    """Return a cleaned text; None if it is empty or not a text."""
    if not isinstance(value, str):
        return None
    return _cleaned(value) if len(value) <= LONGEST else one_line(value, LONGEST)


# Nodes of a kind report the same texts.
@functools.lru_cache(maxsize=8192)
def _cleaned(value: str) -> str | None:
    return one_line(value, LONGEST) or None


def number(value: Any) -> int | float | None:
    """Return a finite number; None for any other value, and for integers too large for a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e300:
        return None
    return value


def yes(value: Any) -> bool | None:
    """Return a boolean; None for any other value."""
    return value if isinstance(value, bool) else None


def single(value: Any) -> Value:
    """Return a text, boolean or number; None for any other value."""
    return text(value) if isinstance(value, str) else yes(value) if isinstance(value, bool) else number(value)


def host_text(*path: str) -> Callable[[ProbedNode], Value]:
    """Return a reader of a text at a path of the probe ``host``."""
    return lambda node: text(node.seen("host", *path))


def known_text(probe: str, *path: str) -> Callable[[ProbedNode], Value]:
    """Return a reader of a text at a path of a probe; ``unknown`` is not a value."""
    return lambda node: word if (word := text(node.seen(probe, *path))) != "unknown" else None


def host_number(*path: str) -> Callable[[ProbedNode], Value]:
    """Return a reader of a number at a path of the probe ``host``."""
    return lambda node: number(node.seen("host", *path))


def counted(values: Iterable[Any]) -> str | None:
    """Return the count of each value, the most frequent first: ``8 x H200``; None for no values."""
    counts = Counter(text(value) or "unknown" for value in values)
    return ", ".join(f"{many} x {word}" for word, many in counts.most_common()) or None


def spread(values: Iterable[tuple[Any, Any]], unit: str = "") -> str | None:
    """Return the common value of devices, and those that differ: ``400, 200 on mlx5_3``; None for no values.

    Their number is a separate fact: a node that lost one device should not differ in all facts of them.
    """
    devices: dict[str, list[str]] = {}
    for name, value in values:
        devices.setdefault(_word(value, unit), []).append(text(str(name)) or "?")
    if devices.keys() <= {"unknown"}:
        return None
    (usual, _), *others = sorted(devices.items(), key=lambda item: -len(item[1]))
    parts = [usual]
    for word, names in others:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        parts.append(f"{word} on {', '.join(names[:_NAMED])}{more}")
    return one_line(", ".join(parts), LONGEST)


def _word(value: Any, unit: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "unknown" if value is None else text(f"{value} {unit}") or "unknown"


class Hardware(NamedTuple):
    """Hardware kind of a node, within which nodes are compared."""

    gpus: str  #: GPUs with their number, as ``8 x H200``; ``no GPU``.
    model: str  #: Models without their number.
    nics: str  #: NICs with their number.

    def __str__(self) -> str:
        return f"{self.gpus}, {self.nics}" if self.nics else self.gpus


def gpu_models(node: ProbedNode) -> list[str]:
    """Return the model of each GPU, also of GPUs without a driver."""
    models = [(text(gpu.get("name")) or "GPU").removeprefix("NVIDIA ") for gpu in dicts(node.part("gpus"))]
    on_pci = node.part("pci_gpus")
    return models or (["NVIDIA GPU without a driver"] * len(on_pci) if isinstance(on_pci, list) else [])


def rdma_models(node: ProbedNode) -> list[str]:
    """Return the type of each RDMA device as in ibstat; the kind of its link if the type is unknown."""
    types = {str(ca.get("ca")): text(ca.get("type")) for ca in dicts(node.seen("ibstat", "cas"))}
    ports = {str(port.get("ca")): port for port in dicts(node.part("ib"))}
    return [
        text(port.get("type")) or types.get(name) or f"{text(port.get('link_layer')) or 'RDMA'} device"
        for name, port in ports.items()
    ]


def _hardware(node: ProbedNode) -> Hardware:
    models = gpu_models(node)
    ethernet = ["Ethernet NIC" for nic in dicts(node.part("nics")) if nic.get("kind") == "ethernet"]
    nics = rdma_models(node) or ethernet
    kinds = sorted(set(models))
    return Hardware(counted(models) or "no GPU", " and ".join(kinds) or "no GPU", counted(nics) or "")


def kinds_of(nodes: Iterable[ProbedNode]) -> dict[str, Hardware]:
    """Return the hardware kind that each node is compared within.

    Nodes of the same hardware are of one kind. A node with unique hardware but a common GPU model is compared with the
    largest kind of that model: it may have lost a GPU or a NIC.
    """
    own = {node.name: _hardware(node) for node in nodes}
    sizes = Counter(own.values())
    largest: dict[str, Hardware] = {}
    for hardware in sizes:
        largest[hardware.model] = max(largest.get(hardware.model, hardware), hardware, key=lambda kind: sizes[kind])
    return {name: kind if sizes[kind] > 1 else largest[kind.model] for name, kind in own.items()}
