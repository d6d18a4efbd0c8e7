"""``lspci -vv``: PCIe links of GPUs and NICs, and bridges whose Access Control Services (ACS) redirect traffic."""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import number, plain_lines, whole
from fabtui_node.system.pci import REDIRECTING

Device = dict[str, Any]
_MOST = 4096
_DEVICE = re.compile(
    r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2}\.[0-7]) "
    r"([A-Z3][\w /()-]{2,60}?)(?: \[[0-9a-f]{4}\])?: (.{1,200})",
    re.ASCII,
)
_LINK = re.compile(r"Lnk(Cap|Sta):\s.{0,60}?Speed ([\d.]{1,6}) ?GT/s.{0,20}?, Width x(\d{1,2})", re.ASCII)
_ACS = re.compile(r"ACSCtl:\s+(SrcValid[+-](?: \w{3,16}[+-]){3,8})", re.ASCII)
_BUSES = re.compile(r"Bus: primary=([0-9a-f]{2}), secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})", re.ASCII)
_GPU = re.compile(r"(?:3D|VGA compatible|Display) controller|Processing accelerators")
_MAKER = re.compile(r"NVIDIA|Advanced Micro Devices|AMD|Habana|Intel.{0,40}Data Center GPU")
_NIC = re.compile(r"(?:Infiniband|Ethernet|Network|Fabric) controller")


def _new(found: re.Match[str] | None) -> Device:
    names = ("bus", "class", "name", "speed", "width", "speed_max", "width_max", "acs", "below")
    device: Device = dict.fromkeys(names)
    if found:
        bus = f"{found[1] or '0000'}:{found[2]}:{found[3]}"
        device.update({"bus": bus, "class": found[4], "name": found[5].strip()})
    return device


def parse(text: str) -> Reading:
    """Return ``devices``: ``bus``, ``class``, ``name``, and what of their details the text has.

    ``speed`` and ``width`` of the PCIe link, ``speed_max`` and ``width_max``; ``acs``: the flags of ACS that are on;
    ``below``: the first and the last PCI bus below a bridge. A line about ACS alone is a device without a ``bus``.
    """
    notes = Notes()
    devices: list[Device] = []
    for line in plain_lines(text):
        if head := _DEVICE.match(line.strip()):
            devices.append(_new(head))
        elif (link := _LINK.search(line)) and devices:
            end = "_max" if link[1] == "Cap" else ""
            devices[-1].update({f"speed{end}": number(link[2]), f"width{end}": whole(link[3])})
        elif buses := _BUSES.search(line):
            if devices:
                devices[-1]["below"] = [int(buses[2], 16), int(buses[3], 16)]
        elif acs := _ACS.search(line):
            if not devices or devices[-1]["acs"] is not None:
                devices.append(_new(None))
            devices[-1]["acs"] = [flag[:-1] for flag in acs[1].split() if flag.endswith("+")]
        if len(devices) >= _MOST:
            notes.warn(f"{_MOST} devices were read, there are more")
            break
    return notes.reading({"devices": devices})


def _end(device: Device) -> str:
    """Return whether a device is a ``gpu`` or a ``nic``, or ""."""
    if device["bus"] and _GPU.match(device["class"]) and _MAKER.search(device["name"]):
        return "gpu"
    return "nic" if device["bus"] and _NIC.match(device["class"]) else ""


def _above(bridge: Device, ends: list[Device]) -> bool:
    """Return whether a bridge is above a GPU or NIC; True as well where that is not known."""
    if not ends or bridge["below"] is None:
        return True
    first, last = bridge["below"]
    domain = bridge["bus"].partition(":")[0]
    return any(
        end["bus"].startswith(f"{domain}:") and first <= int(end["bus"].split(":")[1], 16) <= last for end in ends
    )


def _facts(values: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the links as the probe ``kernel`` reports them, and ACS as the probe ``host`` does."""
    devices = values["devices"]
    ends = [device for device in devices if _end(device)]
    limited = []
    for one in ends:
        narrow = one["width"] and one["width_max"] and one["width"] < one["width_max"]
        # An idle GPU lowers its speed to save power.
        slow = _end(one) == "nic" and one["speed"] and one["speed_max"] and one["speed"] < one["speed_max"]
        if narrow or slow:
            now, best = (f"{one[f'speed{end}']:g} GT/s x{one[f'width{end}']}" for end in ("", "_max"))
            text = f"{one['name'][:80]}: {now}, could do {best}"
            limited.append({"kind": "pcie_limited", "bus": one["bus"], "count": 1, "text": text})
    facts: dict[str, dict[str, Any]] = {"kernel": {"counts": limited}} if limited else {}
    bridges = [one for one in devices if one["acs"] is not None and not _end(one)]
    if bridges:
        on = [one for one in bridges if set(one["acs"]) & set(REDIRECTING) and _above(one, ends)]
        named = [{"bus": one["bus"] or "a bridge", "flags": one["acs"]} for one in on]
        facts["host"] = {"acs": {"state": "on" if on else "off", "on": named}}
        if ends:
            kinds = [_end(one) for one in ends]
            facts["host"]["devices"] = {"gpus": kinds.count("gpu"), "rdma": kinds.count("nic")}
    return {"": facts} if facts else {}


FORMATS = [
    Format(
        "lspci",
        "lspci -vv: PCIe links, and access control of bridges",
        first_of(
            (0.95, r"\b(?:LnkSta|LnkCap|ACSCtl):\s"),
            (0.8, r"^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] [A-Z3][\w /-]{3,60}(?: \[[0-9a-f]{4}\])?: "),
        ),
        parse,
        units={"speed": "GT/s", "speed_max": "GT/s", "width": "lanes", "width_max": "lanes"},
        facts=_facts,
    )
]
