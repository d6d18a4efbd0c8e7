"""Probe ``ibfabric``: on which leaf each InfiniBand port hangs, and what in the fabric is slow, down or has errors.

A node's own ports are asked about over their own cables, which takes a few packets; the fabric is walked only
when asked for: one node does that for all. Both need the rights that the tools of infiniband-diags need.
"""

from __future__ import annotations

import concurrent.futures
import os
import time
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from fabtui_node.parsers.ib import fabric as fabric_tools
from fabtui_node.parsers.ib import management, values
from fabtui_node.probes.judgement import judgement, part
from fabtui_node.probes.rdma import port_counters
from fabtui_node.registry import Judgement, ProbeSpec, Value
from fabtui_node.system import rdma_devices, run_command

_THREADS = 4
#: Seconds for one question; the tools themselves give up after about four.
_ONE = 8.0
#: Maximum number of entries kept of a fabric; the total is reported.
_MOST_PORTS = 4096
_MOST_BAD = 200
_OUTPUT = 32 * 1024 * 1024
#: What is kept of a link.
_KEPT = ("type", "name", "guid", "port", "lanes", "lane_rate", "rate", "could_lanes", "could_lane_rate")


def run(args: Value, emit: Any, deadline: float, root: str = "/sys") -> Value:
    """Read the fabric as seen from this node; with ``whole`` (the default), walk it.

    ``{"ports": [{"ca", "port", "guid", "state", "leaf": {"guid", "name", "port"} or None, "link": {"lanes",
    "lane_rate", "rate", "could_lanes", "could_lane_rate", "could_rate" (Gb/s), "below": ["width", "speed"]} or None,
    "mtu" (B), "sm": {...} or None, "errors", "saturated", "peer_errors", "peer_saturated", "problem"}], "fabric": None
    or what `walk` returns, "error": text or None}``. ``errors`` are the counters of trouble that are not zero, by their
    names in sysfs, where sysfs has none; ``peer_errors`` are counted by the leaf's port.
    """
    began = time.monotonic()
    end = began + deadline * 0.85
    ports = [
        (device["ca"], port)
        for device in rdma_devices.devices(root)
        for port in device["ports"]
        if port["link_layer"] in ("InfiniBand", "IB")
    ]
    if not ports:
        return {"ports": [], "fabric": None, "error": None}
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        asked = [pool.submit(_port, ca, port, end, root) for ca, port in ports]
        rows = [one.result() for one in asked]
    # Ports with a leaf have no problem.
    error = next((port["problem"] for port in rows if port["problem"]), None)
    starts = [(port["ca"], port["port"], port["guid"]) for port in rows if port["link"] is not None]
    # Parsing the output of a large fabric takes time.
    fabric = walk(starts, began + deadline * 0.6) if starts and args.get("whole", True) else None
    return {"ports": rows, "fabric": fabric, "error": error}


class Asker:
    """Asks over one port of this node, until a time is over or the tools cannot be used."""

    def __init__(self, ca: str, port: int, end: float) -> None:
        self._where = ["-C", ca, "-P", str(port)]
        self._end = end
        self.problem: Optional[str] = None

    def ask(self, tool: str, *words: str) -> str:
        """Return what a tool printed, complaints included; "" where it could not be run."""
        result = run_command.run([tool, *self._where, *words], min(self._end - time.monotonic(), _ONE))
        if result.missing or result.timed_out or result.returncode is None:
            self.problem = self.problem or result.why()
            return ""
        return result.stdout + "\n" + result.stderr

    def info(self, *words: str) -> Optional[Value]:
        """Return the answer of ``smpquery``, or None where there was none."""
        reading = management.parse_attributes(self.ask("smpquery", *words))
        if not reading.values["blocks"]:
            self.problem = self.problem or (reading.warnings[-1] if reading.warnings else None)
            return None
        block: Value = reading.values["blocks"][0]
        return block

    def errors(self, *words: str) -> Tuple[Dict[str, int], List[str]]:
        """Return the counters of trouble of a port that are not zero, and those at their limit."""
        blocks = management.parse_counters(self.ask("perfquery", *words)).values["blocks"]
        return port_counters.of_tool(blocks[0]) if blocks else ({}, [])


