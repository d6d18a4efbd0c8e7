"""Hardware of a session as a vendor asks for it: what was tested, and the parts at fault with their serial numbers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.finding import Domain, Finding, Kind, Route, Severity
from fabtui.history.components import Parts, known_identity, node_at
from fabtui.model.endpoints import Endpoint
from fabtui.model.facts.compare import shown
from fabtui.model.facts.node_view import dicts, field, gpu_of
from fabtui.model.records import NodeRecord, probed
from fabtui.model.session_model import Model
from fabtui.nodeset import count, fold, ranges
from fabtui.presentation.findings import brief_title
from fabtui.presentation.numbers import percent_text
from fabtui.presentation.wording import common_domain
from fabtui.report.document import Table
from fabtui.report.text import shortened
from fabtui.sanitize import one_line

#: Facts of nodes that the head of a report has, with the word before each value.
_SOFTWARE = {"driver": "driver", "cuda": "CUDA", "nccl": "NCCL"}
#: Maximum numbers of values of a fact that are named, and of rows of the list of all parts.
_MOST_VALUES, _MOST_PARTS = 3, 1024
_NOT_READ = "serial not read"
_WHERE = "the others are in the findings"


class Part(NamedTuple):
    """A part that can be replaced; texts are "" if they are unknown."""

    name: str  #: ``GPU n061:3``, ``NIC n061 mlx5_0``, ``cable n061 mlx5_0/1`` or ``node n061``.
    model: str
    serial: str  #: Serial number.
    identity: str  #: UUID, GUID, MAC address or machine id.

    @property
    def row(self) -> list[str]:
        return [one_line(text, 120) for text in (self.name, self.serial or _NOT_READ, self.identity, self.model)]


class HardwareList:
    """Parts of the nodes of a session."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._components = Parts(model)
        self._ends = {str(end): end for end in model.endpoints}

    def all(self) -> Iterator[Part]:
        for record in self._model.nodes.values():
            yield self.node(record)
            yield from (self.gpu(end) for end in self._model.table.of_node(record.name) if end.kind == "gpu")
            yield from (part for name in self._nics(record) for part in self.nic(record, name))

    def of(self, finding: Finding) -> list[Part]:
        """Return the parts that a finding blames: one, or those of which one is at fault."""
        subject, route = finding.subject, finding.facts.get("pair")
        names = [str(route.source), str(route.destination)] if isinstance(route, Route) else [subject.name]
        record = self._model.nodes.get(node_at(names[0]))
        if subject.kind is Kind.NODE and record is not None:
            return [self.node(record)]
        if subject.kind is Kind.NIC and record is not None:
            return [*self.nic(record, subject.name.partition(" ")[2])]
        ends = [end for name in names if (end := self._ends.get(name)) is not None]
        if subject.kind not in (Kind.GPU, Kind.PAIR) or not ends:
            return []
        if subject.kind is Kind.PAIR and len({end.node for end in ends}) > 1:
            nodes = [
                (self._model.nodes[end.node], end.nic) for end in ends if end.nic and end.node in self._model.nodes
            ]
            return [part for record, nic in nodes for part in self.nic(record, nic or "")]
        return [self.gpu(end) for end in ends if end.kind == "gpu"]

    def node(self, record: NodeRecord) -> Part:
        identity = field(record.probe_results.get("host"), "identity")
        product, serial = (known_identity(field(identity, name)) or "" for name in ("product", "serial"))
        component = self._components.nodes.get(record.name)
        known = "" if component is None or component.by_name else component.identity
        return Part(f"node {record.name}", product, serial, known)

    def gpu(self, end: Endpoint) -> Part:
        record = self._model.nodes.get(end.node)
        gpus = () if record is None else (field(record.inventory, "gpus"), probed(record, "gpus", "gpus"))
        serials = [known_identity(gpu_of(one, end).get("serial")) for one in gpus]
        boards = [] if record is None else probed(record, "kernel", "boards")
        serials += [known_identity(one.get("serial")) for one in boards if end.uuid and one.get("uuid") == end.uuid]
        return Part(f"GPU {end}", end.name or "", next(filter(None, serials), ""), end.uuid or "")

    def nic(self, record: NodeRecord, name: str) -> Iterator[Part]:
        """Yield a NIC by the name of its device, port or interface, and the cable in it."""
        device = name.partition("/")[0]
        entries = dicts(field(record.inventory, "nics"))
        mine = next((one for one in entries if device in (one.get("rdma"), one.get("name"))), {})
        probe = next(
            (o for o in probed(record, "rdma", "nics") if o.get("interface") in (mine.get("name"), device)), {}
        )
        component = self._components.named(f"{record.name} {device}")
        mac = known_identity(mine.get("mac")) or ""
        known = mac if component is None or component.by_name else component.identity
        serial = known_identity(probe.get("serial")) or ""
        yield Part(f"NIC {record.name} {device}", known_identity(probe.get("driver")) or "", serial, known)
        module = field(probe, "module")
        if serial := known_identity(field(module, "serial")) or "":
            words = (known_identity(field(module, key)) for key in ("vendor", "part"))
            yield Part(f"cable {record.name} {device}", " ".join(filter(None, words)), serial, "")

    def _nics(self, record: NodeRecord) -> list[str]:
        inventory = record.inventory or {}
        data = [str(entry.get("nic")) for entry in dicts(inventory.get("data_addresses"))]
        rdma = {str(nic.get("name")): str(nic.get("rdma") or nic.get("name")) for nic in dicts(inventory.get("nics"))}
        names = [
            *(str(port.get("ca")) for port in dicts(inventory.get("ib"))),
            *(rdma.get(name, name) for name in data),
        ]
        return [name for name in dict.fromkeys(names) if name != "lo"]


