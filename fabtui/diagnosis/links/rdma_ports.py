"""Problems of the RDMA ports that endpoints send over, as reported by probes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from fabtui.diagnosis.finding import Severity
from fabtui.diagnosis.preflight.node_context import judgements, severity_of
from fabtui.model.endpoints import Endpoint
from fabtui.model.facts.leaf_switches import Port, guids_of, ports_of
from fabtui.model.facts.node_view import Entry, ProbedNode, dicts, field
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
    # What a node reports of its own cable is better than reports of other nodes.
    own = [(link.get("ca"), link.get("port")) for link in probed(record, "ibfabric", "ports") if field(link, "link")]
    walked = (problem for port in ports if port not in own for problem in _walked(model, record, port))
    return list(dict.fromkeys([*_reported(record, ports), *walked]))


def _reported(record: NodeRecord, ports: list[Port]) -> Iterator[PortProblem]:
    results = {probe: record.probe_results[probe] for probe in _PORT_PROBES if probe in record.probe_results}
    names = {str(port): port for port in ports}
    for judged in judgements(ProbedNode(record.name, {}, results)):
        # A port without a cable may be intended, but not for an endpoint that sends over it.
        dark = (judged.probe, judged.verdict) == ("ibstat", "inconclusive")
        severity = Severity.BAD if dark else severity_of(judged.verdict)
        if judged.subject in names and severity is not Severity.NOTE:
            yield PortProblem(record.name, names[judged.subject], severity, judged.text)


def _walks(model: Model) -> list[Entry]:
    return dicts([field(record.probe_results.get("ibfabric"), "fabric") for record in model.nodes.values()])


def _walked(model: Model, record: NodeRecord, port: Port) -> Iterator[PortProblem]:
    guid = guids_of(record).get(port)
    if guid is None:
        return
    for fabric in _walks(model):
        for link in dicts(fabric.get("below")):
            if guid in (link.get("guid"), field(link, "peer", "guid")):
                yield PortProblem(record.name, port, Severity.WARN, below_text(link))
        leaf = field(fabric, "leaves", guid)
        theirs = [leaf.get("guid"), leaf.get("port")] if isinstance(leaf, dict) else None
        for bad in dicts(fabric.get("errors")):
            own = bad.get("guid") == guid
            at = "" if own else f", at {bad.get('node')} port {bad.get('port')}"
            for verdict, text in judge_counts(bad) if own or [bad.get("guid"), bad.get("port")] == theirs else ():
                if (severity := severity_of(verdict)) is not Severity.NOTE:
                    yield PortProblem(record.name, port, severity, text + at)


class PortNotes:
    """Problems of ports and cables by pair, cached for one state of a model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._of_end: dict[int, list[str]] = {}

    @cached_property
    def _cables(self) -> list[Entry]:
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
            self._of_end[number] = list(map(str, port_problems(self._model, self._model.endpoints[number])))
        return self._of_end[number]

    def _between(self, here: str | None, there: str | None) -> list[str]:
        if here is None or there is None or here == there:
            return []
        notes = []
        for link in (link for link in self._cables if link.get("type") == "switch"):
            if any(guid in (here, there) for guid in (link.get("guid"), field(link, "peer", "guid"))):
                other = f"{field(link, 'peer', 'name')} port {field(link, 'peer', 'port')}"
                ends = f"{link.get('name')} port {link.get('port')} to {other}"
                notes.append(one_line(f"a cable between the leaves, {ends}: {below_text(link)}", 300))
        return notes[:_MOST_CABLES]


def pair_notes(model: Model, src: str, dst: str) -> list[str]:
    """Return the problems of ports and cables between two endpoints of different nodes."""
    return PortNotes(model).of(src, dst)
