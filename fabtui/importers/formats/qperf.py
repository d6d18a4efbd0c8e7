"""Output of qperf: bandwidth, latency and message rate over TCP, UDP, SDP, RDS and RDMA.

Grammar (linux-rdma/qperf, src/qperf.c, ``show_rest`` and ``view_*``): the name of a test and a colon, then indented
lines ``name = value unit``. Prefixes of units are powers of 1000. A test that runs over a range of a parameter
(``-oo msg_size:1:64K:*2``) prints all its lines again for each value.
"""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import number, plain_lines

_NAMES = r"(?:tcp|udp|sctp|sdp|rds|rc|uc|ud|xrc|ver)_[a-z0-9_]{2,40}"
_TEST = re.compile(rf"\s{{0,8}}({_NAMES}|conf|quit):\s*", re.I)
_VALUE = re.compile(
    r"\s{1,20}([a-z][a-z0-9_]{0,40})\s{1,40}=\s{1,20}(\S{1,40})(?: {1,4}\(?([^()]{1,40}?)\)?)?\s*", re.I
)
_TEXT = re.compile(r"\s{1,20}([a-z][a-z0-9_]{0,40})\s{1,40}=\s{1,20}(.{1,200}?)\s*", re.I)
_PROBLEM = re.compile(
    r"(?:qperf: |failed to |unable to |server: |.{0,60}: (?:timed out|refused|unreachable)).{1,200}", re.I
)
_PREFIX = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_RATE = re.compile(r"([KMGT]?)(b|B|bytes|bits)/s(?:ec)?")
_TIMES = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "sec": 1e6, "s": 1e6}
#: Maximum number of tests of a text.
_MOST = 10_000


def _bandwidth(value: float | None, unit: str) -> float | None:
    """Return a rate in GB/s; ``b`` is a bit, ``B`` a byte."""
    found = _RATE.fullmatch(unit)
    if value is None or found is None:
        return None
    return round(value * _PREFIX[found[1]] / 1e9 / (8 if found[2] in ("b", "bits") else 1), 9)


def _latency(value: float | None, unit: str) -> float | None:
    return None if value is None or unit.lower() not in _TIMES else round(value * _TIMES[unit.lower()], 6)


class _Parser:
    def __init__(self) -> None:
        self.notes = Notes()
        self.tests: list[dict[str, Any]] = []

    def line(self, line: str) -> None:
        if title := _TEST.fullmatch(line[:200]):
            if title[1].lower() != "quit" and len(self.tests) < _MOST:
                self._begin(title[1].lower())
        elif self.tests and self.tests[-1]["test"] != "conf" and (found := _VALUE.fullmatch(line[:300])):
            self._value(found[1].lower(), found[2], found[3] or "")
        elif self.tests and (found := _TEXT.fullmatch(line[:300])):
            self._test(found[1].lower())["values"].append({"name": found[1].lower(), "value": None, "text": found[2]})
        elif problem := _PROBLEM.match(line.strip()):
            self.notes.warn(problem[0])
        elif line.startswith((" ", "\t")) and self.tests:
            self.notes.puzzled(line)

    def _begin(self, test: str) -> None:
        self.tests.append({"test": test, "bandwidth": None, "latency": None, "values": []})

    def _test(self, name: str) -> dict[str, Any]:
        """Return the test that a value is of: the same test again if it has that value."""
        if any(value["name"] == name for value in self.tests[-1]["values"]) and len(self.tests) < _MOST:
            self._begin(self.tests[-1]["test"])
        return self.tests[-1]

    def _value(self, name: str, text: str, unit: str) -> None:
        test = self._test(name)
        value = number(text.replace(",", ""))
        printed = (
            {"value": None, "text": f"{text} {unit}".strip()}
            if value is None
            else {"value": value, "unit": unit or None}
        )
        test["values"].append({"name": name, **printed})
        if name in ("bw", "recv_bw"):
            # What arrived; udp_bw and others print what was sent as well.
            test["bandwidth"] = _bandwidth(value, unit)
        elif name == "latency":
            test["latency"] = _latency(value, unit)


def parse(text: str) -> Reading:
    """Return ``tests``: ``bandwidth`` and ``latency`` of each, and all its values as printed, with their units."""
    parser = _Parser()
    for line in plain_lines(text):
        parser.line(line)
    for test in parser.tests:
        if not test["values"]:
            parser.notes.warn(f"{test['test']} has no result")
    if not parser.tests:
        parser.notes.warn("no test")
    return parser.notes.reading({"tests": parser.tests})


_LIKELY = first_of(
    (0.97, rf"(?i)^[ \t]{{0,8}}{_NAMES}:[ \t]*\n[ \t]{{1,20}}[a-z][a-z0-9_]{{0,40}} {{1,40}}= "),
    (0.9, r"(?i)^[ \t]{1,20}(?:send_bw|recv_bw|msg_rate|loc_cpus_used|send_cost) {1,40}= {1,20}[\d.]{1,20} "),
    (0.5, rf"(?i)^[ \t]{{0,8}}{_NAMES}:[ \t]*$"),
)
_TITLE_TEXT = "qperf: bandwidth and latency over TCP, UDP and RDMA"
FORMATS = [Format("qperf", _TITLE_TEXT, _LIKELY, parse, units={"bandwidth": "GB/s", "latency": "us"})]
