"""The fabric as a tree: NVLink domains, leaf switches, rails, and nodes with their GPUs, switches and NICs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fabtui.diagnosis.node_faults import NodeFaults
from fabtui.diagnosis.pairs.tally import Pair, Tally
from fabtui.model.endpoints import Endpoint, node_of
from fabtui.model.facts.leaf_switches import leaf_names
from fabtui.model.facts.node_view import Entry, connections, dicts, field, number, text
from fabtui.model.facts.nvlink_domains import domain_names
from fabtui.model.measurement import SEVERITY, Verdict, worst
from fabtui.model.records import NodeRecord, probed
from fabtui.model.session_model import Model
from fabtui.nodeset import count
from fabtui.presentation.cell_levels import Glyphs, style_of
from fabtui.presentation.wording import MUTED, Part, verdict_style, verdict_words
from fabtui.presentation.wrapping import HEADING
from fabtui.sanitize import one_line

#: Connections through PCIe switches alone.
SWITCHED = ("PIX", "PXB")
#: Style of what the selected pair passes through.
ON_PATH = "bold reverse"


@dataclass(frozen=True)
class Branch:
    """A line of the tree."""

    key: str  #: Name of the place, which stays the same while verdicts change.
    parts: list[Part]  #: Text of the line.
    children: Callable[[], list[Branch]] = list  #: Lines below it.
    node: str | None = None  #: Node that the line is about.
    on_path: bool = False  #: Whether the selected pair passes through it.
    leads: bool = False  #: Whether there are lines below.


_Below = Callable[[], list[Branch]]


class Topology:
    """Tree of a session; ``pair`` are the numbers of the selected endpoints.

    A bad pair counts at the nodes that answer for it (``faults``).
    """

    def __init__(
        self, model: Model, tally: Tally, faults: NodeFaults, pair: tuple[int, int] | None, glyphs: Glyphs
    ) -> None:
        self._model, self._glyphs = model, glyphs
        self._pair = [model.endpoints[number] for number in pair] if pair is not None else []
        self._bad = tally.bad
        self._rank = {name: at for at, name in enumerate(faults.causes)}  #: Nodes at fault, which come first.
        self._bad_of: defaultdict[str, list[Pair]] = defaultdict(list)
        self._strays_of: defaultdict[str, list[Pair]] = defaultdict(list)
        for pair_of_ends in faults.strays:
            for end in pair_of_ends:
                self._strays_of[end].append(pair_of_ends)
        for pair_of_ends in tally.bad.keys() - faults.strays.keys():
            holders = faults.holders.get(pair_of_ends)
            for end in pair_of_ends:
                if holders is None or node_of(end) in holders:
                    self._bad_of[end].append(pair_of_ends)
        table = tally.table
        tested = () if table is None else np.union1d(table.source, table.target).tolist()
        self._tested = {str(model.endpoints[at]) for at in tested if at < len(model.endpoints)}

    def roots(self) -> list[Branch]:
        model = self._model
        ends = [end for end in model.endpoints if end.kind != "none"]
        by_leaf: defaultdict[str, list[Endpoint]] = defaultdict(list)
        by_rail: defaultdict[int, list[Endpoint]] = defaultdict(list)
        for end in ends:
            if (leaf := model.table.leaves.get(end.number)) is not None:
                by_leaf[leaf].append(end)
            if end.rail is not None:
                by_rail[end.rail].append(end)
        names = leaf_names(model.nodes.values())
        leaves = [self._group("leaf", leaf, names.get(leaf, leaf), own) for leaf, own in by_leaf.items()]
        rails = [self._group("rail", str(rail), f"rail {rail}", own) for rail, own in sorted(by_rail.items())]
        unknown = len(ends) - sum(map(len, by_leaf.values()))
        about = f"{len(leaves)}, {'inferred from results' if model.inferred_leaves else 'reported by probes'}"
        about += f", unknown of {count(unknown, 'endpoint')}" if unknown else ""
        return [
            *self._domains(ends),
            *([self._section("leaf switches", about, leaves)] if leaves else []),
            *([self._section("rails", str(len(rails)), rails)] if rails else []),
            self._section(
                "nodes", str(len(model.nodes)), [self._node(name) for name in self._at_fault_first(model.nodes)]
            ),
        ]

    def _at_fault_first(self, nodes: Iterable[str]) -> list[str]:
        return sorted(nodes, key=lambda node: self._rank.get(node, len(self._rank)))

    def _domains(self, ends: list[Endpoint]) -> list[Branch]:
        domain_of = self._model.table.domains
        by_domain: dict[str, list[Endpoint]] = {}
        for end in ends:
            if (domain := domain_of.get(end.number)) is not None:
                by_domain.setdefault(domain, []).append(end)
        if not by_domain:
            return []
        names = domain_names(by_domain)
        lines = [self._group("domain", domain, names[domain], own) for domain, own in by_domain.items()]
        if others := [end for end in ends if end.number not in domain_of and end.kind == "gpu"]:
            lines.append(self._group("domain", "-", "in no NVLink domain, or unknown", others))
        return [self._section("NVLink domains", f"{len(by_domain)}, reported by probes", lines)]

    def _section(self, name: str, about: str, below: list[Branch]) -> Branch:
        parts: list[Part] = [(name, HEADING), (f"  {about}", MUTED)]
        return Branch(name, parts, lambda: below, on_path=any(one.on_path for one in below), leads=bool(below))

    def _group(self, kind: str, key: str, name: str, ends: list[Endpoint]) -> Branch:
        nodes: defaultdict[str, list[Endpoint]] = defaultdict(list)
        for end in ends:
            nodes[end.node].append(end)
        about = f"{count(len(nodes), 'node')}, {count(len(ends), 'endpoint')}"

        def below() -> list[Branch]:
            return [self._endpoints(f"{kind} {key}", node, nodes[node]) for node in self._at_fault_first(nodes)]

        return self._line(f"{kind} {key}", name, ends, below, about=about)

    def _endpoints(self, above: str, node: str, ends: list[Endpoint]) -> Branch:
        if len(ends) == 1:
            return self._endpoint(above, ends[0])
        lines = [self._endpoint(f"{above} {node}", end) for end in ends]
        return self._line(f"{above} {node}", node, ends, lambda: lines, node=node, about=count(len(ends), "endpoint"))

    def _endpoint(self, above: str, end: Endpoint) -> Branch:
        about = [end.nic or "NIC unknown", *([] if end.rail is None else [f"rail {end.rail}"])]
        return self._line(f"{above} {end}", str(end), [end], node=end.node, about=one_line(", ".join(about), 80))

    def _node(self, name: str) -> Branch:
        ends = [end for end in self._model.table.of_node(name) if end.kind != "none"]
        gone = self._model.gone(name)
        note = str(gone.state) if gone is not None else count(len(ends), "endpoint")
        return self._line(f"node {name}", name, ends, lambda: self._inside(name), node=name, about=note)

    def _inside(self, name: str) -> list[Branch]:
        record = self._model.nodes[name]
        layout = _node_layout(record)
        ends = {end.index: end for end in self._model.table.of_node(name) if end.kind == "gpu"}
        by_numa: defaultdict[int | None, list[list[_Device]]] = defaultdict(list)
        for group in layout.groups:
            by_numa[next((one.numa for one in group if one.numa is not None), None)].append(group)
        lines: list[Branch] = []
        if layout.nvlink:
            inside = len(self._pair) == 2 and all(end.node == name and end.kind == "gpu" for end in self._pair)
            title = {True: "NVSwitch", False: "NVLink, direct", None: "NVLink"}[layout.switched]
            lines.append(self._plain(f"node {name} nvlink", title, layout.nvlink, name, inside))
        for numa, groups in sorted(by_numa.items(), key=lambda item: -1 if item[0] is None else item[0]):
            key = f"node {name} numa {numa}"
            below = [self._switch(f"{key} {at}", name, group, ends) for at, group in enumerate(groups)]
            devices = [line for lines_below in below for line in lines_below]
            if numa is None and len(by_numa) == 1:
                # Nothing is known of NUMA nodes: no line about them.
                lines += devices
                continue
            title = "NUMA node unknown" if numa is None else f"NUMA node {numa}"
            passed = any(line.on_path for line in devices)
            lines.append(self._plain(key, title, "", name, passed, devices))
        return lines or [self._plain(f"node {name} -", "no device is known", "", name, False)]

    def _switch(self, key: str, node: str, group: list[_Device], ends: dict[int, Endpoint]) -> list[Branch]:
        used = {end.nic for end in self._pair if end.node == node}
        lines = []
        for device in group:
            end = ends.get(device.gpu) if device.gpu is not None else None
            if end is not None:
                lines.append(self._line(f"{key} {device.name}", device.name, [end], node=node, about=device.about))
            else:
                passed = device.gpu is None and device.name in used and self._leaves_node()
                lines.append(self._plain(f"{key} {device.name}", device.name, device.about, node, passed))
        if len(group) < 2:
            return lines
        passed = any(line.on_path for line in lines) and self._leaves_node()
        return [self._plain(key, "PCIe switch", "", node, passed, lines)]

    def _leaves_node(self) -> bool:
        return len({end.node for end in self._pair}) == 2

    def _plain(self, key: str, name: str, about: str, node: str, on_path: bool, below: Sequence[Branch] = ()) -> Branch:
        parts: list[Part] = [(one_line(name, 60), ON_PATH if on_path else ""), (f"  {one_line(about, 80)}", MUTED)]
        return Branch(key, parts, lambda: [*below], node, on_path, bool(below))

    def _line(
        self,
        key: str,
        name: str,
        ends: list[Endpoint],
        below: _Below | None = None,
        *,
        node: str | None = None,
        about: str = "",
    ) -> Branch:
        """Return a line with the verdict of endpoints: ok if all that is known of them is, unknown without a test."""
        pairs = dict.fromkeys(pair for end in ends for pair in self._bad_of.get(str(end), ()))
        bad = [self._bad[pair] for pair in pairs]
        tested = any(str(end) in self._tested for end in ends)
        verdict = worst(bad) if bad else Verdict.OK if tested else Verdict.UNTESTED
        on_path = any(end in self._pair for end in ends)
        glyph = "?" if verdict is Verdict.UNTESTED else self._glyphs.of_style[style_of(verdict, 1.0)]
        style = verdict_style(verdict)
        parts: list[Part] = [(glyph, style), (" ", ""), (one_line(name, 60), ON_PATH if on_path else "")]
        by_gravity = sorted(Counter(bad).items(), key=lambda item: -SEVERITY.index(item[0]))
        counts: list[Part] = []
        for word, times in by_gravity:
            counts += [(", " if counts else "  ", ""), (f"{times} {verdict_words(word)}", verdict_style(word))]
        parts += counts if bad else [] if tested else [("  untested", MUTED)]
        if strays := {pair for end in ends for pair in self._strays_of.get(str(end), ())}:
            parts.append((f"  {count(len(strays), 'stray pair')}", MUTED))
        parts.append((f"  {about}", MUTED))
        return Branch(key, parts, below or list, node, on_path, below is not None)


def flat(branches: Iterable[Branch], depth: int = 0) -> list[str]:
    lines: list[str] = []
    for one in branches:
        lines.append("  " * depth + "".join(word for word, _ in one.parts).rstrip())
        lines += flat(one.children(), depth + 1)
    return lines


@dataclass(frozen=True, slots=True)
class _Device:
    """A GPU (by its index) or a NIC (None)."""

    name: str  #: Name of the NIC, or ``GPU 3``.
    gpu: int | None  #: Index of the GPU.
    numa: int | None  #: NUMA node, or None if it is unknown.
    about: str = ""  #: Details.


@dataclass(frozen=True, slots=True)
class _NodeLayout:
    """Devices of a node."""

    #: Devices that PCIe switches alone connect; a device without such a neighbour is alone.
    groups: list[list[_Device]]
    nvlink: str = ""  #: How NVLinks connect the GPUs, "" if that is unknown.
    switched: bool | None = None  #: Whether the NVLinks lead to NVSwitches; None if that is unknown.


def _node_layout(record: NodeRecord) -> _NodeLayout:
    inventory = record.inventory or {}
    matrix = record.probe_results.get("topology", {}).get("matrix")
    affinity, cells = field(matrix, "affinity"), _cells(matrix)
    # Names in the matrix, and the devices of the inventory that they are.
    devices: dict[str, _Device] = {}
    for gpu in dicts(inventory.get("gpus")):
        index = number(gpu.get("index"))
        if isinstance(index, int):
            place = f"GPU{gpu.get('nvml_index', index)}"
            near = gpu.get("numa")
            numa = _whole(field(affinity, place, "numa") if near is None else near)
            devices[place] = _Device(f"GPU {index}", index, numa, (text(gpu.get("name")) or "").removeprefix("NVIDIA "))
    devices |= _nics(inventory)
    switched = {pair for pair, word in cells.items() if word in SWITCHED}
    for gpu in dicts(inventory.get("gpus")):
        if gpu.get("nic_path") in SWITCHED:
            switched.add((f"GPU{gpu.get('nvml_index', gpu.get('index'))}", str(gpu.get("nic"))))
    gpus = [name for name, device in devices.items() if device.gpu is not None]
    return _NodeLayout(_grouped(devices, switched), *_nvlink(record, cells, gpus))


def _whole(value: Any) -> int | None:
    """Return the number of a NUMA node; the matrix has it as text."""
    whole = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 4 else number(value)
    return whole if isinstance(whole, int) and whole >= 0 else None


def _nics(inventory: Entry) -> dict[str, _Device]:
    devices: dict[str, _Device] = {}
    nics = dicts(inventory.get("nics"))
    numa_of = {text(nic.get("rdma")): _whole(nic.get("numa")) for nic in nics}
    for port in dicts(inventory.get("ib")):
        if (name := text(port.get("ca"))) is not None:
            rate, numa = number(port.get("rate")), _whole(port.get("numa"))
            about = " ".join([text(port.get("state")) or "state unknown", *([f"{rate:g} Gb/s"] if rate else [])])
            devices.setdefault(name, _Device(name, None, numa_of.get(name) if numa is None else numa, about))
    for nic in nics if not devices else ():
        name = text(nic.get("name"))
        if name is not None and nic.get("kind") not in ("loopback", "virtual"):
            devices[name] = _Device(name, None, _whole(nic.get("numa")), text(nic.get("state")) or "state unknown")
    return devices


def _cells(matrix: Any) -> dict[tuple[str, str], str]:
    nics = field(matrix, "nics")
    names = {name: ca for name, ca in nics.items() if isinstance(ca, str)} if isinstance(nics, dict) else {}
    return {(names.get(row, row), names.get(to, to)): word for (row, to), word in connections(matrix).items()}


def _grouped(devices: dict[str, _Device], near: set[tuple[str, str]]) -> list[list[_Device]]:
    group = {name: name for name in devices}
    for one, other in near:
        if one in group and other in group and group[one] != group[other]:
            before, after = group[other], group[one]
            group = {name: after if root == before else root for name, root in group.items()}
    groups: dict[str, list[_Device]] = {}
    for name, root in group.items():
        groups.setdefault(root, []).append(devices[name])
    return list(groups.values())


def _nvlink(record: NodeRecord, cells: dict[tuple[str, str], str], gpus: list[str]) -> tuple[str, bool | None]:
    per_gpu = [dicts(gpu.get("links")) for gpu in probed(record, "nvlink", "gpus")]
    most = max(map(len, per_gpu), default=0)
    words = [cells.get((one, other)) for one in gpus for other in gpus if one != other]
    bonds = [int(word[2:]) for word in words if word is not None and word.startswith("NV") and word[2:].isdecimal()]
    if bonds and len(bonds) == len(words):
        sums = Counter(bonds)
        about = f"NV{bonds[0]} between all GPUs" if len(sums) == 1 else "NVLink between all GPUs"
        # More links than a GPU has cannot lead to the other GPUs directly.
        peers = (len(gpus) - 1) * min(bonds)
        return about, (peers > most if most else None)
    if most:
        active = min(sum(link.get("state") == "active" for link in links) for links in per_gpu)
        return f"at least {active} of {most} links active per GPU", None
    return ("NVLink between some GPUs", None) if bonds else ("", None)
