"""One fault for each check of the catalogue, as probe results of a node that is healthy otherwise."""

import copy
import functools
from typing import Any

from fabtui_node.parsers.nvidia import smi_nvlink, smi_query, topo
from fabtui_node.probes.nvidia import gpu_health
from tests.unit.model.cluster import host
from tests.unit.probes.places import sample

Results = dict[str, dict[str, Any]]


@functools.cache
def _h200() -> dict[str, Any]:
    return gpu_health.from_query(0, smi_query.parse_query(sample("h200x8/nvidia-smi-q.txt")).values["gpus"][0])


def gpu(**changes: Any) -> dict[str, Any]:
    """Return an H200 as nvidia-smi printed it, in the form of NVML, with some values changed."""
    return {**copy.deepcopy(_h200()), **changes}


def gpus(*found: dict[str, Any], **more: Any) -> Results:
    """Return a value of the probe ``gpus``."""
    return {"gpus": {"gpus": list(found), "on_pci": [one["bus"] for one in found], "all_visible": True, **more}}


def nvlink(**of_first: Any) -> Results:
    """Return what nvidia-smi printed about NVLinks; the first link of GPU 0 has some values changed."""
    found = smi_nvlink.parse_nvlink_status(sample("h200x8/nvlink-s.txt")).values["gpus"]
    found[0]["links"][0].update(of_first)
    return {"nvlink": {"gpus": found}}


def kernel(kind: str, **more: Any) -> Results:
    return {"kernel": {"readable": "yes", "counts": [{"kind": kind, "count": 3, "age": 60.0, **more}]}}


def processors(**more: Any) -> Results:
    """Return a value of the probe ``host`` with other processors."""
    masks = {"cpus_present": [0, 1], "cpus_online": [0, 1], "nodes_with_cpus": [0, 1], "nodes_with_memory": [0, 1]}
    return {"host": host("x", processors={**host("x")["processors"], **masks, **more})}


EFA_PORT = {"ca": "rdmap1s0", "port": 1, "type": "EFA", "state": "Active", "link_layer": "Unknown", "errors": {}}


def limited(**more: Any) -> Results:
    """Return a value of the probe ``host`` in a control group."""
    return {"host": host("x", cgroup={"cpus": None, "memory": None, "oom_kills": 0, "files": {}, **more})}


#: A matrix in which one of two GPUs has a near NIC.
NEAR_NICS = "\tGPU0\tGPU1\tNIC0\nGPU0\t X \tSYS\tPIX\nGPU1\tSYS\t X \tSYS\nNIC0\tPIX\tSYS\t X \n"

HEALTHY: Results = {**gpus(gpu()), **nvlink(), **processors(), "kernel": {"readable": "yes", "counts": []}}

#: Faults by the id of the rule that must find them.
BROKEN: dict[str, Results] = {
    "FT110": gpus(gpu(), on_pci=["0000:19:00.0", "0000:3b:00.0"]),
    "FT111": gpus(gpu(recovery="gpu reset")),
    "FT112": gpus(gpu(power_limit=500.0, power_limit_default=700.0)),
    "FT113": gpus(gpu(utilization=90, perf="P8")),
    "FT114": gpus(gpu(reasons=["hw_slowdown", "hw_power_brake_slowdown"])),
    "FT115": gpus(gpu(temperature=95, temperature_slowdown=95)),
    "FT116": gpus(gpu(ecc_errors={"uncorrected": 2})),
    "FT117": gpus(gpu(rows={"pending": True, "failure": False})),
    "FT118": gpus(gpu(persistence=False)),
    "FT119": gpus(gpu(pcie={"width": 8, "width_max": 16})),
    "FT120": nvlink(state="inactive"),
    "FT121": nvlink(speed=10.0),
    "FT122": nvlink(counters={"replay_errors": 5, "link_recovery_failed_events": 1}),
    "FT123": gpus(gpu(fabric={"state": "in progress"})),
    "FT129": nvlink(rates={"effective_ber": 3e-8}),
    "FT130": kernel("xid", code=79, bus="0000:19:00.0", text="GPU has fallen off the bus."),
    "FT131": kernel("sxid", code=12028, text="Non-fatal"),
    "FT132": kernel("aer", code="fatal"),
    "FT133": kernel("link_down", interface="ens1"),
    "FT134": processors(cpus_online=[0]),
    "FT135": processors(nodes_with_memory=[0]),
    "FT136": kernel("pcie_limited", bus="0000:3b:00.0", text="63.008 Gb/s available PCIe bandwidth"),
    "FT137": {"topology": {"matrix": topo.parse_topology(NEAR_NICS).values}},
    "FT140": limited(cpus=0.1, files={"cpus": "/sys/fs/cgroup/cpu.max"}),
    "FT141": limited(memory=160 << 20),
    "FT142": limited(oom_kills=2),
    "FT143": {"host": host("x", connections={"count": 262144, "max": 262144})},
    "FT144": {"host": host("x", folders={"home": "/root", "noexec": ["/tmp", "/dev/shm"], "read_only": []})},
    "FT145": {
        "inventory": {"nics": [{"name": "eth1", "qdisc": "tbf"}], "data_addresses": [{"nic": "eth1", "address": "x"}]}
    },
    "FT152": {
        "inventory": {"ib": [EFA_PORT]},
        "rdma": {"ports": [EFA_PORT], "efa": {"domains": [], "error": "fi_getinfo: -61 (No data available)"}},
    },
}


def blank(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: blank(one) for key, one in value.items()}
    return [blank(one) for one in value] if isinstance(value, list) else None
