"""Facts of RDMA devices and networks, and the interfaces that NCCL selects by its own rules."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fabtui.model.facts.compare import Compare, Fact
from fabtui.model.facts.node_view import (
    Entry,
    ProbedNode,
    Value,
    counted,
    dicts,
    field,
    host_text,
    known_text,
    number,
    rdma_models,
    spread,
    text,
)
from fabtui.nodeset import ranges

#: Maximum number of interfaces that NCCL uses.
_MOST = 16
#: Interfaces that NCCL uses only if there are no others.
_LAST = ("docker", "lo", "virbr")
_QOS = "ssh {node} mlnx_qos -i {nic}"


def candidates(nics: Any, indexes: Any = None) -> list[str]:
    """Return the ``nics`` of an inventory that are up and have an address, in the order of the kernel's indexes.

    ``indexes``: those that the probe ``host`` read, in recordings of earlier versions.
    """
    known = indexes if isinstance(indexes, Mapping) else {}
    usable = [
        (place if isinstance(place := nic.get("index", known.get(name)), int) else 1 << 30, at, name)
        for at, nic in enumerate(dicts(nics))
        if (name := text(nic.get("name")))
        and nic.get("state") != "down"
        and any(str(entry.get("address")) != "::1" for entry in dicts(nic.get("addresses")))
    ]
    return [name for _, _, name in sorted(usable)]


def chosen(names: Sequence[str], setting: str | None = None) -> list[str]:
    """Return the interfaces NCCL selects for bootstrap and sockets among those with an address, in the kernel's order.

    ``setting``: ``NCCL_SOCKET_IFNAME``: prefixes separated by commas; exact names after ``=``; exclusions after ``^``.
    """
    if setting:
        return [name for name in names if _matches(name, setting)][:_MOST]
    groups = [[name for name in names if name.startswith("ib")], [name for name in names if not name.startswith(_LAST)]]
    groups += [[name for name in names if name.startswith(prefix)] for prefix in _LAST]
    return next((group[:_MOST] for group in groups if group), [])


def _matches(name: str, setting: str) -> bool:
    wanted = setting.lstrip("^")
    words = [word.partition(":")[0] for word in wanted.lstrip("=").split(",") if word]
    listed = name in words if wanted.startswith("=") else name.startswith(tuple(words))
    return listed is not setting.startswith("^")


def nccl_interfaces(node: ProbedNode) -> tuple[list[str], list[str]]:
    names = candidates(node.part("nics"), node.seen("host", "network", "indexes"))
    return names, chosen(names, text(node.part("env", "NCCL_SOCKET_IFNAME")))


def _name_of(port: Mapping[str, Any]) -> str:
    return f"{port.get('ca')}/{port.get('port')}"


def _ports(name: str, unit: str = "") -> Callable[[ProbedNode], Value]:

    def find(node: ProbedNode) -> Value:
        ports = dicts(node.part("ib"))
        several = {str(port.get("ca")) for port in ports if port.get("port") not in (None, 1)}
        names = (_name_of(port) if str(port.get("ca")) in several else port.get("ca") for port in ports)
        return spread(zip(names, (port.get(name) for port in ports), strict=True), unit)

    return find


def _detail(probe: str, *path: str, unit: str = "") -> Callable[[ProbedNode], Value]:
    return lambda node: spread([(_name_of(p), field(p, *path)) for p in dicts(node.seen(probe, "ports"))], unit)


def _data_nics(node: ProbedNode) -> list[Entry]:
    names = [entry.get("nic") for entry in dicts(node.part("data_addresses"))]
    return [nic for nic in dicts(node.part("nics")) if nic.get("name") in names]


def _mtu(node: ProbedNode) -> Value:
    return spread((nic.get("name"), number(nic.get("mtu"))) for nic in _data_nics(node))


def _nic_speed(node: ProbedNode) -> Value:
    speeds = ((nic.get("name"), number(nic.get("speed_mbps"))) for nic in _data_nics(node))
    return spread(((name, f"{speed / 1000:g}" if speed else None) for name, speed in speeds), "Gb/s")


def _interfaces(node: ProbedNode) -> Value:
    names, used = nccl_interfaces(node)
    indexes = [node.seen("host", "network", "indexes"), *(nic.get("index") for nic in dicts(node.part("nics")))]
    if len(used) > 1 and not any(indexes):
        # Without the kernel's order, by name, the same ones would seem to differ.
        return None
    return text(", ".join(used)) or ("none" if names else None)


def _network(node: ProbedNode) -> Value:
    """Return the network of the interface that NCCL selects first; in a routed fabric each rack may have its own."""
    first = nccl_interfaces(node)[1][:1]
    entries = [e for nic in dicts(node.part("nics")) if [nic.get("name")] == first for e in dicts(nic.get("addresses"))]
    networks = (f"{e.get('address')}/{e.get('prefix')}" for e in entries if e.get("family") == 4)
    return next((str(ipaddress.ip_interface(network).network) for network in networks), None)


def _gpudirect(node: ProbedNode) -> Value:
    if node.seen("host", "gpudirect") is None or not dicts(node.part("gpus")) or not dicts(node.part("ib")):
        return None
    methods = [text(node.seen("host", "gpudirect", "peermem"))]
    if node.seen("host", "gpudirect", "dma_buf") is True:
        methods.append("DMA-BUF")
    return " and ".join(method for method in methods if method) or "none"


def _qdisc(node: ProbedNode) -> Value:
    return spread((nic.get("name"), text(nic.get("qdisc"))) for nic in _data_nics(node))


def _number_of_addresses(node: ProbedNode) -> Value:
    if not node.inventory:
        return None
    count, down = len(dicts(node.part("data_addresses"))), down_interfaces(node)
    return f"{count} ({', '.join(down)} down)" if down else count


def down_interfaces(node: ProbedNode) -> list[str]:
    """Return the interfaces with an address that data could use if they were up."""
    names = (text(entry.get("nic")) for entry in dicts(node.part("down_addresses")))
    return list(dict.fromkeys(name for name in names if name))


def _partitions(node: ProbedNode) -> Value:
    keys = [(_name_of(port), port.get("pkeys")) for port in dicts(node.seen("rdma", "ports"))]
    return spread((port, ", ".join(map(str, pkeys))) for port, pkeys in keys if isinstance(pkeys, list))


def _nic_firmware(node: ProbedNode) -> Value:
    return spread((nic.get("interface"), text(nic.get("firmware"))) for nic in dicts(node.seen("rdma", "nics")))


def _pause(node: ProbedNode) -> Value:
    nics = [(nic.get("interface"), nic.get("pause")) for nic in dicts(node.seen("rdma", "nics"))]
    return spread(
        (name, f"rx {pause.get('rx')} tx {pause.get('tx')}") for name, pause in nics if isinstance(pause, dict)
    )


def _qos(name: str, shown: Callable[[Any], Value]) -> Callable[[ProbedNode], Value]:
    """Return a reader of a value of the RoCE ports where it is known: that a tool shows less is not a difference."""

    def find(node: ProbedNode) -> Value:
        ports = ((_name_of(port), shown(port.get(name))) for port in dicts(node.seen("rdma", "qos")))
        return spread((port, value) for port, value in ports if value is not None)

    return find


def _class_of_files(node: ProbedNode) -> Value:
    """Return the variables of NCCL's own files that choose a class; its environment is a fact of its own."""
    conf = node.seen("rdma", "conf")
    if not isinstance(conf, dict):
        return None
    return text(" ".join(f"{name}={value}" for name, value in sorted(conf.items()))) or "none"


