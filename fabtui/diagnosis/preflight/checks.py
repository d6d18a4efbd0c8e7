"""Rules about the state of nodes, and the preflight that collects their findings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

from fabtui.diagnosis.finding import (
    Domain,
    Finding,
    Kind,
    Severity,
    Steps,
    Subject,
    declared,
    finished,
    register,
    rules_of,
)
from fabtui.diagnosis.knowledge import load, xids
from fabtui.diagnosis.knowledge.error_catalogue import meaning_of, of_line
from fabtui.diagnosis.knowledge.next_commands import in_order_of_blame, typed
from fabtui.diagnosis.links import roce_rules as roce_rules
from fabtui.diagnosis.mesh.mesh import Mesh
from fabtui.diagnosis.mesh.neighbours import LINK_LAYER_RULES
from fabtui.diagnosis.preflight import environment as environment
from fabtui.diagnosis.preflight import imex_domain as imex_domain
from fabtui.diagnosis.preflight import name_rules as name_rules
from fabtui.diagnosis.preflight.environment import LOCAL_ONLY, unknown
from fabtui.diagnosis.preflight.node_context import NodeContext, NodeJudgement, NodeRule, severity_of, slot_of
from fabtui.exit_status import ALL_OK, BAD, NOT_TESTED
from fabtui.model.facts.compare import Compare, FactTable, Odd, contrasted, shown
from fabtui.model.facts.network import down_interfaces, nccl_interfaces
from fabtui.model.facts.node_view import ProbedNode, dicts, field, number, text
from fabtui.model.facts.states import ABSENT
from fabtui.model.session_model import Model
from fabtui.nodeset import count, fold
from fabtui.sanitize import one_line
from fabtui_node import registry
from fabtui_node.probes import kernel_log
from fabtui_node.probes.judgement import some

#: Reports of a link itself, and of the firmware behind it; reports of units beside it follow (Xids 144 to 148).
_OF_LINKS = (74, 149, 150)
#: Sub-codes of a link that went down because of the device at its other end.
_OTHER_END = (21, *range(32, 38))
#: Maximum number of lines about GPUs of a fault.
_MOST = 12
#: An RDMA port as the subject of a judgement.
_PORT = re.compile(r"([A-Za-z][A-Za-z0-9_]{1,40})/([0-9]{1,3})", re.ASCII)
_XID = re.compile(r"Xid [0-9]{1,4}\b")
_DIGIT = re.compile(r"[0-9]")
_ZEROS = re.compile(r"(0x)?[0:.]*")
#: Texts that differ in numbers only are grouped.
_NUMBERS = re.compile(r"[0-9][0-9.,]*(?: [KMGT]iB)?")
#: Maximum number of shared values that are kept as evidence.
_MOST_SHARED = 20
_NEXT = "set NCCL_SOCKET_IFNAME to an interface that leads to the other nodes (ip -br addr)"
#: Maximum number of nodes and interfaces that are listed.
_MOST_LISTED = 8
#: Maximum number of differences of a state that are findings of their own, for the same nodes.
_MOST_OF_STATE = 3
#: Maximum number of values of a fact that are named in a title.
_MOST_VALUES = 4
#: Facts that differ where an interface is down.
_OF_INTERFACES = ("addresses_number", "nccl_interfaces")
_WORDS = re.compile(r"[^\s,:]+")
#: Facts that differ as a consequence of what other rules report, with the ids of these rules.
_FOLLOWS = {
    "nccl_interfaces": ("FT320", "FT321"),
    "nccl_network": ("FT320", "FT321"),
    "nccl_env": ("FT316", "FT320", "FT321", "FT322"),
    "other_env": ("FT322",),
}
#: Latest preflight of each model, and the version of its nodes.
_LATEST: WeakKeyDictionary[Model, tuple[int, Preflight]] = WeakKeyDictionary()


class _Report(NamedTuple):
    """Reports of a GPU about an NVLink."""

    node: str
    gpu: str  #: The GPU as texts name it: ``GPU 3``, or by its PCI address.
    link: xids.LinkReports

    @property
    def place(self) -> str:
        link = self.link.report.link
        return f"NVLink {link} of {self.gpu}" if link is not None else f"NVLinks of {self.gpu}"

    def __str__(self) -> str:
        return f"{self.node}: {self.place}"

    @property
    def kind(self) -> tuple[int, str]:
        return self.link.report.code, self.link.report.unit

    @property
    def rank(self) -> tuple[bool, bool, bool, float]:
        """Order of reports: the first of a domain is where a fault began."""
        report, old = self.link.report, self.link.severity is Severity.NOTE
        start = number(self.link.entry.get("first")) or 0.0
        return not report.fatal or old, report.code not in _OF_LINKS, report.subcode in _OTHER_END, start


def _nvlink_faults(context: NodeContext) -> Iterator[tuple[list[_Report], list[_Report]]]:
    """Yield the faults of NVLinks: reports of the link at which each began, and what others report because of it.

    A link that went down (Xid 149) is the cause of reports of other units (144 to 148). Ended programs (45) follow.
    """
    domains: dict[str, list[_Report]] = {}
    for node in context.nodes:
        links, _ = xids.sorted_out(node.probe_results.get("kernel", {}))
        mine = [_Report(node.name, _gpu(context, node, link.bus), link) for link in links]
        domains.setdefault(_domain(node), []).extend(mine)
    for reports in domains.values():
        while reports:
            root = min(reports, key=lambda report: report.rank)
            near = [report for report in reports if xids.together(report.link.entry, root.link.entry)]
            alike = [report for report in near if (report.rank[:3], report.kind) == (root.rank[:3], root.kind)]
            # What is not fatal has no consequences on other GPUs.
            echoes = [report for report in near if report not in alike] if root.link.report.fatal else []
            reports = [report for report in reports if report not in alike and report not in echoes]
            yield alike, echoes


def _domain(node: ProbedNode) -> str:
    """Return the NVLink domain of a node; GPUs that are in none have their node."""
    for gpu in dicts(node.seen("gpus", "gpus")):
        if cluster := text(field(gpu, "fabric", "cluster")):
            return f"{cluster} {number(field(gpu, 'fabric', 'clique'))}"
    return f"node {node.name}"


def _gpu(context: NodeContext, node: ProbedNode, bus: str) -> str:
    slot = slot_of(bus)
    end = context.buses.get((node.name, slot))
    known = [*dicts(node.seen("gpus", "gpus")), *dicts(node.part("gpus"))]
    index = next((gpu.get("index") for gpu in known if slot_of(str(gpu.get("bus") or "")) == slot and slot), None)
    return f"GPU {end.rpartition(':')[2]}" if end else f"GPU {index if isinstance(index, int) else bus}"


def _also(echoes: list[_Report], node: str) -> list[str]:
    """Return what others report because of a fault on a node: a line for each number."""
    lines = []
    for code in sorted({echo.link.report.code for echo in echoes}):
        same = [echo for echo in echoes if echo.link.report.code == code]
        places = list(dict.fromkeys(echo.place if echo.node == node else str(echo) for echo in same))
        lines.append(f"Xid {code} follows on {some(places, 3)}: {same[0].link.report.what}")
    return lines


def _following(reports: list[_Report]) -> list[str]:
    """Return what the GPUs did because of a fault: programs that they ended, and the recovery that they need."""
    entries = [entry for report in reports for entry in report.link.followed]
    ended = sum(xids.times_of(entry) for entry in entries if entry.get("code") == 45)
    lines = [f"Xid 45 follows ({count(ended, 'report')}): programs were ended"] if ended else []
    wanted = [str(entry.get("text", "")).rpartition(" to 0x")[2] for entry in entries if entry.get("code") == 154]
    words = dict.fromkeys(text(word.partition("(")[2].rstrip(").")) for word in wanted)
    return lines + [f"Xid 154 asks for recovery: {word}" for word in words if word and word.lower() != "none"]


def _few(lines: list[str]) -> tuple[str, ...]:
    lines = list(dict.fromkeys(lines))
    return (*lines[:_MOST], *([f"and {len(lines) - _MOST} more"] if len(lines) > _MOST else []))


@register
class ProbeJudgement(NodeRule):
    """A probe judged its own result on one or several nodes. Equal judgements are one finding.

    In a session, a problem of an RDMA port that endpoints send over is FT103.
    """

    id = "FT301"
    #: Name of the judgements' check; "": all that are in no catalogue.
    check_name: ClassVar[str] = ""

    def check(self, context: NodeContext) -> Iterator[Finding]:
        groups: dict[tuple[str, str, Severity, str, str], dict[NodeJudgement, None]] = {}
        for judged in context.judged.get(self.check_name, ()):
            # Devices such as mlx5_3/1 are many; equal judgements of them are grouped.
            device = _DIGIT.search(judged.subject) and judged.subject not in load("next_commands")["preflight"]
            topic = "" if device else judged.subject
            # Inconclusive may be intended: a port without a cable, a counter that was not reset for years.
            severity = Severity.NOTE if judged.verdict == "inconclusive" else severity_of(judged.verdict)
            key = judged.probe, topic, severity, _NUMBERS.sub("#", judged.text), judged.action
            groups.setdefault(key, {})[judged] = None
        for (probe, topic, severity, *_), group in groups.items():
            about = tuple(subject for judged in group for subject in _devices(judged, context.buses))
            yield self._finding(severity, topic, probe, list(group)).replace(about=about)

    def _finding(self, severity: Severity, topic: str, probe: str, group: Sequence[NodeJudgement]) -> Finding:
        names = list(dict.fromkeys(judged.node for judged in group))
        texts = list(dict.fromkeys(judged.text for judged in group))
        by_text: dict[str, list[str]] = {}
        for judged in group:
            line = judged.text if topic else f"{judged.subject}: {judged.text}"
            by_text.setdefault(line, []).append(judged.node)
        port = _PORT.fullmatch(group[0].subject)
        command = f"ssh {{node}} ibstat {port[1]} {port[2]}" if port else _command_for(topic, probe)
        facts = {
            "probe": probe,
            "text": texts[0],
            "more": len(texts) - 1 or None,
            "action": group[0].action or None,
            "devices": None if topic else tuple(dict.fromkeys(judged.subject for judged in group)),
            "by_node": tuple((tuple(nodes), text) for text, nodes in by_text.items()) if len(by_text) > 1 else None,
        }
        # The catalogue explains the errors of tools, and lines of the kernel log for which the vendor names no action.
        known = meaning_of(texts[0]) if not self.check_name or (probe == "kernel" and not group[0].action) else None
        if known is not None:
            known = of_line(known, texts[0])
            facts |= known.facts
            command = next((f"ssh {{node}} {line}" for _, line in known.commands if "{route}" not in line), command)
        named = dict(name.split(":", 1) for name in reversed(group[0].devices.split()) if ":" in name)
        command = command.replace(" {bus}", f" -s {named['bus']}" if "bus" in named else "")
        command = command.replace("{file}", shlex.quote(named.get("file", "FILE")))
        following = [command.replace("{node}", fold(names[:1]))] if command else []
        following += [f"fabtui explain {xid[0].lower()}" for xid in [_XID.match(texts[0])] if xid]
        return self.finding(topic or probe, severity=severity, nodes=names, facts=facts, commands=following)


def _devices(judged: NodeJudgement, buses: Mapping[tuple[str, str], str]) -> list[Subject]:
    """Return the GPUs and NICs that a judgement is about; the node if it names none."""
    subjects = []
    for kind, _, name in (device.partition(":") for device in judged.devices.split()):
        if kind == "nic":
            subjects.append(Subject(Kind.NIC, f"{judged.node} {name}"))
        elif kind != "file" and (
            end := buses.get((judged.node, slot_of(name))) if kind == "bus" else f"{judged.node}:{name}"
        ):
            subjects.append(Subject(Kind.GPU, end))
    if port := _PORT.fullmatch(judged.subject):
        subjects.append(Subject(Kind.NIC, f"{judged.node} {port[1]}"))
    return subjects or [Subject(Kind.NODE, judged.node)]


def _command_for(topic: str, probe: str) -> str:
    specs = (registry.PROBES.get(name) for name in (topic, probe))
    commands = (spec.next for spec in specs if spec is not None)
    return next(filter(None, (load("next_commands")["preflight"].get(topic), *commands)), "")


class XidJudgement(ProbeJudgement):
    """Xids in the kernel's logs; reports about NVLinks are one finding for each fault of a domain."""

    evidence = ("NVIDIA's action: {action}", "{details:lines}", "{echoes:lines}")

    def check(self, context: NodeContext) -> Iterator[Finding]:
        yield from (self._of_links(context, *fault) for fault in _nvlink_faults(context))
        yield from super().check(context)

    def _of_links(self, context: NodeContext, alike: list[_Report], echoes: list[_Report]) -> Finding:
        first, gpus = alike[0].link, {(report.node, report.gpu) for report in alike}
        links = list(dict.fromkeys(str(link) for report in alike if (link := report.link.report.link) is not None))
        place = f"NVLinks {some(links, 18)} of {alike[0].gpu}" if len(links) > 1 else alike[0].place
        place = f"NVLinks of {len(gpus)} GPUs" if len(gpus) > 1 else place
        ages = [age for report in alike if (age := number(report.link.entry.get("age"))) is not None]
        words = [f"{place}: Xid {first.report.code}: {first.report.what}"]
        times = sum(xids.times_of(report.link.entry) for report in alike)
        words += [f"{times} times"] if times > 1 else []
        words += [f"last {kernel_log.ago(min(ages))} ago"] if ages else []
        details = list(map(str, alike)) if len(gpus) > 1 else []
        details += [f"{report.place}: {line}" for report in alike for line in report.link.report.details]
        kind, nodes = xids.known(first.entry), list(dict.fromkeys(report.node for report in alike))
        facts = {
            "probe": "kernel",
            "text": "; ".join(words),
            "action": (kind.advice if kind else "") or None,
            "details": _few(details) or None,
            "echoes": _few([*_also(echoes, alike[0].node), *_following([*alike, *echoes])]) or None,
        }
        command = _command_for("xid", "kernel").replace("{node}", fold(nodes[:1]))
        ends = (context.buses.get((report.node, slot_of(report.link.bus))) for report in alike)
        about = [Subject(Kind.GPU, end) for end in dict.fromkeys(ends) if end]
        return self.finding(
            "xid",
            severity=min((report.link.severity for report in alike), key=lambda severity: severity.rank),
            nodes=nodes,
            facts=facts,
            commands=(command, f"fabtui explain xid {first.report.code}"),
        ).replace(about=tuple(about or [Subject(Kind.NODE, node) for node in nodes]))


