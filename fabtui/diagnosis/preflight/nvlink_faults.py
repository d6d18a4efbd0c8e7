"""Faults of NVLinks in the kernel's logs of nodes: what one fault made all GPUs of its domain report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fabtui.diagnosis.finding import Severity
from fabtui.diagnosis.knowledge import xids
from fabtui.diagnosis.preflight.node_context import NodeContext, slot_of
from fabtui.model.facts.node_view import ProbedNode, dicts, field, number, text
from fabtui.nodeset import count
from fabtui_node.probes import kernel_log
from fabtui_node.probes.judgement import some

#: Reports of a link itself, and of the firmware behind it; reports of units beside it follow (Xids 144 to 148).
_OF_LINKS = (74, 149, 150)
#: Sub-codes of a link that went down because of the device at its other end.
_OTHER_END = (21, *range(32, 38))
#: Maximum number of lines about GPUs of a fault.
_MOST = 12


class _Report(NamedTuple):
    """Reports of a GPU about an NVLink."""

    node: str
    gpu: str  #: The GPU as texts name it: ``GPU 3``, or by its PCI address.
    device: str  #: The GPU as judgements name it.
    found: xids.LinkReports

    @property
    def place(self) -> str:
        link = self.found.report.link
        return f"NVLink {link} of {self.gpu}" if link is not None else f"NVLinks of {self.gpu}"


class NvlinkFault(NamedTuple):
    """A fault of NVLinks of one or several GPUs."""

    severity: Severity
    text: str
    nodes: tuple[str, ...]
    devices: tuple[str, ...]  #: GPUs at fault: ``bus:0009:01:00``, each with its node before a blank.
    code: int
    details: tuple[str, ...]  #: What the driver's numbers mean.
    echoes: tuple[str, ...]  #: What follows from it.
    action: str


def nvlink_faults(context: NodeContext) -> Iterator[NvlinkFault]:
    """Yield the faults of NVLinks: of a domain, the link at which it began with what others report because of it.

    A link that went down (Xid 149) is the cause of reports of other units (144 to 148). Ended programs (45) follow.
    """
    domains: dict[str, list[_Report]] = {}
    for node in context.nodes:
        links, _ = xids.sorted_out(node.probe_results.get("kernel", {}))
        for found in links:
            report = _Report(node.name, _gpu(context, node, found.bus), f"{node.name} bus:{found.bus}", found)
            domains.setdefault(_domain(node), []).append(report)
    for reports in domains.values():
        while reports:
            root = min(reports, key=_rank)
            near = [one for one in reports if xids.together(one.found.entry, root.found.entry)]
            # What is not fatal has no consequences on other GPUs.
            echoing = bool(root.found.report.fatal)
            alike = [one for one in near if _rank(one)[:3] == _rank(root)[:3] and _kind(one) == _kind(root)]
            echoes = [one for one in near if one not in alike] if echoing else []
            reports = [one for one in reports if one not in alike and one not in echoes]
            yield _fault(alike, echoes)


def _rank(one: _Report) -> tuple[bool, bool, bool, float]:
    """Return what orders reports: the first of a domain is where a fault began."""
    report = one.found.report
    start = number(one.found.entry.get("first"))
    old = one.found.severity is Severity.NOTE
    return not report.fatal or old, report.code not in _OF_LINKS, report.subcode in _OTHER_END, start or 0.0


def _kind(one: _Report) -> tuple[int, str]:
    return one.found.report.code, one.found.report.unit


def _domain(node: ProbedNode) -> str:
    """Return the NVLink domain of a node; GPUs that are in none have their node."""
    for gpu in dicts(node.seen("gpus", "gpus")):
        if cluster := text(field(gpu, "fabric", "cluster")):
            return f"{cluster} {number(field(gpu, 'fabric', 'clique'))}"
    return f"node {node.name}"


def _gpu(context: NodeContext, node: ProbedNode, bus: str) -> str:
    """Return the name of a GPU by its PCI address."""
    slot = slot_of(bus)
    end = context.buses.get((node.name, slot))
    known = [*dicts(node.seen("gpus", "gpus")), *dicts(node.part("gpus"))]
    index = next((gpu.get("index") for gpu in known if slot_of(str(gpu.get("bus") or "")) == slot and slot), None)
    return f"GPU {end.rpartition(':')[2]}" if end else f"GPU {index if isinstance(index, int) else bus}"


def _fault(alike: list[_Report], echoes: list[_Report]) -> NvlinkFault:
    first, first_node = alike[0].found, alike[0].node
    gpus = list(dict.fromkeys((one.node, one.gpu) for one in alike))
    links = list(dict.fromkeys(str(one.found.report.link) for one in alike if one.found.report.link is not None))
    if len(gpus) > 1:
        place = f"NVLinks of {len(gpus)} GPUs"
    elif len(links) > 1:
        place = f"NVLinks {some(links, 18)} of {alike[0].gpu}"
    else:
        place = alike[0].place
    ages = [age for one in alike if (age := number(one.found.entry.get("age"))) is not None]
    words = [f"{place}: Xid {first.report.code}: {first.report.what}"]
    words += [f"{times} times" for times in [sum(xids.times_of(one.found.entry) for one in alike)] if times > 1]
    words += [f"last {kernel_log.ago(min(ages))} ago"] if ages else []
    details = [f"{one.place}: {line}" for one in alike for line in one.found.report.details]
    kind = xids.known(first.entry)
    return NvlinkFault(
        min((one.found.severity for one in alike), key=lambda severity: severity.rank),
        "; ".join(words),
        tuple(dict.fromkeys(one.node for one in alike)),
        tuple(dict.fromkeys(one.device for one in alike)),
        first.report.code,
        _few([*(_on(one) for one in alike if len(gpus) > 1), *details]),
        _few([*_also(echoes, first_node), *_following([*alike, *echoes])]),
        kind.advice if kind else "",
    )


def _on(one: _Report) -> str:
    return f"{one.node}: {one.place}"


def _also(echoes: list[_Report], node: str) -> list[str]:
    """Return what others report because of a fault on a node: a line for each number."""
    groups: dict[int, list[_Report]] = {}
    for one in echoes:
        groups.setdefault(one.found.report.code, []).append(one)
    lines = []
    for code, same in sorted(groups.items()):
        places = list(dict.fromkeys(one.place if one.node == node else _on(one) for one in same))
        lines.append(f"Xid {code} follows on {some(places, 3)}: {same[0].found.report.what}")
    return lines


def _following(reports: list[_Report]) -> list[str]:
    """Return what the GPUs did because of a fault: programs that they ended, and the recovery that they need."""
    entries: list[Mapping[str, Any]] = [entry for one in reports for entry in one.found.followed]
    ended = sum(xids.times_of(entry) for entry in entries if entry.get("code") == 45)
    lines = [f"Xid 45 follows ({count(ended, 'report')}): programs were ended"] if ended else []
    wanted = [str(entry.get("text", "")).rpartition(" to 0x")[2] for entry in entries if entry.get("code") == 154]
    words = dict.fromkeys(text(word.partition("(")[2].rstrip(").")) for word in wanted)
    return lines + [f"Xid 154 asks for recovery: {word}" for word in words if word and word.lower() != "none"]


def _few(lines: list[str]) -> tuple[str, ...]:
    lines = list(dict.fromkeys(lines))
    return (*lines[:_MOST], *([f"and {len(lines) - _MOST} more"] if len(lines) > _MOST else []))
