"""GID tables of RDMA ports, and NCCL settings: ``NCCL_IB_GID_INDEX`` and ``NCCL_IB_HCA``."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_node.system import sysfs

#: Maximum number of GIDs of a port.
_MOST = 256
_ZERO = re.compile(r"[0:]*", re.ASCII)
_EMPTY = re.compile(r"fe80:[0:]*", re.ASCII)
_MAPPED = re.compile(
    r"(?:0000:){5}ffff:([0-9a-f]{2})([0-9a-f]{2}):([0-9a-f]{2})([0-9a-f]{2})", re.ASCII | re.IGNORECASE
)

#: From this version on NCCL chooses the index by itself.
CHOOSES_SINCE = "2.21"


def ipv4(gid: Optional[str]) -> Optional[str]:
    """Return the IPv4 address that a GID stands for, None if it stands for none."""
    found = _MAPPED.fullmatch(gid or "")
    return ".".join(str(int(part, 16)) for part in found.groups()) if found else None


def read_gids(port: str) -> List[Dict[str, Any]]:
    """Return ``[{"index", "gid", "type", "ipv4", "netdev"}]`` of a port, given its folder in sysfs.

    ``type``: ``RoCE v1``, ``RoCE v2``, ``InfiniBand``, or None if unknown.
    """
    roce = sysfs.text(port, "link_layer") == "Ethernet"
    found = []
    for name in sysfs.names(port, "gids")[:_MOST]:
        gid = sysfs.text(port, "gids", name)
        if not name.isdigit() or not gid or _ZERO.fullmatch(gid) or _EMPTY.fullmatch(gid):
            continue
        kind = sysfs.text(port, "gid_attrs/types", name)
        if kind == "IB/RoCE v1":
            kind = "RoCE v1" if roce else "InfiniBand"
        netdev = sysfs.text(port, "gid_attrs/ndevs", name)
        found.append({"index": int(name), "gid": gid, "type": kind, "ipv4": ipv4(gid), "netdev": netdev or None})
    return found


def nccl_advice(ports: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return what to set for the ports of a node: ``{"gid_index", "gid_why", "hca", "hca_why"}``.

    None: leave the variable unset. The index is worth setting for NCCL older than `CHOOSES_SINCE` alone, and only
    where all ports have the same; on InfiniBand, never. The list of devices is worth setting where ports are active
    that NCCL should not use: slower ones, or of another link layer.
    """
    active = [port for port in ports if port["state"] == "Active"]
    roce = [port for port in active if port["link_layer"] == "Ethernet"]
    gid_index, gid_why = _gid_index(roce)
    hca, hca_why = _hca(active)
    return {"gid_index": gid_index, "gid_why": gid_why, "hca": hca, "hca_why": hca_why}


def _gid_index(roce: List[Dict[str, Any]]) -> Any:
    if not roce:
        return None, "no RoCE port is active: leave NCCL_IB_GID_INDEX unset"
    indexes = {port["gid_index"] for port in roce}
    if indexes == {None}:
        return None, "no port has a RoCE v2 GID of an IPv4 address: leave NCCL_IB_GID_INDEX unset"
    if len(indexes) > 1:
        listed = ", ".join("%s/%d: %s" % (p["ca"], p["port"], _index_text(p["gid_index"])) for p in roce[:8])
        return None, "the index differs (%s): leave NCCL_IB_GID_INDEX unset, with NCCL %s or newer" % (
            listed,
            CHOOSES_SINCE,
        )
    index = indexes.pop()
    text = "leave NCCL_IB_GID_INDEX unset; NCCL older than %s needs NCCL_IB_GID_INDEX=%d" % (CHOOSES_SINCE, index)
    return index, text


def _index_text(index: Optional[int]) -> str:
    return "none" if index is None else str(index)


def _hca(active: List[Dict[str, Any]]) -> Any:
    known = [port for port in active if port["rate"] is not None]
    if len(known) < len(active) or not active:
        return None, "leave NCCL_IB_HCA unset" if not active else "rates are not known: leave NCCL_IB_HCA unset"
    top = max(port["rate"] for port in known)
    best = [port for port in known if port["rate"] == top]
    layers = {port["link_layer"] for port in best}
    if len(layers) > 1:
        return None, "InfiniBand and RoCE are equally fast: choose with NCCL_IB_HCA if they are of two networks"
    if len(best) == len(known):
        return None, "all active ports are alike: leave NCCL_IB_HCA unset"
    others = ", ".join("%s/%d (%g Gb/s)" % (p["ca"], p["port"], p["rate"]) for p in known if p not in best)
    hca = "=" + ",".join("%s:%d" % (port["ca"], port["port"]) for port in best)
    return hca, "NCCL_IB_HCA=%s keeps NCCL off %s" % (hca, others)
