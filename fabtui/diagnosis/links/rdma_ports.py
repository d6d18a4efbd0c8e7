"""What looks tell of the RDMA ports that endpoints send over, as notes on the pairs concerned. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fabtui.diagnosis.preflight.probe_judgements import judgements, verdict_of
from fabtui.model.endpoints import Endpoint
from fabtui.model.facts.node_view import Looked, dicts
from fabtui.model.session_model import Model, NodeRecord
from fabtui.model.topology.leaf_switches import Port, guids_of, ports_of
from fabtui.sanitize import one_line
from fabtui_node.probes.rdma.port_counters import judge_counts, told_below

#: The looks that tell of ports.
_TELLING = ("ibstat", "rdma", "ibfabric")
#: So many cables between leaves are told for one pair.
_MOST_CABLES = 2


class PortTrouble(NamedTuple):
    """Something that is wrong with a port of a node, or with the cable in it.

    Attributes:
        node: The node.
        port: The port.
        verdict: ``bad`` (it cannot be used) or ``warn``.
        text: What is wrong, on one line.
    """

    node: str
    port: Port
    verdict: str
    text: str

    def __str__(self) -> str:
        return one_line(f"{self.node} {self.port}: {self.text}", 300)


def port_troubles(model: Model, endpoint: Endpoint) -> list[PortTrouble]:
    """Return what is wrong with the ports that an endpoint sends over; nothing where these are not known."""
    record = model.nodes.get(endpoint.node)
    ports = ports_of(endpoint, record)
    if record is None or not ports:
        return []
    found = list(_said(record, ports))
    for port in ports:
        if not _asked_itself(record, port):
            found += _walked(model, record, port)
    return list(dict.fromkeys(found))


def _said(record: NodeRecord, ports: list[Port]) -> Iterator[PortTrouble]:
    """Yield what the probes of the node itself say."""
    looks = {probe: record.looks[probe] for probe in _TELLING if probe in record.looks}
    names = {str(port): port for port in ports}
    for one in judgements(Looked(record.name, {}, looks)):
        # A port without a cable may be meant to be so, but not one that an endpoint sends over.
        verdict = "bad" if (one["probe"], one["verdict"]) == ("ibstat", "inconclusive") else verdict_of(one["verdict"])
        if one["subject"] in names and verdict != "note":
            yield PortTrouble(record.name, names[one["subject"]], verdict, one["text"])


def _asked_itself(record: NodeRecord, port: Port) -> bool:
    """Return whether the node asked about its own cable: then it tells of it better than others do."""
    for own in dicts((record.looks.get("ibfabric") or {}).get("ports")):
        if (own.get("ca"), own.get("port")) == port and isinstance(own.get("link"), dict):
            return True
    return False


def _walks(model: Model) -> Iterator[Mapping[str, Any]]:
    for record in model.nodes.values():
        fabric = (record.looks.get("ibfabric") or {}).get("fabric")
        if isinstance(fabric, dict):
            yield fabric


def _peer(link: Mapping[str, Any]) -> Mapping[str, Any]:
    peer = link.get("peer")
    return peer if isinstance(peer, dict) else {}


def _walked(model: Model, record: NodeRecord, port: Port) -> Iterator[PortTrouble]:
    """Yield what a node that walked over the whole fabric met at a port of another one."""
    guid = guids_of(record).get(port)
    if guid is None:
        return
    for fabric in _walks(model):
        for link in dicts(fabric.get("below")):
            if guid in (link.get("guid"), _peer(link).get("guid")):
                yield PortTrouble(record.name, port, "warn", told_below(link))
        leaves = fabric.get("leaves")
        leaf = leaves.get(guid) if isinstance(leaves, dict) else None
        theirs = (leaf.get("guid"), leaf.get("port")) if isinstance(leaf, dict) else None
        for bad in dicts(fabric.get("errors")):
            place = (bad.get("guid"), bad.get("port"))
            if bad.get("guid") == guid or place == theirs:
                at = "" if bad.get("guid") == guid else f", at {bad.get('node')} port {bad.get('port')}"
                for verdict, text in judge_counts(bad):
                    if verdict_of(verdict) != "note":
                        yield PortTrouble(record.name, port, verdict_of(verdict), text + at)


class PortNotes:
    """What is known to be wrong with ports and cables, by pair: for asking about many pairs of a model that stays.

    Args:
        model: What is known.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._of_end: dict[int, list[str]] = {}
        self._cables = [link for fabric in _walks(model) for link in dicts(fabric.get("below"))]

    def of(self, src: str, dst: str) -> list[str]:
        """Return what is wrong with the ports and cables between two endpoints of different nodes."""
        a, b = self._model.number(src), self._model.number(dst)
        if a is None or b is None or self._model.endpoints[a].node == self._model.endpoints[b].node:
            return []
        notes = [*self._end(a), *self._end(b)]
        return [*notes, *self._between(self._model.leaves.get(a), self._model.leaves.get(b))]

    def _end(self, number: int) -> list[str]:
        if number not in self._of_end:
            found = port_troubles(self._model, self._model.endpoints[number])
            self._of_end[number] = [str(one) for one in found]
        return self._of_end[number]

    def _between(self, here: str | None, there: str | None) -> list[str]:
        """Return which cables from the leaves of a pair up into the fabric are below what they could be."""
        if here is None or there is None or here == there:
            return []
        found = []
        for link in self._cables:
            peer = _peer(link)
            if link.get("type") == "switch" and any(
                guid in (here, there) for guid in (link.get("guid"), peer.get("guid"))
            ):
                ends = f"{link.get('name')} port {link.get('port')} to {peer.get('name')} port {peer.get('port')}"
                found.append(one_line(f"a cable between the leaves, {ends}: {told_below(link)}", 300))
        return found[:_MOST_CABLES]


def pair_notes(model: Model, src: str, dst: str) -> list[str]:
    """Return what is known to be wrong with the ports and cables between two endpoints of different nodes."""
    return PortNotes(model).of(src, dst)
