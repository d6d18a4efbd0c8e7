"""What the looks at nodes tell of links that are not as they should be: NVLinks and the ports of endpoints' NICs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.links.rdma_ports import PortTrouble, port_troubles
from fabtui.diagnosis.reports import Cause
from fabtui.model.facts.node_view import dicts
from fabtui.model.session_model import Model, NodeRecord
from fabtui.model.topology.leaf_switches import Port
from fabtui.sanitize import one_line


def link_causes(model: Model) -> list[Cause]:
    """Return what is wrong with links, node by node."""
    found: list[Cause] = []
    for record in model.nodes.values():
        found += _nvlinks(model, record)
        found += _ports(model, record)
    return found


def _nvlinks(model: Model, record: NodeRecord) -> Iterator[Cause]:
    """Yield the GPUs of which a link is not active while others are, or counted errors since the session began."""
    before = {
        _place(gpu, link): _counters(link)
        for gpu in dicts((record.first_looks.get("nvlink") or {}).get("gpus"))
        for link in dicts(gpu.get("links"))
    }
    for gpu in dicts((record.looks.get("nvlink") or {}).get("gpus")):
        links = dicts(gpu.get("links"))
        dark = [link for link in links if link.get("state") not in (None, "active")]
        name = f"{one_line(record.name, 64)} GPU {one_line(str(gpu.get('index')), 8)}"
        commands = tuple(on_node(record.name, f"nvidia-smi nvlink -{letter}", model) for letter in "se")
        if dark and len(dark) < len(links):
            numbers = ", ".join(one_line(str(link.get("link")), 8) for link in dark)
            title = f"{name}: {len(dark)} of {len(links)} NVLinks not active"
            yield Cause("warn", title, evidence=(f"link {numbers}",), next=commands, more=1)
        grown: dict[str, int] = {}
        for link in links:
            was = before.get(_place(gpu, link), {})
            for counter, value in _counters(link).items():
                if counter in was and value > was[counter]:
                    grown[counter] = grown.get(counter, 0) + value - was[counter]
        if grown:
            text = ", ".join(f"{counter} +{count}" for counter, count in sorted(grown.items()))
            yield Cause("warn", f"{name}: NVLink errors", evidence=(f"{text} since the start",), next=commands, more=1)


def _place(gpu: dict[str, Any], link: dict[str, Any]) -> tuple[str, str]:
    """Return what tells a link from all others of its node, whatever the node says there."""
    return str(gpu.get("index")), str(link.get("link"))


def _counters(link: dict[str, Any]) -> dict[str, int]:
    found = link.get("counters")
    if not isinstance(found, dict):
        return {}
    return {one_line(str(k), 40): v for k, v in found.items() if isinstance(v, int) and not isinstance(v, bool)}


def _ports(model: Model, record: NodeRecord) -> Iterator[Cause]:
    """Yield what is wrong with the ports that endpoints send over, each once."""
    found: dict[PortTrouble, None] = {}
    for endpoint in model.endpoints_of(record.name):
        found.update(dict.fromkeys(port_troubles(model, endpoint)))
    seen = {trouble.port for trouble in found}
    for trouble in found:
        name = f"{one_line(record.name, 64)} RDMA port {one_line(str(trouble.port), 60)}"
        command = on_node(record.name, f"ibstat {one_line(trouble.port.ca, 40)}", model)
        yield Cause(trouble.verdict, name, evidence=(one_line(trouble.text, 300),), next=(command,), more=1)
    yield from _inactive(model, record, seen)


def _inactive(model: Model, record: NodeRecord, told: set[Port]) -> Iterator[Cause]:
    """Yield the ports beside endpoints that the inventory saw down, of which no look has told."""
    if "ibstat" in record.looks:
        return
    used = {endpoint.nic for endpoint in model.endpoints_of(record.name) if endpoint.nic}
    for port in dicts((record.inventory or {}).get("ib")):
        names = {name for key in ("ca", "netdev") if isinstance(name := port.get(key), str)}
        state, physical = port.get("state"), port.get("phys_state")
        if not used & names or state in (None, "Active") or (port.get("ca"), port.get("port")) in list(told):
            continue
        device = one_line(f"{port.get('ca')} port {port.get('port')}", 60)
        text = one_line(f"{state}, {physical}: the endpoints beside it have no other NIC as close", 200)
        command = on_node(record.name, f"ibstat {one_line(str(port.get('ca')), 40)}", model)
        title = f"{one_line(record.name, 64)} {device} is not active"
        yield Cause("bad", title, evidence=(text,), next=(command,), more=1)
