"""Probe ``routes``: the kernel's routes, neighbours and filters, which explain why addresses are not reached."""

from __future__ import annotations

import re
import time
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.lines import json_value
from fabtui_node.probes.judgement import objects
from fabtui_node.registry import ProbeSpec
from fabtui_node.system import run_command, sysfs

_MOST = 64
_MOST_NEIGHBOURS = 1024
_FILTERS = ("rp_filter", "arp_ignore")
#: Flags of entries of ``/proc/net/arp``: the MAC address is known; the entry was made by hand.
_COMPLETE, _PERMANENT = 0x2, 0x4
_STATE = re.compile(r"[A-Z]{1,16}", re.ASCII)


def parse_route(text: str) -> Dict[str, Any]:
    """Return ``{"dev", "via"}`` from ``ip -j route get``; None where it names none."""
    first = next(iter(objects(json_value(text))), {})
    named = {"dev": first.get("dev"), "via": first.get("gateway")}
    return {name: value if isinstance(value, str) else None for name, value in named.items()}


def parse_neighbours(text: str) -> List[Dict[str, Optional[str]]]:
    """Return ``[{"address", "nic", "mac", "state"}]`` of the complete entries of ``/proc/net/arp``.

    State: ``permanent``, or None.
    """
    neighbours: List[Dict[str, Optional[str]]] = []
    for line in text.splitlines()[1:][:_MOST_NEIGHBOURS]:
        words = line.split()
        flags = sysfs.to_integer(words[2]) if len(words) == 6 else None
        if flags is not None and flags & _COMPLETE:
            state = "permanent" if flags & _PERMANENT else None
            neighbours.append({"address": words[0], "nic": words[5], "mac": words[3], "state": state})
    return neighbours


def parse_ip_neigh(text: str) -> List[Dict[str, Optional[str]]]:
    """Return what `parse_neighbours` does from ``ip -j neigh show``, IPv6 too; state: ``reachable``, ``stale`` etc."""
    neighbours: List[Dict[str, Optional[str]]] = []
    for entry in objects(json_value(text)):
        named = [entry.get(name) for name in ("dst", "dev", "lladdr")]
        states = entry.get("state")
        state = states[0] if isinstance(states, list) and states else None
        known = isinstance(state, str) and _STATE.fullmatch(state)
        # Link-local addresses are the same on all networks.
        if all(isinstance(one, str) for one in named) and not str(named[0]).startswith("fe80:"):
            address, nic, mac = (str(one)[:64] for one in named)
            neighbours.append(
                {"address": address, "nic": nic, "mac": mac, "state": str(state).lower() if known else None}
            )
    return neighbours[:_MOST_NEIGHBOURS]


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
    neighbours: List[Dict[str, Optional[str]]] = []
    if proc == "/proc":
        listed = run_command.run(["ip", "-j", "neigh", "show"], min(end - time.monotonic(), 2.0))
        neighbours = parse_ip_neigh(listed.stdout) if listed.ok else []
    folder = proc + "/sys/net/ipv4/conf"
    common = {name: sysfs.integer(folder, "all", name) or 0 for name in _FILTERS}
    return {
        "routes": routes,
        "neighbours": neighbours or parse_neighbours(sysfs.text(proc, "net/arp", limit=1 << 20) or ""),
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
    needs="iproute2 for routes and states of neighbours",
    gives="per address pair that fails: interface and gateway; MAC addresses of neighbours; rp_filter and arp_ignore",
    run=run,
)
