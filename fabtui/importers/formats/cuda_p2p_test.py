"""p2pBandwidthLatencyTest and simpleP2P of the CUDA samples: access between GPUs, bandwidth, latency, right data."""

from __future__ import annotations

import re
from typing import Any

from fabtui.importers.matrix import cells_of, column_numbers, matrix
from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import number, plain_lines

_DEVICE = re.compile(
    r"^Device: (\d{1,5}), (.{1,100}), pciBusID: ([0-9a-fA-F]{1,4}), pciDeviceID: ([0-9a-fA-F]{1,4}),"
    r" pciDomainID: ?([0-9a-fA-F]{1,8})"
)
_ACCESS = re.compile(r"^Device=(\d{1,5}) (CAN|CANNOT) Access Peer Device=(\d{1,5})")
_BANDWIDTH = re.compile(
    r"^\s*(Unidirectional|Bidirectional) P2P=(Enabled|Disabled) Bandwidth(?: \(P2P (Writes|Reads)\))? Matrix \(GB/s\)"
)
_LATENCY = re.compile(r"^\s*P2P=(Enabled|Disabled) Latency(?: \(P2P (Writes|Reads)\))? Matrix \(us\)")
_CONNECTIVITY = re.compile(r"^\s*P2P Connectivity Matrix")
_CORNERS = ("D\\D", "GPU", "CPU")


class _Parser:
    def __init__(self) -> None:
        self.notes = Notes()
        self.devices: list[dict[str, Any]] = []
        self.access: list[dict[str, Any]] = []
        self.matrices: list[dict[str, Any]] = []
        self.about: dict[str, Any] | None = None
        self.matrix: dict[str, Any] | None = None

    def line(self, line: str) -> None:
        words = line.split()
        if device := _DEVICE.match(line):
            bus = f"{int(device[5], 16):04x}:{int(device[3], 16):02x}:{int(device[4], 16):02x}"
            self.devices.append({"device": int(device[1]), "name": device[2], "bus": bus})
        elif access := _ACCESS.match(line):
            self.access.append({"from": int(access[1]), "to": int(access[3]), "can": access[2] == "CAN"})
        elif found := _BANDWIDTH.match(line):
            self._announce("bandwidth", "GB/s", line, *found.group(2, 3, 1))
        elif found := _LATENCY.match(line):
            self._announce("latency", "us", line, *found.groups())
        elif _CONNECTIVITY.match(line):
            self._announce("access", "", line)
        elif words and words[0] in _CORNERS and self.about is not None:
            self._heading(words)
        elif self.matrix is not None and words:
            self._row(words, line)

    def _announce(
        self, what: str, unit: str, line: str, p2p: str = "", way: str | None = None, direction: str = ""
    ) -> None:
        self.matrix = None
        about = {"what": what, "p2p": p2p.lower() or None, "way": way and way.lower()}
        self.about = {**about, "direction": direction.lower() or None, **matrix(line.strip(), unit, [], [], [])}

    def _heading(self, words: list[str]) -> None:
        numbers = column_numbers(words[1:])
        if numbers is None or self.about is None:
            return
        # Latency is printed twice: measured on the GPU and on the CPU.
        by = {"GPU": "gpu", "CPU": "cpu"}.get(words[0])
        title = self.about["title"] + (f", {words[0]}" if by else "")
        columns = [str(number) for number in numbers]
        self.matrix = {**self.about, "by": by, "title": title, "rows": [], "columns": columns, "cells": []}
        self.matrices.append(self.matrix)

    def _row(self, words: list[str], line: str) -> None:
        assert self.matrix is not None
        row = cells_of(words, len(self.matrix["columns"])) if words[0].isdecimal() else None
        if row is None:
            if words[0].isdecimal():
                self.notes.warn(f"a row of {self.matrix['title']!r} is cut off")
                self.notes.puzzled(line)
            self.matrix = None
            return
        self.matrix["rows"].append(row[0])
        self.matrix["cells"].append(row[1])


def _slower_enabled(matrices: list[dict[str, Any]]) -> int:
    """Return how many pairs are slower one way with P2P than without: peer access that does harm."""
    found = {m["p2p"]: m for m in reversed(matrices) if m["direction"] == "unidirectional" and m["way"] != "reads"}
    on, off = found.get("enabled"), found.get("disabled")
    if on is None or off is None or (on["rows"], on["columns"]) != (off["rows"], off["columns"]):
        return 0
    pairs = [
        (a, b)
        for row, (ons, offs) in enumerate(zip(on["cells"], off["cells"], strict=True))
        for column, (a, b) in enumerate(zip(ons, offs, strict=True))
        if on["rows"][row] != on["columns"][column] and a is not None and b is not None
    ]
    return sum(a < 0.8 * b for a, b in pairs)