def _port(ca: str, port: Value, end: float, root: str) -> Value:
    asker = Asker(ca, port["port"], end)
    row: Value = {"ca": ca, **{name: port[name] for name in ("port", "guid", "state")}}
    row.update(dict.fromkeys(("leaf", "link", "mtu", "sm", "problem")))
    row.update(errors={}, saturated=[], peer_errors={}, peer_saturated=[])
    own = asker.info("-D", "portinfo", "0", str(port["port"]))
    if own is not None and "link" in own:
        # Into ibstat's words.
        state = {"Initialize": "Initializing", "unknown": None, "NoChange": None}
        row["state"] = state.get(own["link"]["state"], own["link"]["state"]) or row["state"]
        row["mtu"] = own["fields"].get("NeighborMTU")
        if own["link"]["physical_state"] == "LinkUp":
            _beyond(row, asker, own)
        if row["state"] == "Active":
            row["sm"] = management.parse_manager(asker.ask("sminfo")).values["sm"]
            # The probe rdma reads the counters of sysfs.
            if not os.path.isdir(os.path.join(root, "class/infiniband", ca, "ports", str(port["port"]), "counters")):
                row["errors"], row["saturated"] = asker.errors()
    row["problem"] = None if row["leaf"] is not None else asker.problem
    return row


def _beyond(found: Value, asker: Asker, own: Value) -> None:
    """Fill in what is at the other end of the cable, and what both ends can do."""
    way = "0,%d" % found["port"]
    node = asker.info("-D", "nodeinfo", way)
    if node is None:
        return
    number = node["fields"].get("LocalPort")
    name = asker.info("-D", "nodedesc", way)
    found["leaf"] = {
        "guid": node["fields"].get("Guid"),
        "name": (name or {"fields": {}})["fields"].get("Node Description"),
        "port": number,
        "type": (node["fields"].get("NodeType") or "unknown").lower(),
    }
    peer = asker.info("-D", "portinfo", way, str(number)) if number is not None else None
    found["link"] = link_of(own["link"], (peer or {}).get("link"))
    lid = asker.info("-D", "portinfo", way, "0") if found["leaf"]["type"] == "switch" else peer
    lid_number = (lid or {"fields": {}})["fields"].get("Lid")
    if lid_number and number is not None and found["state"] == "Active":
        found["peer_errors"], found["peer_saturated"] = asker.errors(str(lid_number), str(number))


def link_of(own: Value, peer: Optional[Value]) -> Value:
    """Return how a link runs, and what both of its ends can do; unknown where the other end did not answer."""
    lanes, lane = own["lanes"], own["lane_rate"]
    could_lanes = could_lane = None
    if peer is not None:
        could_lanes = max(set(own["lanes_supported"]) & set(peer["lanes_supported"]), default=None)
        could_lane = max(set(own["lane_rates_supported"]) & set(peer["lane_rates_supported"]), default=None)
        # Ports report 12X as possible, which no cable has.
        could_lanes = min(could_lanes, max(4, lanes or 4)) if could_lanes is not None else None
    pairs = (("width", lanes, could_lanes), ("speed", lane, could_lane))
    return {
        "lanes": lanes,
        "lane_rate": lane,
        "rate": own["rate"],
        "could_lanes": could_lanes,
        "could_lane_rate": could_lane,
        "could_rate": values.link_rate(could_lanes, could_lane),
        "below": [name for name, now, most in pairs if now is not None and most is not None and now < most],
    }


