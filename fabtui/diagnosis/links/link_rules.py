"""Rules about NVLinks, the domains that they make of nodes, and RDMA ports.

A domain (`fabtui.model.facts.nvlink_domains`) is a cluster UUID and a clique: trays of a rack that one set of NVLink
switches should connect. GPUs of different domains reach each other over the network, as slowly as GPUs of different
racks, and no pair among them stands out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fabtui.diagnosis.finding import Domain, Finding, Kind, Rule, Severity, Subject, register
from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.links.rdma_ports import port_problems
from fabtui.model.endpoints import PairClass, node_of
from fabtui.model.facts.node_view import Entry, ProbedNode, dicts, field, gpu_models, number, text
from fabtui.model.facts.nvlink_domains import NvlinkDomain, domain_in, fabrics_of
from fabtui.model.layers import Layer
from fabtui.model.records import NodeRecord, listed, probed
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.sanitize import one_line
from fabtui_node.parsers.nvidia.smi_nvlink import ERRORS

_FABRIC = "nvidia-smi -q | grep -A4 Fabric"
#: Number of nodes that share a domain, from which others of their kind are expected in one.
_FEWEST = 2
#: Words for GPUs that have joined their fabric.
_JOINED = ("completed", None)


class _Placed(NamedTuple):
    """A node of a kind whose GPUs belong to NVLink domains that span nodes."""

    name: str
    domain: NvlinkDomain | None  #: Domain of its GPUs; None if they have joined none.
    odd: tuple[int, ...] = ()  #: Indexes of GPUs in a different domain, or in none.


def _placed(record: NodeRecord) -> _Placed | None:
    """Return where a node is; None if that is unknown, or it has no NVLink fabric or has not joined it (FT123)."""
    fabrics = fabrics_of(record)
    if not fabrics or any(text(field(fabric, "state")) not in _JOINED for fabric in fabrics.values()):
        return None
    domains = {index: domain_in({"fabric": fabric}) for index, fabric in fabrics.items()}
    if any(domains[index] is None and number(field(fabrics[index], "clique")) is None for index in fabrics):
        return None
    usual = Counter(domains.values()).most_common(1)[0][0]
    return _Placed(record.name, usual, tuple(index for index, domain in domains.items() if domain != usual))


class _Kind(NamedTuple):
    """Nodes with the same GPUs, some of which share a domain."""

    nodes: list[_Placed]
    domains: dict[NvlinkDomain, list[str]]  #: Nodes of each domain, the largest first.


def _kinds(model: Model) -> Iterator[_Kind]:
    kinds: dict[tuple[str, ...], list[_Placed]] = {}
    for record in model.nodes.values():
        if not record.state.gone and (placed := _placed(record)) is not None:
            probed = ProbedNode(record.name, record.inventory or {}, record.probe_results)
            kinds.setdefault(tuple(sorted(set(gpu_models(probed)))), []).append(placed)
    for nodes in kinds.values():
        domains: dict[NvlinkDomain, list[str]] = {}
        for node in nodes:
            if node.domain is not None:
                domains.setdefault(node.domain, []).append(node.name)
        if any(len(names) >= _FEWEST for names in domains.values()):
            yield _Kind(nodes, dict(sorted(domains.items(), key=lambda item: -len(item[1]))))


def _cluster_parts(kind: _Kind) -> Iterator[list[tuple[NvlinkDomain, list[str]]]]:
    for cluster in dict.fromkeys(domain.cluster for domain in kind.domains):
        mine = [(domain, names) for domain, names in kind.domains.items() if domain.cluster == cluster]
        if len(mine) > 1:
            yield mine


def _is_split(mine: list[tuple[NvlinkDomain, list[str]]]) -> bool:
    """Return True if a cluster is in parts, rather than a node or two out of it."""
    (_, most), *others = mine
    return len(most) < _FEWEST or len(others) > _FEWEST or any(len(names) > 1 for _, names in others)


def _values(model: Model) -> dict[str, object]:
    inside = model.median(Layer.P2P, PairClass.SAME_DOMAIN)
    between = model.median(Layer.P2P, PairClass.SAME_RAIL) or model.median(Layer.P2P, PairClass.CROSS_RAIL)
    return {"inside": inside, "between": between} if inside and between else {}


class _DomainRule(Rule[Model]):
    domain = Domain.LINKS
    severity = Severity.WARN
    evidence = ("usual values: {inside:value} GB/s within an NVLink domain, {between:value} GB/s between them",)


@register
class OutsideDomain(_DomainRule):
    """A node, or some of its GPUs, is not in the NVLink domain of similar nodes: a different clique, or none."""

    id = "FT124"

    def check(self, context: Model) -> Iterator[Finding]:
        for kind in _kinds(context):
            placed = [node.name for node in kind.nodes if node.domain is not None]
            for name, domain, odd in kind.nodes:
                if domain is None:
                    facts = {"alone": name, "unlike": fold(placed)}
                    yield self._outside(context, name, facts, severity=Severity.BAD)
                elif odd:
                    gpus = [f"{name}:{index}" for index in odd]
                    facts = {"where": fold(gpus), "others": fold(kind.domains[domain])}
                    yield self._outside(context, name, facts, gpus=gpus, severity=Severity.BAD)
            for (domain, others), *rest in (mine for mine in _cluster_parts(kind) if not _is_split(mine)):
                for own, (name,) in rest:
                    facts = {"where": name, "others": fold(others)}
                    yield self._outside(context, name, facts | {"clique": own.clique, "usual": domain.clique})

    def _outside(
        self,
        model: Model,
        node: str,
        facts: Mapping[str, object],
        gpus: Sequence[str] = (),
        severity: Severity | None = None,
    ) -> Finding:
        subject = Subject(Kind.GPU, gpus[0]) if len(gpus) == 1 else Subject(Kind.NODE, node)
        return self.finding(
            node,
            nodes=(node,),
            severity=severity,
            facts={**facts, **_values(model)},
            commands=(on_node(node, _FABRIC, model),),
            blames=subject,
        )


@register
class DomainSplit(_DomainRule):
    """The nodes of one NVLink cluster are in several cliques: its switches connect them, but NCCL uses the network."""

    id = "FT125"

    def check(self, context: Model) -> Iterator[Finding]:
        for kind in _kinds(context):
            for mine in filter(_is_split, _cluster_parts(kind)):
                nodes = [name for name in context.nodes if any(name in names for _, names in mine)]
                parts = ", ".join(f"{fold(names)} in clique {domain.clique}" for domain, names in mine)
                yield self.finding(
                    nodes[0],
                    nodes=nodes,
                    facts={"nodes": fold(nodes), "parts": parts, **_values(context)},
                    commands=[on_node(names[0], _FABRIC, context) for _, names in mine[:2]],
                    blames=Subject(Kind.NODES, fold(nodes)),
                )


class _LinkRule(Rule[Model]):
    domain = Domain.LINKS


@register
class NvlinkInactive(_LinkRule):
    """NVLinks of a GPU that were active when the session started are no longer active.

    That a GPU has fewer active NVLinks than the others is rule FT120: links without a bridge are inactive by design.
    """

    id = "FT101"

    def check(self, model: Model) -> Iterator[Finding]:
        for record in model.nodes.values():
            before = first_links(record)
            for gpu in probed(record, "nvlink", "gpus"):
                index, links = one_line(str(gpu.get("index")), 8), dicts(gpu.get("links"))
                dark = [str(link.get("link")) for link in links if link.get("state") not in (None, "active")]
                was = {number: before.get((str(gpu.get("index")), number), {}).get("state") for number in dark}
                dark = [one_line(number, 8) for number in dark if was[number] == "active"]
                if dark:
                    facts = {"node": record.name, "gpu": index, "inactive": len(dark), "links": len(links)}
                    yield self.finding(
                        f"{record.name} GPU {index}",
                        nodes=(record.name,),
                        facts={**facts, "numbers": tuple(dark)},
                        commands=[on_node(record.name, f"nvidia-smi nvlink -{letter}", model) for letter in "se"],
                        weight=1,
                        blames=Subject(Kind.GPU, f"{record.name}:{index}"),
                    )


class _PortRule(_LinkRule):
    def _of_nic(self, model: Model, record: NodeRecord, ca: str, facts: Mapping[str, str]) -> Finding:
        return self.finding(
            f"{record.name} {ca}",
            nodes=(record.name,),
            facts={"node": record.name, **facts},
            commands=(on_node(record.name, f"ibstat {one_line(ca, 40)}", model),),
            weight=1,
            blames=Subject(Kind.NIC, f"{record.name} {ca}"),
        )


@register
class RdmaPort(_PortRule):
    """Something is wrong with an RDMA port that endpoints send over, or with its cable.

    Where no endpoints are known, as in a preflight and in outputs of tools, the judgement of the probe is FT301.
    """

    id = "FT103"

    def check(self, model: Model) -> Iterator[Finding | None]:
        for record in model.nodes.values():
            ends = model.table.of_node(record.name)
            problems = dict.fromkeys(problem for end in ends for problem in port_problems(model, end))
            yield None
            for problem in problems:
                facts = {"port": str(problem.port), "problem": problem.text}
                finding = self._of_nic(model, record, problem.port.ca, facts)
                yield finding.replace(topic=f"{record.name} {problem.port}", severity=problem.severity)


@register
class RdmaPortInactive(_PortRule):
    """The inventory shows a port next to endpoints that is not active."""

    id = "FT104"

    def check(self, model: Model) -> Iterator[Finding]:
        for record in (record for record in model.nodes.values() if "ibstat" not in record.probe_results):
            ends = model.table.of_node(record.name)
            used = {endpoint.nic for endpoint in ends if endpoint.nic}
            known = [problem.port for endpoint in ends for problem in port_problems(model, endpoint)]
            for port in listed(record, "ib"):
                names = {name for key in ("ca", "netdev") if isinstance(name := port.get(key), str)}
                place, state = (port.get("ca"), port.get("port")), port.get("state")
                if used & names and state not in (None, "Active") and place not in known:
                    ca = one_line(str(port.get("ca")), 40)
                    facts = {"device": f"{ca} port {port.get('port')}", "state": str(state)}
                    yield self._of_nic(model, record, ca, {**facts, "physical": str(port.get("phys_state"))})


@register
class GpuInUse(_LinkRule):
    """Another process uses a GPU that was tested."""

    id = "FT105"

    def check(self, model: Model) -> Iterator[Finding]:
        for end, process in gpus_in_use(model).items():
            facts = {"gpu": end, "process": process}
            node = node_of(end)
            yield self.finding(end, nodes=(node,), facts=facts, blames=Subject(Kind.GPU, end))


def gpus_in_use(model: Model) -> dict[str, str]:
    """Return the processes of others on each tested GPU that has any, as one text by endpoint."""
    tested = {str(end) for end in model.endpoints}
    processes = {}
    for record in model.nodes.values():
        for gpu in listed(record, "gpus"):
            end, using = f"{record.name}:{gpu.get('index')}", dicts(gpu.get("processes"))[:2]
            if using and end in tested:
                names = (f"{process.get('name') or 'a process'} (pid {process.get('pid')})" for process in using)
                processes[end] = ", ".join(one_line(name, 80) for name in names)
    return processes


def first_links(record: NodeRecord) -> dict[tuple[str, str], Entry]:
    """Return the NVLinks of a node as they were first read, by GPU and number, as texts: these may be of any type."""
    gpus = dicts(field(record.first_probe_results.get("nvlink"), "gpus"))
    return {(str(gpu.get("index")), str(link.get("link"))): link for gpu in gpus for link in dicts(gpu.get("links"))}


def error_counters(link: Entry) -> dict[str, int]:
    """Return the error counters of a link. Traffic and corrected errors grow on healthy links too."""
    counters = link.get("counters")
    items = counters.items() if isinstance(counters, dict) else ()
    return {name: n for name, n in items if name in ERRORS and isinstance(n, int) and not isinstance(n, bool)}