def parts_at_fault(one: Diagnosis) -> Table | None:
    """Return a row for each part that findings blame; a note names the findings that blame none."""
    hardware, rows, partless = HardwareList(one.model), [], []
    for number, finding in enumerate(one.findings, 1):
        if finding.severity is not Severity.BAD or finding.known or finding.rule.domain is Domain.RUNNING:
            continue
        parts = hardware.of(finding)
        sure = "" if finding.confidence is None else f", {percent_text(finding.confidence)} sure"
        behind = [" ".join(brief_title(finding)).strip(), f"{number}{sure}"]
        choice = f"one of {len(parts)}: " if len(parts) > 1 else ""
        rows += [[f"{choice}{part.row[0]}", *part.row[1:3], *behind] for part in parts]
        partless += [] if parts else [number]
    if not rows and not partless:
        return None
    notes = [f"findings without a single part to blame: {ranges(partless)}"] if partless else []
    if not rows:
        return Table("", [[""]], notes=notes)
    table = Table("", [["part", "serial number", "identity", "fault", "finding"], *rows], range(5), notes)
    return shortened(table, "parts", _WHERE)


def all_parts(model: Model) -> Table | None:
    rows = [part.row for part in HardwareList(model).all()]
    table = Table("", [["part", "serial number", "identity", "model"], *rows], range(4))
    return shortened(table, "parts", "--json has all nodes", _MOST_PARTS) if rows else None


def head_rows(one: Diagnosis, site: str = "") -> list[tuple[str, str]]:
    model = one.model
    ends = [end for end in model.endpoints if end.kind in ("gpu", "cpu")]
    kinds = dict.fromkeys("CPU rank" if end.kind == "cpu" else end.name or "GPU" for end in ends)
    numbers = [sum((end.name or "GPU") == kind or end.kind == "cpu" for end in ends) for kind in kinds]
    hardware = ", ".join(f"{number} x {one_line(kind, 60)}" for kind, number in zip(kinds, numbers, strict=True))
    hardware = hardware or (count(len(one.job.ranks), "rank") if one.job is not None else "no endpoints")
    rows = [
        ("site", one_line(site or common_domain(model.nodes).lstrip("."), 200)),
        ("date", _date(model)),
        ("hardware", f"{hardware} in {count(len(model.nodes), 'node')}, {one_line(fold(model.nodes), 200)}"),
        ("software", _software(one)),
        ("serial numbers", _serials(model)),
        ("host keys", "were not checked" if model.options.get("host_key_policy") == "off" else ""),
        ("lab", one_line(", ".join(filter(None, [model.lab, *model.faults])), 400)),
    ]
    return [row for row in rows if row[1]]


def _date(model: Model) -> str:
    if not model.started:
        return "unknown"
    return f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime(model.started))}, {model.elapsed:.1f} s"


def _software(one: Diagnosis) -> str:
    table, parts = one.preflight.table, []
    for fact in table.facts:
        if fact.name in _SOFTWARE:
            values = dict.fromkeys(shown(value, fact.unit) for value in table.values[fact.name].values() if value)
            more = f" and {len(values) - _MOST_VALUES} more" if len(values) > _MOST_VALUES else ""
            parts.append(f"{_SOFTWARE[fact.name]} {' or '.join([*values][:_MOST_VALUES])}{more}")
    return one_line(", ".join(parts), 200)


def _serials(model: Model) -> str:
    counted: dict[str, list[bool]] = {}
    for part in HardwareList(model).all():
        counted.setdefault(part.name.partition(" ")[0], []).append(bool(part.serial))
    texts = [f"{sum(known)} of {count(len(known), kind)}" for kind, known in counted.items()]
    return f"read of {', '.join(texts)}" if texts else ""
