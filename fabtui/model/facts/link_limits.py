"""Theoretical limits of pairs, from what nodes report about NVLinks, PCIe, RDMA ports and interfaces.

A pair has no limit where a fact about its path is missing: rates of products are never assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fabtui.model.endpoints import Endpoint
from fabtui.model.facts.leaf_switches import ports_of
from fabtui.model.facts.node_view import ProbedNode, active_ports, connections, dicts, field, gpu_of, number
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement
from fabtui_node.parsers.nccl.transports import Path, Transport, device_of, transport_of
from fabtui_node.parsers.nvidia.topo import NEAR, nvlinks

if TYPE_CHECKING:
    from fabtui.model.session_model import Model

NVLINK, PCIE, RDMA, INTERFACE = "NVLink", "PCIe", "RDMA port", "interface"
#: Smaller messages (bytes) are limited by latency.
LEAST_BYTES = 16 << 20
#: GB/s per lane and direction by PCIe generation, after encoding.
_LANE: dict[float, float] = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
#: Rates and widths from there on are not believed, in any unit.
_MOST = 1e8
#: A value above the limit by more than rounding used another path: several ports or interfaces at once.
_ROUNDING = 1.02


class Limit(NamedTuple):
    """Theoretical limit of a pair."""

    value: float  #: Limit in GB/s, one direction.
    what: str  #: The part of the path that has it: `NVLINK`, `PCIE`, `RDMA` or `INTERFACE`.
    exact: bool = True  #: False for NVLinks without a topology matrix, some of which may connect other GPUs.


class _Port(NamedTuple):
    """An active RDMA port."""

    rate: float  #: GB/s of its link.
    passes: float  #: GB/s that it passes: less where the PCIe link of its function is slower.
    connector: str  #: Its connector where it shares that with another function, or "".


class _Links(NamedTuple):
    """Links of an endpoint; None where unknown."""

    nvlinks: tuple[int, float] | None  #: Number of active NVLinks, and GB/s of each.
    pcie: float | None  #: GB/s of its PCIe link.
    rdma: float | None  #: GB/s of its fastest active RDMA port.
    near_rdma: float | None  #: GB/s of all active RDMA ports that are as near.
    ports: Mapping[str, _Port]  #: Active RDMA devices of its node, by name.
    name: str  #: Its name in the topology matrix.
    near: Mapping[str, str]  #: Its connection to each device of that matrix: ``NV18``, ``PIX``.
    interfaces: Mapping[str, float]  #: GB/s of each interface of its node, by name and by address.


class LinkLimits:
    """Limits of pairs, cached by endpoint for one state of a model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._of_end: dict[int, _Links | None] = {}

    def of(self, measurement: Measurement) -> Limit | None:
        """Return the limit of a pair of GPUs on the path that its p2p measurement used, or None if unknown."""
        a, b = self._model.table.number(measurement.src), self._model.table.number(measurement.dst)
        if measurement.layer is not Layer.P2P or a is None or b is None:
            return None
        here, there = self._links(a), self._links(b)
        if here is None or there is None:
            return None
        inside = self._model.endpoints[a].node == self._model.endpoints[b].node
        limit = min(self._parts(measurement, here, there, inside), default=None)
        if limit is None or (measurement.value or 0.0) > _ROUNDING * limit.value:
            return None
        return limit._replace(value=round(limit.value, 3))

    def _links(self, number: int) -> _Links | None:
        if number not in self._of_end:
            end = self._model.endpoints[number]
            record = self._model.nodes.get(end.node)
            known = record is not None and end.kind == "gpu"
            self._of_end[number] = _links_of(self._model, end) if known else None
        return self._of_end[number]

    def _parts(self, measurement: Measurement, here: _Links, there: _Links, inside: bool) -> list[Limit]:
        transport = measurement.transport or ""
        kind = transport_of(transport)
        path = kind.path
        pcie = _both(PCIE, here.pcie, there.pcie)
        if path is Path.P2P:
            return _p2p(here, there, inside) or (pcie if inside and _on_pcie(here, there) else [])
        if path is Path.SHM:
            return pcie
        # Within a node no network limits, nor between the nodes of a lab.
        if inside:
            return []
        if path is Path.TCP and self._model.lab is None:
            # The interface with the address, or the one that NCCL names.
            other, ends = device_of(transport), ((here, measurement.src_addr), (there, measurement.dst_addr))
            return _both(INTERFACE, *(end.interfaces.get(at or "", end.interfaces.get(other)) for end, at in ends))
        rates = (_rdma(end, kind, device_of(transport)) for end in (here, there))
        rdma = _both(RDMA, *rates) if path in (Path.RDMA, Path.GPUDIRECT) else []
        # Through host memory, data still leaves each GPU over its PCIe link.
        return rdma + pcie if rdma and (pcie or path is not Path.GPUDIRECT) else []


def limit_of(model: Model, measurement: Measurement) -> Limit | None:
    """Return the theoretical limit of a pair on the path that its p2p measurement used, or None if unknown."""
    return LinkLimits(model).of(measurement)


