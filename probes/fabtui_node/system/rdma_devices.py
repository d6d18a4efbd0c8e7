"""InfiniBand and RoCE devices as sysfs shows them, in the words that ibstat uses."""

from __future__ import annotations

import itertools
import os
import re
from typing import Any, Dict, Iterator, List, Optional, Tuple

from fabtui_node.system import pci, sysfs

# ibstat's words for the numbers in sysfs.
STATES = {1: "Down", 2: "Initializing", 3: "Armed", 4: "Active", 5: "Active Deferred"}
_PHYSICAL = ("Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "PhyTest")
PHYSICAL_STATES = dict(enumerate(_PHYSICAL, 1))

# A RoCE port may have 256 GIDs; the ones that matter come first.
_GIDS_READ = 16
_GIDS_KEPT = 8
_PORTS_READ = 8

_ZERO_GID = re.compile(r"[0:]*(fe80)?[0:]*", re.ASCII)


def parse_state(text: Optional[str], words: Dict[int, str] = STATES) -> str:
    """Return ibstat's word (of ``STATES``) for a sysfs ``state`` such as ``4: ACTIVE``; unknown text as it is."""
    if not text:
        return "unknown"
    number = sysfs.to_integer(text.partition(":")[0])
    return words.get(number, text) if number is not None else text


def parse_rate(text: Optional[str]) -> Optional[float]:
    """Return the Gb/s of a sysfs ``rate`` such as ``200 Gb/sec (4X HDR)`` or ``2.5 Gb/sec``, or None."""
    match = re.match(r"\s*([0-9]{1,7}(?:\.[0-9]{1,6})?)\s*Gb/sec", text or "", re.ASCII)
    return float(match.group(1)) if match else None


def port_guid(gid: Optional[str]) -> Optional[str]:
    """Return the port GUID that the first GID of a port carries in its lower half."""
    groups = (gid or "").split(":")
    if len(groups) != 8 or not all(re.fullmatch("[0-9a-fA-F]{4}", group) for group in groups):
        return None
    return "0x" + "".join(groups[4:]).lower()


def devices(root: str = "/sys") -> List[Dict[str, Any]]:
    """Return the devices and their ports.

    Each device: ``ca``, ``type``, ``firmware``, ``hardware``, ``node_guid``, ``system_guid``, ``bus`` (PCI address),
    ``path`` (real path of its PCI device), ``numa``, ``ports``. Each port: ``port``, ``state``, ``physical_state``,
    ``rate`` (Gb/s), ``lid``, ``sm_lid``, ``link_layer``, ``guid``, ``capability_mask``, ``netdev``, ``gids``,
    ``place`` (of its connector on the adapter, such as ``p0``; None of a virtual function).
    """
    folder = os.path.join(root, "class/infiniband")
    return [_device(folder, name) for name in sysfs.names(folder)]


def places(root: str = "/sys") -> List[Dict[str, Optional[str]]]:
    """Return ``[{"ca", "bus"}]``: the devices and their PCI addresses alone, which is quick."""
    folder = os.path.join(root, "class/infiniband")
    return [{"ca": ca, "bus": pci.address(sysfs.real(folder, ca, "device"))} for ca in sysfs.names(folder)]


def roce_interfaces(root: str = "/sys") -> List[str]:
    """Return the interfaces of RoCE ports; on InfiniBand one small file of each port is read."""
    folder = os.path.join(root, "class/infiniband")
    interfaces = []
    for ca in sysfs.names(folder):
        here = os.path.join(folder, ca)
        for name in sysfs.names(here, "ports")[:_PORTS_READ]:
            port = os.path.join(here, "ports", name)
            if name.isdecimal() and sysfs.text(port, "link_layer") == "Ethernet":
                interfaces.append(_netdev(here, port, int(name)))
    return [name for name in dict.fromkeys(interfaces) if name]


def _device(folder: str, ca: str) -> Dict[str, Any]:
    here = os.path.join(folder, ca)
    path, driver = sysfs.real(here, "device"), sysfs.real(here, "device/driver") or ""
    return {
        "ca": ca,
        "type": sysfs.text(here, "hca_type") or ("EFA" if driver.endswith("/efa") else None),
        "firmware": sysfs.text(here, "fw_ver"),
        "hardware": sysfs.text(here, "hw_rev"),
        "node_guid": _guid(sysfs.text(here, "node_guid")),
        "system_guid": _guid(sysfs.text(here, "sys_image_guid")),
        "bus": pci.address(path),
        "path": path,
        "numa": sysfs.numa_node(here, "device"),
        "ports": [_port(here, name) for name in sysfs.names(here, "ports") if name.isdecimal() and len(name) < 5],
    }


def _place(device: str, netdev: Optional[str]) -> Optional[str]:
    """Return which connector of an adapter a port is: by its interface, else by its PCI function."""
    if sysfs.real(device, "device/physfn") is not None:
        return None
    named = sysfs.text(device, "device/net", netdev, "phys_port_name") if netdev else None
    bus = pci.address(sysfs.real(device, "device"))
    return named or ("f" + bus.rpartition(".")[2] if bus else None)


def _guid(text: Optional[str]) -> Optional[str]:
    if not text:
        return None
    digits = text.replace(":", "")
    return "0x" + digits.lower() if re.fullmatch("[0-9a-fA-F]{16}", digits) else text


def _port(device: str, name: str) -> Dict[str, Any]:
    here = os.path.join(device, "ports", name)
    netdev = _netdev(device, here, int(name))
    return {
        "port": int(name),
        "state": parse_state(sysfs.text(here, "state")),
        "physical_state": parse_state(sysfs.text(here, "phys_state"), PHYSICAL_STATES),
        "rate": parse_rate(sysfs.text(here, "rate")),
        "lid": sysfs.integer(here, "lid"),
        "sm_lid": sysfs.integer(here, "sm_lid"),
        "link_layer": sysfs.text(here, "link_layer") or "unknown",
        "guid": port_guid(sysfs.text(here, "gids/0")),
        "capability_mask": sysfs.text(here, "cap_mask"),
        "netdev": netdev,
        "place": _place(device, netdev),
        "gids": [
            {"index": index, "gid": gid, "type": kind}
            for index, gid, kind in itertools.islice(gids(here, _GIDS_READ), _GIDS_KEPT)
        ],
    }


def gids(port: str, most: int) -> Iterator[Tuple[int, str, Optional[str]]]:
    """Yield index, GID and type of the first entries in the table of a port (its folder); empty ones are left out."""
    for name in sysfs.names(port, "gids")[:most]:
        gid = sysfs.text(port, "gids", name)
        if gid and not _ZERO_GID.fullmatch(gid) and name.isdecimal():
            yield int(name), gid, sysfs.text(port, "gid_attrs/types", name)


def _netdev(device: str, port: str, number: int) -> Optional[str]:
    """Return the network interface of a port.

    A RoCE port names it beside its GIDs, which is right for bonds too. An InfiniBand port shares its PCI device with
    its IPoIB interfaces; ``dev_port`` counts from 0 and distinguishes the ports of one device.
    """
    for name in sysfs.names(port, "gid_attrs/ndevs")[:_GIDS_READ]:
        interface = sysfs.text(port, "gid_attrs/ndevs", name)
        if interface:
            return interface
    candidates = sysfs.names(device, "device/net")
    for interface in candidates:
        if sysfs.integer(device, "device/net", interface, "dev_port") == number - 1:
            return interface
    return candidates[0] if len(candidates) == 1 and number == 1 else None
