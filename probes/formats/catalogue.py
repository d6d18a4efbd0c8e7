"""The formats by name, each with the module that knows it; a module is imported when it is needed.

A format's module holds ``FORMATS``, a list of `fabtui_probes.formats.base.Format`.
"""

from __future__ import annotations

import importlib
from typing import Dict, List

from fabtui_probes.formats.base import Format

#: InfiniBand, RoCE and network interfaces.
_FABRIC: List[str] = [
    "ibstat",
    "ibstatus",
    "ibv_devinfo",
    "rdma_link",
    "show_gids",
    "ethtool",
    "ibnetdiscover",
    "iblinkinfo",
    "ibqueryerrors",
    "perfquery",
    "sminfo",
    "saquery",
    "smpquery",
    "ibnodes",
    "ibping",
    "ibtracert",
    "ibroute",
    "ibswinfo",
]
#: GPUs, NVLinks and the kernel's log.
_GPU: List[str] = [
    "nvidia_smi",
    "nvidia_smi_q",
    "nvidia_csv",
    "nvidia_topo",
    "nvlink",
    "dcgmi_diag",
    "dcgmi_nvlink",
    "fabricmanager_log",
    "dmesg",
]
#: Tests between nodes that probes run.
_ACTIVE: List[str] = ["iperf3", "perftest"]


def formats() -> Dict[str, Format]:
    """Return all formats of commands that run on nodes, by name."""
    found: Dict[str, Format] = {}
    for module in (*_FABRIC, *_GPU, *_ACTIVE):
        for form in importlib.import_module("fabtui_probes.formats." + module).FORMATS:
            found[form.name] = form
    return found