def parse(text: str) -> Reading:
    """Return ``devices``, ``access``, ``gpus`` (how many) and ``matrices`` in the order of the text.

    A matrix has ``what`` (access, bandwidth, latency), ``p2p`` (enabled, disabled), ``way`` (writes, reads),
    ``direction`` and ``by`` (gpu, cpu) besides what every matrix has. Rows send, but for reads, where columns do.
    """
    parser = _Parser()
    for line in plain_lines(text):
        parser.line(line)
    matrices = [m for m in parser.matrices if m["rows"]]
    for m in parser.matrices:
        if len(m["rows"]) < len(m["columns"]):
            parser.notes.warn(f"{m['title']}: {len(m['rows'])} of {len(m['columns'])} rows; the text is cut off")
    if slower := _slower_enabled(matrices):
        parser.notes.warn(f"{slower} pairs are slower with P2P than without")
    if not any(m["what"] != "access" for m in matrices):
        parser.notes.warn("no matrix of bandwidths or latencies")
    gpus = max([len(parser.devices), *(len(m["columns"]) for m in matrices)], default=0) or None
    # The access matrix holds the same in fewer lines.
    access = [] if any(m["what"] == "access" for m in matrices) else parser.access
    values = {"gpus": gpus, "devices": parser.devices, "access": access, "matrices": matrices}
    return parser.notes.reading(values)


_PEER = re.compile(r"> Peer access from (.{1,100}?) \(GPU(\d{1,5})\) -> (.{1,100}?) \(GPU(\d{1,5})\)\s*: (Yes|No)")
_COPY = re.compile(r"cudaMemcpyPeer / cudaMemcpy between GPU(\d{1,5}) and GPU(\d{1,5}): ([\d.]{1,12}) ?GB/s")
_WRONG = re.compile(r"Verification error @ element \d{1,12}: val = \S{1,30}, ref = \S{1,30}")
_TOO_FEW = re.compile(r"Peer to Peer access is not available.{0,100}|Two or more GPUs with .{0,100}required.{0,60}")


def parse_simple(text: str) -> Reading:
    """Return ``access`` between GPUs, the ``bandwidth`` of a copy between two, and whether the data was right.

    ``passed`` is None where the test did not get so far; ``wrong`` counts the elements that it lists.
    """
    notes = Notes()
    access: list[dict[str, Any]] = []
    values: dict[str, Any] = dict.fromkeys(("from", "to", "bandwidth", "passed"))
    wrong = 0
    for line in plain_lines(text):
        if peer := _PEER.search(line):
            access.append({"from": int(peer[2]), "to": int(peer[4]), "can": peer[5] == "Yes"})
        elif copy := _COPY.search(line):
            values.update({"from": int(copy[1]), "to": int(copy[2]), "bandwidth": number(copy[3])})
        elif _WRONG.search(line):
            wrong += 1
            notes.warn(line.strip() if wrong == 1 else "more elements are wrong")
        elif few := _TOO_FEW.search(line):
            notes.warn(few[0])
        elif result := re.search(r"\bTest (passed|failed)", line):
            values["passed"] = result[1] == "passed"
    if values["passed"] is False:
        notes.warn("data that one GPU read from the other is wrong: PCI ACS, an IOMMU or a virtual machine in between")
    elif values["passed"] is None and not notes.warnings:
        notes.warn("neither 'Test passed' nor 'Test failed!': the text may be cut off")
    return notes.reading({**values, "wrong": wrong, "access": access[:4096]})


_LIKELY = first_of(
    (0.98, r"P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test|P2P Connectivity Matrix"),
    (0.97, "P2P=(?:Enabled|Disabled) (?:Bandwidth|Latency)"),
)
FORMATS = [
    Format(
        "p2pBandwidthLatencyTest",
        "p2pBandwidthLatencyTest of the CUDA samples: matrices of access, bandwidth and latency",
        _LIKELY,
        parse,
        aliases="p2p-bandwidth",
        convert=benchmarks.cuda_p2p,
        errors=True,
        incomparable=True,
    ),
    Format(
        "simpleP2P",
        "simpleP2P of the CUDA samples: whether data read from another GPU is correct",
        first_of(
            (0.96, r"simpleP2P\] - Starting|cudaMemcpyPeer / cudaMemcpy between GPU"),
            (0.9, r"^> Peer access from .{1,100} -> .{1,100}: (?:Yes|No)|^Verification error @ element \d"),
            (0.8, "Run kernel on GPU\\d{1,5}, taking source data from GPU"),
        ),
        parse_simple,
        units={"bandwidth": "GB/s"},
        aliases="simple-p2p",
        errors=True,
    ),
]
