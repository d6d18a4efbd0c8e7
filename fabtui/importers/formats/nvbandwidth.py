"""nvbandwidth, as text and as JSON (``-j``), of one node and of several."""

from __future__ import annotations

import re
from typing import Any

from fabtui.importers.matrix import cells_of, column_numbers, matrix
from fabtui.importers.to_model import benchmarks
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_list, json_number, json_object, json_value, number, plain_lines

_RUNNING = re.compile(r"(?:[>\s]*)(?:Running|Waiving) ([a-z][a-z0-9_]{2,80})\.?\s*$")
_WAIVED = re.compile(r"^\s*(?:>\s*)?(?:Waiving (?P<name>[a-z][a-z0-9_]{2,80})|Waived: ?(?P<why>.{0,200}))")
_TITLE = re.compile(
    r"^\s*((?:memcpy|memory|Device to Device|Host to Device|multinode)\b.{0,120}\((GB/s|ns|us)\)"
    r"(?:, message size .{1,30})?)\s*$"
)
_SUM = re.compile(r"^\s*(?:SUM|&&&& PERF) (\S{1,100}) ([\d.]{1,30})")
_STATISTIC = re.compile(r"^\s*(?:MIN|MAX|AVG) \S{1,100} [\d.naife+-]{1,30}$")
_DEVICE = re.compile(r"^\s*(?:Process\s+\d{1,6} \((\S{1,253})\): device|Device)\s+(\d{1,5}): (.{1,200})$")
_BUS = re.compile(r"^(.*?) \(([0-9a-fA-F]{2,8}(?::[0-9a-fA-F]{2}){1,2})\)$")
_FACT = re.compile(
    r"^\s*(nvbandwidth Version|Built from Git version|MPI version|CUDA Runtime Version|CUDA Driver Version"
    r"|Driver Version):\s*(.{1,120}?)\s*$"
)
_FACTS = {
    "nvbandwidth Version": "version", "Built from Git version": "git_version", "MPI version": "mpi",
    "CUDA Runtime Version": "cuda_runtime", "CUDA Driver Version": "cuda_driver", "Driver Version": "driver",
}  # fmt: skip
_ERROR = re.compile(
    r"ASSERT|[Ii]nvalid value when checking the pattern|\bERROR\b|CUDA_ERROR\w*|\[\w+\] in expression|NVML_ERROR\w*"
)
_NOTHING = re.compile(
    r"^\s*(?:NOTE:|Additional system-specific|Performance can vary|-)|^\.\.\.$|^\[?\S*[$#]\s|^Verbose|^ ?Current offset"
)


_HOST = re.compile(r"[A-Za-z0-9][\w.-]{0,252}", re.ASCII)


def _new_test(name: str | None) -> dict[str, Any]:
    return {"name": name, "status": "unknown", "matrices": [], "sum": None, "error": None}


class _Parser:
    def __init__(self) -> None:
        self.notes = Notes()
        self.facts: dict[str, Any] = dict.fromkeys(_FACTS.values())
        self.devices: list[dict[str, Any]] = []
        self.tests: list[dict[str, Any]] = []
        self.matrix: dict[str, Any] | None = None
        self.numbers: list[int] | None = None

    def test(self) -> dict[str, Any]:
        """Return the test that runs; a nameless one where none was named."""
        if not self.tests:
            self.tests.append(_new_test(None))
        return self.tests[-1]

    def line(self, line: str) -> None:
        words = line.split()
        if self.matrix is not None and words and self._cells(words):
            return
        if not words:
            return
        self._close()
        if waived := _WAIVED.match(line):
            if waived["name"] and (not self.tests or self.tests[-1]["name"] != waived["name"]):
                self.tests.append(_new_test(waived["name"]))
            self.test()["status"] = "waived"
        elif running := _RUNNING.match(line):
            self.tests.append(_new_test(running[1]))
        elif title := _TITLE.match(line):
            if self.test()["matrices"] and " <-> " not in line:
                self.tests.append(_new_test(None))
            self.matrix = matrix(title[1], title[2], [], [], [])
        elif total := _SUM.match(line):
            self._sum(total[1], number(total[2]))
        elif device := _DEVICE.match(line):
            self._device(device)
        elif fact := _FACT.match(line):
            self.facts[_FACTS[fact[1]]] = fact[2]
        elif _ERROR.search(line):
            self._error(line.strip())
        elif not (_NOTHING.match(line) or _STATISTIC.match(line) or words == [self.facts.get("host")]):
            # The name of the host is alone on a line, just before the devices.
            if not self.devices and not self.tests and self.facts["driver"] and _HOST.fullmatch(line.strip()):
                self.facts["host"] = line.strip()
            else:
                self.notes.puzzled(line)

    def _cells(self, words: list[str]) -> bool:
        """Take a heading or a row of the announced matrix; return True if the line was one."""
        assert self.matrix is not None
        if not self.matrix["columns"]:
            # A heading that lost its indent looks like a row; it is the first line in any case.
            numbers = column_numbers(words)
            self.matrix["columns"] = [str(number) for number in numbers or []]
            return numbers is not None
        row = cells_of(words, len(self.matrix["columns"]))
        if row is None:
            if words[0].isdecimal() and len(words) > 1:
                self.notes.warn(f"a row of {self.matrix['title']!r} is cut off")
            return False
        self.matrix["rows"].append(row[0])
        self.matrix["cells"].append(row[1])
        return True

    def _close(self) -> None:
        if self.matrix is None:
            return
        found, self.matrix = self.matrix, None
        if not found["cells"]:
            self.notes.warn(f"no rows of {found['title']!r}")
            return
        if "GPU(row)" in found["title"] and len(found["rows"]) < len(found["columns"]):
            self.notes.warn(f"{found['title']}: {len(found['rows'])} of {len(found['columns'])} rows")
        _blank_diagonal(found)
        self.test()["matrices"].append(found)
        if self.test()["status"] == "unknown":
            self.test()["status"] = "passed"

    def _sum(self, name: str, value: float | None) -> None:
        test = self.test()
        test["name"] = test["name"] or name
        if test["name"] == name:
            test["sum"] = value

    def _device(self, found: re.Match[str]) -> None:
        bus = _BUS.match(found[3].strip())
        name, at = (bus[1], bus[2]) if bus else (found[3].strip(), None)
        host = found[1] or self.facts.get("host")
        self.devices.append({"host": host, "device": int(found[2]), "name": name, "bus": at})

    def _error(self, text: str) -> None:
        self.notes.warn(text)
        if self.tests:
            test = self.tests[-1]
            test["status"] = "failed"
            test["error"] = f"{test['error']}; {text[:200]}" if test["error"] else text[:200]


