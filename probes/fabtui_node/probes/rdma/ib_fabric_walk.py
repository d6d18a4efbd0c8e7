"""Walk over an InfiniBand fabric with the tools of infiniband-diags, from one node."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from fabtui_node.parsers.ib import fabric
from fabtui_node.probes.rdma import port_counters
from fabtui_node.system import run_command

Value = Dict[str, Any]

#: Maximum number of entries kept of a fabric; the total is reported.
_MOST_PORTS = 4096
_MOST_BAD = 200
_OUTPUT = 32 * 1024 * 1024
#: What is kept of a link.
_LINK = ("type", "name", "guid", "port", "lanes", "lane_rate", "rate", "could_lanes", "could_lane_rate")


def walk(ports: Sequence[Tuple[str, int, Optional[str]]], end: float) -> Optional[Value]:
    """Walk over the fabrics that ports (device, port, GUID) hang on, each once, until ``end`` (monotonic seconds).

    Returns:
        ``{"switches", "adapters", "links" (cables), "leaves": {GUID of an adapter's port: {"guid", "name", "port"}},
        "below": [links below what both ends can do], "errors": [{"node", "guid", "port", "errors", "saturated"}],
        "bad_ports", "complete", "warnings"}``; None where no walk came to anything.
    """
    met: Set[str] = set()
    total: Optional[Value] = None
    for ca, port, guid in ports:
        if guid in met or time.monotonic() >= end:
            continue
        found = _from(["-C", ca, "-P", str(port)], end)
        if found is not None:
            met |= found.pop("guids")
            total = found if total is None else _both(total, found)
    return total


def _from(where: List[str], end: float) -> Optional[Value]:
    links, warnings, complete = _links(where, end)
    if not links:
        return None
    errors, bad_ports, more = _errors(where, end)
    warnings += more
    switches = {link["guid"] for link in links if link["type"] == "switch"}
    adapters = [link for link in links if link["type"] == "CA"]
    below = _cables([link for link in links if link.get("below")])
    return {
        "switches": len(switches),
        "adapters": len(adapters),
        "links": sum(1 for link in links if link["peer"] is not None) // 2,
        "leaves": {
            link["guid"]: {name: link["peer"][name] for name in ("guid", "name", "port")}
            for link in adapters[:_MOST_PORTS]
            if link["guid"] and link["peer"] is not None and link["peer"]["guid"] in switches
        },
        "below": [{name: link.get(name) for name in (*_LINK, "below", "peer")} for link in below[:_MOST_BAD]],
        "errors": errors[:_MOST_BAD],
        "bad_ports": bad_ports,
        "complete": complete and bad_ports is not None,
        "warnings": warnings[:10],
        "guids": {link["guid"] for link in links if link["guid"]},
    }


def _links(where: List[str], end: float) -> Tuple[List[Value], List[str], bool]:
    """Return the ports of a fabric: from ``iblinkinfo``, or from ``ibnetdiscover`` where that one is not to be had."""
    warnings: List[str] = []
    for tool, words, parse in (
        ("iblinkinfo", ["-l"], fabric.parse_links),
        ("ibnetdiscover", ["-p"], fabric.parse_topology),
    ):
        result = run_command.run([tool, *where, *words], end - time.monotonic(), _OUTPUT)
        if result.missing:
            warnings.append(result.why() or "")
            continue
        # It exits with 0 when half of the fabric did not answer.
        reading = parse(result.stdout + "\n" + result.stderr)
        warnings += reading.warnings
        links: List[Value] = reading.values["links"]
        if links:
            types = {link["guid"]: link["type"] for link in links}
            for link in links:
                # A single port on a switch is taken for an adapter.
                if link["type"] is None and link["peer"] is not None and types.get(link["peer"]["guid"]) == "switch":
                    link["type"] = "CA"
            return links, warnings, not reading.warnings and not result.timed_out and not result.truncated
        warnings.append(result.why() or "%s found nothing" % tool)
    return [], warnings, False


def _errors(where: List[str], end: float) -> Tuple[List[Value], Optional[int], List[str]]:
    """Return the ports with errors, how many there are (None: not known), and what went wrong."""
    result = run_command.run(["ibqueryerrors", *where], end - time.monotonic(), _OUTPUT)
    if result.missing:
        return [], None, [result.why() or ""]
    # It exits with 1 where it found errors, and with 0 where it could not ask.
    reading = fabric.parse_errors(result.stdout + "\n" + result.stderr)
    found = []
    for port in reading.values["ports"]:
        errors, saturated = port_counters.of_tool(port)
        if port["port"] != "ALL" and errors:
            kept = {key: port[key] for key in ("node", "guid", "port")}
            found.append({**kept, "errors": errors, "saturated": saturated})
    summary = reading.values["summary"]
    complete = reading.values["complete"] and not summary["query_failures"]
    return found, summary["bad_ports"] if complete else None, list(reading.warnings)


def _cables(links: List[Value]) -> List[Value]:
    """Return each cable once, from the end of its adapter if it has one."""
    found: Dict[Any, Value] = {}
    for link in sorted(links, key=lambda link: link["type"] == "switch"):
        peer = link["peer"] or {}
        found.setdefault(frozenset([(link["guid"], link["port"]), (peer.get("guid"), peer.get("port"))]), link)
    return list(found.values())


def _both(one: Value, other: Value) -> Value:
    """Return two fabrics as one."""
    total = {name: one[name] + other[name] for name in ("switches", "adapters", "links")}
    bad = [found["bad_ports"] for found in (one, other)]
    return {
        **total,
        "leaves": {**one["leaves"], **other["leaves"]},
        "below": (one["below"] + other["below"])[:_MOST_BAD],
        "errors": (one["errors"] + other["errors"])[:_MOST_BAD],
        "bad_ports": None if None in bad else sum(bad),
        "complete": one["complete"] and other["complete"],
        "warnings": (one["warnings"] + other["warnings"])[:10],
    }