def _rate(value: Any) -> float | None:
    """Return a positive number; None for anything else, and for what no link has."""
    known = number(value)
    return None if known is None or not 0 < known < _MOST else float(known)


def _both(what: str, here: float | None, there: float | None) -> list[Limit]:
    return [] if here is None or there is None else [Limit(min(here, there), what)]


def _rdma(links: _Links, kind: Transport, device: str) -> float | None:
    """Return the rate of the NICs that a transport used: NCCL joins the names of those that it uses as one."""
    names = device.split("+")
    if len(names) > 1:
        return _together([links.ports.get(name) for name in names])
    return links.rdma if kind.one_nic else links.near_rdma


def _together(ports: Sequence[_Port | None]) -> float | None:
    """Return what ports pass together; those behind one connector share its rate. None if one is unknown."""
    connectors: dict[str, list[_Port]] = {}
    for at, port in enumerate(ports):
        if port is None:
            return None
        connectors.setdefault(port.connector or str(at), []).append(port)
    return sum(min(sum(port.passes for port in alike), alike[0].rate) for alike in connectors.values()) or None


def _port(entry: Mapping[str, Any]) -> _Port | None:
    rate, pcie = _rate(entry.get("rate")), _rate(entry.get("pcie_rate"))
    if rate is None:
        return None
    return _Port(rate / 8, min(rate, pcie or rate) / 8, str(entry.get("connector") or ""))


def _p2p(here: _Links, there: _Links, inside: bool) -> list[Limit]:
    """Return the limit of the NVLinks between two GPUs; none if it is unknown, or if they have no NVLinks."""
    if here.nvlinks is None or there.nvlinks is None:
        return []
    active, speed = (min(ends) for ends in zip(here.nvlinks, there.nvlinks, strict=True))
    if not inside:
        # Between nodes all NVLinks lead to switches.
        return [Limit(active * speed, NVLINK)] if active else []
    word = here.near.get(there.name)
    between = active if word is None else min(active, nvlinks(word) or 0)
    return [Limit(between * speed, NVLINK, word is not None)] if between else []


def _on_pcie(here: _Links, there: _Links) -> bool:
    """Return True if P2P between two GPUs of a node is known to use PCIe."""
    word = here.near.get(there.name)
    without = here.nvlinks is not None and there.nvlinks is not None and not min(here.nvlinks[0], there.nvlinks[0])
    return without if word is None else word in NEAR


def _links_of(model: Model, end: Endpoint) -> _Links:
    record = model.nodes[end.node]
    node = ProbedNode(record.name, record.inventory or {}, record.probe_results)
    gpu = gpu_of(node.part("gpus"), end)
    name = f"GPU{gpu.get('nvml_index')}"
    ports, active = ports_of(end, record), active_ports(node.part("ib"))
    mine = [_port(port) for port in active if (port.get("ca"), port.get("port")) in ports]
    by_device = {str(port.get("ca")): known for port in active if (known := _port(port)) is not None}
    return _Links(
        _nvlinks(gpu_of(node.seen("nvlink", "gpus"), end)),
        _pcie(gpu_of(node.seen("gpuload", "gpus"), end), gpu),
        # NCCL may use one of two ports.
        max((port.passes for port in mine if port is not None), default=None),
        _together(
            [by_device.get(str(near)) for near in nics] if isinstance(nics := gpu.get("near_nics"), list) else []
        ),
        by_device,
        name,
        {column: word for (row, column), word in connections(node.seen("topology", "matrix")).items() if row == name},
        _interfaces(node),
    )


def _nvlinks(gpu: Mapping[str, Any]) -> tuple[int, float] | None:
    """Return the number of active NVLinks of a GPU and GB/s of each, or None if unknown."""
    links = dicts(gpu.get("links"))
    speeds = [_rate(link.get("speed")) for link in links if link.get("state") == "active"]
    known = [speed for speed in speeds if speed is not None]
    unknown = not gpu or len(known) < len(speeds) or any(link.get("state") == "unknown" for link in links)
    return None if unknown else (len(known), sum(known) / max(1, len(known)))


def _pcie(loaded: Mapping[str, Any], listed: Mapping[str, Any]) -> float | None:
    """Return GB/s of the PCIe link of a GPU: under load, or at best, as an idle GPU lowers its generation."""
    link = field(loaded, "pcie") if loaded.get("busy") is True else None
    lane, width = _LANE.get(number(field(link, "generation")) or 0), _rate(field(link, "width"))
    if lane is None or width is None:
        lane = _LANE.get(number(field(listed, "pcie", "gen_max")) or 0)
        width = _rate(field(listed, "pcie", "width"))
    return None if lane is None or width is None else lane * width


def _interfaces(node: ProbedNode) -> dict[str, float]:
    rates: dict[str, float] = {}
    for nic in dicts(node.part("nics")):
        names = [nic.get("name"), *(entry.get("address") for entry in dicts(nic.get("addresses")))]
        if (speed := _rate(nic.get("speed_mbps"))) is not None:
            rates.update((name, speed / 8000) for name in names if isinstance(name, str))
    return rates
