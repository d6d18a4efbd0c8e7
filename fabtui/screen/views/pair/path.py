"""Path between two endpoints as text: GPU, PCIe, NIC, network, NIC, PCIe, GPU; `?` for unknown hops."""

from __future__ import annotations

import contextlib
import ipaddress
from typing import Any, NamedTuple

from fabtui.model.endpoints import Endpoint
from fabtui.model.facts.link_limits import gpu_of
from fabtui.model.facts.node_view import dicts, field
from fabtui.model.measurement import Measurement
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import MUTED, Part
from fabtui.presentation.wrapping import Lines
from fabtui.sanitize import one_line
from fabtui.screen.grid.axis import fit_text

#: Connections between a GPU and a NIC, by the abbreviations of `nvidia-smi topo -m`.
_NIC_PATHS = {
    "PIX": "PCIe switch",
    "PXB": "PCIe switches",
    "PHB": "host bridge",
    "NODE": "NUMA node",
    "SYS": "between sockets",
}
_UNKNOWN = "?"


class Hop(NamedTuple):
    """A hop of a path with details, one per line; ``bad`` if it has a problem."""

    name: str
    about: tuple[str, ...] = ()
    bad: bool = False


def _inventory(model: Model, end: Endpoint) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the inventory of the node of an endpoint, and of its GPU."""
    record = model.nodes.get(end.node)
    found = (record.inventory if record is not None else None) or {}
    return found, gpu_of(found.get("gpus"), end)


def _text(value: Any, limit: int = 40) -> str:
    return _UNKNOWN if value in (None, "") else fit_text(str(value), limit)


def hops(model: Model, src: Endpoint, dst: Endpoint, measurement: Measurement | None) -> list[Hop]:
    """Return the known hops from one endpoint to another."""
    transport = (measurement.transport if measurement is not None else None) or ""
    lowered = transport.lower()
    if src.node == dst.node and "net" not in lowered:
        middle = _within(model, src, dst, lowered)
    else:
        addresses = (measurement.src_addr, measurement.dst_addr) if measurement is not None else (None, None)
        if measurement is not None and measurement.src == str(dst):
            # Measured in the other direction.
            addresses = addresses[::-1]
        name = transport.rpartition("/")[2]
        between = Hop("network", (fit_text(transport, 40) if transport else "transport ?",))
        here = _to_nic(model, src, name, addresses[0], lowered)
        there = _to_nic(model, dst, name, addresses[1], lowered)
        middle = [*here, between, *reversed(there)]
    return [_end(src), *middle, _end(dst)]


def _end(end: Endpoint) -> Hop:
    kind = {"gpu": f"GPU {end.index}", "cpu": f"rank {end.index}"}.get(end.kind, _UNKNOWN)
    name = fit_text(end.name, 24).removeprefix("NVIDIA ")
    return Hop(kind, tuple(text for text in (name, fit_text(end.bus or "", 16)) if text))


def _pcie(gpu: dict[str, Any]) -> tuple[str, bool]:
    """Return the PCIe link of a GPU, and True if it is narrower than its maximum."""
    gen, width, widest = (field(gpu, "pcie", name) for name in ("gen", "width", "width_max"))
    if gen is None and width is None:
        return "", False
    narrow = isinstance(width, int) and isinstance(widest, int) and width < widest
    return f"gen{_text(gen, 4)} x{_text(width, 4)}" + (f" of x{_text(widest, 4)}" if narrow else ""), narrow


def _within(model: Model, src: Endpoint, dst: Endpoint, transport: str) -> list[Hop]:
    """Return the hops between two endpoints of one node."""
    links = [_nvlinks(model, end) for end in (src, dst)]
    if any(word in transport for word in ("p2p", "nvl")) and any(total for _, total, _ in links):
        active = min(found for found, _, _ in links)
        total = max(found for _, found, _ in links)
        speed = links[0][2]
        about = (f"{active} of {total} links", f"{speed:g} GB/s per link" if speed else "")
        return [Hop("NVLink", tuple(text for text in about if text), active < total)]
    if src.kind != "gpu":
        return [Hop("node memory", (fit_text(transport, 30),) if transport else ())]
    sides = [_pcie(_inventory(model, end)[1]) for end in (src, dst)]
    ends = [Hop("PCIe", (text,) if text else (), narrow) for text, narrow in sides]
    if "shm" in transport:
        return [ends[0], Hop("host memory", ("SHM",)), ends[1]]
    return [Hop("PCIe or NVLink", (fit_text(transport, 30) if transport else "transport ?",))]


def _nvlinks(model: Model, end: Endpoint) -> tuple[int, int, float | None]:
    """Return the number of active NVLinks of an endpoint, of all its NVLinks, and their speed (GB/s)."""
    record = model.nodes.get(end.node)
    found = field(record.probe_results.get("nvlink"), "gpus") if record is not None else None
    links = dicts(gpu_of(found, end).get("links"))
    speeds = [link["speed"] for link in links if isinstance(link.get("speed"), (int, float))]
    return sum(link.get("state") == "active" for link in links), len(links), max(speeds, default=None)


def _to_nic(model: Model, end: Endpoint, chosen: str, address: str | None, transport: str) -> list[Hop]:
    """Return the hops from an endpoint to its NIC, NIC last."""
    inventory, gpu = _inventory(model, end)
    names = [nic.get("name") for nic in dicts(inventory.get("nics"))]
    nic = chosen if chosen in names else end.nic
    found: list[Hop] = []
    if end.kind == "gpu":
        link, narrow = _pcie(gpu)
        nic_path = gpu.get("nic_path") if nic == gpu.get("nic") else None
        name = _NIC_PATHS.get(str(nic_path), "PCIe")
        copied = "host memory" if "net" in transport and "gdr" not in transport else ""
        about = (link, str(nic_path) if str(nic_path) in _NIC_PATHS else "", copied)
        found.append(Hop(name, tuple(text for text in about if text), narrow))
    state, bad = _port(inventory, nic)
    rail = "" if end.rail is None else f"rail {end.rail}"
    about = (rail, _address(address, end.address), state)
    return [*found, Hop(_text(nic), tuple(text for text in about if text), bad)]


def _address(*found: str | None) -> str:
    """Return the first IP address, or "". For a GPU the library reports the PCI bus instead of an address."""
    for text in found:
        with contextlib.suppress(ValueError):
            return str(ipaddress.ip_address((text or "").partition("%")[0]))
    return ""


def _port(inventory: dict[str, Any], nic: str | None) -> tuple[str, bool]:
    """Return state and rate of a NIC, and True if it is down."""
    for port in dicts(inventory.get("ib")):
        if nic is not None and nic in (port.get("ca"), port.get("netdev")):
            state = one_line(str(port.get("state") or _UNKNOWN), 20)
            rate = port.get("rate")
            return f"{state} {rate:g} Gb/s" if isinstance(rate, (int, float)) else state, state != "Active"
    for found in dicts(inventory.get("nics")):
        if nic is not None and nic in (found.get("name"), found.get("rdma")):
            state = one_line(str(found.get("state") or _UNKNOWN), 20)
            speed = found.get("speed_mbps")
            rate = f" {speed / 1000:g} Gb/s" if isinstance(speed, (int, float)) and speed > 0 else ""
            return f"{state}{rate} mtu {_text(found.get('mtu'), 8)}", state == "down"
    return "", False


def path_lines(path: list[Hop], nodes: tuple[str, str], width: int, glyphs: Glyphs) -> Lines:
    """Return the hops on one line with their details below, or one per line if there is too little room."""
    widths = [max(map(len, (hop.name, *hop.about))) for hop in path]
    bar = "--" if glyphs.plain else "──"
    total = sum(widths) + (len(path) - 1) * (len(bar) + 2) + 2
    if total > width:
        return _below(path, nodes, glyphs)
    first, last = fit_text(nodes[0], 40), fit_text(nodes[1], 40)
    head: list[Part] = [("  ", ""), (first, "bold")]
    if nodes[0] != nodes[1]:
        head += [(" " * max(1, total - 2 - len(first) - len(last)), ""), (last, "bold")]
    names: list[Part] = [("  ", "")]
    for at, (hop, room) in enumerate(zip(path, widths, strict=True)):
        names.append((hop.name, "bold $warning" if hop.bad else "bold"))
        if at < len(path) - 1:
            names.append((" " + (bar[0] * (room - len(hop.name))) + bar + " ", MUTED))
    lines: Lines = [head, names]
    for row in range(max((len(hop.about) for hop in path), default=0)):
        line: list[Part] = [("  ", "")]
        for hop, room in zip(path, widths, strict=True):
            text = hop.about[row] if row < len(hop.about) else ""
            line.append((f"{text:<{room + len(bar) + 2}}", "$warning" if hop.bad else MUTED))
        lines.append(line)
    return lines


def _below(path: list[Hop], nodes: tuple[str, str], glyphs: Glyphs) -> Lines:
    """Return one hop per line."""
    room = max(len(hop.name) for hop in path)
    first, last = ([("  ", ""), (fit_text(node, 60), "bold")] for node in nodes)
    lines: Lines = []
    for hop in path:
        style, muted = ("bold $warning", "$warning") if hop.bad else ("bold", MUTED)
        lines.append(
            [(f"  {glyphs.node_edge} ", MUTED), (f"{hop.name:<{room}}  ", style), (", ".join(hop.about), muted)]
        )
    return [first, *lines, last]