def walk(ports: Sequence[Tuple[str, int, Optional[str]]], end: float) -> Optional[Value]:
    """Walk over the fabrics that ports (device, port, GUID) hang on, each once, until ``end`` (monotonic seconds).

    ``{"switches", "adapters", "links" (cables), "leaves": {GUID of an adapter's port: {"guid", "name", "port"}},
    "below": [links below what both ends can do], "errors": [{"node", "guid", "port", "errors", "saturated"}],
    "bad_ports", "complete", "warnings"}``; None where no walk came to anything.
    """
    met: Set[str] = set()
    total: Optional[Value] = None
    for ca, port, guid in ports:
        if guid in met or time.monotonic() >= end:
            continue
        fabric = _walk_from(["-C", ca, "-P", str(port)], end)
        if fabric is not None:
            met |= fabric.pop("guids")
            total = fabric if total is None else _both(total, fabric)
    return total


def _walk_from(where: List[str], end: float) -> Optional[Value]:
    links, warnings, complete = _fabric_links(where, end)
    if not links:
        return None
    errors, bad_ports, more = _fabric_errors(where, end)
    warnings += more
    fabric = fabric_of(links)
    fabric.update(errors=errors[:_MOST_BAD], bad_ports=bad_ports, warnings=warnings[:10])
    fabric.update(complete=complete and bad_ports is not None, guids={link["guid"] for link in links if link["guid"]})
    return fabric


def fabric_of(links: List[Value]) -> Value:
    """Return what the ports of a fabric, as ``iblinkinfo`` and ``ibnetdiscover`` list them, show of it."""
    types = {link["guid"]: link["type"] for link in links}
    for link in links:
        # A single port on a switch is taken for an adapter.
        if link["type"] is None and link["peer"] is not None and types.get(link["peer"]["guid"]) == "switch":
            link["type"] = "CA"
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
        "below": [{name: link.get(name) for name in (*_KEPT, "below", "peer")} for link in below[:_MOST_BAD]],
        "errors": [],
    }


