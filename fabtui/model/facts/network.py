"""Facts of RDMA devices and networks."""

from __future__ import annotations

import ipaddress
from typing import Any

from fabtui.model.facts.compare import Compare, Fact
from fabtui.model.facts.hardware_kind import rdma_models
from fabtui.model.facts.node_view import ProbedNode, Value, counted, dicts, field, host_text, number, spread, text
from fabtui.model.topology.nccl_interfaces import candidates, chosen


def _ports(node: ProbedNode, name: str) -> list[tuple[Any, Any]]:
    several = {str(port.get("ca")) for port in dicts(node.part("ib")) if port.get("port") not in (None, 1)}
    return [
        (f"{port.get('ca')}/{port.get('port')}" if str(port.get("ca")) in several else port.get("ca"), port.get(name))
        for port in dicts(node.part("ib"))
    ]


def _rate(node: ProbedNode) -> Value:
    return spread(_ports(node, "rate"), "Gb/s")


def _data_nics(node: ProbedNode) -> list[dict[str, Any]]:
    names = [entry.get("nic") for entry in dicts(node.part("data_addresses"))]
    return [nic for nic in dicts(node.part("nics")) if nic.get("name") in names]


def _nic_speed(node: ProbedNode) -> Value:
    speeds = [
        (nic.get("name"), f"{v / 1000:g}" if (v := number(nic.get("speed_mbps"))) else None) for nic in _data_nics(node)
    ]
    return spread(speeds, "Gb/s")


def _interfaces(node: ProbedNode) -> Value:
    names = candidates(node.part("nics"), node.seen("host", "network", "indexes"))
    env = node.part("env", "NCCL_SOCKET_IFNAME")
    return text(", ".join(chosen(names, text(env)))) or ("none" if names else None)


def _network(node: ProbedNode) -> Value:
    """Return the network of the interface that NCCL selects first; in a routed fabric each rack may have its own."""
    names = candidates(node.part("nics"), node.seen("host", "network", "indexes"))
    found = chosen(names, text(node.part("env", "NCCL_SOCKET_IFNAME")))
    for nic in dicts(node.part("nics")):
        if found and nic.get("name") == found[0]:
            for entry in dicts(nic.get("addresses")):
                if entry.get("family") == 4 and isinstance(prefix := entry.get("prefix"), int):
                    return str(ipaddress.ip_interface(f"{entry.get('address')}/{prefix}").network)
    return None


def _gpudirect(node: ProbedNode) -> Value:
    known = node.seen("host", "gpudirect") is not None
    if not known or not dicts(node.part("gpus")) or not dicts(node.part("ib")):
        return None
    methods = [text(node.seen("host", "gpudirect", "peermem"))]
    if node.seen("host", "gpudirect", "dma_buf") is True:
        methods.append("DMA-BUF")
    return " and ".join(method for method in methods if method) or "none"


def _firewall(node: ProbedNode) -> Value:
    found = text(node.seen("firewall", "input"))
    return None if found == "unknown" else found


def _number_of_addresses(node: ProbedNode) -> Value:
    return len(dicts(node.part("data_addresses"))) if node.inventory else None


def _detail(node: ProbedNode, name: str) -> list[tuple[Any, Any]]:
    """Return a field of each port from the probe rdma."""
    ports = dicts(node.seen("rdma", "ports"))
    return [(f"{port.get('ca')}/{port.get('port')}", port.get(name)) for port in ports]


def _partitions(node: ProbedNode) -> Value:
    keys = [(port, ", ".join(map(str, found))) for port, found in _detail(node, "pkeys") if isinstance(found, list)]
    return spread(keys)


def _nic_firmware(node: ProbedNode) -> Value:
    return spread((nic.get("interface"), text(nic.get("firmware"))) for nic in dicts(node.seen("rdma", "nics")))


def _pause(node: ProbedNode) -> Value:
    nics = [(nic.get("interface"), nic.get("pause")) for nic in dicts(node.seen("rdma", "nics"))]
    words = [(name, f"rx {found.get('rx')} tx {found.get('tx')}") for name, found in nics if isinstance(found, dict)]
    return spread(words) if words else None


