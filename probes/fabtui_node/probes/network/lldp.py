"""Probe ``lldp``: the switch and the port that each interface is connected to, as switches announce themselves."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List

from fabtui_node.parsers.net import lldp
from fabtui_node.registry import ProbeSpec
from fabtui_node.system import run_command, sysfs

_MOST_FILES = 512
_MOST_BYTES = 64 * 1024
_MOST_NEIGHBOURS = 512


def by_networkd(root: str = "/") -> List[Dict[str, Any]]:
    folder = os.path.join(root, "run/systemd/netif/lldp")
    files = sysfs.names(folder)[:_MOST_FILES]
    links = os.path.join(root, "sys/class/net")
    listed = sysfs.names(links)[:_MOST_FILES] if files else []
    names = {str(sysfs.integer(links, name, "ifindex")): name for name in listed}
    neighbours: List[Dict[str, Any]] = []
    for index in files:
        if index in names:
            try:
                with open(os.path.join(folder, index), "rb") as file:
                    neighbours += lldp.parse_frames(file.read(_MOST_BYTES), names[index])
            except OSError:
                continue
    return neighbours[:_MOST_NEIGHBOURS]


def run(args: Dict[str, Any], emit: Any, deadline: float, root: str = "/") -> Dict[str, Any]:
    """Return ``{"source", "neighbours"}``, as `fabtui_node.parsers.net.lldp.parse` describes them.

    ``source``: ``lldpctl``, ``systemd-networkd``, or None where nothing on the node listens.
    """
    end = time.monotonic() + deadline * 0.8
    result = run_command.run(["lldpctl", "-f", "json"], min(end - time.monotonic(), 3.0))
    if result.ok:
        neighbours = lldp.parse(result.stdout).values["neighbours"][:_MOST_NEIGHBOURS]
        return {"source": "lldpctl", "neighbours": neighbours}
    neighbours = by_networkd(root)
    return {"source": "systemd-networkd" if neighbours else None, "neighbours": neighbours}


PROBE = ProbeSpec(
    name="lldp",
    title="switch and port behind each interface",
    phase="inspect",
    needs="lldpd, or systemd-networkd with LLDP=yes",
    gives="per interface: name and identifier of the switch, name of its port",
    run=run,
    passive=True,
    next="ssh {node} sudo lldpctl",
)
