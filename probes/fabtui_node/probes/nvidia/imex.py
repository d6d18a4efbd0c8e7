"""Probe ``imex``: the service that lets GPUs of several nodes share memory over NVLink, and its channels."""

from __future__ import annotations

import os
import socket
from typing import Any, Dict, Optional

from fabtui_node.parsers.nvidia import imex_ctl
from fabtui_node.probes.network import interfaces
from fabtui_node.registry import ProbeSpec
from fabtui_node.system import run_command, sysfs

_CHANNELS = "/dev/nvidia-caps-imex-channels"
_OUTPUT = 1 << 20


def run(args: Dict[str, Any], emit: Any, deadline: float, channels: str = _CHANNELS) -> Dict[str, Any]:
    """Ask ``nvidia-imex-ctl`` for the domain; without the tool, nothing is known and nothing is wrong.

    ``{"installed", "channels": {"count", "writable"} or None, "error"}``, and where the tool is ``state`` and
    ``version`` of this node, ``domain``, ``time`` and ``nodes`` as `imex_ctl.parse` has them.
    """
    value: Dict[str, Any] = {"installed": run_command.find("nvidia-imex-ctl") is not None, "error": None}
    value["channels"] = _channels(channels)
    if not value["installed"]:
        return value
    # Nodes that do not answer are waited for.
    listed = run_command.run(["nvidia-imex-ctl", "-N", "-j"], deadline * 0.6, _OUTPUT)
    values = imex_ctl.parse(listed.stdout).values
    mine = _own_names() if values["nodes"] else frozenset()
    value.update(imex_ctl.seen_by(values, lambda node: node["host"] in mine or node["hostname"] in mine))
    if value["state"] is None:
        asked = run_command.run(["nvidia-imex-ctl", "-q"], deadline * 0.2, _OUTPUT)
        value["state"] = imex_ctl.parse_state(asked.stdout)
        value["error"] = None if value["state"] else asked.why() or listed.why()
    return value


def _own_names() -> frozenset[str]:
    """Return what the list of nodes may call this node: its addresses, and its name with and without a domain."""
    name = socket.gethostname()
    addresses = [entry["address"] for nic in interfaces.read([]) for entry in nic["addresses"]]
    return frozenset([name, name.partition(".")[0], *addresses])


def _channels(folder: str) -> Optional[Dict[str, int]]:
    """Return how many channels there are, and how many this user may use; None where the driver made no folder."""
    if not os.path.isdir(folder):
        return None
    names = [name for name in sysfs.names(folder) if name.startswith("channel")]
    return {"count": len(names), "writable": sum(os.access(os.path.join(folder, name), os.W_OK) for name in names)}


PROBE = ProbeSpec(
    name="imex",
    title="IMEX: NVLink between nodes (GB200, GB300)",
    phase="inspect",
    passive=True,
    needs="nvidia-imex-ctl, where GPUs of several nodes share an NVLink fabric; nothing elsewhere",
    gives="state and version of IMEX, the nodes of its domain and their connections; IMEX channels",
    run=run,
    requires="gpus",
    view=(
        ("state", "state"),
        ("version", "version"),
        ("domain", "domain"),
        ("channels", "channels.count"),
        ("usable channels", "channels.writable"),
    ),
    next="ssh {node} nvidia-imex-ctl -N -H",
    watch=True,
)
