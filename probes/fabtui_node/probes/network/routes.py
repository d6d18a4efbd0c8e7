"""Probe ``routes``: the kernel's routes, neighbours and filters, which explain why addresses are not reached."""

from __future__ import annotations

import contextlib
import struct
import time
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.lines import json_value
from fabtui_node.probes.judgement import objects
from fabtui_node.registry import ProbeSpec
from fabtui_node.system import netlink, run_command, sysfs

_MOST = 64
_MOST_NEIGHBOURS = 1024
_FILTERS = ("rp_filter", "arp_ignore")
#: States of neighbours (``linux/neighbour.h``), and those without an answer.
_STATES = {0x02: "reachable", 0x04: "stale", 0x08: "delay", 0x10: "probe", 0x80: "permanent"}
_NO_NEIGHBOUR = 0x01 | 0x20 | 0x40


def parse_route(text: str) -> Dict[str, Any]:
    """Return ``{"dev", "via"}`` from ``ip -j route get``; None where it names none."""
    first = next(iter(objects(json_value(text))), {})
    named = {"dev": first.get("dev"), "via": first.get("gateway")}
    return {name: value if isinstance(value, str) else None for name, value in named.items()}


def neighbours() -> List[Dict[str, Optional[str]]]:
    """Return ``[{"address", "nic", "mac", "state"}]`` of the neighbours whose MAC addresses the kernel has.

    State: ``reachable``, ``stale``, ``permanent``, or None for others.
    """
    entries: List[Dict[str, Optional[str]]] = []
    with contextlib.suppress(OSError, KeyError):
        links = {struct.unpack_from("=i", head, 4)[0]: found[3] for head, found in netlink.dump(netlink.LINKS)}
        for head, attributes in netlink.dump(netlink.NEIGHBOURS):
            index, state = struct.unpack_from("=iH", head, 4)
            address = netlink.address(attributes.get(1, b""))
            # Link-local addresses are the same on all networks; groups have no neighbour.
            if 2 in attributes and not state & _NO_NEIGHBOUR and not address.startswith("fe80:"):
                nic = links[index].rstrip(b"\0").decode("utf-8", "replace")
                entry = {"address": address, "nic": nic, "mac": netlink.mac(attributes[2]), "state": _STATES.get(state)}
                entries.append(entry)
    return entries[:_MOST_NEIGHBOURS]


def run(args: Dict[str, Any], emit: Any, deadline: float, proc: str = "/proc") -> Dict[str, Any]:
    """Read how the kernel sends from addresses of this node to others.

    ``pairs``: ``[[own address, other address]]``, at most 64.

    ``{"routes": [{"src", "dst", "dev", "via", "error"}], "neighbours": [{"address", "nic", "mac", "state"}], "filters":
    {interface: {"rp_filter", "arp_ignore"}}}``, the filters as they take effect, of IPv4.
    """
    end = time.monotonic() + deadline * 0.8
    routes = []
    for pair in (args.get("pairs") or [])[:_MOST]:
        src, dst = str(pair[0]), str(pair[1])
        result = run_command.run(["ip", "-j", "route", "get", dst, "from", src], min(end - time.monotonic(), 2.0))
        error = None if result.ok else result.why()
        routes.append({"src": src, "dst": dst, **parse_route(result.stdout), "error": error})
    folder = proc + "/sys/net/ipv4/conf"
    common = {name: sysfs.integer(folder, "all", name) or 0 for name in _FILTERS}
    return {
        "routes": routes,
        "neighbours": neighbours() if proc == "/proc" else [],
        "filters": {
            nic: {name: max(sysfs.integer(folder, nic, name) or 0, common[name]) for name in _FILTERS}
            for nic in sysfs.names(folder)
            if nic not in ("all", "default", "lo")
        },
    }


PROBE = ProbeSpec(
    name="routes",
    title="routes, neighbours and reverse path filters, which explain what ping and udp find",
    phase="sample",
    passive=True,
    needs="iproute2 for routes",
    gives="per address pair that fails: interface and gateway; MAC addresses of neighbours; rp_filter and arp_ignore",
    run=run,
)
