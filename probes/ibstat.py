"""InfiniBand and RoCE ports: ``ibstat`` where the node has it and it finds something, sysfs otherwise."""

from __future__ import annotations

from typing import Any, Dict, List

from fabtui_probes import commands, rdma
from fabtui_probes.formats import ibstat as form

_RAW_LIMIT = 64 * 1024
_MAX_ERRORS = 20


def parse_ibstat(text: str) -> Dict[str, Any]:
    """Return ``{"cas": [...], "errors": [...]}`` from what ``ibstat`` printed (`fabtui_probes.formats.ibstat`).

    Lines in which the tool complains are in ``errors``; devices printed before them are kept.
    """
    reading = form.parse(text)
    return {"cas": reading.values["cas"], "errors": reading.warnings[:_MAX_ERRORS]}


def from_sysfs(root: str = "/sys") -> List[Dict[str, Any]]:
    """Return the devices in the form of ``parse_ibstat``, read from sysfs."""
    cas = []
    for device in rdma.devices(root):
        ca = {key: device[key] for key in ("ca", *form.CA_FIELDS.values())}
        ca["ports"] = [{key: port[key] for key in ("port", *form.PORT_FIELDS.values())} for port in device["ports"]]
        cas.append(ca)
    return cas


def run(args: Dict[str, Any], emit: Any, deadline: float, root: str = "/sys") -> Dict[str, Any]:
    """Look at the ports.

    Returns:
        ``{"source": "ibstat"|"sysfs"|"none", "cas": [{"ca", "type", "firmware", "hardware", "node_guid",
        "system_guid", "ports": [{"port", "state", "physical_state", "rate" (Gb/s, as printed), "lid", "sm_lid",
        "link_layer", "guid", "capability_mask"}]}], "raw": str, "error": str or None}``. ``none`` with no error means
        that the node has no such device.
    """
    result = commands.run(["ibstat"], min(deadline * 0.8, 10.0))
    raw = "" if result.missing else (result.stdout + "\n" + result.stderr).strip()
    parsed = parse_ibstat(raw)
    error = "; ".join(parsed["errors"]) or (None if result.missing else result.why())
    raw = raw[:_RAW_LIMIT]
    if parsed["cas"]:
        return {"source": "ibstat", "cas": parsed["cas"], "raw": raw, "error": error}
    cas = from_sysfs(root)
    if cas:
        return {"source": "sysfs", "cas": cas, "raw": raw, "error": error}
    return {"source": "none", "cas": [], "raw": raw, "error": error}
