"""A machine that several nodes may share, in containers or network namespaces: its id, and how busy it is."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Optional

from fabtui_node.system import sysfs


def boot_id(proc: str = "/proc") -> Optional[str]:
    """Return the id of the machine since it started, which all nodes on it share."""
    return sysfs.text(proc, "sys/kernel/random/boot_id")


def load(proc: str = "/proc") -> Optional[float]:
    found = re.match(r"([0-9]{1,9}\.[0-9]{1,9})\s", sysfs.text(proc, "loadavg") or "", re.ASCII)
    return float(found.group(1)) if found else None


def read() -> Dict[str, Any]:
    """Return ``boot_id``, ``cpus_online`` (number of cores), ``load``: all CPU ranks on it wait for these cores."""
    return {"boot_id": boot_id(), "cpus_online": os.cpu_count(), "load": load()}
