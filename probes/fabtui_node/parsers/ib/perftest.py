"""perftest: ``ib_write_bw``, ``ib_send_bw``, ``ib_read_lat`` and their kin: the results, or why there are none.

MB/sec and MiB/sec both are 2^20 bytes a second; Gb/sec is 1e9 bits. A peak of 0.00 was not measured.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading

_TITLE = re.compile(r"\s+((?:RDMA_(?:Write|Read)|Send|Atomic)[ \w]{0,40}?)(?: BW| Latency)? Test\s*")
_COLUMN = re.compile(
    r"#(bytes|iterations)|(BW peak|BW average|MsgRate|t_\w+|[0-9.]+% percentile|tps average)\s*(?:\[(.{1,12}?)\])?"
)
_ROW = re.compile(r"\s*[0-9]{1,15}(?:\s+[0-9]{1,15}(?:\.[0-9]{1,15})?){1,12}\s*", re.ASCII)
_DEVICE = re.compile(r"Device\s+: (\S{1,64})")
_LINK = re.compile(r"Link type\s+: (\S{1,20})")
_ERROR = re.compile(
    r"(Couldn't \S.{1,200}|Unable to \S.{1,200}|Failed (?:to|status) \S.{1,200}|IB device \S+ not found.{0,100}"
    r"|Did not detect devices.{0,100}|Completion with error.{0,200}|.{0,80}[Ee]rror:? \S.{1,200}|mlx\S*: .{1,200})"
)
_RATES = {"MB/sec": 2.0**20, "MiB/sec": 2.0**20, "Gb/sec": 1e9 / 8, "KiB/sec": 1024.0, "GiB/sec": 2.0**30}
_WORDS = {
    "bytes": "bytes",
    "iterations": "iterations",
    "BW peak": "peak",
    "BW average": "average",
    "MsgRate": "message_rate",
    "tps average": "transactions",
}


def _columns(line: str) -> List[Any]:
    """Return name and factor of each column of a heading."""
    found: List[Any] = []
    for plain, named, unit in _COLUMN.findall(line):
        name = plain or named
        if name.endswith("% percentile"):
            found.append(("p" + name.split("%")[0].replace(".", "_"), 1.0))
        else:
            factor = _RATES.get(unit) if name.startswith("BW") else 1e6 if unit == "Mpps" else 1.0
            found.append((_WORDS.get(name, name), factor))
    return found


def _row(line: str, columns: List[Any]) -> Optional[Dict[str, Optional[float]]]:
    words = line.split()
    if len(words) != len(columns):
        return None
    row: Dict[str, Optional[float]] = {}
    for at, word in enumerate(words):
        name, factor = columns[at]
        value = None if factor is None else float(word) * factor
        row[name] = None if name == "peak" and value == 0 else value
    return row


def parse(text: str) -> Reading:
    """Return ``test``, ``device``, ``link``, ``rows`` and ``error``.

    A row has ``bytes`` and ``iterations``, and either ``peak`` and ``average`` (bytes a second) and ``message_rate`` (a
    second), or the times of a latency test: ``t_min``, ``t_max``, ``t_typical``, ``t_avg``, ``p99`` and so on (us).
    """
    notes = Notes()
    rows: List[Dict[str, Optional[float]]] = []
    columns: List[Any] = []
    test: Optional[str] = None
    error: Optional[str] = None
    for line in text.splitlines():
        line = line[:1000]
        title = _TITLE.fullmatch(line)
        complaint = _ERROR.search(line)
        if title and test is None:
            test = title.group(1)
        elif "#bytes" in line:
            columns = _columns(line)
        elif columns and _ROW.fullmatch(line):
            row = _row(line, columns)
            if row is None:
                notes.puzzled(line)
            elif row not in rows:
                rows.append(row)
        elif complaint and "WARNING" not in line:
            error = error or complaint.group(1).strip()[:300]
            notes.warn(complaint.group(1))
    device, link = _DEVICE.search(text), _LINK.search(text)
    return notes.reading(
        {
            "test": test,
            "device": device.group(1) if device else None,
            "link": link.group(1) if link else None,
            "rows": rows,
            "error": error,
        }
    )


def likely(text: str) -> float:
    """Return how sure one can be that a text is of perftest."""
    return 0.9 if "#bytes" in text and "#iterations" in text else 0.0


UNITS = {"bytes": "B", "peak": "B/s", "average": "B/s", "message_rate": "1/s", "t_min": "us", "t_max": "us"}
UNITS.update({"t_typical": "us", "t_avg": "us", "t_stdev": "us", "p99": "us", "p99_9": "us"})

FORMATS = [Format("perftest", "ib_write_bw and its kin", ("ib_write_bw",), UNITS, likely, parse)]