def priorities_text(value: Any) -> str | None:
    """Return the priorities of a list as ``3`` or ``0-2,5``; ``none`` for an empty list."""
    if not isinstance(value, list):
        return None
    return ranges([priority for priority in value if isinstance(priority, int)]) or "none"


def _dscps(value: Any) -> str | None:
    """Return the DSCPs of each priority; ``by class`` for the default, in which it is a DSCP divided by eight."""
    if not isinstance(value, dict):
        return None
    known = {str(key): [dscp for dscp in dscps if isinstance(dscp, int)] for key, dscps in value.items() if dscps}
    if known == {str(priority): list(range(8 * priority, 8 * priority + 8)) for priority in range(8)}:
        return "by class"
    return "; ".join(f"{priority}: {ranges(dscps)}" for priority, dscps in sorted(known.items())) or None


def _leaves(node: ProbedNode) -> Value:
    leaves = [field(port, "leaf", "name") for port in dicts(node.seen("ibfabric", "ports"))]
    if not any(leaves):
        nics = {text(nic.get("name")) for nic in _data_nics(node)}
        heard = [entry for entry in dicts(node.seen("lldp", "neighbours")) if entry.get("switch") is not False]
        heard = [entry for entry in heard if text(entry.get("interface")) in nics]
        leaves = [text(entry.get("system")) or text(entry.get("chassis")) for entry in heard]
    return counted(leaf for leaf in leaves if leaf is not None)


