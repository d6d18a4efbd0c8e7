"""The network interfaces of a node, their addresses, and which addresses a data path may use."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import struct
from typing import Any, Dict, List, Optional, Tuple

from fabtui_node.system import netlink, pci, rdma_devices, sysfs

#: The kernel's types of interfaces; an Ethernet interface without hardware is virtual.
_KINDS = {772: "loopback", 32: "infiniband", 1: "ethernet"}
_INET_FLAGS = ((0x01, "secondary"),)
_INET6_FLAGS = ((0x01, "temporary"), (0x20, "deprecated"), (0x40, "tentative"), (0x08, "dadfailed"))
_IFF_UP = 1
#: Numbers of attributes of links and addresses (``linux/if_link.h``, ``linux/if_addr.h``).
_NAME, _QDISC, _LINK_INFO, _INFO_KIND = 3, 6, 18, 1
_ADDRESS, _LOCAL, _FLAGS = 1, 2, 8
_MAX_NICS = 512
_MAX_ADDRESSES = 32

# Made by container engines, hypervisors and VPNs; their addresses lead nowhere that a job's data goes.
_NOT_DATA = re.compile(
    r"(docker|podman|nerdctl|virbr|vnet|vmnet|vboxnet|lxcbr|lxdbr|incusbr|cni|flannel|cali|cilium|lxc|weave|kube-"
    r"|nodelocaldns|tailscale|wg|zt|tun|tap|ifb|sit|gre|teql|ip6tnl|nvidia-|usb)[0-9a-zA-Z_.-]*"
    r"|br-[0-9a-f]{12}|veth[0-9a-f]+",
    re.ASCII,
)
_NOT_DATA_KINDS = ("tun", "vxlan", "geneve", "wireguard", "ifb", "ipip", "sit", "gre", "gretap", "ip6tnl", "vcan")

Nic = Dict[str, Any]
Addresses = List[Dict[str, Any]]


def by_kernel() -> Dict[str, Dict[str, Any]]:
    """Return ``{name: {"addresses", "link_kind", "qdisc"}}`` of all interfaces; none if the kernel refuses."""
    interfaces: Dict[int, Dict[str, Any]] = {}
    with contextlib.suppress(OSError, KeyError):
        for head, attributes in netlink.dump(netlink.LINKS):
            kind = netlink.attributes(attributes.get(_LINK_INFO, b"")).get(_INFO_KIND)
            interfaces[struct.unpack_from("=i", head, 4)[0]] = {
                "name": _word(attributes[_NAME]),
                "addresses": [],
                "link_kind": _word(kind),
                "qdisc": _word(attributes.get(_QDISC)),
            }
        for head, attributes in netlink.dump(netlink.ADDRESSES):
            address = attributes.get(_LOCAL, attributes.get(_ADDRESS, b""))
            (flags,) = struct.unpack("=I", attributes.get(_FLAGS, struct.pack("=I", head[2])))
            version = 4 if len(address) == 4 else 6
            # An interface may have come since.
            mine = interfaces.get(struct.unpack_from("=I", head, 4)[0], {"addresses": []})
            mine["addresses"].append(
                {
                    "address": netlink.address(address),
                    "prefix": head[1],
                    "family": version,
                    "flags": [name for bit, name in (_INET6_FLAGS if version == 6 else _INET_FLAGS) if flags & bit],
                }
            )
    return {interface.pop("name"): interface for interface in interfaces.values()}


def _word(data: Optional[bytes]) -> Optional[str]:
    return data.rstrip(b"\0").decode("utf-8", "replace") if data is not None else None


def read_all(root: str = "/sys") -> Tuple[List[Nic], List[Dict[str, Any]]]:
    devices = rdma_devices.devices(root)
    return read(devices, root), devices


def read(rdma: List[Dict[str, Any]], root: str = "/sys") -> List[Nic]:
    """Return the interfaces in natural order of names, given the RDMA devices.

    ``[{"name", "mac", "state", "enabled" (switched on; None: unknown), "speed_mbps", "mtu", "kind", "link_kind",
    "index", "qdisc" (root queueing discipline; None: unknown), "addresses", "rdma", "bus", "path", "numa", "master",
    "ports", "login" (whether SSH came in by it)}]``.
    """
    listed = by_kernel()
    cas = {port["netdev"]: device["ca"] for device in rdma for port in device["ports"] if port["netdev"]}
    folder = os.path.join(root, "class/net")
    interfaces = []
    for name in sysfs.names(folder)[:_MAX_NICS]:
        # Files such as bonding_masters live there too.
        if not os.path.isdir(os.path.join(folder, name)):
            continue
        known = listed.get(name, {"addresses": [], "link_kind": None})
        interfaces.append(_nic(os.path.join(folder, name), name, known, cas))
    connection = os.environ.get("SSH_CONNECTION", "").split()
    address, _, zone = connection[2].partition("%") if len(connection) == 4 else ("", "", "")
    for nic in interfaces:
        holds = any(entry["address"] == address for entry in nic["addresses"])
        nic["login"] = holds and zone in ("", nic["name"])
    return interfaces


def _nic(here: str, name: str, known: Dict[str, Any], cas: Dict[str, str]) -> Nic:
    path = sysfs.real(here, "device")
    kind = _KINDS.get(sysfs.integer(here, "type") or 0, "virtual")
    speed = sysfs.integer(here, "speed")
    shared = sysfs.names(here, "device/infiniband")
    master = sysfs.real(here, "master")
    flags = sysfs.integer(here, "flags")
    return {
        "name": name,
        "mac": sysfs.text(here, "address") or None,
        "state": _state(here),
        "enabled": None if flags is None else bool(flags & _IFF_UP),
        "speed_mbps": speed if speed is not None and 0 < speed < 0x7FFFFFFF else None,
        "mtu": sysfs.integer(here, "mtu"),
        "kind": "virtual" if kind == "ethernet" and path is None else kind,
        "link_kind": known["link_kind"] or _link_kind(here),
        "index": sysfs.integer(here, "ifindex"),
        "qdisc": known.get("qdisc"),
        "addresses": known["addresses"][:_MAX_ADDRESSES],
        "rdma": cas.get(name) or (shared[0] if shared else None),
        "bus": pci.address(path),
        "path": path,
        "numa": sysfs.numa_node(here, "device"),
        "master": os.path.basename(master) if master else None,
        "ports": sysfs.names(here, "brif"),
    }


def _state(here: str) -> str:
    """Return the state of an interface, which the kernel sets up to a second after the carrier."""
    state = sysfs.text(here, "operstate") or "unknown"
    return "up" if state == "down" and sysfs.integer(here, "carrier") == 1 else state


def _link_kind(here: str) -> Optional[str]:
    for entry, kind in (("bridge", "bridge"), ("bonding", "bond"), ("tun_flags", "tun")):
        if os.path.exists(os.path.join(here, entry)):
            return kind
    match = re.search(r"^DEVTYPE=(.*)", sysfs.text(here, "uevent") or "", re.MULTILINE)
    return match.group(1) if match else None


def carries_data(nic: Nic, nics: List[Nic]) -> bool:
    """Return True if an interface is of a kind that a job's data may use, up or down.

    Not: loopback; what container engines, hypervisors and VPNs make, by name or kind; a port of a bridge or a bond
    (its master has the address); a bridge without a hardware port below it; the interface that SSH came in by, unless
    it has RDMA or is the only one.
    """
    return _may_carry(nic, nics) and not is_management(nic, nics)


def is_management(nic: Nic, nics: List[Nic]) -> bool:
    """Return True for an interface that SSH came in by, if others may carry a job's data.

    ``NCCL_SOCKET_IFNAME`` may name it all the same.
    """
    if not nic.get("login") or nic["rdma"] or _is_named(nic["name"], os.environ.get("NCCL_SOCKET_IFNAME", "")):
        return False
    return any(
        not other.get("login")
        and _may_carry(other, nics)
        and any(_routable(one["address"]) for one in other["addresses"])
        for other in nics
    )


def _is_named(name: str, setting: str) -> bool:
    return not setting.startswith("^") and any(
        name == word or (not setting.startswith("=") and name.startswith(word))
        for word in setting.lstrip("=").split(",")
        if word
    )


def _may_carry(nic: Nic, nics: List[Nic]) -> bool:
    if nic["kind"] == "loopback" or nic["master"] is not None:
        return False
    if _NOT_DATA.fullmatch(nic["name"]) or nic["link_kind"] in _NOT_DATA_KINDS:
        return False
    if nic["link_kind"] == "bridge":
        below = [other for other in nics if other["name"] in nic["ports"]]
        return any(
            other["kind"] in ("ethernet", "infiniband") or other["link_kind"] in ("bond", "vlan") for other in below
        )
    return True


def rails(nics: List[Nic], rdma: List[Dict[str, Any]]) -> Dict[str, int]:
    """Return the rail of each interface that has one.

    Where the node has RDMA devices, the rail is the place of the interface's RDMA port among all of them, and other
    interfaces have none. Elsewhere it is the place among the interfaces that may carry data, by name. Ports that are
    down keep their place, so that a fault does not renumber the others.
    """
    if rdma:
        ports = [(device["ca"], port["netdev"]) for device in rdma for port in device["ports"]]
        named = {netdev: index for index, (_, netdev) in enumerate(ports) if netdev}
        by_ca: Dict[str, int] = {}
        for index, (ca, _) in enumerate(ports):
            by_ca.setdefault(ca, index)
        places = {nic["name"]: named.get(nic["name"], by_ca.get(nic["rdma"])) for nic in nics}
        return {name: place for name, place in places.items() if place is not None}
    return {nic["name"]: index for index, nic in enumerate(nic for nic in nics if carries_data(nic, nics))}


def data_addresses(nics: List[Nic], rdma: List[Dict[str, Any]], only: Optional[str] = None) -> List[Dict[str, Any]]:
    """Return the addresses a data path may use, as ``[{"address", "nic", "rail", "family"}]``, by rail and name.

    The rule: interfaces of ``carries_data`` that are up (or whose state is unknown); of their addresses not
    loopback, link-local, multicast or unspecified ones; not secondary, temporary, deprecated or tentative ones; IPv6
    only on an interface that has no such IPv4 address. ``only`` is the one address to use, regardless of the
    interfaces; ignored if it is not an address.
    """
    if only:
        with contextlib.suppress(ValueError):
            family = ipaddress.ip_address(only).version
            return [{"address": only, "nic": _holder(nics, only), "rail": 0, "family": family}]
    return _usable(nics, rdma, ("up", "unknown"))


def down_addresses(nics: List[Nic], rdma: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return, as `data_addresses` does, the addresses that a data path could use if their interfaces were up."""
    states = {nic["state"] for nic in nics} - {"up", "unknown"}
    return _usable(nics, rdma, tuple(states))