#: Rules of checks that do more than to group judgements.
_BASES: Mapping[str, type[ProbeJudgement]] = {"xid": XidJudgement}


for _row in load("node_checks")["check"]:
    _own = {**declared(_row), "check_name": _row["name"], "__doc__": f"{_row['meaning']} Source: {_row['source']}."}
    register(type(_row["name"], (_BASES.get(_row["name"], ProbeJudgement),), _own))


class NodeVerdict(NamedTuple):
    """Verdict on one node."""

    verdict: str  #: ``bad`` or ``warn``, else ``unknown`` if something could not be inspected, else ``ok``.
    rules: tuple[str, ...]  #: Ids of the rules behind it, the worst first.


class Preflight(NamedTuple):
    """Findings, the worst first, the facts, and what could not be inspected."""

    findings: list[Finding]  #: Findings, the worst first.
    table: FactTable  #: The facts.
    missing: list[tuple[tuple[str, ...], str]]  #: What could not be inspected and why, one line each, with the nodes.

    @property
    def exit_code(self) -> int:
        """1 if there are findings other than notes; else 3 if something could not be inspected; else 0."""
        return self.code_from(Severity.WARN)

    def code_from(self, least: Severity) -> int:
        """Return the exit code if only findings that are at least so severe count."""
        if any(finding.severity.rank <= least.rank for finding in self.findings):
            return BAD
        return NOT_TESTED if self.missing else ALL_OK

    def verdict(self, node: str) -> NodeVerdict:
        mine = [finding for finding in self.findings if node in finding.nodes]
        if serious := [finding for finding in mine if finding.severity is not Severity.NOTE]:
            return NodeVerdict(str(serious[0].severity), tuple(dict.fromkeys(each.rule.id for each in serious)))
        return NodeVerdict("unknown" if any(node in nodes for nodes, _ in self.missing) else "ok", ())


