"""InfiniBand and RoCE ports: ``ibstat`` where the node has it and it finds something, sysfs otherwise."""

from __future__ import annotations

from collections import Counter
from typing import Any, Dict, List

from fabtui_node.parsers.ib import rdma_ports
from fabtui_node.probes.judgement import judgement
from fabtui_node.probes.rdma import port_counters
from fabtui_node.registry import Judgement, ProbeSpec
from fabtui_node.system import rdma_devices, run_command

_RAW_LIMIT = 64 * 1024
_MAX_ERRORS = 20


def parse_ibstat(text: str) -> Dict[str, Any]:
    """Return ``{"cas": [...], "errors": [...]}`` from ``ibstat``: the devices, and lines in which it complains."""
    reading = rdma_ports.parse_ibstat(text)
    return {"cas": reading.values["cas"], "errors": reading.warnings[:_MAX_ERRORS]}


def from_sysfs(root: str = "/sys") -> List[Dict[str, Any]]:
    """Return the devices in the form of ``parse_ibstat``, read from sysfs."""
    cas = []
    for device in rdma_devices.devices(root):
        ports = [{key: port[key] for key in ("port", *rdma_ports.PORT_FIELDS.values())} for port in device["ports"]]
        cas.append({**{key: device[key] for key in ("ca", *rdma_ports.CA_FIELDS.values())}, "ports": ports})
    return cas


def run(args: Dict[str, Any], emit: Any, deadline: float, root: str = "/sys") -> Dict[str, Any]:
    """Read the ports.

    ``{"source": "ibstat"|"sysfs"|"none", "cas": [{"ca", "type", "firmware", "hardware", "node_guid", "system_guid",
    "ports": [{"port", "state", "physical_state", "rate" (Gb/s, as printed), "lid", "sm_lid", "link_layer", "guid",
    "capability_mask"}]}], "raw": str, "error": str or None}``. ``none`` with no error means that the node has no such
    device.
    """
    result = run_command.run(["ibstat"], min(deadline * 0.8, 10.0))
    raw = "" if result.missing else (result.stdout + "\n" + result.stderr).strip()
    parsed = parse_ibstat(raw)
    error = "; ".join(parsed["errors"]) or (None if result.missing else result.why())
    cas = parsed["cas"] or from_sysfs(root)
    source = "ibstat" if parsed["cas"] else "sysfs" if cas else "none"
    return {"source": source, "cas": cas, "raw": raw[:_RAW_LIMIT], "error": error}


def judge(value: Dict[str, Any]) -> List[Judgement]:
    """Return wrong states and rates of this node's ports: ``failed``, ``slow``, ``inconclusive`` (may be meant so)."""
    ports = [
        ("%s/%s" % (ca.get("ca"), port.get("port")), (ca.get("type"), port.get("link_layer")), port)
        for ca in value.get("cas") or []
        for port in ca.get("ports") or []
    ]
    total = Counter(kind for _, kind, _ in ports)
    #: Rates of the active ports by kind.
    active: Dict[Any, List[float]] = {kind: [] for kind in total}
    for _, kind, port in ports:
        if port.get("state") == "Active":
            active[kind].append(port.get("rate") or 0.0)
    judgements = []
    for subject, kind, port in ports:
        rates, rate = active[kind], port.get("rate")
        judged = port_counters.judge_state(port, len(rates), total[kind] - len(rates))
        if port.get("state") == "Active" and rate and rate < max(rates):
            judged.append(("slow", "runs at %g Gb/s, others of its kind on this node at %g" % (rate, max(rates))))
        judgements += [judgement(subject, verdict, text) for verdict, text in judged]
    return judgements


PROBE = ProbeSpec(
    name="ibstat",
    title="InfiniBand and RoCE ports",
    phase="inspect",
    passive=True,
    needs="ibstat (infiniband-diags), or /sys/class/infiniband",
    gives="per port: state, physical state, rate in Gb/s, LID, SM LID, link layer, GUID, firmware",
    run=run,
    judge=judge,
    requires="ib",
    next="ssh {node} ibstat",
    watch=True,
)
