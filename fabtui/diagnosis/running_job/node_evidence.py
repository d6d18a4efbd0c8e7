"""Evidence from the nodes of late or silent ranks: kernel reports and RDMA ports."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fabtui.diagnosis.knowledge import xids
from fabtui.diagnosis.running_job.who_is_behind import JobPlace
from fabtui.model.facts.node_view import dicts, text

_TITLES = {
    "gpu_lost": "GPU has fallen off the bus",
    "gpu_init": "the driver cannot initialise the GPU",
    "aer": "PCIe error",
    "iommu": "IOMMU fault",
    "machine_check": "machine check",
    "link_down": "link down",
    "module": "optical module",
    "nic_health": "adapter health",
    "nic_command": "adapter does not answer commands",
    "nic_power": "adapter lacks power",
    "nic_temperature": "adapter too hot",
    "oom": "out of memory",
}


class Sign(NamedTuple):
    """Report of a node that may explain why a rank is stuck."""

    place: str  #: Endpoint or node: ``n062:0``, ``n062 mlx5_3``.
    text: str  #: What and when: ``Xid 79 at 12:03: GPU has fallen off the bus``.
    kind: str  #: Its kind in the kernel's log, or ``port``.
    code: int | None  #: The number of an Xid, or None.
    device: str  #: The interface or GPU index that the next command inspects; "" if unknown.
    own: bool  #: True if it is about a GPU of a late rank.


class NodeEvidence(NamedTuple):
    """Evidence of a node."""

    signs: tuple[Sign, ...]  #: What may explain it, the most likely first.
    log: str  #: ``yes``, ``not permitted`` or ``unknown``: whether the kernel's log was read.


def plain_address(address: str) -> str:
    """Return an IP address in one way of writing, without a zone; other texts as they are."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0].strip("[]"))
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def addresses_of(value: Mapping[str, Any]) -> list[str]:
    """Return the addresses that lead to a node alone, from a value of the probe ``evidence`` or ``ras``."""
    listed = value.get("addresses")
    found = [plain_address(one) for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    return [one for one in found if not one.startswith(("127.", "fe80:")) and one != "::1"]


def node_evidence(node: str, value: Mapping[str, Any], places: Iterable[JobPlace]) -> NodeEvidence:
    """Return the evidence in a value of the probe ``evidence`` about some places of a node."""
    here = {place.pid: place for place in places if place.node == node and place.pid is not None}
    gpus = {gpu for place in here.values() for gpu in place.gpu.split(",") if gpu}
    signs = [*_events(node, dicts(value.get("events")), gpus, set(here)), *_down(node, dicts(value.get("ports")))]
    signs.sort(key=lambda sign: not sign.own)
    return NodeEvidence(tuple(signs), text(value.get("log")) or "unknown")


def _events(node: str, events: list[dict[str, Any]], gpus: set[str], pids: set[int]) -> list[Sign]:
    """Return the latest report of each kind and device, GPUs and processes of late ranks first."""
    found: dict[tuple[str, Any, str], Sign] = {}
    for one in events:
        kind, code = text(one.get("kind")) or "", one.get("code")
        gpu = str(one["gpu"]) if isinstance(one.get("gpu"), int) else ""
        device = gpu or text(one.get("interface")) or ""
        where = f"{node}:{gpu}" if gpu else " ".join(filter(None, (node, device or text(one.get("bus")))))
        name = f"Xid {code}" if kind == "xid" else f"SXid {code}" if kind == "sxid" else _TITLES.get(kind, kind)
        meaning = xids.meaning(code, str(one.get("text", ""))) if kind == "xid" else ""
        reported = meaning or text(one.get("text")) or ""
        words = f"{name} at {text(one.get('at')) or 'an unknown time'}" + (f": {reported}" if reported else "")
        number_ = code if kind == "xid" and isinstance(code, int) else None
        found[kind, code, where] = Sign(where, words, kind, number_, device, gpu in gpus or one.get("pid") in pids)
    return list(found.values())


def _down(node: str, ports: list[dict[str, Any]]) -> list[Sign]:
    if not any(port.get("state") == "Active" for port in ports):
        return []
    found = []
    for port in ports:
        name, state, physical = (text(port.get(key)) or "unknown" for key in ("name", "state", "physical_state"))
        # A port that is switched off or has no cable is so by intention more often than not.
        if state in ("Down", "Initializing", "Armed") and physical != "Disabled":
            words = f"port {name} is {state} (physical state {physical}) while others are Active"
            found.append(Sign(node, words, "port", None, name.partition("/")[0], False))
    return found