def _fabric_links(where: List[str], end: float) -> Tuple[List[Value], List[str], bool]:
    """Return the ports of a fabric: from ``iblinkinfo``, or from ``ibnetdiscover`` where that one is not to be had."""
    warnings: List[str] = []
    for tool, words, parse in (
        ("iblinkinfo", ["-l"], fabric_tools.parse_links),
        ("ibnetdiscover", ["-p"], fabric_tools.parse_topology),
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
            return links, warnings, not reading.warnings and not result.timed_out and not result.truncated
        warnings.append(result.why() or "%s found nothing" % tool)
    return [], warnings, False


def _fabric_errors(where: List[str], end: float) -> Tuple[List[Value], Optional[int], List[str]]:
    """Return the ports with errors, how many there are (None: not known), and what went wrong."""
    result = run_command.run(["ibqueryerrors", *where], end - time.monotonic(), _OUTPUT)
    if result.missing:
        return [], None, [result.why() or ""]
    # It exits with 1 where it found errors, and with 0 where it could not ask.
    reading = fabric_tools.parse_errors(result.stdout + "\n" + result.stderr)
    ports = ports_with_errors(reading.values["ports"])
    summary = reading.values["summary"]
    complete = reading.values["complete"] and not summary["query_failures"]
    return ports, summary["bad_ports"] if complete else None, list(reading.warnings)


def ports_with_errors(printed: List[Value]) -> List[Value]:
    """Return the errors of the ports that ``ibqueryerrors`` printed, by the names of sysfs."""
    ports = []
    for port in printed:
        errors, saturated = port_counters.of_tool(port)
        if port["port"] != "ALL" and errors:
            kept = {key: port[key] for key in ("node", "guid", "port")}
            ports.append({**kept, "errors": errors, "saturated": saturated})
    return ports


def _cables(links: List[Value]) -> List[Value]:
    """Return each cable once, from the end of its adapter if it has one."""
    cables: Dict[Any, Value] = {}
    for link in sorted(links, key=lambda link: link["type"] == "switch"):
        peer = link["peer"] or {}
        # iblinkinfo does not print the GUID of the other end unless asked to.
        cables.setdefault(frozenset([(link["lid"], link["port"]), (peer.get("lid"), peer.get("port"))]), link)
    return list(cables.values())


def _both(one: Value, other: Value) -> Value:
    total = {name: one[name] + other[name] for name in ("switches", "adapters", "links")}
    most = {"below": _MOST_BAD, "errors": _MOST_BAD, "warnings": 10}
    total.update({name: (one[name] + other[name])[:limit] for name, limit in most.items()})
    bad = [found["bad_ports"] for found in (one, other)]
    total["bad_ports"] = None if None in bad else sum(bad)
    return {**total, "leaves": {**one["leaves"], **other["leaves"]}, "complete": one["complete"] and other["complete"]}


def judge(value: Value) -> List[Judgement]:
    """Return what is bad: of this node's ports (``mlx5_0/1``), and between switches (``leaf1 port 16``)."""
    judgements = [
        judgement("%s/%s" % (port.get("ca"), port.get("port")), verdict, text)
        for port in value.get("ports") or []
        for verdict, text in _of_port(port)
    ]
    return judgements + _of_fabric(part(value, "fabric"), alone=not value.get("ports"))


def _of_port(port: Value) -> List[Tuple[str, str]]:
    judged: List[Tuple[str, str]] = []
    link = port.get("link")
    if isinstance(link, dict) and link.get("below"):
        judged.append(("slow", port_counters.below_text(link) + _towards(port)))
    if port.get("state") == "Active" and port.get("sm") is None and port.get("problem") is None and link:
        judged.append(("inconclusive", "no subnet manager answered"))
    judged += port_counters.judge_counts(port)
    theirs = {"errors": port.get("peer_errors"), "saturated": port.get("peer_saturated")}
    judged += [(verdict, text + _towards(port, "at ")) for verdict, text in port_counters.judge_counts(theirs)]
    return judged


def _towards(port: Value, word: str = "to ") -> str:
    leaf = part(port, "leaf")
    return ", %s%s" % (word, _named(leaf)) if leaf else ""


def _named(port: Value) -> str:
    return "%s port %s" % (port.get("node") or port.get("name") or port.get("guid"), port.get("port"))


def _of_fabric(fabric: Value, alone: bool) -> List[Judgement]:
    """Return problems between switches; those beside adapters are reported by their nodes, unless it is ``alone``."""
    judgements: List[Judgement] = []
    leaves = part(fabric, "leaves")
    beside = {(leaf.get("guid"), leaf.get("port")) for leaf in leaves.values() if isinstance(leaf, dict)}
    others = 0
    for link in fabric.get("below") or []:
        if link.get("type") != "switch" and not alone:
            others += 1
            continue
        text = "%s, to %s" % (port_counters.below_text(link), _named(link.get("peer") or {}))
        judgements.append(judgement(_named(link), "slow", text))
    for port in fabric.get("errors") or []:
        judged = port_counters.judge_counts(port)
        if not alone and (port.get("guid") in leaves or (port.get("guid"), port.get("port")) in beside):
            others += bool(judged)
            continue
        judgements += [judgement(_named(port), verdict, text) for verdict, text in judged]
    if others:
        text = "cables of adapters in the fabric with errors, or below what both ends support: %d"
        judgements.append(judgement("ibfabric", "note", text % others))
    if fabric.get("complete") is False:
        text = "the fabric answered in part: %s" % "; ".join(fabric.get("warnings") or ["no reason given"])
        judgements.append(judgement("ibfabric", "inconclusive", text[:500]))
    return judgements


PROBE = ProbeSpec(
    name="ibfabric",
    title="InfiniBand fabric: the leaf of each port, links below what both ends support, ports with errors",
    phase="inspect",
    passive=True,
    needs="infiniband-diags and permission to send management packets (usually root)",
    gives="per port: leaf, width, current and possible rate in Gb/s, subnet manager, errors; the same of the fabric",
    run=run,
    judge=judge,
    requires="ib",
    next="ssh {node} sudo iblinkinfo --switches-only",
)