def _usable(nics: List[Nic], rdma: List[Dict[str, Any]], states: Tuple[str, ...]) -> List[Dict[str, Any]]:
    places = rails(nics, rdma)
    entries: List[Tuple[int, List[Any], Dict[str, Any]]] = []
    for nic in nics:
        if nic["state"] not in states or not carries_data(nic, nics):
            continue
        usable = [address for address in nic["addresses"] if not address["flags"] and _routable(address["address"])]
        family = 4 if any(address["family"] == 4 for address in usable) else 6
        rail = places.get(nic["name"])
        order = rail if rail is not None else 1 << 30
        for address in usable:
            if address["family"] == family:
                entry = {"address": address["address"], "nic": nic["name"], "rail": rail, "family": family}
                entries.append((order, list(sysfs.natural(nic["name"])), entry))
    return [entry for _, _, entry in sorted(entries, key=lambda item: item[:2])]


def _routable(address: str) -> bool:
    ip = ipaddress.ip_address(address)
    return not (ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified)


def _holder(nics: List[Nic], address: str) -> str:
    wanted = ipaddress.ip_address(address)
    best = ("", -1)
    for nic in nics:
        for known in nic["addresses"]:
            if known["address"] == address:
                return str(nic["name"])
            net = ipaddress.ip_network("%s/%d" % (known["address"], known["prefix"]), strict=False)
            if nic["kind"] == "loopback" and wanted.version == net.version and wanted in net:
                best = max(best, (str(nic["name"]), net.prefixlen), key=lambda item: item[1])
    return best[0]
