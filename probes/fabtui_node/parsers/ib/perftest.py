"""perftest: ``ib_write_bw``, ``ib_send_bw``, ``ib_read_lat`` and the others, as text and as JSON.

MB/sec of old versions and MiB/sec of new ones both are 2^20 bytes per second; Gb/sec is 1e9 bits. A peak of 0.00 was
not measured.
"""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers.base import Format, Likely, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_number, json_object, json_value, number, plain_lines, whole

_TITLE = re.compile(
    r"^\s{8,}((?:Send|RDMA_Write|RDMA_Read|RDMA_Write_imm|Send_imm|Atomic|raw_ethernet)\b.{0,60}?) ?Test\s*$"
)
_SETTING = re.compile(r"([A-Za-z_#*][\w #*./-]{1,30}?)\s*:\s+(\S.*?)(?=\s{2,}|\t|$)")
_ADDRESS = re.compile(r"^\s*(local|remote) address: (?:LID (\S+) )?QPN (\S+) PSN (\S+)")
_GID = re.compile(r"^\s*GID: ([0-9a-fA-F:]{20,60})")
#: The heading, which may have lost its ``#``.
_HEADING = re.compile(r"^\s*#?bytes\s+(?:#?sl\s+)?#?iterations\s|^\s*#bytes\s")
_ROW_HEADS = re.compile(
    r"#?\bbytes|#?\bsl\b|#?\biterations|[\w.%][\w.% ]{0,40}\[[^\]]{1,30}\]|CPU_Util\[%+\]|tps average"
    r"|[A-Za-z]{1,20} average"
)
_CONNECT = re.compile(r"Couldn't connect to (\S+?):(\d{1,5})")
_QP = re.compile(r"Failed to modify (?:QP|UD QP)(?: (\d{1,10}))? to (\w+)")
_ERRORS = (
    ("no_device", "Unable to find the Infiniband/RoCE device|Did not detect devices|IB device \\S+ not found"),
    ("no_route", "Unable to Connect the HCA's through the link|Unable to perform rdma_client function"),
    ("completion_error", r"Completion with error|Failed status \d+|scnt=\d+, ccnt=\d+|Failed to complete run_iter"),
    ("wrong_version", "[Vv]ersions? .{0,40}(?:not compatible|mismatch)|Perftest versions? differ"),
    ("memory", "Couldn't allocate MR|Failed to (?:create|register) MR|Couldn't create (?:CQ|QP)"),
    (
        "socket",
        "Unable to (?:init the socket connection|open file descriptor|write to socket|read from socket|set up socket)"
        "|ethernet_(?:read|write)_keys|Failed to exchange data|pp_(?:read|write)_data"
        "|Couldn't (?:listen|accept|get context)",
    ),
)
_WARNING = re.compile(r"WARNING:? .{1,200}|Conflicting CPU frequency .{1,200}|Requested mtu is higher .{0,100}")
_COLUMNS = {
    "#bytes": "bytes", "#sl": "sl", "#iterations": "iterations", "BW peak": "peak", "BW average": "average",
    "MsgRate": "message_rate", "BW Port1": "average_port1", "BW Port2": "average_port2",
    "MsgRate Port1": "message_rate_port1", "MsgRate Port2": "message_rate_port2", "CPU_Util": "cpu",
    "99% percentile": "p99", "99.9% percentile": "p99_9", "tps average": "transactions",
}  # fmt: skip
#: Names in the JSON output.
_JSON_NAMES = {
    "MsgSize": "bytes", "n_iterations": "iterations", "BW_peak": "peak", "BW_average": "average",
    "MsgRate": "message_rate", "t_min": "t_min", "t_max": "t_max", "t_typical": "t_typical", "t_avg": "t_avg",
    "t_stdev": "t_stdev", "tps_average": "transactions", "bw_avg": "average", "percentile_99": "p99",
    "percentile_99.9": "p99_9", "msgRate_avg": "message_rate",
}  # fmt: skip
_BW_UNITS = {"Gb/sec": "Gb/s", "MB/sec": "MiB/s", "MiB/sec": "MiB/s"}
#: What a printed bandwidth is in GB/s (1e9 bytes a second).
_IN_GB = {"MiB/s": 2**20 / 1e9, "Gb/s": 0.125}

