"""NVIDIA's Fabric Manager, which sets up NVSwitches: whether it is there, runs, and fits the driver."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

from fabtui_node.parsers.nvidia.fabric_manager_log import parse_version
from fabtui_node.system import run_command, sysfs

_UNIT = "nvidia-fabricmanager"
#: The kernel keeps 15 letters of a process's name.
_COMM = "nv-fabricmanage"
_MAX_PROCESSES = 100_000
_NVIDIA, _BRIDGE = "0x10de", "0x0680"


def switches(root: str = "/sys") -> int:
    """Return how many NVSwitches are on PCI; behind a virtual machine's GPUs there may be some that it does not see."""
    folder = os.path.join(root, "bus/pci/devices")
    return sum(
        1
        for name in sysfs.names(folder)
        if sysfs.text(folder, name, "vendor") == _NVIDIA
        and (sysfs.text(folder, name, "class") or "").startswith(_BRIDGE)
    )


def running(proc: str = "/proc") -> bool:
    """Return True if a visible process is a Fabric Manager."""
    names = [name for name in sysfs.names(proc) if name.isdigit()][:_MAX_PROCESSES]
    return any(sysfs.text(proc, name, "comm") == _COMM for name in names)


def read(deadline: float, root: str = "/sys", proc: str = "/proc") -> Dict[str, Any]:
    """Return ``{"installed", "active", "version", "said", "switches"}``.

    ``active`` is None if unknown, as in a container; ``said`` is the state of systemd.
    """
    path = run_command.find("nv-fabricmanager")
    version: Optional[str] = None
    if path:
        printed = run_command.run([path, "--version"], min(deadline / 2, 3.0))
        version = parse_version(printed.stdout + "\n" + printed.stderr)
    state = run_command.run(["systemctl", "is-active", _UNIT], min(deadline / 2, 3.0))
    unit_state = state.stdout.strip()[:40] if not state.missing and not state.timed_out else ""
    active: Optional[bool] = True if unit_state == "active" or running(proc) else None
    if active is None and unit_state in ("inactive", "failed", "activating", "deactivating"):
        active = False
    return {
        "installed": path is not None or active is True,
        "active": active,
        "version": version,
        "said": unit_state or None,
        "switches": switches(root),
    }
