"""The network of a node as keys and values: links, features, addresses, routes, rules, neighbours, queues, ports."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import sys
from typing import Callable, Dict, Iterator, List, Tuple, Union

from fabtui_node.system import netlink, sysfs
from fabtui_node.system.ethtool import WORDS, Ethtool

Pairs = Iterator[Tuple[str, object]]
Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
#: Attributes of links by number (``linux/if_link.h``); others that the kernel has are shown by their number.
_LINK_WORDS = {4: "mtu", 6: "qdisc", 13: "txqlen", 16: "operstate", 17: "mode", 27: "group", 30: "promiscuity"}
_LINK_WORDS.update({31: "txqueues", 32: "rxqueues", 33: "carrier", 40: "gso_max_segs", 41: "gso_max_size"})
_LINK_WORDS.update({50: "min_mtu", 51: "max_mtu"})
#: Names, MAC addresses, peers, statistics, times and numbers of changes.
_NO_SETTINGS = (1, 2, 3, 5, 7, 14, 18, 23, 24, 26, 35, 37, 43, 46, 47, 48, 54, 62)
_LINK_FILES = (
    *("speed", "duplex", "device/numa_node", "device/current_link_speed", "device/current_link_width"),
    *("device/vendor", "device/device", "gro_flush_timeout", "napi_defer_hard_irqs", "threaded"),
)
_LAST_FIXED_PORT = 32767
_TENTATIVE, _PERMANENT = 0x40, 0x80
_CLONED = 0x200
_ROUTE_TYPES = {1: "unicast", 2: "local", 6: "blackhole", 7: "unreachable", 8: "prohibit", 9: "throw"}
_BY_KERNEL, _UNICAST = 2, 1


def _shown(data: bytes) -> str:
    if len(data) > 2 and data.endswith(b"\0") and data[:-1].isascii() and data[:-1].decode().isprintable():
        return data[:-1].decode()
    return str(int.from_bytes(data, sys.byteorder)) if len(data) in (1, 2, 4) else data.hex()


class NetworkState:
    """The network, read once: interfaces by index, by own address and by network, and MAC addresses by address."""

    def __init__(self) -> None:
        self.links: Dict[int, str] = {}
        self.own: Dict[str, str] = {}
        self.macs: Dict[str, str] = {}
        self.networks: Dict[Network, str] = {}
        self._hardware: Dict[str, str] = {}

    def parts(self) -> List[Tuple[str, Callable[[], Pairs]]]:
        """Return the parts by name, in the order they are read in; each may raise `OSError` or `ValueError`."""
        return [
            ("links", self._links),
            ("addresses", self._addresses),
            ("drivers", self._drivers),
            ("routes", self._routes),
            ("rules", self._rules),
            ("neighbours", self._neighbours),
            ("queues", self._queues),
            ("listeners", self._listeners),
        ]

    def _links(self) -> Pairs:
        for head, attributes in netlink.dump(netlink.LINKS):
            index, flags = struct.unpack_from("=iI", head, 4)
            name = self.links[index] = attributes[3][:-1].decode("utf-8", "replace")
            self._hardware[name] = netlink.mac(attributes.get(1, b""))
            yield "link.%s.flags" % name, hex(flags)
            for number, data in attributes.items():
                if number not in _NO_SETTINGS:
                    yield "link.%s.%s" % (name, _LINK_WORDS.get(number, "a%d" % number)), _shown(data)

    def _drivers(self) -> Pairs:
        for name in self.links.values():
            for entry in _LINK_FILES:
                yield "link.%s.%s" % (name, entry.replace("/", ".")), sysfs.text("/sys/class/net", name, entry)
            for queue in sysfs.names("/sys/class/net", name, "queues"):
                entry = queue[:1] + "ps_cpus"
                yield "link.%s.%s.%s" % (name, queue, entry), sysfs.text("/sys/class/net", name, "queues", queue, entry)
            with Ethtool(name) as driver:
                for what, text in driver.driver().items():
                    yield "link.%s.%s" % (name, what), text
                for what in WORDS:
                    yield "link.%s.%s" % (name, what), " ".join(map(str, driver.words(what) or ()))
                for feature, on in driver.features().items():
                    yield "feature.%s.%s" % (name, feature), "on" if on else "off"

    def _addresses(self) -> Pairs:
        count: Dict[str, int] = {}
        for head, attributes in netlink.dump(netlink.ADDRESSES):
            name = self.links.get(struct.unpack_from("=I", head, 4)[0], "?")
            where = netlink.address(attributes.get(2) or attributes.get(1, b""))
            flags = int(_shown(attributes.get(8, b"\0"))) & ~_TENTATIVE
            self.own[where] = name
            with contextlib.suppress(ValueError):
                # In interfaces with one network the first has its name: what is added does not rename what is there.
                self.networks.setdefault(ipaddress.ip_interface("%s/%d" % (where, head[1])).network, name)
            if self._hardware.get(name, "").strip("0:") and not where.startswith("fe80"):
                self.macs[where] = self._hardware[name]
            kind = "addr.%s.%s%s" % (
                name,
                "v4" if head[0] == socket.AF_INET else "v6",
                ".ll" * where.startswith("fe80"),
            )
            count[kind] = count.get(kind, -1) + 1
            yield "%s.%d" % (kind, count[kind]), "%s/%d flags %x scope %d" % (where, head[1], flags, head[3])

    def _routes(self) -> Pairs:
        routes: Dict[str, List[str]] = {}
        for head, attributes in netlink.dump(netlink.ROUTES):
            family, length, _, _, table, protocol, scope, kind, flags = struct.unpack("=8BI", head)
            table = struct.unpack("=I", attributes[15])[0] if 15 in attributes else table
            # Not: what follows from addresses, and clones.
            if protocol == _BY_KERNEL or (family == socket.AF_INET6 and kind != _UNICAST) or flags & _CLONED:
                continue
            words = ["%s proto %d scope %d" % (_ROUTE_TYPES.get(kind, kind), protocol, scope)]
            for number, data in sorted(attributes.items()):
                if number == 4:
                    words.append("dev " + self.links.get(int(_shown(data)), "?"))
                elif number in (5, 7):
                    words.append("%s %s" % ("via" if number == 5 else "src", self._relative(data)))
                elif number not in (1, 12, 15, 20):
                    words.append("a%d %s" % (number, _shown(data)))
            where = netlink.address(attributes[1]) if 1 in attributes else "default"
            metric = ".p" + _shown(attributes[6]) if 6 in attributes else ""
            routes.setdefault("route.%d %s/%d%s" % (table, where, length, metric), []).append(" ".join(words))
        for key, values in routes.items():
            yield key, " | ".join(sorted(values))

    def _relative(self, data: bytes) -> str:
        """Return an address by its place in a network of this node: racks may have networks of their own."""
        text = netlink.address(data)
        if text in self.own or len(data) not in (4, 16):
            return text
        address = ipaddress.ip_address(data)
        near = (net for net in self.networks if address.version == net.version and address in net)
        net = max(near, key=lambda net: net.prefixlen, default=None)
        return text if net is None else "<net:%s>+%d" % (self.networks[net], int(address) - int(net.network_address))

    def _rules(self) -> Pairs:
        for head, attributes in netlink.dump(netlink.RULES):
            words = ["%s table %d" % ("lookup" if head[7] == _UNICAST else head[7], head[4])]
            for number, data in sorted(attributes.items()):
                if number not in (6, 15):
                    words.append("a%d %s" % (number, netlink.address(data) if number in (1, 2) else _shown(data)))
            yield "rule.%d.%s" % (head[0], _shown(attributes.get(6, bytes(4)))), " ".join(words)

    def _neighbours(self) -> Pairs:
        for head, attributes in netlink.dump(netlink.NEIGHBOURS):
            state = struct.unpack_from("=H", head, 8)[0]
            mac = attributes.get(2, b"")
            # What is learned changes; not groups.
            if state & _PERMANENT and 1 in attributes and mac.strip(b"\0") and not mac[0] & 1:
                yield "lladdr " + netlink.address(attributes[1]), netlink.mac(mac)

    def _queues(self) -> Pairs:
        for head, attributes in netlink.dump(netlink.QUEUES):
            index, _, parent = struct.unpack_from("=iII", head, 4)
            kind = attributes[1][:-1].decode("utf-8", "replace")
            yield "qdisc.%s.%x" % (self.links.get(index, "?"), parent), kind + " " + attributes.get(2, b"").hex()[:64]

    def _listeners(self) -> Pairs:
        for kind in ("tcp", "tcp6", "udp", "udp6"):
            for line in (sysfs.text("/proc/net", kind, limit=1 << 18) or "").splitlines()[1:]:
                with contextlib.suppress(ValueError, IndexError):
                    cells = line.split()
                    where, _, port = cells[1].partition(":")
                    if cells[3] in ("0A", "07") and int(port, 16) <= _LAST_FIXED_PORT:
                        at = "any" if not where.strip("0") else "loopback" if where.endswith("7F") else "an address"
                        yield "listen.%s.%d" % (kind, int(port, 16)), at