class _IdentityRule(NodeRule):
    not_in_lab = True


@register
class SameMachine(_IdentityRule):
    """One machine is listed under several names. Tests between these names measure nothing."""

    id = "FT310"

    def check(self, context: NodeContext) -> Iterator[Finding]:
        for boot, group in _shared(context.nodes, _boot).items():
            for name, same in _shared(group, _host_name).items():
                facts = {"hostname": name, "boot_id": boot}
                names = _names(same)
                shown = tuple(f"ssh {fold([node])} cat /proc/sys/kernel/random/boot_id" for node in names[:2])
                yield self.finding("machine", nodes=names, facts=facts, commands=shown)


@register
class SharedMachine(_IdentityRule):
    """Several nodes are containers on one machine, and share its GPUs and NICs."""

    id = "FT311"

    def check(self, context: NodeContext) -> Iterator[Finding]:
        for boot, group in _shared(context.nodes, _boot).items():
            same = [node for nodes in _shared(group, _host_name).values() for node in nodes]
            apart = [node for node in group if node not in same]
            if len(apart) > 1:
                yield self.finding("machine", nodes=_names(apart), facts={"boot_id": boot})


class SharedValue(_IdentityRule):
    """Several machines have a value that each has to have for itself; `node_checks.toml` has a row for each rule."""

    evidence = ("{shared:lines}",)
    row: ClassVar[Mapping[str, Any]]

    def check(self, context: NodeContext) -> Iterator[Finding]:
        holders: dict[str, list[ProbedNode]] = {}
        for node in context.nodes:
            for value in dict.fromkeys(_values(node, *self.row["value"])):
                holders.setdefault(value, []).append(node)
        groups: dict[tuple[str, ...], list[str]] = {}
        for value, group in holders.items():
            apart = None if self.row.get("of_machine") else _host_name
            machines = {(_boot(node) or node.name, apart and apart(node)) for node in group}
            # Names of one machine share everything, which another rule reports; containers do not.
            if len(machines) > 1:
                groups.setdefault(_names(group), []).append(value)
        for names, values in groups.items():
            facts = {"first": tuple(values[:3]), "shared": tuple(values[:_MOST_SHARED])}
            command = self.row["command"].replace("{node}", fold([names[self.row.get("at", 0)]]))
            yield self.finding(self.row["topic"], nodes=names, facts=facts, commands=(command,) if command else ())