def _cables(node: ProbedNode) -> list[tuple[Any, Any]]:
    """Return the rate of the cable in each port from the probe ibfabric."""
    ports = dicts(node.seen("ibfabric", "ports"))
    return [(f"{port.get('ca')}/{port.get('port')}", field(port, "link", "rate")) for port in ports]


def _leaves(node: ProbedNode) -> Value:
    leaves = [field(port, "leaf", "name") for port in dicts(node.seen("ibfabric", "ports"))]
    return counted(leaf for leaf in leaves if leaf is not None)


NETWORK_FACTS: tuple[Fact, ...] = (
    Fact("rdma", "RDMA devices", lambda n: counted(rdma_models(n)), verdict="bad", next="ssh {node} ibstat", main=True),
    Fact(
        "rdma_state",
        "RDMA port state",
        lambda n: spread(_ports(n, "state")),
        verdict="bad",
        next="ssh {node} ibstat",
        judges=("ibstat",),
    ),
    Fact("rdma_rate", "RDMA rate", _rate, verdict="bad", next="ssh {node} ibstat", main=True, judges=("ibstat",)),
    Fact("rdma_link", "RDMA link layer", lambda n: spread(_ports(n, "link_layer")), verdict="bad"),
    Fact("rdma_firmware", "RDMA firmware", lambda n: spread(_ports(n, "firmware")), next="ssh {node} ibstat"),
    Fact(
        "rdma_mtu",
        "RDMA MTU",
        lambda n: spread(_detail(n, "active_mtu"), "B"),
        verdict="bad",
        next="ssh {node} ibv_devinfo",
        judges=("rdma",),
    ),
    Fact("rdma_lanes", "RDMA lanes", lambda n: spread(_detail(n, "lanes")), verdict="bad", next="ssh {node} ibstat"),
    Fact(
        "ib_rate",
        "InfiniBand cables",
        lambda n: spread(_cables(n), "Gb/s"),
        verdict="bad",
        next="ssh {node} sudo iblinkinfo",
        judges=("ibfabric",),
    ),
    Fact("leaves", "leaf switches", _leaves, Compare.NONE, next="ssh {node} sudo ibnetdiscover -p"),
    Fact("gid_index", "RoCE v2 GID index", lambda n: spread(_detail(n, "gid_index")), next="ssh {node} show_gids"),
    Fact("partitions", "partition keys", _partitions, next="ssh {node} cat /sys/class/infiniband/*/ports/1/pkeys/*"),
    Fact("nic_firmware", "firmware of interfaces", _nic_firmware, next="ssh {node} ethtool -i {nic}"),
    Fact("pause", "flow control", _pause, next="ssh {node} ethtool -a {nic}"),
    Fact("addresses_number", "data addresses", _number_of_addresses, next="ssh {node} ip -br addr"),
    Fact(
        "mtu",
        "MTU",
        lambda n: spread((nic.get("name"), number(nic.get("mtu"))) for nic in _data_nics(n)),
        verdict="bad",
        next="ssh {node} ip link",
        main=True,
    ),
    Fact("nic_speed", "speed of data NICs", _nic_speed, verdict="bad", next="ssh {node} ethtool {nic}"),
    Fact("nccl_interfaces", "interfaces NCCL takes", _interfaces, next="set NCCL_SOCKET_IFNAME to one that all have"),
    Fact("nccl_network", "network NCCL takes", _network, verdict="note", next="ssh {node} ip -br addr"),
    Fact("firewall", "firewall for input", _firewall, next="ssh {node} sudo nft list ruleset"),
    Fact(
        "gpudirect",
        "GPUDirect RDMA by",
        _gpudirect,
        verdict="bad",
        next="ssh {node} sudo modprobe nvidia-peermem",
        main=True,
    ),
    Fact("ofed", "OFED", host_text("versions", "ofed"), next="ssh {node} ofed_info -s"),
    Fact("rdma_core", "rdma-core", host_text("versions", "rdma_core"), verdict="note"),
)
