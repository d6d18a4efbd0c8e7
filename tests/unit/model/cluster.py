"""Nodes as probes would have found them, for tests of what is made of that."""

import copy
from typing import Any

from fabtui.model.facts.node_view import ProbedNode

MIB = 1 << 20
GIB = 1 << 30


def inventory(gpu: str | None = "NVIDIA H200", gpus: int = 8, cards: int = 8, **more: Any) -> dict[str, Any]:
    return {
        "host": "host",
        "kernel": "5.15.0-105-generic",
        "os": "Ubuntu 22.04.4 LTS",
        "cpus": 96,
        "memory": 1000 * GIB,
        "driver": "570.86.15" if gpu else None,
        "cuda": "12.8" if gpu else None,
        "gpus": [
            {
                "index": i,
                "name": gpu,
                "memory": 141 * GIB,
                "memory_used": 0,
                "pcie": {"gen": 5, "gen_max": 5, "width": 16, "width_max": 16},
                "nic_path": "PIX",
                "processes": [],
            }
            for i in range(gpus if gpu else 0)
        ],
        "nics": [
            {"name": "eth0", "state": "up", "kind": "ethernet", "mtu": 9000, "speed_mbps": 25000, "addresses": []}
        ],
        "ib": [
            {
                "ca": f"mlx5_{i}",
                "port": 1,
                "state": "Active",
                "rate": 400.0,
                "link_layer": "InfiniBand",
                "firmware": "28",
            }
            for i in range(cards)
        ],
        "data_addresses": [],
        "pythons": [{"path": "/opt/venv/bin/python3", "torch": "2.6.0", "nccl": "/x", "nccl_version": "2.21.5"}],
        "limits": {"memlock": {"soft": -1, "hard": -1}, "nofile": {"soft": 1048576, "hard": 1048576}},
        "env": {},
        **more,
    }


def host(name: str, **more: Any) -> dict[str, Any]:
    return {
        "identity": {"hostname": name, "boot_id": f"boot-{name}", "machine_id": f"id-{name}", "container": None},
        "processors": {"model": "Xeon", "governors": {"performance": 96}, "numa_nodes": 2, "numa_balancing": False},
        "memory": {"shm_size": 500 * GIB, "available": 900 * GIB},
        "limits": {"memlock": {"soft": -1, "hard": -1}, "nofile": {"soft": 1048576, "hard": 1048576}},
        "acs": {"state": "off", "on": []},
        "iommu": {"state": "passthrough"},
        "gpudirect": {"peermem": "nvidia_peermem", "registered": None, "open_driver": True, "dma_buf": True},
        "versions": {"net_plugins": []},
        "devices": {"gpus": 8, "rdma": 8},
        **more,
    }


def clock(offset: float = 0.0, uncertainty: float = 0.001) -> dict[str, Any]:
    return {"time": 0.0, "offset": offset, "uncertainty": uncertainty, "synchronised": True}


def node(name: str, /, found: dict[str, Any] | None = None, **results: dict[str, Any]) -> ProbedNode:
    """Return a node of eight H200s, or with another inventory."""
    return ProbedNode(
        name, copy.deepcopy(found or inventory(host=name)), {"host": host(name), "clock": clock(), **results}
    )


def memlock(name: str, size: int) -> dict[str, Any]:
    return host(name, limits={"memlock": {"soft": size, "hard": size}, "nofile": {"soft": 1048576, "hard": 1048576}})