# One argument per line, as the formatter has it, would hide the table.
# fmt: off
NETWORK_FACTS: tuple[Fact, ...] = (
    Fact("rdma", "RDMA devices", lambda n: counted(rdma_models(n)), verdict="bad", next="ssh {node} ibstat", main=True),
    Fact("rdma_state", "RDMA port state", _ports("state"), verdict="bad", next="ssh {node} ibstat", judges=("ibstat",)),
    Fact("rdma_rate", "RDMA rate", _ports("rate", "Gb/s"), verdict="bad", next="ssh {node} ibstat", main=True,
        judges=("ibstat",)),
    Fact("rdma_link", "RDMA link layer", _ports("link_layer"), verdict="bad"),
    Fact("rdma_firmware", "RDMA firmware", _ports("firmware"), next="ssh {node} ibstat"),
    Fact("rdma_mtu", "RDMA MTU", _detail("rdma", "active_mtu", unit="B"), verdict="bad", next="ssh {node} ibv_devinfo",
        judges=("rdma",)),
    Fact("rdma_lanes", "RDMA lanes", _detail("rdma", "lanes"), verdict="bad", next="ssh {node} ibstat"),
    Fact("ib_rate", "InfiniBand cables", _detail("ibfabric", "link", "rate", unit="Gb/s"), verdict="bad",
        next="ssh {node} sudo iblinkinfo", judges=("ibfabric",)),
    Fact("leaves", "leaf switches", _leaves, Compare.NONE, next="ssh {node} sudo ibnetdiscover -p"),
    Fact("gid_index", "RoCE v2 GID index", _detail("rdma", "gid_index"), next="ssh {node} show_gids"),
    Fact("partitions", "partition keys", _partitions, next="ssh {node} cat /sys/class/infiniband/*/ports/1/pkeys/*"),
    Fact("nic_firmware", "firmware of interfaces", _nic_firmware, next="ssh {node} ethtool -i {nic}"),
    Fact("pause", "flow control", _pause, next="ssh {node} ethtool -a {nic}"),
    Fact("roce_trust", "RoCE trust", _qos("trust", text), next=_QOS),
    Fact("roce_dscp", "RoCE priorities of DSCPs", _qos("dscp", _dscps), next=_QOS),
    Fact("roce_pfc", "RoCE priorities with PFC", _qos("pfc", priorities_text), next=_QOS),
    Fact("roce_ecn_np", "RoCE priorities that notify of ECN marks", _qos("ecn_np", priorities_text), next=_QOS),
    Fact("roce_ecn_rp", "RoCE priorities that slow down for ECN marks", _qos("ecn_rp", priorities_text), next=_QOS),
    Fact("roce_class", "RoCE traffic class of the NIC", _qos("class", number),
        next="ssh {node} cat /sys/class/infiniband/*/tc/1/traffic_class"),
    Fact("roce_conf", "RoCE class in NCCL's files", _class_of_files, next="ssh {node} cat /etc/nccl.conf ~/.nccl.conf"),
    Fact("roce_cma", "RoCE TOS of rdma_cm", _qos("cma_tos", number), verdict="note"),
    Fact("addresses_number", "data addresses", _number_of_addresses, next="ssh {node} ip -br addr"),
    Fact("mtu", "MTU", _mtu, verdict="bad", next="ssh {node} ip link", main=True),
    Fact("nic_speed", "speed of data NICs", _nic_speed, verdict="bad", next="ssh {node} ethtool {nic}"),
    Fact("qdisc", "queueing discipline", _qdisc, next="ssh {node} tc -s qdisc show dev {nic}"),
    Fact("nccl_interfaces", "interfaces NCCL uses", _interfaces, next="ssh {node} ip -br address"),
    Fact("nccl_network", "network NCCL uses", _network, verdict="note", next="ssh {node} ip -br addr"),
    Fact("firewall", "firewall for input", known_text("firewall", "input"), next="ssh {node} sudo nft list ruleset"),
    Fact("gpudirect", "GPUDirect RDMA by", _gpudirect, verdict="bad", next="ssh {node} sudo modprobe nvidia-peermem",
        main=True),
    Fact("ofed", "OFED", host_text("versions", "ofed"), next="ssh {node} ofed_info -s"),
    Fact("rdma_core", "rdma-core", host_text("versions", "rdma_core"), verdict="note"),
)
# fmt: on
