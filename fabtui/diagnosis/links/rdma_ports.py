"""Problems of the RDMA ports that endpoints send over, as reported by probes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from fabtui.diagnosis.finding import Severity
from fabtui.diagnosis.preflight.node_context import judgements, severity_of
from fabtui.model.endpoints import Endpoint
from fabtui.model.facts.leaf_switches import Port, guids_of, ports_of
from fabtui.model.facts.node_view import ProbedNode, dicts, field
from fabtui.model.records import NodeRecord, probed
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line
from fabtui_node.probes.rdma.port_counters import below_text, judge_counts

#: Probes that report on ports.
_PORT_PROBES = ("ibstat", "rdma", "ibfabric")
#: Maximum number of cables between leaves that are reported for one pair.
_MOST_CABLES = 2


class PortProblem(NamedTuple):
    """A problem of a port of a node, or of its cable."""

    node: str  #: The node.
    port: Port  #: The port.
    severity: Severity  #: ``bad`` (it cannot be used) or ``warn``.
    text: str  #: The problem, on one line.

    def __str__(self) -> str:
        return one_line(f"{self.node} {self.port}: {self.text}", 300)


def port_problems(model: Model, endpoint: Endpoint) -> list[PortProblem]:
    """Return the problems of the ports that an endpoint sends over; none if these are unknown."""
    record = model.nodes.get(endpoint.node)
    ports = ports_of(endpoint, record)
    if record is None or not ports:
        return []
    found = list(_reported(record, ports))
    for port in ports:
        if not _probed_itself(record, port):
            found += _walked(model, record, port)
    return list(dict.fromkeys(found))


def _reported(record: NodeRecord, ports: list[Port]) -> Iterator[PortProblem]:
    results = {probe: record.probe_results[probe] for probe in _PORT_PROBES if probe in record.probe_results}
    names = {str(port): port for port in ports}
    for one in judgements(ProbedNode(record.name, {}, results)):
        # A port without a cable may be intended, but not for an endpoint that sends over it.
        dark = (one.probe, one.verdict) == ("ibstat", "inconclusive")
        severity = Severity.BAD if dark else severity_of(one.verdict)
        if one.subject in names and severity is not Severity.NOTE:
            yield PortProblem(record.name, names[one.subject], severity, one.text)


def _probed_itself(record: NodeRecord, port: Port) -> bool:
    """Return True if the node inspected its own cable; its report is better than reports of other nodes."""
    for own in probed(record, "ibfabric", "ports"):
        if (own.get("ca"), own.get("port")) == port and isinstance(own.get("link"), dict):
            return True
    return False


def _walks(model: Model) -> Iterator[Mapping[str, Any]]:
    for record in model.nodes.values():
        fabric = field(record.probe_results.get("ibfabric"), "fabric")
        if isinstance(fabric, dict):
            yield fabric


def _peer(link: Mapping[str, Any]) -> Mapping[str, Any]:
    peer = link.get("peer")
    return peer if isinstance(peer, dict) else {}


def _walked(model: Model, record: NodeRecord, port: Port) -> Iterator[PortProblem]:
    guid = guids_of(record).get(port)
    if guid is None:
        return
    for fabric in _walks(model):
        for link in dicts(fabric.get("below")):
            if guid in (link.get("guid"), _peer(link).get("guid")):
                yield PortProblem(record.name, port, Severity.WARN, below_text(link))
        leaves = fabric.get("leaves")
        leaf = leaves.get(guid) if isinstance(leaves, dict) else None
        theirs = (leaf.get("guid"), leaf.get("port")) if isinstance(leaf, dict) else None
        for bad in dicts(fabric.get("errors")):
            place = (bad.get("guid"), bad.get("port"))
            if bad.get("guid") == guid or place == theirs:
                at = "" if bad.get("guid") == guid else f", at {bad.get('node')} port {bad.get('port')}"
                for verdict, text in judge_counts(bad):
                    if (severity := severity_of(verdict)) is not Severity.NOTE:
                        yield PortProblem(record.name, port, severity, text + at)


class PortNotes:
    """Problems of ports and cables by pair, cached for one state of a model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._of_end: dict[int, list[str]] = {}

    @cached_property
    def _cables(self) -> list[dict[str, Any]]:
        return [link for fabric in _walks(self._model) for link in dicts(fabric.get("below"))]

    def of(self, src: str, dst: str) -> list[str]:
        """Return the problems of ports and cables between two endpoints of different nodes."""
        a, b = self._model.table.number(src), self._model.table.number(dst)
        if a is None or b is None or self._model.endpoints[a].node == self._model.endpoints[b].node:
            return []
        notes = [*self._end(a), *self._end(b)]
        return [*notes, *self._between(self._model.table.leaves.get(a), self._model.table.leaves.get(b))]

    def _end(self, number: int) -> list[str]:
        if number not in self._of_end:
            found = port_problems(self._model, self._model.endpoints[number])
            self._of_end[number] = [str(one) for one in found]
        return self._of_end[number]

    def _between(self, here: str | None, there: str | None) -> list[str]:
        if here is None or there is None or here == there:
            return []
        found = []
        for link in self._cables:
            peer = _peer(link)
            if link.get("type") == "switch" and any(
                guid in (here, there) for guid in (link.get("guid"), peer.get("guid"))
            ):
                ends = f"{link.get('name')} port {link.get('port')} to {peer.get('name')} port {peer.get('port')}"
                found.append(one_line(f"a cable between the leaves, {ends}: {below_text(link)}", 300))
        return found[:_MOST_CABLES]


def pair_notes(model: Model, src: str, dst: str) -> list[str]:
    """Return the problems of ports and cables between two endpoints of different nodes."""
    return PortNotes(model).of(src, dst)
