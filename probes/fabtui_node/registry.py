"""The probes a node can run, by name, and the tests that the rank host runs.

This table is cheap to import: a probe's module is imported at its first run. To add a probe, write one file with a
``run(args, emit, deadline)`` and add its entry here.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, List, NamedTuple

Value = Dict[str, Any]
Emit = Callable[[Value], None]


class Probe(NamedTuple):
    """A look at a node: harmless, without the ranks, run in a thread of the worker.

    Attributes:
        name: What users and messages call it.
        title: One line for users.
        needs: What it needs on a node.
        gives: What its values are.
        module: The module of ``fabtui_node`` that holds its ``run``.
    """

    name: str
    title: str
    needs: str
    gives: str
    module: str

    def run(self, args: Value, emit: Emit, deadline: float) -> Value:
        """Run the probe and return its value; blocks.

        Args:
            args: The probe's own arguments; each module says which it takes.
            emit: Called with each partial value as it comes, from any thread, one call at a time.
            deadline: Seconds from now that the probe may take. What is known by then is returned.

        Raises:
            Exception: Whatever the probe could not turn into a value; the worker reports it.
        """
        module = importlib.import_module("fabtui_node." + self.module)
        value: Value = module.run(args, emit, deadline)
        return value


class Trial(NamedTuple):
    """A test between endpoints, run by the rank host and planned by the controller."""

    name: str
    title: str
    needs: str
    gives: str


_PROBES: List[Probe] = [
    Probe(
        "inventory",
        "what the node is: GPUs, NICs, addresses, Python, libraries, limits",
        "nothing; the NVIDIA driver for GPUs, iproute2 for secondary addresses",
        "host, gpus, nics, ib, data_addresses, pythons, nccl, limits, tools",
        "probes.inventory",
    ),
    Probe(
        "ping",
        "every data address to every data address, with small echoes and with such that fill the MTU",
        "fping or ping, or leave to send ICMP echoes",
        "for each pair of addresses: round trip in ms (min, avg, max), loss in percent, the largest packet that passes",
        "probes.network.ping",
    ),
    Probe(
        "udp",
        "every data address to every data address, each way alone: datagrams up to the MTU, and TCP connections",
        "nothing; a port of the kernel's choosing is open on each data address meanwhile",
        "for each pair of addresses: sent and arrived datagrams, time of a TCP connection in ms",
        "probes.network.udp_one_way",
    ),
    Probe(
        "iperf3",
        "TCP between the nodes of each rail, one pair a node at a time, each way; only when asked for",
        "iperf3; a port of the kernel's choosing is open meanwhile",
        "for each pair of addresses of a rail: rate in GB/s, retransmits",
        "probes.network.external_tools",
    ),
    Probe(
        "perftest",
        "RDMA between the nodes of each rail, one pair a node at a time, each way; only when asked for",
        "ib_write_bw, ib_send_bw and ib_read_lat (perftest), and RDMA ports that are active",
        "for each pair of RDMA ports of a rail: write and send in GB/s, read latency in us",
        "probes.network.external_tools",
    ),
    Probe(
        "ibstat",
        "InfiniBand and RoCE ports",
        "ibstat (infiniband-diags), or /sys/class/infiniband",
        "for each port: state, physical state, rate in Gb/s, LID, SM LID, link layer, GUID, firmware",
        "probes.rdma.ibstat",
    ),
    Probe(
        "rdma",
        "RDMA ports in detail: MTU, GIDs, P_Keys, counters, pause and speed of their interfaces, what to tell NCCL",
        "/sys/class/infiniband; ibv_devinfo for the MTU of InfiniBand, ethtool for interfaces",
        "active MTU in bytes, GID table, index of the RoCE v2 IPv4 GID, NCCL_IB_GID_INDEX and NCCL_IB_HCA, errors",
        "probes.rdma.ports",
    ),
    Probe(
        "ibfabric",
        "the InfiniBand fabric: the leaf of each port, links below what both ends can do, ports with errors",
        "infiniband-diags and the right to send management packets (root, as a rule)",
        "for each port: leaf, width, rate in Gb/s now and possible, subnet manager, errors; the same of the fabric",
        "probes.rdma.ib_fabric",
    ),
    Probe(
        "nvlink",
        "NVLink state, speed and error counters",
        "nvidia-smi, or the NVIDIA driver's NVML",
        "for each GPU and link: state, speed in GB/s, replay, recovery and CRC counters",
        "probes.nvidia.nvlink",
    ),
    Probe(
        "counters",
        "counters of RDMA ports, network interfaces and NVLinks, before, between and after tests",
        "/sys/class/infiniband and /sys/class/net; the NVIDIA driver's NVML for NVLinks",
        "for each port, interface and link: the traffic and the errors counted so far",
        "probes.counters",
    ),
    Probe(
        "host",
        "limits, PCI ACS, IOMMU, GPUDirect, memory, processors: what decides over fast communication",
        "nothing; root to see ACS",
        "memlock and open files, ACS, IOMMU, GPUDirect modules, huge pages, NUMA, governor, boot id, library versions",
        "probes.host",
    ),
    Probe(
        "clock",
        "the time on the node",
        "nothing",
        "seconds since the epoch, and whether something keeps the clock right",
        "probes.clock",
    ),
    Probe(
        "firewall",
        "whether a firewall drops what comes in",
        "root, and nft or iptables",
        "accept or drop, and the number of rules",
        "probes.firewall",
    ),
    Probe(
        "gpus",
        "the state of GPUs: PCIe, clocks, ECC, remapped rows, MIG, NVLink fabric, power; Fabric Manager",
        "the NVIDIA driver's NVML, or nvidia-smi",
        "for each GPU: PCIe generation and width, clocks in MHz and what holds them down, memory errors, modes, W, C",
        "probes.nvidia.gpu_health",
    ),
    Probe(
        "gpuload",
        "PCIe width and clocks of GPUs while they work",
        "the NVIDIA driver's NVML",
        "for each GPU, at its busiest: PCIe generation and width, clocks in MHz and what holds them down",
        "probes.nvidia.gpu_load",
    ),
    Probe(
        "topology",
        "how near GPUs and NICs are to each other, and what GPUs can do to each other's memory",
        "nvidia-smi; for P2P the NVIDIA driver's NVML, or nvidia-smi",
        "matrices: NVLinks or PCIe distance for each pair of devices; P2P read, write, NVLink, atomics for each pair",
        "probes.nvidia.topology",
    ),
    Probe(
        "kernel",
        "what the kernel has reported since the node was started: Xid, AER, PCIe limits, links of network cards",
        "/dev/kmsg, dmesg or the journal; on many nodes only root may read them",
        "events with time, kind, PCI address, code and count",
        "probes.kernel_log",
    ),
    Probe(
        "own",
        "a probe of your own, see docs/probes.md",
        "a file in your folder of probes, or a package with an entry point",
        "what that says",
        "probes.user_probe",
    ),
]

PROBES: Dict[str, Probe] = {probe.name: probe for probe in _PROBES}

_TESTS: List[Trial] = [
    Trial(
        "p2p",
        "every endpoint to every endpoint, one way, alone in a communicator of two",
        "NCCL for GPUs, PyTorch for CPU ranks",
        "bandwidth in GB/s, latency, transport; data verified",
    ),
    Trial(
        "all_reduce",
        "all_reduce over all endpoints and over each pair of nodes",
        "NCCL for GPUs, PyTorch for CPU ranks",
        "bus bandwidth in GB/s for each size; result verified",
    ),
]

TESTS: Dict[str, Trial] = {test.name: test for test in _TESTS}
