"""Probe results of synthetic sessions."""

from typing import Any


def address(node: str, index: int) -> str:
    digits = "".join(c for c in node if c.isdigit()) or "0"
    return f"10.{index}.0.{int(digits) % 250 + 1}"


def inventory(node: str, count: int, kind: str = "gpu") -> dict[str, Any]:
    gpus = [
        {
            "index": index,
            "name": "NVIDIA H200",
            "uuid": f"GPU-{index:08d}-aaaa",
            "bus": f"0000:{index + 10:02x}:00.0",
            "numa": index // 4,
            "mig": False,
            "memory": 150_754_820_096,
            "memory_used": 629_145_600,
            "processes": [{"pid": 4711, "user": "alice", "name": "python3", "memory": 9 << 30}] if index == 2 else [],
            "pcie": {"gen": 5, "gen_max": 5, "width": 8 if index == 3 else 16, "width_max": 16},
            "nic": f"mlx5_{index}",
            "nic_path": "PIX",
            "error": None,
        }
        for index in range(count if kind == "gpu" else 0)
    ]
    return {
        "host": node,
        "kernel": "6.8.0",
        "os": "Ubuntu 24.04",
        "cpus": 96,
        "memory": 2 << 40,
        "driver": "570.124.06" if gpus else None,
        "cuda": "12.8" if gpus else None,
        "nvml_error": None,
        "gpus": gpus,
        "pci_gpus": [],
        "nics": [
            {
                "name": f"ib{index}",
                "state": "up",
                "speed_mbps": 400_000,
                "mtu": 4092,
                "kind": "infiniband",
                "link_kind": None,
                "rdma": f"mlx5_{index}",
                "numa": index // 4,
                "bus": f"0000:{index + 60:02x}:00.0",
                "addresses": [{"address": address(node, index), "family": 4, "flags": []}],
            }
            for index in range(count)
        ],
        "ib": [
            {
                "ca": f"mlx5_{index}",
                "port": 1,
                "state": "Active",
                "phys_state": "LinkUp",
                "rate": 400.0,
                "link_layer": "InfiniBand",
                "lid": 10 + index,
                "sm_lid": 1,
                "firmware": "28.39.1002",
                "netdev": f"ib{index}",
            }
            for index in range(count)
        ],
        "data_addresses": [
            {"address": address(node, index), "nic": f"ib{index}", "rail": index, "family": 4} for index in range(count)
        ],
        "pythons": [{"path": "/usr/bin/python3", "version": "3.12.3", "torch": "2.8.0", "torch_cuda": "12.8"}],
        "nccl": [{"path": "/usr/lib/libnccl.so.2", "version": "2.28.9"}],
        "limits": {"memlock": {"soft": -1, "hard": -1}, "nofile": {"soft": 1024, "hard": 1048576}},
        "tools": {"ibstat": "/usr/sbin/ibstat", "fping": None},
        "env": {"NCCL_DEBUG": "WARN"},
    }


def nvlink(crc: int) -> dict[str, Any]:
    return {
        "source": "nvidia-smi",
        "error": None,
        "raw": {"s": "GPU 0: NVIDIA H200\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>", "e": ""},
        "gpus": [
            {
                "index": 0,
                "uuid": "GPU-0",
                "name": "NVIDIA H200",
                "message": None,
                "links": [
                    {"link": 0, "state": "active", "speed": 26.562, "counters": {"crc": crc, "replay": 0}, "other": {}},
                    {"link": 1, "state": "inactive", "speed": None, "counters": {"crc": None}, "other": {}},
                ],
            }
        ],
    }


#: What nodes send for probes that no recording has.
PROBED: dict[str, dict[str, Any]] = {
    "nvlink": nvlink(3),
    "rdma": {
        "ports": [{"ca": "mlx5_0", "port": 1, "netdev": "eth0", "pkeys": ["0xffff"], "errors": {"x": 1}, "lanes": 4}],
        "nics": [{"interface": "eth0", "pause": {"rx": "on", "tx": "on"}}],
    },
    "ibstat": {"cas": [{"ca": "mlx5_0", "ports": [{"port": 1, "state": "Active", "rate": 400, "lid": 3}]}]},
    "ibfabric": {
        "ports": [
            {"ca": "mlx5_0", "port": 1, "leaf": {"guid": "0x1", "name": "leaf0", "port": 2}, "link": {"rate": 1}}
        ],
        "fabric": {"leaves": {"0x1": {"name": "leaf0"}}, "below": [], "errors": []},
    },
    "scratch": {"own": True, "value": {"used": 3}, "units": {"used": "%"}, "judged": [{"text": "x"}]},
}
