"""NCCL's topology of a node as XML: ``NCCL_TOPO_DUMP_FILE``, ``NCCL_TOPO_FILE`` and ``nccl-topo.xml`` of clouds."""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import number, whole

_TAG = re.compile(r"<(?P<end>/?)(?P<name>system|cpu|pci|gpu|nic|net|nvlink)\b(?P<rest>[^<>]{0,2000})>")
_ATTRIBUTE = re.compile(r'([a-z_]{1,30})="([^"\n]{0,200})"')
_MOST = 1024
_DEEPEST = 32
#: Share of the raw rate of PCIe (GT/s x lanes) that carries data, from generation 3 on.
_CODED = 128 / 130
#: A NIC this much faster than its PCIe link is held up by it; 400 Gb/s and PCIe 5.0 x16 belong together.
PCIE_MARGIN = 1.3


class _Parser:
    """Elements as they come: those that contain the current one are on a stack."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.gpus: list[dict[str, Any]] = []
        self.nics: list[dict[str, Any]] = []
        self.cpus: list[dict[str, Any]] = []
        self._open: list[tuple[str, dict[str, str]]] = []

    def tag(self, name: str, rest: str, end: bool) -> None:
        if end:
            while self._open and self._open.pop()[0] != name:
                self.notes.warn(f"<{name}> ends where another element is open: lines are missing")
            return
        found = dict(_ATTRIBUTE.findall(rest))
        if name == "cpu" and len(self.cpus) < _MOST:
            self.cpus.append({"numa": whole(found.get("numaid", "")), "arch": found.get("arch")})
        elif name == "gpu" and len(self.gpus) < _MOST:
            known = {key: whole(found.get(key, "")) for key in ("dev", "rank", "sm")}
            self.gpus.append({**known, "gdr": _flag(found.get("gdr")), **self._place(), "nvlinks": 0})
        elif name == "nvlink" and self.gpus:
            self.gpus[-1]["nvlinks"] += whole(found.get("count", "")) or 0
        elif name == "net" and len(self.nics) < _MOST:
            self._nic(found)
        if not rest.rstrip().endswith("/") and len(self._open) < _DEEPEST:
            self._open.append((name, found))

    def _nic(self, found: dict[str, str]) -> None:
        speed = whole(found.get("speed", ""))
        entry: dict[str, Any] = {
            "name": found.get("name"),
            "dev": whole(found.get("dev", "")),
            "port": whole(found.get("port", "")),
        }
        entry.update(speed=None if speed is None else speed / 1000, guid=found.get("guid"), gdr=_flag(found.get("gdr")))
        entry.update(self._place())
        self.nics.append(entry)
        if entry["speed"] and entry["pcie"] and entry["pcie"] < 0.95 * entry["speed"]:
            self.notes.warn(
                f"{entry['name']}: {entry['speed']:g} Gb/s behind PCIe {entry['link_speed']:g} GT/s "
                f"x{entry['link_width']}: at most {entry['pcie']:.0f} Gb/s"
            )

    def _place(self) -> dict[str, Any]:
        """Return where the element is: its PCI address, and the narrowest link on the way to the CPU."""
        # Without the beginning of the text not all links are known.
        above = [found for name, found in self._open if name == "pci"]
        whole_way = any(name == "cpu" for name, _ in self._open)
        links = [_link(found) for found in above if whole_way]
        rates = [rate for _, _, rate in links if rate is not None]
        narrowest = min((link for link in links if link[2] is not None), key=lambda link: link[2] or 0.0, default=None)
        speed, width, _ = narrowest or (None, None, None)
        cpu = next((found for name, found in reversed(self._open) if name == "cpu"), {})
        return {
            "bus": above[-1].get("busid") if above else None,
            "numa": whole(cpu.get("numaid", "")),
            "link_speed": speed,
            "link_width": width,
            "pcie": round(min(rates), 1) if rates else None,
        }


def _flag(text: str | None) -> bool | None:
    return {"1": True, "0": False}.get(text or "")


def _link(found: dict[str, str]) -> tuple[float | None, int | None, float | None]:
    """Return GT/s, lanes and Gb/s of the link of a PCI device; NCCL writes an empty speed where it knows none."""
    speed = number(found.get("link_speed", "").partition(" ")[0])
    width = whole(found.get("link_width", ""))
    rate = speed * width * _CODED if speed and width and width > 0 else None
    return speed, width, rate


def parse(text: str) -> Reading:
    """Return ``gpus`` and ``nics`` with their place, ``cpus``, and ``complete``: whether the file ends as it should.

    ``speed`` and ``pcie`` are in Gb/s: of the port, and of the narrowest PCIe link between the device and its CPU;
    ``gdr`` is whether GPUDirect RDMA is possible, None if unknown.
    """
    parser = _Parser()
    for found in _TAG.finditer(text):
        parser.tag(found["name"], found["rest"], bool(found["end"]))
    complete = "</system>" in text
    if not complete:
        parser.notes.warn("no </system>: the text is cut off")
    if names := [str(nic["name"]) for nic in parser.nics if nic["gdr"] is False]:
        parser.notes.warn(f"no GPUDirect RDMA (gdr=0): {', '.join(names[:20])}")
    values = {"gpus": parser.gpus, "nics": parser.nics, "cpus": parser.cpus, "complete": complete}
    return parser.notes.reading(values)


def _facts(values: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return NICs behind slower PCIe as the kernel reports them; a little slower is how such NICs are built."""
    limited = [
        {
            **{"kind": "pcie_limited", "bus": nic["bus"], "count": 1},
            "text": f"{nic['name']} of {nic['speed']:g} Gb/s is limited to {nic['pcie']:.0f} Gb/s by its PCIe link",
        }
        for nic in values["nics"]
        if nic["speed"] and nic["pcie"] and nic["speed"] > PCIE_MARGIN * nic["pcie"]
    ]
    return {"": {"kernel": {"counts": limited}}} if limited else {}


FORMATS = [
    Format(
        "nccl-topology",
        "NCCL's topology of a node as XML (NCCL_TOPO_DUMP_FILE): GPUs, NICs, PCIe links",
        first_of(
            (0.96, r'<(?:gpu dev|net name)="[^<>]{0,300}(?:gdr|sm|rank|speed|maxconn)="'),
            (0.9, r'<(?:pci busid|cpu (?:host_hash|numaid)|nvlink target)="'),
            (0.8, r'<system version="\d{1,3}">'),
        ),
        parse,
        units={"speed": "Gb/s", "pcie": "Gb/s", "link_speed": "GT/s", "link_width": "lanes"},
        aliases="nccl-topo|topo-xml",
        facts=_facts,
    )
]