#: What the tools print when they fail or before they measure, by their sources; no other program prints two of these.
_FAILURES = re.compile(
    "|".join(pattern for kind, pattern in _ERRORS if kind != "wrong_version")
    + r"|\* Waiting for client to connect\.\.\. \*|creating CUDA Ctx|Couldn't connect to \S{1,253}:\d{1,5}"
    r"|Couldn't (?:create|initialize) \w|Couldn't (?:set the link layer|read remote)|Unable to create QP"
    r"|Failed to (?:create|register) (?:QP|CQ|PD|AH)\b|Failed to modify (?:UD )?QP|Port number \d{1,3} state is \w"
    r"|Failed to connect RDMA CM|Failed to close connection between server and client",
    re.IGNORECASE,
)
#: Settings below the title.
_SETTINGS = re.compile(
    r"Dual-port +:|Number of qps +:|Transport type +:|Connection type +:|Using SRQ +:|CQ Moderation +:"
    r"|Max inline data +:|rdma_cm QPs\t? *:|Data ex\. method +:|TX depth +:|RX depth +:|Link type +:"
)
#: Lines that the tools alone print.
_OWN = re.compile(
    r"Completion with error at (?:client|server)|Failed status \d{1,3}: wr_id|ethernet_(?:read|write)_keys"
    r"|run_iter_\w{1,20} function",
    re.IGNORECASE,
)

_LIKELY = first_of(
    (0.97, r"#bytes\s+(?:#sl\s+)?#iterations"),
    (0.95, r"^\s{0,4}bytes\s+(?:sl\s+)?iterations\s+(?:BW peak|t_min|t_avg)"),
    (0.97, r"^ {15,}(?:Send|RDMA_\w+|Atomic) .{0,40}Test\s*$"),
    (0.9, r'\A(?=(?s:.*)"test_info")(?=(?s:.*)"results")'),
)

_UNITS = {
    **{"bytes": "B", "bandwidth": "GB/s", "message_rate": "Mpps", "cpu": "%"},
    **dict.fromkeys(("t_min", "t_max", "t_typical", "t_avg", "t_stdev", "p99", "p99_9"), "us"),
}


class _Parser:
    def __init__(self) -> None:
        self.notes = Notes()
        names = (
            *("test", "measures", "unit", "device", "settings", "local"),
            *("remote", "rows", "error", "message", "target"),
        )
        self.values: dict[str, Any] = {**dict.fromkeys(names), "settings": {}, "rows": []}
        self.columns: list[str] = []
        self._side: str | None = None

    def line(self, line: str) -> None:
        if _HEADING.match(line):
            self._heading(line)
        elif title := _TITLE.match(line):
            self._title(title[1])
        elif address := _ADDRESS.match(line):
            self._address(address)
        elif gid := _GID.match(line):
            self._gid(gid[1])
        elif self._error(line):
            return
        elif warning := _WARNING.search(line):
            self.notes.warn(warning[0])
        elif self.columns and line.split() and (line.split()[0].isdecimal() or line.split()[0].startswith("-nan")):
            self._row(line)
        elif ":" in line and not self.columns:
            for name, value in _SETTING.findall(line):
                self._setting(name.strip(" #"), value.strip())
        elif line.strip() == "...":
            self.notes.warn("rows are left out (a line of dots)")

    def _title(self, text: str) -> None:
        self.values["test"] = text.strip()
        self.values["measures"] = "latency" if "Latency" in text else "bandwidth" if "BW" in text else None

    def _setting(self, name: str, value: str) -> None:
        if name == "Device":
            self.values["device"] = value[:60]
        elif len(self.values["settings"]) < 40:
            key = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
            self.values["settings"].setdefault(key, (value[:-3] if value.endswith(("[B]", "[b]")) else value)[:60])

    def _address(self, found: re.Match[str]) -> None:
        self._side = found[1]
        if self.values[found[1]] is None:
            self.values[found[1]] = {"lid": found[2], "qpn": found[3], "psn": found[4], "gid": None}

    def _gid(self, text: str) -> None:
        if self._side is None or self.values[self._side] is None:
            return
        self.values[self._side]["gid"] = text
        if not text.replace("0", "").replace(":", ""):
            self.notes.warn(f"the {self._side} GID is all zero: no address to be reached at (another GID index?)")

    def _error(self, line: str) -> bool:
        kind = None
        if connect := _CONNECT.search(line):
            kind, self.values["target"] = "couldnt_connect", f"{connect[1]}:{connect[2]}"
        elif qp := _QP.search(line):
            kind = "failed_modify_qp"
            self.values["qp"], self.values["qp_state"] = (None if qp[1] is None else int(qp[1])), qp[2]
        else:
            kind = next((name for name, pattern in _ERRORS if re.search(pattern, line)), None)
        if kind is None:
            return False
        self.notes.warn(line.strip())
        # The first error is the cause, later ones are its consequences.
        if self.values["error"] is None:
            self.values["error"], self.values["message"] = kind, line.strip()[:300]
        return True

    def _heading(self, line: str) -> None:
        columns = []
        units = set()
        for head in _ROW_HEADS.findall(line):
            name, _, unit = head.strip().partition("[")
            name = f"#{name}" if name in ("bytes", "sl", "iterations") else name
            columns.append(_COLUMNS.get(name.strip(), re.sub(r"\W+", "_", name.strip().lower()).strip("_")))
            if name.strip().startswith("BW"):
                units.add(unit.rstrip("]"))
        self.columns = columns
        unit = units.pop() if len(units) == 1 else None
        self.values["unit"] = _BW_UNITS.get(unit or "", unit)
        if self.values["unit"]:
            self.values["units"] = dict.fromkeys(("peak", "average"), self.values["unit"])
        if unit == "MB/sec":
            self.notes.warn("MB/sec of this version are 2^20 bytes per second")
        if self.values["measures"] is None:
            self.values["measures"] = "bandwidth" if units or unit else "latency" if "t_avg" in columns else None

    def _row(self, line: str) -> None:
        words = line.split()
        values = [number(word) for word in words]
        if len(words) != len(self.columns) or values[0] is None:
            self.notes.warn(f"a row is cut off: {line.strip()[:80]}")
            self.notes.puzzled(line)
            return
        row: dict[str, Any] = {}
        for at, name in enumerate(self.columns):
            row[name] = whole(words[at]) if name in ("bytes", "iterations", "sl") else values[at]
        _convert(row, self.values["unit"])
        # Server and client in one terminal print the same row twice.
        if row not in self.values["rows"]:
            self.values["rows"].append(row)


