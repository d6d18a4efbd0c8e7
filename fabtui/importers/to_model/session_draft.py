"""A model in the making: what was read from files, as the events that a session would have had."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from fabtui.model import events as kinds
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import FORMAT, Event, JobEvidence, NodeState
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.records import NodeRecord
from fabtui.sanitize import one_line
from fabtui.version import __version__

_UNFIT = re.compile(r"[^\w.-]+")


def node_name(text: str) -> str:
    """Return a name fit for a node: of a file's name or a host's, without what no node's name has."""
    return _UNFIT.sub("-", one_line(text)).strip("-.")[:80] or "file"


class SessionDraft:
    """Nodes, endpoints and measurements as they are found; several files may go into one."""

    def __init__(self) -> None:
        self.nodes: dict[str, None] = {}
        self.endpoints: dict[tuple[str, int], dict[str, Any]] = {}
        self.measurements: list[Measurement] = []
        self.untested: list[tuple[str, str, str]] = []
        #: The arms of a comparison, the first one first; what belongs to it has no arm in its measurement.
        self.arms: list[str] = []
        self.probes: dict[str, None] = {}
        #: What sessions know of a node: its state, inventory (the model finds rails in it) and probe results.
        self.records: dict[str, NodeRecord] = {}
        self.lab: str | None = None
        self.evidence: list[JobEvidence] = []  #: What reports of a running job conclude.
        self._taken: dict[str, None] = {}
        self._seated: set[str] = set()

    def unique(self, text: str) -> str:
        """Return a node's name made of a file's name, one that no other file has."""
        name = base = node_name(text)
        number = 1
        while name in self._taken or name in self.nodes:
            number += 1
            name = f"{base}-{number}"
        self._taken.setdefault(name)
        return name

    def facts(self, node: str, probes: Mapping[str, dict[str, Any]]) -> None:
        record = self.record(self.node(node))
        record.inventory = record.inventory or {}
        record.probe_results.update(probes)

    def conclusion(self, source: str, values: Mapping[str, Any]) -> None:
        """Keep who is behind in a running job by a source of evidence, see `fabtui.model.job_evidence`."""
        names = {"sentences": "answer", "suspects": "behind", "hangs": "hangs", "next": "next"}
        concluded = {ours: values.get(name) for ours, name in names.items()}
        self.evidence.append(JobEvidence(node="", source=source, value=concluded, time=1.0))

    def node(self, name: str) -> str:
        self.nodes.setdefault(name)
        return name

    def endpoint(self, node: str, index: int, **fields: Any) -> str:
        """Make sure that an endpoint is there; returns its name. Fields are those of `Endpoint`."""
        self.node(node)
        self._seated.add(node)
        kept = self.endpoints.setdefault((node, index), {})
        if kept.get("kind") == "none":
            # It stood for a node that has endpoints after all.
            kept.clear()
        kept.update({name: value for name, value in fields.items() if value is not None})
        return str(Endpoint(0, node, index, kind=kept.get("kind", "gpu")))

    def nowhere(self, node: str) -> str:
        """Make sure that a node has at least the one row of a node without endpoints; returns the node's name."""
        if node not in self._seated:
            self.node(node)
            self._seated.add(node)
            self.endpoints[node, 0] = {"kind": "none"}
        return node

    def measured(self, probe: str, layer: Layer, src: str, dst: str, **fields: Any) -> None:
        """Keep a measurement; without a verdict it is ok."""
        self.probes.setdefault(probe)
        fields.setdefault("verdict", Verdict.OK)
        self.measurements.append(Measurement(layer=layer, src=src, dst=dst, **fields))

    def events(self) -> list[Event]:
        # A node that got endpoints after all needs no row that stands for none.
        real = {node for (node, _), fields in self.endpoints.items() if fields.get("kind") != "none"}
        places = {name: number for number, name in enumerate(self.nodes)}
        kept = [key for key, fields in self.endpoints.items() if fields.get("kind") != "none" or key[0] not in real]
        kept.sort(key=lambda key: (places[key[0]], key[1]))
        endpoints = [Endpoint(number, *key, **self.endpoints[key]) for number, key in enumerate(kept)]
        options, nodes = {"probes": list(self.probes) or ["read"], "unnamed": list(self._taken)}, list(self.nodes)
        happened: list[Event] = [
            kinds.SessionStart(
                format=FORMAT, version=__version__, nodes=nodes, faults=[], lab=self.lab, options=options
            ),
            *(event for name in self.nodes for event in self._state(name)),
            kinds.EndpointsAdded(endpoints=endpoints, notes={n: r.note for n, r in self.records.items() if r.note}),
            # After the endpoints: some give the leaf switches of these.
            *(event for name in self.nodes for event in self._probed(name)),
            kinds.PlanUpdate(slow_below=0.7, arms=self.arms, untested=self.untested),
            kinds.Measured(measurements=self.measurements),
            *self.evidence,
            kinds.PhaseStart(name="done", total=0),
        ]
        return [replace(event, seq=number) for number, event in enumerate(happened)]

    def record(self, node: str) -> NodeRecord:
        return self.records.setdefault(node, NodeRecord(node, NodeState.READY, "read from a file"))

    def _state(self, node: str) -> Iterator[Event]:
        record = self.record(node)
        yield kinds.NodeUpdate(node=node, state=record.state, text=record.text, hint=record.hint)
        if record.inventory is not None:
            yield kinds.InventoryUpdate(node=node, value=record.inventory)

    def _probed(self, node: str) -> Iterator[Event]:
        record = self.record(node)
        for results in (record.first_probe_results, record.probe_results):
            for probe, value in results.items():
                failed = value.keys() == {"error"}
                error = str(value["error"]) if failed else None
                yield kinds.ProbeResult(node=node, probe=probe, value=None if failed else value, error=error)
