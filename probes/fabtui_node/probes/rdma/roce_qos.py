"""Quality of service of RoCE ports: trust, priorities of DSCPs, PFC, ECN, and the traffic class that packets get."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.ib import roce_qos
from fabtui_node.system import run_command, sysfs

#: Variables of NCCL that choose the class of its packets.
VARIABLES = ("NCCL_IB_TC", "NCCL_IB_SL", "NCCL_IB_FIFO_TC")
_MOST_VARIABLES = 200


def read(port: Dict[str, Any], root: str, end: float) -> Dict[str, Any]:
    """Return the quality of service of a RoCE port; what nothing on the node shows is None.

    ``{"ca", "port", "interface", "trust", "dscp": {priority: [DSCP]}, "pfc": [priority], "ecn_np": [priority],
    "ecn_rp", "class", "cma_tos", "dcbx", "from": [source]}``: ``ecn_np`` are the priorities in which the port answers
    marked packets with notifications, ``ecn_rp`` those in which it slows down for them; ``class`` replaces the traffic
    class that a library asks for, ``cma_tos`` is the default of connections by rdma_cm.
    """
    name = str(port["netdev"])
    found: Dict[str, Any] = {"ca": port["ca"], "port": port["port"], "interface": name, "from": []}
    found.update(dict.fromkeys(("trust", "dscp", "pfc", "dcbx")))
    folder = os.path.join(root, "class/net", name)
    _take(found, "mlnx_qos", _asked(["mlnx_qos", "-i", name], roce_qos.parse_mlnx_qos, end))
    if found["pfc"] is None:
        for table in ("pfc", "app"):
            _take(found, "dcb", _asked(["dcb", "-j", table, "show", "dev", name], roce_qos.parse_dcb, end))
    trust = sysfs.text(folder, "qos/trust")
    dscps = roce_qos.parse_dscp2prio(sysfs.text(folder, "qos/dscp2prio") or "")
    _take(found, "sysfs", {"trust": trust if trust in ("dscp", "pcp") else None, "dscp": dscps})
    if found["trust"] == "pcp":
        found["dscp"] = None
    for way in ("np", "rp"):
        found["ecn_" + way] = _enabled(os.path.join(folder, "ecn", "roce_" + way, "enable"))
    here = os.path.join(root, "class/infiniband", port["ca"], "tc", str(port["port"]))
    tclass = roce_qos.TRAFFIC_CLASS.search(sysfs.text(here, "traffic_class") or "")
    found["class"] = int(tclass[1]) if tclass else None
    ports = os.path.join(root, "kernel/config/rdma_cm", port["ca"], "ports", str(port["port"]))
    found["cma_tos"] = sysfs.integer(ports, "default_roce_tos")
    return found


def _asked(argv: List[str], parse: Any, end: float) -> Dict[str, Any]:
    result = run_command.run(argv, end - time.monotonic())
    values: Dict[str, Any] = parse(result.stdout).values if result.ok else {}
    return values


def _take(found: Dict[str, Any], source: str, values: Dict[str, Any]) -> None:
    new = {name: value for name, value in values.items() if value is not None and found.get(name) is None}
    if new:
        found.update(new)
        found["from"] = list(dict.fromkeys([*found["from"], source]))


def _enabled(folder: str) -> Optional[List[int]]:
    """Return the priorities whose file contains 1; None unless all eight can be read."""
    switches = [sysfs.integer(folder, str(priority)) for priority in range(8)]
    return None if None in switches else [priority for priority, on in enumerate(switches) if on]


def variables(home: Optional[str], etc: str = "/etc") -> Dict[str, str]:
    """Return the variables of NCCL's own files that choose a class: those of the home folder come first."""
    found: Dict[str, str] = {}
    for path in (os.path.join(etc, "nccl.conf"), os.path.join(home or "/nonexistent", ".nccl.conf")):
        for line in (sysfs.text(path) or "").splitlines()[:_MOST_VARIABLES]:
            name, _, value = line.strip().partition("=")
            if name in VARIABLES:
                found[name] = value.strip()[:20]
    return found
