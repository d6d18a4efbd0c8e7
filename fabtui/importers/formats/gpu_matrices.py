"""Matrices of copies between GPUs: nvbandwidth, p2pBandwidthLatencyTest and simpleP2P of the CUDA samples."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from fabtui.importers.tables import MOST, Tables, Values, add_row, column_names, kinds, matrix
from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_list, json_number, json_object, json_value, number

# nvbandwidth, as text and as JSON (``-j``), of one node and of several.
_VERSIONS = ("version", "git_version", "mpi", "cuda_runtime", "cuda_driver", "driver")
_NVBANDWIDTH = kinds(
    r"""
    waived   (?:>\s*)?(?:Waiving <name:name>|Waived:)
    begin    [>\s]*Running <name:name>\.?$
    title    (?P<title>(?:memcpy|memory|Device to Device|Host to Device|multinode)\b.{0,120}\((?P<unit>GB/s|ns|us)\)
             (?:, message size .{1,30})?)$
    total    (?:SUM|&&&& PERF) (?P<name>\S{1,100}) <sum:num>
    device   (?:Process\s+\d{1,6} \(<host:word>\): device|Device)\s+<device:int>: (?P<name>.{1,200}?)
             (?: \((?P<bus>[0-9a-fA-F]{2,8}(?::[0-9a-fA-F]{2}){1,2})\))?$
    fact     nvbandwidth Version:\s*<version:fact>
    fact     Built from Git version:\s*<git_version:fact>
    fact     MPI version:\s*<mpi:fact>
    fact     CUDA Runtime Version:\s*<cuda_runtime:fact>
    fact     CUDA Driver Version:\s*<cuda_driver:fact>
    fact     Driver Version:\s*<driver:fact>
    error    .*?(?:ASSERT|[Ii]nvalid value when checking the pattern|\bERROR\b|CUDA_ERROR|\[\w{1,80}\] in expression
             |NVML_ERROR)
    skip     NOTE:|Additional system-specific|Performance can vary|-|\.\.\.$|\[?\S*[$#]\s|Verbose|Current offset
    skip     (?:MIN|MAX|AVG) \S{1,100} [\d.naife+-]{1,30}$
    host     (?P<host>[A-Za-z0-9][\w.-]{0,252})$
    puzzled  \S
    """,
    fact=".{1,120}",
    name="[a-z][a-z0-9_]{2,80}",
)
_OF_TEST: Values = {"name": None, "status": "unknown", "matrices": [], "sum": None, "error": None}
_COPY_LIKELY = first_of(
    (0.98, 'nvbandwidth Version|"nvbandwidth"'),
    (0.97, r"^[ \t]*memcpy (?:CE|SM|local) ?.{0,60}bandwidth \(GB/s\)"),
    (0.9, r"(?:Running|Waiving) (?:host|device|all|multinode)_\w*memcpy\w*"),
)
_CUDA_LIKELY = first_of(
    (0.98, r"P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test|P2P Connectivity Matrix"),
    (0.97, "P2P=(?:Enabled|Disabled) (?:Bandwidth|Latency)"),
)
_P2P_LIKELY = first_of(
    (0.96, r"simpleP2P\] - Starting|cudaMemcpyPeer / cudaMemcpy between GPU"),
    (0.9, r"^> Peer access from .{1,100} -> .{1,100}: (?:Yes|No)|^Verification error @ element \d"),
    (0.8, "Run kernel on GPU\\d{1,5}, taking source data from GPU"),
)
_benchmark = partial(Format, errors=True, incomparable=True)
_COPY_TITLE = "nvbandwidth: matrices of copies between GPUs, and between GPUs and hosts"


class _Nvbandwidth(Tables, lines=_NVBANDWIDTH, facts=_VERSIONS, fresh=_OF_TEST):
    """Reads ``tests`` of ``name``, ``status``, ``matrices``, ``sum``, ``error``; ``devices``; versions.

    ``status`` is passed, waived, failed or unknown. In a matrix ``->`` in the title means that rows send.
    """

    def __init__(self) -> None:
        super().__init__()
        self.devices: list[Values] = []
        self.matrix: Values | None = None

    def test(self) -> Values:
        """Return the test that runs; a nameless one where none was named."""
        if not self.tables:
            self.begin({}, "")
        return self.tables[-1]

    def take(self, line: str) -> bool:
        words = line.split()
        if not words or (self.matrix is not None and self._cells(self.matrix, words)):
            return True
        self.close()
        return super().take(line)

    def _cells(self, table: Values, words: list[str]) -> bool:
        if table["columns"]:
            return add_row(table, words, self.notes)
        # A heading that lost its indent looks like a row; it is the first line in any case.
        table["columns"] = column_names(words)
        return bool(table["columns"])

    def close(self) -> None:
        table, self.matrix = self.matrix, None
        if table is None:
            return
        if not table["cells"]:
            self.notes.warn(f"no rows of {table['title']!r}")
            return
        if "GPU(row)" in table["title"] and len(table["rows"]) < len(table["columns"]):
            self.notes.warn(f"{table['title']}: {len(table['rows'])} of {len(table['columns'])} rows")
        _blank_diagonal(table)
        test = self.test()
        test["matrices"].append(table)
        test["status"] = "passed" if test["status"] == "unknown" else test["status"]

    def waived(self, values: Values, line: str) -> None:
        if values["name"] and (not self.tables or self.tables[-1]["name"] != values["name"]):
            self.begin(values, line)
        self.test()["status"] = "waived"

    def title(self, values: Values, line: str) -> None:
        if self.test()["matrices"] and " <-> " not in line:
            self.begin({}, line)
        self.matrix = matrix(values["title"], values["unit"], [], [], [])

    def total(self, values: Values, line: str) -> None:
        test = self.test()
        if test["name"] in (None, values["name"]):
            test.update(values)

    def device(self, values: Values, line: str) -> None:
        self.devices.append({**values, "host": values["host"] or self.facts.get("host")})

    def error(self, values: Values, line: str) -> None:
        text = line.strip()
        self.notes.warn(text)
        if self.tables:
            earlier = self.tables[-1]["error"]
            self.tables[-1].update(status="failed", error=f"{earlier}; {text[:200]}" if earlier else text[:200])

    def host(self, values: Values, line: str) -> bool:
        """Take the name of the host, which is alone on a line, just before the devices."""
        if not self.devices and not self.tables and self.facts["driver"]:
            self.facts.update(values)
        return bool(self.facts.get("host") == values["host"])

    def reading(self) -> Reading:
        self.close()
        if not self.tables:
            self.notes.warn("no test")
        return self.notes.reading({**self.facts, "devices": self.devices, "tests": self.tables})


def _blank_diagonal(table: Values) -> None:
    """Make the zeros on the diagonal of a square None: older versions print them for what they do not measure."""
    for at, row in enumerate(table["cells"] if table["rows"] == table["columns"] else []):
        row[at] = row[at] or None


_ENTRY = re.compile(r"(\d{1,5}): (.{1,200}?)(?: \(([0-9a-fA-F:]+)\))?(?:: \((\S{1,253})\))?$")
#: Versions, and what else is of the whole run, in JSON.
_OF_RUN = {
    "version": "version", "git_version": "git_version", "CUDA Runtime Version": "cuda_runtime",
    "Driver Version": "driver", "Hostname": "host",
}  # fmt: skip


def _from_json(value: Values, notes: Notes) -> Values:
    for name in ("error", "warning"):
        if text := _text(value.get(name)):
            notes.warn(text)
    entries = json_list(value.get("GPU Device list")) or json_list(value.get("GPU Device info"))
    devices = [
        {"host": entry[4], "device": int(entry[1]), "name": entry[2], "bus": entry[3]}
        for entry in map(_ENTRY.match, map(str, entries))
        if entry
    ]
    tests = [_case(case, notes) for case in json_list(value.get("testcases")) if isinstance(case, dict)]
    facts = {ours: _text(value.get(name)) for name, ours in _OF_RUN.items()}
    return {**facts, "devices": devices, "tests": tests}


def _case(case: Values, notes: Notes) -> Values:
    status = (_text(case.get("status")) or "unknown").lower()
    test: Values = {"name": _text(case.get("name")), "status": status, "matrices": []}
    test.update(sum=json_number(case.get("sum")), error=_text(case.get("error")))
    lists = map(json_list, json_list(case.get("bandwidth_matrix")))
    cells = [[None if str(cell) == "N/A" else number(str(cell)) for cell in row] for row in lists]
    if cells and len({len(row) for row in cells}) == 1:
        title = _text(case.get("bandwidth_description")) or "bandwidth"
        rows, columns = [str(at) for at in range(len(cells))], [str(at) for at in range(len(cells[0]))]
        test["matrices"].append(matrix(title, "ns" if "(ns)" in title else "GB/s", rows, columns, cells))
        _blank_diagonal(test["matrices"][0])
    elif cells:
        notes.warn(f"the rows of {test['name']} differ in length")
    return test


def _text(value: Any) -> str | None:
    return str(value)[:300] if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None


def _parse_nvbandwidth(text: str) -> Reading:
    value = json_object(json_value(text[text.find("{") :]), "nvbandwidth") if '"nvbandwidth"' in text else None
    notes = Notes()
    return notes.reading(_from_json(value, notes)) if value else _Nvbandwidth.parse(text)


_CUDA = kinds(
    r"""
    device     Device: <device:int>, (?P<name>.{1,100}), pciBusID: <bus:hex>, pciDeviceID: <slot:hex>,
               \s*pciDomainID: ?<domain:hex>
    peer       Device=<from:int> <can:can> Access Peer Device=<to:int>
    announced  (?:(?P<direction>Unidirectional|Bidirectional) )?P2P=(?P<p2p>Enabled|Disabled) (?P<what>Bandwidth
               |Latency)(?: \(P2P (?P<way>Writes|Reads)\))? Matrix \((?P<unit>GB/s|us)\)
    announced  P2P Connectivity Matrix
    corner     (?P<by>D\\D|GPU|CPU)\s(?P<numbers>[\s\d]+)$
    cells      \S
    """,
    hex=("[0-9a-fA-F]{1,8}", lambda text: int(text, 16)),
    can=("CAN(?:NOT)?", "CAN".__eq__),
)


class _Cuda(Tables, lines=_CUDA):
    """Reads ``devices``, ``access``, ``gpus`` (how many) and ``matrices`` in the order of the text.

    A matrix has ``what`` (access, bandwidth, latency), ``p2p`` (enabled, disabled), ``way`` (writes, reads),
    ``direction`` and ``by`` (gpu, cpu) besides what every matrix has. Rows send, but for reads, where columns do.
    """

    def __init__(self) -> None:
        super().__init__()
        self.devices: list[Values] = []
        self.access: list[Values] = []
        self.about: Values | None = None
        self.matrix: Values | None = None

    def device(self, values: Values, line: str) -> None:
        domain, slot = values.pop("domain"), values.pop("slot")
        self.devices.append({**values, "bus": f"{domain:04x}:{values['bus']:02x}:{slot:02x}"})

    def peer(self, values: Values, line: str) -> None:
        self.access.append(values)

    def announced(self, values: Values, line: str) -> None:
        about = {name: (values.get(name) or "").lower() or None for name in ("what", "p2p", "way", "direction")}
        empty = matrix(line.strip(), values.get("unit", ""), [], [], [])
        self.about = {**about, "what": about["what"] or "access", **empty}
        self.matrix = None

    def corner(self, values: Values, line: str) -> bool:
        """Begin a matrix; latency is printed twice: measured on the GPU and on the CPU."""
        names = column_names(values["numbers"].split())
        if not names or self.about is None:
            return False
        by = {"GPU": "gpu", "CPU": "cpu"}.get(values["by"])
        title = self.about["title"] + (f", {values['by']}" if by else "")
        self.matrix = {**self.about, "by": by, "title": title, "rows": [], "columns": names, "cells": []}
        self.tables.append(self.matrix)
        return True

    def cells(self, values: Values, line: str) -> None:
        words = line.split()
        if self.matrix is not None and not (words[0].isdecimal() and add_row(self.matrix, words, self.notes)):
            if words[0].isdecimal():
                self.notes.puzzled(line)
            self.matrix = None

    def reading(self) -> Reading:
        matrices, notes = [m for m in self.tables if m["rows"]], self.notes
        for m in self.tables:
            if len(m["rows"]) < len(m["columns"]):
                notes.warn(f"{m['title']}: {len(m['rows'])} of {len(m['columns'])} rows; the text is cut off")
        if slower := _slower_enabled(matrices):
            notes.warn(f"{slower} pairs are slower with P2P than without")
        if not any(m["what"] != "access" for m in matrices):
            notes.warn("no matrix of bandwidths or latencies")
        gpus = max([len(self.devices), *(len(m["columns"]) for m in matrices)], default=0) or None
        # The access matrix holds the same in fewer lines.
        access = [] if any(m["what"] == "access" for m in matrices) else self.access
        return notes.reading({"gpus": gpus, "devices": self.devices, "access": access, "matrices": matrices})


def _slower_enabled(matrices: list[Values]) -> int:
    """Return how many pairs are slower one way with P2P than without: peer access that does harm."""
    by_p2p = {m["p2p"]: m for m in reversed(matrices) if m["direction"] == "unidirectional" and m["way"] != "reads"}
    on, off = by_p2p.get("enabled"), by_p2p.get("disabled")
    if on is None or off is None or (on["rows"], on["columns"]) != (off["rows"], off["columns"]):
        return 0
    return sum(
        a < 0.8 * b
        for row, ons, offs in zip(on["rows"], on["cells"], off["cells"], strict=True)
        for column, a, b in zip(on["columns"], ons, offs, strict=True)
        if row != column and a is not None and b is not None
    )


_SIMPLE = kinds(
    r"""
    peer   .*?> Peer access from .{1,100}? \(GPU<from:int>\) -> .{1,100}? \(GPU<to:int>\)\s*: <can:yes>
    fact   .*?cudaMemcpyPeer / cudaMemcpy between GPU<from:int> and GPU<to:int>: <bandwidth:num> ?GB/s
    wrong  .*?Verification error @ element \d{1,12}: val = \S{1,30}, ref = \S{1,30}
    warn   .*?(?P<text>Peer to Peer access is not available.{0,100}|Two or more GPUs with .{0,100}required.{0,60})
    fact   .*?\bTest <passed:passed>
    """,
    yes=("Yes|No", "Yes".__eq__),
    passed=("passed|failed", "passed".__eq__),
)


_OF_SIMPLE: Values = {**dict.fromkeys(("from", "to", "bandwidth", "passed")), "wrong": 0, "access": []}


class _Copy(Tables, lines=_SIMPLE, facts=_OF_SIMPLE):
    """Reads ``access`` between GPUs, the ``bandwidth`` of a copy between two, and whether the data was right.

    ``passed`` is None where the test did not get so far; ``wrong`` counts the elements that it lists.
    """

    def peer(self, values: Values, line: str) -> None:
        if len(self.facts["access"]) < MOST:
            self.facts["access"].append(values)

    def wrong(self, values: Values, line: str) -> None:
        self.facts["wrong"] += 1
        self.notes.warn(line if self.facts["wrong"] == 1 else "more elements are wrong")

    def reading(self) -> Reading:
        passed, notes = self.facts["passed"], self.notes
        if passed is False:
            why = "PCI ACS, an IOMMU or a virtual machine in between"
            notes.warn(f"data that one GPU read from the other is wrong: {why}")
        elif passed is None and not notes.warnings:
            notes.warn("neither 'Test passed' nor 'Test failed!': the text may be cut off")
        return notes.reading(self.facts)


FORMATS = [
    _benchmark("nvbandwidth", _COPY_TITLE, _COPY_LIKELY, _parse_nvbandwidth, convert=benchmarks.nvbandwidth),
    _benchmark(
        "p2pBandwidthLatencyTest",
        "p2pBandwidthLatencyTest of the CUDA samples: matrices of access, bandwidth and latency",
        _CUDA_LIKELY,
        _Cuda.parse,
        aliases="p2p-bandwidth",
        convert=benchmarks.cuda_p2p,
    ),
    Format(
        "simpleP2P",
        "simpleP2P of the CUDA samples: whether data read from another GPU is correct",
        _P2P_LIKELY,
        _Copy.parse,
        units={"bandwidth": "GB/s"},
        aliases="simple-p2p",
        errors=True,
    ),
]
