"""Rules about NVLink domains: trays of a rack that one set of NVLink switches should connect.

A domain is a cluster UUID and a clique (`fabtui.model.facts.nvlink_domains`). GPUs of different domains reach each
other over the network, as slowly as GPUs of different racks, and no pair among them stands out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from fabtui.diagnosis.finding import Domain, Finding, Kind, Rule, Severity, Subject, register
from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.model.endpoints import PairClass
from fabtui.model.facts.node_view import ProbedNode, field, gpu_models, number, text
from fabtui.model.facts.nvlink_domains import NvlinkDomain, domain_in, fabrics_of
from fabtui.model.layers import Layer
from fabtui.model.records import NodeRecord
from fabtui.model.session_model import Model
from fabtui.nodeset import fold

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
        for one in nodes:
            if one.domain is not None:
                domains.setdefault(one.domain, []).append(one.name)
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


def _values(model: Model) -> dict[str, Any]:
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
    name = "outside-nvlink-domain"
    title = "Node outside the NVLink domain of the others"
    message = (
        "[{alone} is in no NVLink domain (no cluster UUID), unlike {unlike}]"
        "[{where} is outside the NVLink domain of {others}][: clique {clique}, theirs is {usual}]"
    )
    next_step = (
        "Reset the GPUs of the node, or restart it; then compare its partition in the fabric manager (NMX) with theirs."
    )

    def check(self, context: Model) -> Iterator[Finding]:
        for kind in _kinds(context):
            placed = [one.name for one in kind.nodes if one.domain is not None]
            for one in kind.nodes:
                if one.domain is None:
                    facts = {"alone": one.name, "unlike": fold(placed)}
                    yield self._outside(context, one.name, facts, severity=Severity.BAD)
                elif one.odd:
                    gpus = [f"{one.name}:{index}" for index in one.odd]
                    facts = {"where": fold(gpus), "others": fold(kind.domains[one.domain])}
                    yield self._outside(context, one.name, facts, gpus=gpus, severity=Severity.BAD)
            for (domain, others), *rest in (mine for mine in _cluster_parts(kind) if not _is_split(mine)):
                for own, (name,) in rest:
                    facts = {"where": name, "others": fold(others)}
                    yield self._outside(context, name, facts | {"clique": own.clique, "usual": domain.clique})

    def _outside(
        self,
        model: Model,
        node: str,
        facts: dict[str, Any],
        gpus: list[str] | None = None,
        severity: Severity | None = None,
    ) -> Finding:
        subject = Subject(Kind.GPU, gpus[0]) if gpus and len(gpus) == 1 else Subject(Kind.NODE, node)
        return self.finding(
            node,
            nodes=(node,),
            severity=severity,
            facts=facts | _values(model),
            commands=(on_node(node, _FABRIC, model),),
            blames=subject,
        )


@register
class DomainSplit(_DomainRule):
    """The nodes of one NVLink cluster are in several cliques: its switches connect them, but NCCL uses the network."""

    id = "FT125"
    name = "nvlink-domain-split"
    title = "NVLink domain is split"
    message = "the NVLink domain of {nodes} is split: {parts}"
    next_step = "If it is not partitioned on purpose, compare the partitions in the fabric manager (NMX), and its log."

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
