"""Formats of outputs of commands that run on nodes, by name; modules are imported on first use.

A format's module holds ``FORMATS``, a list of `fabtui_node.parsers.base.Format`.
"""

from __future__ import annotations

import importlib
from typing import Dict, List

from fabtui_node.parsers.base import Format

#: InfiniBand, RoCE and network interfaces.
_FABRIC: List[str] = [
    "ib.ibstat",
    "ib.ibstatus",
    "ib.ibv_devinfo",
    "ib.rdma_link",
    "ib.show_gids",
    "net.ethtool",
    "ib.ibnetdiscover",
    "ib.iblinkinfo",
    "ib.ibqueryerrors",
    "ib.perfquery",
    "ib.sminfo",
    "ib.saquery",
    "ib.smpquery",
    "ib.ibnodes",
    "ib.ibping",
    "ib.ibtracert",
    "ib.ibroute",
    "ib.ibswinfo",
]
#: GPUs, NVLinks and the kernel's log.
_GPU: List[str] = [
    "nvidia.smi_table",
    "nvidia.smi_query",
    "nvidia.query_csv",
    "nvidia.topo",
    "nvidia.smi_nvlink",
    "nvidia.dcgmi_diag",
    "nvidia.dcgmi_nvlink",
    "nvidia.fabric_manager_log",
    "kernel.dmesg",
]
#: Tests between nodes that probes run.
_ACTIVE: List[str] = ["net.iperf3", "ib.perftest", "net.ping", "nccl.log"]


def formats() -> Dict[str, Format]:
    """Return all formats of commands that run on nodes, by name."""
    found: Dict[str, Format] = {}
    for module in (*_FABRIC, *_GPU, *_ACTIVE):
        for form in importlib.import_module("fabtui_node.parsers." + module).FORMATS:
            found[form.name] = form
    return found
