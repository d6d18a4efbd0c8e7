"""``ibqueryerrors``: ports of a fabric whose counters are beyond their threshold, also with data and link info.

Its exit code is 1 where it found errors, and 0 where it could not ask the subnet administrator.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Union

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import values

_NODE = re.compile(r"(Errors|Data Counters) for (?:(0x[0-9a-fA-F]{1,16}) )?\"(.*)\"\s*")
_PORT = re.compile(r"\s*GUID (0x[0-9a-fA-F]{1,16}) port ([0-9]{1,4}|ALL):(.*)", re.ASCII)
_COUNTER = re.compile(r"\[([A-Za-z]\w{0,60}) == ([0-9]{1,20})(?: \(([^()\]]{1,30})\))?\]", re.ASCII)
_CHECKED = re.compile(
    r"##\s*(?:Summary: )?([0-9]{1,9}) (nodes|ports) checked, ([0-9]{1,9}) (?:bad nodes found|ports have errors)",
    re.ASCII,
)
_FAILURES = re.compile(r"##\s*([0-9]{1,9}) PMA query failures", re.ASCII)
_THRESHOLD = re.compile(r"\[(\w{1,60}) = ([0-9]{1,20})\]", re.ASCII)
_LINK = re.compile(r"\s*Link info:")

_UNITS = {"PortXmitData": "words of 4 B", "PortRcvData": "words of 4 B", "PortXmitWait": "ticks"}
#: Counters of traffic, not of errors.
TRAFFIC = re.compile(r"Port(Unicast|Multicast)?(Xmit|Rcv)(Data|Pkts)")


def likely(text: str) -> float:
    """Return the likelihood that a text is output of ``ibqueryerrors``."""
    if re.search(r"^[ \t]*GUID 0x[0-9a-f]+ port (\d+|ALL):\s*\[", text, re.MULTILINE):
        return 0.97
    if re.search(r"^## Summary: \d+ nodes checked, \d+ bad nodes", text, re.MULTILINE):
        return 0.97
    return 0.6 if re.search(r"^Errors for (0x[0-9a-f]+ )?\"", text, re.MULTILINE) else 0.0


def parse(text: str) -> Reading:
    """Return ``{"ports": [...], "summary": {...}, "complete"}``.

    - Each port: ``node`` (its name), ``node_guid``, ``guid``, ``port``, ``counters``, ``saturated`` (counters at the
      limit of their short form) and ``extended`` (True if errors have 64 bits). ``port`` is a number, or ``ALL`` for
      the sum over a switch, which has limits of its own and adds nothing to the numbered ports.
    - Summary: ``nodes_checked``, ``bad_nodes``, ``ports_checked``, ``bad_ports``, ``query_failures``, ``thresholds``,
      ``suppressed``.
    - ``complete`` is False if the text has no summary: the tool did not finish.
    """
    notes = Notes()
    ports: List[Dict[str, Any]] = []
    node: Dict[str, Optional[str]] = {"node": None, "node_guid": None}
    names = ("nodes_checked", "bad_nodes", "ports_checked", "bad_ports", "query_failures")
    summary: Dict[str, Any] = dict.fromkeys(names)
    summary.update(thresholds={}, suppressed=[])
    for line in values.lines(text):
        named, port = _NODE.fullmatch(line), _PORT.fullmatch(line)
        if named:
            node = {"node": named.group(3)[:200], "node_guid": values.guid(named.group(2))}
        elif port:
            ports.append(_port(node, port))
        elif line.startswith("##"):
            _sum_up(line, summary)
        elif values.complaint(line):
            notes.warn(line)
        elif not _LINK.match(line):
            notes.puzzled(line)
    complete = summary["nodes_checked"] is not None
    return notes.reading({"ports": ports, "summary": summary, "complete": complete})


def _port(node: Dict[str, Optional[str]], found: "re.Match[str]") -> Dict[str, Any]:
    guid, number, rest = found.groups()
    counters: Dict[str, int] = {}
    short: Dict[str, int] = {}
    long = False
    for name, count, scaled in _COUNTER.findall(rest):
        counters[name] = int(count)
        if not scaled:
            short[name] = int(count)
        elif not TRAFFIC.fullmatch(name):
            long = True
    port: Union[int, str] = int(number) if number != "ALL" else number
    return {
        **node,
        "guid": values.guid(guid),
        "port": port,
        "counters": counters,
        "saturated": values.saturated(short) if port != "ALL" else [],
        "extended": long,
    }


def _sum_up(line: str, summary: Dict[str, Any]) -> None:
    checked, failures = _CHECKED.match(line), _FAILURES.match(line)
    if checked:
        summary[checked.group(2) + "_checked"] = int(checked.group(1))
        summary["bad_" + checked.group(2)] = int(checked.group(3))
    elif failures:
        summary["query_failures"] = int(failures.group(1))
    elif "Thresholds:" in line:
        summary["thresholds"] = {name: int(count) for name, count in _THRESHOLD.findall(line)}
    elif "Suppressed:" in line:
        summary["suppressed"] = line.partition("Suppressed:")[2].split()[:100]


FORMATS = [
    Format(
        "ibqueryerrors",
        "ibqueryerrors: ports of a fabric that counted errors",
        ("ibqueryerrors",),
        _UNITS,
        likely,
        parse,
    )
]
