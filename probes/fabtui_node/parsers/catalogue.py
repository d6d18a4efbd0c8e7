"""Formats of outputs of commands that run on nodes, by name; modules are imported on first use.

A format's module holds ``FORMATS``, a list of `fabtui_node.parsers.base.Format`.
"""

from __future__ import annotations

import importlib
from typing import Dict

from fabtui_node.parsers.base import Format

_MODULES = (
    # InfiniBand, RoCE and network interfaces.
    *("ib.rdma_ports", "net.ethtool", "ib.fabric", "ib.management", "ib.routes", "ib.ibswinfo"),
    # GPUs, NVLinks and the kernel's log.
    *("nvidia.smi_table", "nvidia.smi_query", "nvidia.query_csv", "nvidia.topo", "nvidia.smi_nvlink"),
    *("nvidia.dcgmi", "nvidia.fabric_manager_log", "kernel.dmesg"),
    # Tests between nodes that probes run.
    *("net.iperf3", "ib.perftest", "net.ping", "nccl.log_lines"),
)


def formats() -> Dict[str, Format]:
    """Return all formats of commands that run on nodes, by name."""
    modules = (importlib.import_module("fabtui_node.parsers." + module) for module in _MODULES)
    return {form.name: form for module in modules for form in module.FORMATS}