def _values(node: ProbedNode, probe: str, *path: str) -> list[str]:
    """Return the texts at a path of a probe, of all objects of a list on the way; not GUIDs of zeros."""
    values: list[Any] = [node.inventory if probe == "inventory" else node.probe_results.get(probe)]
    for name in path:
        values = [inner for value in values for one in (dicts(value) or [value]) if (inner := field(one, name))]
    return [word for value in values if (word := text(value)) and not _ZEROS.fullmatch(word)]


for _row in load("node_checks")["shared"]:
    register(type(_row["name"], (SharedValue,), {**declared(_row), "row": _row}))


def _boot(node: ProbedNode) -> str | None:
    return text(node.seen("host", "identity", "boot_id"))


def _host_name(node: ProbedNode) -> str | None:
    return text(node.seen("host", "identity", "hostname")) or text(node.part("host"))


def _shared(nodes: Iterable[ProbedNode], key: Callable[[ProbedNode], str | None]) -> dict[str, list[ProbedNode]]:
    groups: dict[str, list[ProbedNode]] = {}
    for node in nodes:
        if (value := key(node)) is not None:
            groups.setdefault(value, []).append(node)
    return {value: group for value, group in groups.items() if len(group) > 1}


def _names(nodes: Sequence[ProbedNode]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


class _InterfaceRule(NodeRule):
    not_in_lab = True
    #: Minimum number of nodes.
    least: ClassVar[int] = 1
    next_step = "Set NCCL_SOCKET_IFNAME to an interface that leads to the other nodes."

    def _facts(self, used: list[str], setting: str | None) -> dict[str, str] | None:
        raise NotImplementedError

    def check(self, context: NodeContext) -> Iterator[Finding]:
        if len(context.nodes) < self.least:
            return
        groups: dict[str, tuple[dict[str, str], list[tuple[tuple[str], str]]]] = {}
        for node in context.nodes:
            names, used = nccl_interfaces(node)
            facts = self._facts(used, text(node.part("env", "NCCL_SOCKET_IFNAME"))) if names else None
            if facts is not None:
                listed = f"has {', '.join(names[:_MOST_LISTED])}"
                groups.setdefault(str(facts), (facts, []))[1].append(((node.name,), listed))
        for facts, by_node in groups.values():
            nodes = [names[0] for names, _ in by_node]
            merged = {**facts, "by_node": tuple(by_node[:_MOST_LISTED])}
            finding = self.finding("nccl_interfaces", nodes=nodes, facts=merged, commands=(_NEXT,))
            # An interface that is down has no address to use: it follows.
            down = [Subject(Kind.NIC, f"{node.name} {nic}") for node in context.nodes for nic in down_interfaces(node)]
            about = tuple(part for part in down if part.node in nodes)
            yield finding.replace(about=about) if about else finding


@register
class NoSocketInterface(_InterfaceRule):
    """NCCL_SOCKET_IFNAME matches no interface that has an address."""

    id = "FT320"

    def _facts(self, used: list[str], setting: str | None) -> dict[str, str] | None:
        return None if used else {"setting": str(setting)}


@register
class LocalSocketInterface(_InterfaceRule):
    """NCCL picks an interface that leads to no other node."""

    least = 2
    id = "FT321"

    def _facts(self, used: list[str], setting: str | None) -> dict[str, str] | None:
        return {"interface": used[0]} if used and used[0].startswith(LOCAL_ONLY) else None


@register
class FactDiffers(NodeRule):
    """A fact of some nodes differs from the other nodes of their hardware kind."""

    id = "FT302"

    def check(self, context: NodeContext) -> Iterator[Finding]:
        down = {node.name: down_interfaces(node) for node in context.nodes}
        groups: dict[tuple[str, ...], list[Odd]] = {}
        for odd in context.table.odd:
            if odd.fact.compare is Compare.ODD:
                groups.setdefault(odd.group, []).append(odd)
                continue
            finding = self.of_fact(odd)
            about = tuple(Subject(Kind.NIC, f"{node} {nic}") for node in finding.nodes for nic in down[node])
            yield finding.replace(about=about) if finding.topic in _OF_INTERFACES and about else finding
        for nodes, odds in groups.items():
            # What an interface lacks that is down follows from that.
            dead = [nic for node in nodes for nic in down.get(node, ())]
            loud = [odd for odd in odds if not odd.fact.quiet and not (dead and _lacks(odd, dead))]
            if odds[0].tie or (len(nodes) > 1 and len(loud) > _MOST_OF_STATE):
                if loud or len(odds) > _MOST_OF_STATE:
                    yield self._of_groups(nodes, odds, loud)
                continue
            findings = [self.of_fact(odd) for odd in loud[:_MOST_OF_STATE]]
            if more := [f"{odd.fact.title} {odd.contrast(nodes[0])}" for odd in loud[_MOST_OF_STATE:]]:
                findings[-1] = findings[-1].replace(facts={**findings[-1].facts, "more_differences": tuple(more)})
            yield from findings

    def _of_groups(self, nodes: tuple[str, ...], odds: list[Odd], loud: list[Odd]) -> Finding:
        """Return one finding about nodes that differ from the others in many settings, as after an upgrade."""
        named = [odd.fact.title for odd in (loud or odds)[:_MOST_OF_STATE]]
        more = f" and {len(odds) - len(named)} more" if len(odds) > len(named) else ""
        others = [node for node in (odds[0].values if odds[0].tie else odds[0].agreeing) if node not in nodes]
        facts = {
            "fact": "state",
            "title": "settings of a group of nodes",
            "named": ", ".join(named) + more,
            "groups": f"{fold(nodes)} and {fold(others)}",
            "tie": odds[0].tie,
        }
        severity = Severity.WARN if any(odd.fact.verdict != "note" for odd in loud) else Severity.NOTE
        command = (loud or odds)[0].fact.next.replace("{node}", fold(nodes[:1]))
        return self.finding("state", severity=severity, nodes=nodes, facts=facts, commands=[command] if command else [])

    def of_fact(self, odd: Odd) -> Finding:
        fact, of_state = odd.fact, odd.fact.compare is Compare.ODD
        by_value: dict[str, list[str]] = {}
        for name, value in odd.values.items():
            word = contrasted(fact, value, odd.usual)[0] if of_state else shown(value, fact.unit)
            by_value.setdefault(word, []).append(name)
        ranked = sorted(by_value.items(), key=lambda item: -len(item[1]))
        of_kind = f" with {odd.kind}" if odd.kind else ""
        by_node = [(tuple(names), value) for value, names in ranked]
        facts: dict[str, object] = {"fact": fact.name, "title": fact.title, "breaks": fact.breaks or None}
        if odd.tie:
            split = tuple(f"{value} on {fold(names)}" for value, names in ranked[:_MOST_VALUES])
            facts |= {"split": split, "of_kind": of_kind, "more": max(0, len(ranked) - _MOST_VALUES) or None}
        else:
            near = "about " if fact.compare in (Compare.NEAR, Compare.NEAR_ALL) else ""
            usual = shown(odd.usual, fact.unit)
            if of_state:
                usual = contrasted(fact, odd.values[ranked[0][1][0]], odd.usual)[1]
            facts |= {
                "values": tuple(value for value, _ in ranked[:_MOST_VALUES]),
                "usual": near + usual,
                "agreeing": len(odd.agreeing),
                "kind": of_kind or None,
            }
            # A single value is in the title already.
            by_node = [*by_node, (odd.agreeing, usual)] if len(ranked) > 1 else []
        facts |= {"by_node": tuple(by_node) or None, "tie": odd.tie}
        nodes = tuple(odd.values)
        following = [fact.next.replace("{node}", fold(nodes[:1]))] if fact.next else []
        severity = Severity(fact.verdict)
        return self.finding(fact.name, severity=severity, nodes=nodes, facts=facts, commands=following)


def _lacks(odd: Odd, nics: Sequence[str]) -> bool:
    """Return True if nodes lack a setting that others have of one of some interfaces."""
    words = set(re.split(r"[.\s]", f"{odd.fact.name} {odd.usual}"))
    return set(odd.values.values()) == {ABSENT} and not words.isdisjoint(nics)


def preflight(model: Model, expected: Mapping[str, str] | None = None) -> Preflight:
    """Return the preflight of a session, as far as its nodes were inspected; ``expected``: values by fact."""
    return finished(_in_steps(model, expected))


def _in_steps(model: Model, expected: Mapping[str, str] | None = None) -> Steps[Preflight]:
    context = NodeContext(model, expected=expected)
    yield from context.prepare()
    rules = [rule for rule in rules_of(Domain.NODES) if not (model.lab and getattr(rule, "not_in_lab", False))]
    findings: list[Finding] = []
    for rule in rules:
        findings += rule.findings(context)
        yield
    findings = _merged(findings, context.table)
    # Where addresses were tested, the findings about them have the results as well.
    if not model.lab and not any(model.addresses.layers):
        mesh = Mesh(model)
        for rule in LINK_LAYER_RULES:
            findings += rule.findings(mesh)
            yield
        findings = without_entries(findings, findings)
    for at, finding in enumerate(findings):
        commands = tuple(typed(_with_interface(command, finding, context.nodes), model) for command in finding.next)
        findings[at] = finding.replace(next=commands)
        findings[at] = findings[at].replace(next=in_order_of_blame(model, findings[at]))
    findings.sort(key=lambda finding: (finding.severity.rank, -len(finding.nodes)))
    return Preflight(findings, context.table, [*_missing(model), *unknown(context)])


def without_entries(findings: list[Finding], others: Iterable[Finding]) -> list[Finding]:
    """Return findings without entries of neighbours that differ, of which rules about the address show more."""
    named = {f"lladdr {one.facts.get('address')}" for one in others}
    return [one for one in findings if one.topic not in named]


def latest_preflight(model: Model) -> Preflight:
    """Return `preflight` of a model, cached until a node reports more."""
    return finished(latest_preflight_in_steps(model))


def latest_preflight_in_steps(model: Model) -> Steps[Preflight]:
    """Return `latest_preflight`; yield after each small step."""
    version, known = _LATEST.get(model, (None, None))
    if known is None or version != model.nodes_version:
        version = model.nodes_version
        known = yield from _in_steps(model)
        _LATEST[model] = version, known
    return known


def _merged(findings: list[Finding], table: FactTable) -> list[Finding]:
    """Return findings; a difference that a probe or a rule reported already becomes evidence of that finding.

    What a probe reports of all nodes alike does not explain in what one of them differs.
    """
    judges = {odd.fact.name: odd.fact.judges for odd in table.odd}
    merged = [finding for finding in findings if not isinstance(finding.rule, FactDiffers)]
    for one in findings:
        if not isinstance(one.rule, FactDiffers):
            continue
        for at, other in enumerate(merged):
            # A setting that differs, and that another rule judges by its name.
            named = bool(other.topic) and one.topic.endswith("." + other.topic)
            same = other.rule.id in _FOLLOWS.get(one.topic, ()) or named
            if isinstance(other.rule, ProbeJudgement):
                same = other.topic == one.topic or other.topic in judges.get(one.topic, ())
            common = len(other.nodes) == len(table.nodes) > len(one.nodes)
            # Where no value has a majority, all nodes differ, and the probe shows which of them are at fault.
            tie = one.facts.get("tie") and set(other.nodes) < set(one.nodes)
            if same and not common and (tie or (not one.facts.get("tie") and set(one.nodes) <= set(other.nodes))):
                # A note about a node alone may be more serious where the others differ.
                worse = min(one.severity, other.severity, key=lambda severity: severity.rank)
                related = (*other.facts.get("related", ()), one)
                merged[at] = other.replace(severity=worse, facts={**other.facts, "related": related})
                break
        else:
            merged.append(one)
    return merged


def _with_interface(command: str, one: Finding, nodes: Sequence[ProbedNode]) -> str:
    if "{nic}" not in command:
        return command
    node = next((node for node in nodes if node.name in one.nodes), None)
    entries = dicts(node.part("data_addresses")) if node is not None else []
    known = [name for entry in entries if (name := text(entry.get("nic")))]
    named = _WORDS.findall(" ".join(map(str, (*one.facts.get("values", ()), *one.facts.get("split", ())))))
    nic = next((name for name in known if name in named), known[0] if known else "INTERFACE")
    return command.replace("{nic}", shlex.quote(one_line(nic, 40)))


def _missing(model: Model) -> Iterable[tuple[tuple[str, ...], str]]:
    failed: dict[str, list[str]] = {}
    waiting: list[str] = []
    for record in model.nodes.values():
        if record.state.gone:
            hint = f" (next: {record.hint})" if record.hint else ""
            yield (record.name,), one_line(f"{record.name}: {record.text or record.state}{hint}", 400)
        elif record.inventory is None:
            waiting.append(record.name)
        for probe, result in record.probe_results.items():
            if result.keys() == {"error"}:
                failed.setdefault(f"{probe}: {one_line(str(result['error']), 300)}", []).append(record.name)
    if waiting:
        yield tuple(waiting), f"{fold(waiting)}: not inspected yet"
    yield from ((tuple(names), f"{fold(names)}: {text}") for text, names in failed.items())