def _blank_diagonal(found: dict[str, Any]) -> None:
    """Make the zeros on the diagonal of a square None: older versions print them for what they do not measure."""
    for at, row in enumerate(found["cells"] if found["rows"] == found["columns"] else []):
        row[at] = row[at] or None


def _from_json(value: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Return the same values from what ``nvbandwidth -j`` prints."""
    names = ("version", "git_version", "CUDA Runtime Version", "Driver Version", "Hostname")
    ours = ("version", "git_version", "cuda_runtime", "driver", "host")
    facts = {our: _text(value.get(name)) for name, our in zip(names, ours, strict=True)}
    for name in ("error", "warning"):
        if text := _text(value.get(name)):
            notes.warn(text)
    devices = []
    for entry in json_list(value.get("GPU Device list")) or json_list(value.get("GPU Device info")):
        if found := re.match(r"(\d{1,5}): (.{1,200}?)(?: \(([0-9a-fA-F:]+)\))?(?:: \((\S{1,253})\))?$", str(entry)):
            devices.append({"host": found[4], "device": int(found[1]), "name": found[2], "bus": found[3]})
    tests = [_case(case, notes) for case in json_list(value.get("testcases")) if isinstance(case, dict)]
    return {**facts, "devices": devices, "tests": tests}


def _case(case: dict[str, Any], notes: Notes) -> dict[str, Any]:
    test = _new_test(_text(case.get("name")))
    status = (_text(case.get("status")) or "unknown").lower()
    test.update(status=status, error=_text(case.get("error")), sum=json_number(case.get("sum")))
    cells = [
        [None if str(cell) == "N/A" else number(str(cell)) for cell in json_list(row)]
        for row in json_list(case.get("bandwidth_matrix"))
    ]
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


def parse(text: str) -> Reading:
    """Return the tests: ``tests`` of ``name``, ``status``, ``matrices``, ``sum``, ``error``; ``devices``; versions.

    ``status`` is passed, waived, failed or unknown. In a matrix ``->`` in the title means that rows send.
    """
    notes = Notes()
    value = json_object(json_value(text[text.find("{") :]), "nvbandwidth") if '"nvbandwidth"' in text else None
    if value:
        return notes.reading(_from_json(value, notes))
    parser = _Parser()
    for line in plain_lines(text):
        parser.line(line)
    parser._close()
    if not parser.tests:
        parser.notes.warn("no test")
    return parser.notes.reading({**parser.facts, "devices": parser.devices, "tests": parser.tests})


_LIKELY = first_of(
    (0.98, 'nvbandwidth Version|"nvbandwidth"'),
    (0.97, r"^[ \t]*memcpy (?:CE|SM|local) ?.{0,60}bandwidth \(GB/s\)"),
    (0.9, r"(?:Running|Waiving) (?:host|device|all|multinode)_\w*memcpy\w*"),
)
_TITLE_OF_FORMAT = "nvbandwidth: matrices of copies between GPUs, and between GPUs and hosts"
FORMATS = [
    Format(
        "nvbandwidth", _TITLE_OF_FORMAT, _LIKELY, parse, convert=benchmarks.nvbandwidth, incomparable=True, errors=True
    )
]