def _convert(row: dict[str, Any], unit: str | None) -> None:
    """Add the bandwidth in GB/s; a peak of 0.00 was not measured."""
    if row.get("peak") == 0:
        row["peak"] = None
    factor = _IN_GB.get(unit or "")
    average = row.get("average")
    if factor is not None and average is not None:
        row["bandwidth"] = round(average * factor, 6)


def _from_json(value: dict[str, Any]) -> dict[str, Any]:
    """Return the same values from ``--out_json``."""
    info = value["test_info"]
    test = str(info.get("test", ""))[:80].replace("_", " ")
    # No release up to now names it; whether --report_gbits was given is then unknown.
    unit = _BW_UNITS.get(str(info.get("BW_units", "")))
    rows = []
    results = value.get("results")
    for entry in results if isinstance(results, list) else [results]:
        if isinstance(entry, dict):
            row = {ours: entry[name] for name, ours in _JSON_NAMES.items() if json_number(entry.get(name)) is not None}
            _convert(row, unit)
            rows.append(row)
    return {
        "test": (test[: -len(" Test")] if test.endswith(" Test") else test) or None,
        "measures": "latency" if "Latency" in test else "bandwidth" if "BW" in test else None,
        "unit": unit,
        "device": str(info["Device"])[:60] if "Device" in info else None,
        "settings": {str(name)[:40].lower(): str(text)[:60] for name, text in list(info.items())[:40]},
        **{"rows": rows, "error": None, "message": None},
    }


def parse(text: str) -> Reading:
    """Return ``test``, ``measures``, ``unit`` (of ``peak`` and ``average``, as printed), ``rows``, ``error``.

    A row has ``bytes``, ``iterations`` and the columns of the heading; ``bandwidth`` is the average in GB/s. ``error``
    is a kind (``couldnt_connect``, ``failed_modify_qp`` with ``qp`` and ``qp_state``, ``no_device``, ...) or None,
    ``message`` its text, and ``target`` the peer that it names.
    """
    value = json_object(json_value(text[text.find("{") :])) if '"test_info"' in text else {}
    if isinstance(value.get("test_info"), dict):
        notes = Notes()
        values = _from_json(value)
        if values["unit"] is None and values["measures"] == "bandwidth":
            notes.warn("the unit of the bandwidths is unknown (--report_gbits or not)")
        return notes.reading(values)
    parser = _Parser()
    for line in plain_lines(text):
        parser.line(line)
    if not parser.values["rows"]:
        parser.notes.warn("no row of results")
    return parser.notes.reading(parser.values)


def _likely_failure(text: str) -> float:
    """Return the likelihood of an output without a row of results: by the name of a tool, or by two complaints."""
    if len(set(_SETTINGS.findall(text))) > 2:
        # Its settings alone: the text is cut off, or it failed and printed no more.
        return 0.9
    complaints = {match[0].lower() for match in _FAILURES.finditer(text)}
    if complaints and re.search(r"\bib_(?:write|read|send|atomic)_(?:bw|lat)\b", text):
        return 0.9
    if len(complaints) > 1:
        return 0.85 if _OWN.search(text) else 0.7
    return 0.7 if _OWN.search(text) else 0.0


FORMATS = [
    Format(
        "perftest",
        "perftest: ib_write_bw, ib_send_bw, ib_read_lat and the others",
        Likely(
            lambda text: _LIKELY(text) or _likely_failure(text), *_LIKELY.needs, _FAILURES.pattern, _SETTINGS.pattern
        ),
        parse,
        _UNITS,
        aliases=r"ib_(?:write|read|send|atomic)_(?:bw|lat)|raw_ethernet_\w+",
        incomparable=True,
    )
]
