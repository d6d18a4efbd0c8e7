"""View of a pair in both directions: results, path, neighbours, history, counters and log lines."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import statistics
from typing import Any, ClassVar, NamedTuple

from textual.binding import BindingType

from fabtui.diagnosis.knowledge.next_commands import PORT, by_fabtui, by_hand, pair_commands
from fabtui.diagnosis.knowledge.published_ranges import published
from fabtui.diagnosis.pairs.tally import spread
from fabtui.diagnosis.pairs.traffic_path import carrier
from fabtui.export.collectives_table import published_text
from fabtui.model.counter_log import CounterMeaning, Deltas, Path, counts_of, flatten, paths_of
from fabtui.model.endpoints import Endpoint
from fabtui.model.facts.node_view import dicts, field, gpu_of
from fabtui.model.layers import MESH, Layer, measured_key_layers, pair_layers
from fabtui.model.measurement import Measurement
from fabtui.model.pair_results import STALL
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.numbers import brief_text, spoken_text, spoken_texts
from fabtui.presentation.wording import (
    MUTED,
    Part,
    failure_text,
    limit_text,
    measured_text,
    message_text,
    time_text,
    usual_share_text,
    verdict_part,
)
from fabtui.presentation.wrapping import HEADING, Lines, beside, padded, section, stacked
from fabtui.sanitize import clean, one_line
from fabtui.screen import session_actions
from fabtui.screen.grid.axis import AxisEntry, fit_text
from fabtui.screen.keys import shortcut
from fabtui.screen.views.detail_base import Cell, SteppedScreen, as_text, pairs, table, table_section
from fabtui.screen.widgets import pair_text
from fabtui.screen.widgets.finding_lines import detail_lines, head_lines
from fabtui.screen.widgets.sparkline import cells_strip, sparkline
from fabtui_node.parsers.lines import bytes_text
from fabtui_node.parsers.nccl import transports

#: Minimum width for both directions side by side.
_SIDE_BY_SIDE = 100
#: Layers of a node pair, shown if they were measured.
_ALSO = tuple(layer for layer in MESH if layer.spec.key is None)
_RAW_LIMIT = 20_000


class PairScreen(SteppedScreen):
    """Both directions of a pair: values per layer, findings, path, history, counters, raw text."""

    BINDING_GROUP_TITLE = "Pair"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("r", "retest(False)", "pair.retest", "test this pair again, alone", "retest"),
        shortcut("R", "retest(True)", "pair.retest-both", "test both directions again", "both"),
        shortcut("x", "turn", "pair.turn", "swap source and destination", "turn"),
        shortcut("n", "node(0)", "pair.node", "show the first node", "node"),
        shortcut("N", "node(1)", "pair.other-node", "show the second node", "other node"),
        shortcut("y", "copy", "pair.copy", "copy results, findings and next steps", "copy"),
        shortcut("Y", "copy_command", "pair.copy-command", "copy the test command", "copy command"),
    ]

    def __init__(self, source: AxisEntry, target: AxisEntry) -> None:
        super().__init__()
        self.source, self.target = source, target

    @property
    def node(self) -> str:
        return self.source.node

    @property
    def crumb(self) -> str:
        return pair_text.pair_name(self.source, self.target)

    def title_parts(self) -> list[Part]:
        model, glyphs = self.context.model, self.context.glyphs
        parts: list[Part] = [(f" {pair_text.pair_name(self.source, self.target)} ", "bold"), ("  ", "")]
        src, dst = self.source.number, self.target.number
        if src is not None and dst is not None:
            cell = model.cell(Layer.HEALTH, src, dst)
            kind = model.table.class_between(str(model.endpoints[src]), str(model.endpoints[dst]))
            parts += [verdict_part(cell.verdict, glyphs), (f"   {kind}", "")]
            if cell.running:
                parts.append(("   test in progress", "bold $accent"))
        return parts

    def stepped_lines(self, width: int) -> Lines:
        model, glyphs = self.context.model, self.context.glyphs
        names = pair_text.ends_of(model, self.source, self.target)
        findings = self._finding_lines(names, width) if names and names[0] != names[1] else []
        # The text of a finding is not repeated below it.
        reported = _letters(as_text(findings))
        there = direction_lines(model, self.source, self.target, glyphs, reported)
        back = direction_lines(model, self.target, self.source, glyphs, reported)
        lines = [*findings, []] if findings else []
        lines += beside(there, back, width) if width >= _SIDE_BY_SIDE else stacked([*there, [], *back], width)
        if self.source.number is None or self.target.number is None or names is None:
            return lines
        ends = model.endpoints[self.source.number], model.endpoints[self.target.number]
        if names[0] == names[1]:
            return lines + _ends_lines(model, (self.source, self.target))
        directions = ((self.source, self.target), (self.target, self.source))
        found = (
            pair_text.of_layer(model, layer, *entries) for entries in directions for layer in (Layer.P2P, Layer.WORLD)
        )
        # Both directions, in the layers with log text.
        latest = [one for one in found if one is not None]
        tested = min(latest, key=lambda one: one.layer is not Layer.P2P, default=None)
        path = hops(model, *ends, next((one for one in latest if one.transport), tested))
        lines += section("path", "known hops")
        lines += path_lines(path, (ends[0].node, ends[1].node), width, glyphs)
        layer = tested.layer if tested is not None else Layer.P2P
        lines += neighbour_lines(model, *ends, layer, glyphs)
        lines += history_lines(model, *names, glyphs)
        lines += counter_lines(model, tested)
        lines += library_lines(latest) + event_lines(model, *names)
        lines += hand_lines(model, *names)
        lines += _ends_lines(model, (self.source, self.target))
        for source, target in directions:
            for layer in measured_key_layers():
                measured = pair_text.of_layer(model, layer, source, target)
                if measured is not None and measured.raw:
                    lines += section(f"raw text, {layer}, {pair_text.pair_name(source, target)}")
                    raw = clean(measured.raw, _RAW_LIMIT).expandtabs()
                    lines += [[(f"  {line}", "")] for line in raw.splitlines()]
        return lines

    def _finding_lines(self, names: tuple[str, str], width: int) -> Lines:
        model = self.context.model
        either = {names, names[::-1]}
        if found := [one for one in enumerate(self.context.findings.found, 1) if either & one[1].cells]:
            lines, bad = Lines(), self.context.findings.tally.bad
            for number, one in found:
                lines += head_lines(one, width, number, bad) + detail_lines(one, width) + self.steps_of(one, width)
            return lines
        commands = dict.fromkeys(pair_commands(model, *names) + pair_commands(model, *names[::-1]))
        steps = [line for at, command in enumerate(commands) for line in self.step(command, at, width)]
        return steps

    def action_retest(self, both: bool) -> None:
        directions = [(self.source, self.target), (self.target, self.source)]
        session_actions.retest(self.context, directions if both else directions[:1])

    def action_turn(self) -> None:
        self.source, self.target, self.selected = self.target, self.source, None
        self.draw()

    def action_node(self, end: int) -> None:
        self.context.open_node(self.target.node if end else self.source.node)

    def copy_all(self) -> None:
        model = self.context.model
        lines = [pair_text.summary_text(model, self.source, self.target)]
        if names := pair_text.ends_of(model, self.source, self.target):
            lines += ["", *as_text(self._finding_lines(names, 200)).splitlines()]
            lines += ["", f"by hand: {one_line(by_fabtui(model, *names), 4000)}"] if names[0] != names[1] else []
        self.context.copy("\n".join(lines))

    def action_copy_command(self) -> None:
        names = pair_text.ends_of(self.context.model, self.source, self.target)
        if names is None or names[0] == names[1]:
            self.context.notify("this cell has no pair to test")
        else:
            self.context.copy(one_line(by_fabtui(self.context.model, *names), 4000))


def _letters(text: str) -> str:
    """Return a text without blanks and parentheses, to find a wrapped sentence in it."""
    return re.sub(r"[\s()]+", "", text)


def direction_lines(model: Model, source: AxisEntry, target: AxisEntry, glyphs: Glyphs, reported: str = "") -> Lines:
    """Return one direction; ``reported`` has the texts, without blanks, that are shown elsewhere in the view."""
    lines: Lines = [[(pair_text.pair_name(source, target), HEADING)]]
    for layer in (*measured_key_layers(), *_ALSO):
        measurement = pair_text.of_layer(model, layer, source, target)
        if measurement is not None or layer not in _ALSO:
            lines += _layer_lines(model, layer, measurement, glyphs, reported)
        if measurement is not None and (kind := layer.spec.collective):
            beside_it = [one for one in published(model, kind) if one.measured == measurement]
            lines += [[(" " * 12, ""), (published_text(one), MUTED)] for one in beside_it]
    lines += [[("  ", ""), *line] for line in pair_text.change_lines(model, source, target)]
    p2p = pair_text.of_layer(model, Layer.P2P, source, target) or pair_text.of_layer(model, Layer.WORLD, source, target)
    if p2p is not None:
        rows = [
            ("transport", one_line(p2p.transport or "unknown", 120)),
            *([("moved by", one_line(found.text, 200))] if (found := carrier(model, p2p)) else []),
            *([("limit", limit)] if (limit := limit_text(model, p2p)) else []),
            ("addresses", one_line(f"{p2p.src_addr or '?'} > {p2p.dst_addr or '?'}", 120)),
            ("message", message_text(p2p) or "-"),
            ("how", one_line(p2p.how or "-", 160)),
            ("when", f"{time_text(p2p.time)}, attempt {p2p.attempts}"),
            *_times(p2p),
        ]
        lines += pairs(rows, 9)
    notes = pair_text.link_notes(model, source, target)
    # Partners in parentheses have a line of their own in a finding.
    lines += [
        [(f"  {note}", style)]
        for note, style in notes
        if not all(_letters(part) in reported for part in note.split(" ("))
    ]
    if why := pair_text.why_untested(model, source, target):
        lines.append([(f"  {why}", "$warning")])
    return lines


def _times(measurement: Measurement) -> list[tuple[str, str]]:
    rows = []
    found = spread(measurement)
    if found is not None:
        note = ": some take much longer" if found.ratio > STALL else ""
        median, p99 = (f"{us:.0f}" if us >= 1000 else f"{us:.4g}" for us in (found.median * 1e6, found.p99 * 1e6))
        rows.append(("times", f"median {median} us, p99 {p99} us{note}"))
    both = (measurement.extra or {}).get("both_ways")
    if isinstance(both, (int, float)):
        rows.append(("both", spoken_text(both, measurement.unit)))
    return rows


def _layer_lines(model: Model, layer: Layer, measurement: Measurement | None, glyphs: Glyphs, reported: str) -> Lines:
    line: list[Part] = [(f"  {layer:<9} ", MUTED)]
    if measurement is None:
        return [[*line, ("-", MUTED)]]
    verdict = model.verdict(measurement)
    word, style = verdict_part(verdict, glyphs)
    line += [(word, style), (" " * (10 - len(word)), "")]
    if measurement.value is not None:
        line.append((f"{measured_text(measurement):<9}", "bold"))
        if share := usual_share_text(model, measurement):
            line.append((f" {share}", MUTED))
    loss = (measurement.extra or {}).get("loss")
    if isinstance(loss, (int, float)) and loss:
        line.append((f"  loss {loss:g} %", "$warning"))
    lines = [line]
    problem = failure_text(measurement, 500)
    if problem and not all(_letters(clause) in reported for clause in problem.split(": ")):
        lines.append([(" " * 12, ""), (problem, "$error" if verdict.bad else "$warning")])
    return lines


def _port_text(model: Model, node: str, nic: str | None, address: str | None) -> str:
    record = model.nodes.get(node)
    if record is None or record.inventory is None:
        return ""
    parts = []
    for port in dicts(record.inventory.get("ib")):
        if nic is not None and nic in (port.get("ca"), port.get("netdev")):
            rate = f" {port.get('rate')} Gb/s" if port.get("rate") is not None else ""
            state = f"{port.get('state')}/{port.get('phys_state')}"
            parts.append(f"{port.get('ca')} port {port.get('port')} {state}{rate} {port.get('link_layer')}")
    for found in dicts(record.inventory.get("nics")):
        held = [entry.get("address") for entry in dicts(found.get("addresses"))]
        if (nic is not None and nic in (found.get("name"), found.get("rdma"))) or (address and address in held):
            speed = f" {found.get('speed_mbps')} Mb/s" if found.get("speed_mbps") else ""
            parts.append(f"{found.get('name')} {found.get('state')}{speed} mtu {found.get('mtu')}")
    return one_line("; ".join(dict.fromkeys(parts)), 300)


def _ends_lines(model: Model, entries: tuple[AxisEntry, AxisEntry]) -> Lines:
    rows = []
    for entry in entries:
        if entry.number is None:
            continue
        endpoint = model.endpoints[entry.number]
        rail = "-" if endpoint.rail is None else str(endpoint.rail)
        device, bus = one_line(endpoint.name or endpoint.kind, 40), one_line(endpoint.bus or "-", 20)
        nic, address = one_line(endpoint.nic or "-", 20), one_line(endpoint.address or "-", 45)
        port = _port_text(model, entry.node, endpoint.nic, endpoint.address)
        rows.append([entry.name, device, bus, nic, rail, address, port])
    return table_section("ends", ["endpoint", "device", "PCI", "NIC", "rail", "address", "port"], rows)


def hand_lines(model: Model, src: str, dst: str) -> Lines:
    lines = [*section("by hand", "Y copies the first"), [("  with fabtui, on this machine, this pair only", MUTED)]]
    lines.append([(f"  {one_line(by_fabtui(model, src, dst), 4000)}", "$primary")])
    if command := by_hand(model, src, dst):
        where = "run on this machine (lab)" if model.lab else "SSH to both nodes without a password prompt"
        lines.append([(f"  without fabtui: needs PyTorch on both nodes, free port {PORT}, {where}", MUTED)])
        lines.append([(f"  {one_line(command, 8000)}", "$primary")])
    return lines


#: Connections between a GPU and a NIC, by the abbreviations of `nvidia-smi topo -m`.
_NIC_PATHS = {
    "PIX": "PCIe switch",
    "PXB": "PCIe switches",
    "PHB": "host bridge",
    "NODE": "NUMA node",
    "SYS": "between sockets",
}
_UNKNOWN = "?"


class PathHop(NamedTuple):
    """A hop of a path with details, one per line; ``bad`` if it has a problem."""

    name: str
    about: tuple[str, ...] = ()
    bad: bool = False


def _inventory(model: Model, end: Endpoint) -> tuple[dict[str, Any], dict[str, Any]]:
    record = model.nodes.get(end.node)
    found = (record.inventory if record is not None else None) or {}
    return found, gpu_of(found.get("gpus"), end)


def _text(value: Any, limit: int = 40) -> str:
    return _UNKNOWN if value in (None, "") else fit_text(str(value), limit)


def hops(model: Model, src: Endpoint, dst: Endpoint, measurement: Measurement | None) -> list[PathHop]:
    transport = (measurement.transport if measurement is not None else None) or ""
    path, device = transports.path_of(transport), transports.device_of(transport)
    if src.node == dst.node and path not in transports.NETWORK and not device:
        middle = _within(model, src, dst, transport)
    elif path is transports.Path.P2P:
        # NVLink leads to GPUs of other nodes, too.
        middle = [_nvlink(model, src, dst) or PathHop("NVLink", (fit_text(transport, 30),))]
    else:
        addresses = (measurement.src_addr, measurement.dst_addr) if measurement is not None else (None, None)
        if measurement is not None and measurement.src == str(dst):
            # Measured in the other direction.
            addresses = addresses[::-1]
        between = PathHop("network", (fit_text(transport, 40) if transport else "transport ?",))
        here = _to_nic(model, src, device, addresses[0], path)
        there = _to_nic(model, dst, device, addresses[1], path)
        middle = [*here, between, *reversed(there)]
    return [_end(src), *middle, _end(dst)]


def _end(end: Endpoint) -> PathHop:
    kind = {"gpu": f"GPU {end.index}", "cpu": f"rank {end.index}"}.get(end.kind, _UNKNOWN)
    name = fit_text(end.name, 24).removeprefix("NVIDIA ")
    return PathHop(kind, tuple(text for text in (name, fit_text(end.bus or "", 16)) if text))


def _pcie(gpu: dict[str, Any]) -> tuple[str, bool]:
    gen, width, widest = (field(gpu, "pcie", name) for name in ("gen", "width", "width_max"))
    if gen is None and width is None:
        return "", False
    narrow = isinstance(width, int) and isinstance(widest, int) and width < widest
    return f"gen{_text(gen, 4)} x{_text(width, 4)}" + (f" of x{_text(widest, 4)}" if narrow else ""), narrow


def _nvlink(model: Model, src: Endpoint, dst: Endpoint) -> PathHop | None:
    """Return the hop over NVLink; None if it is unknown, or if the GPUs have no NVLinks."""
    links = [_nvlinks(model, end) for end in (src, dst)]
    if not any(total for _, total, _ in links):
        return None
    active = min(found for found, _, _ in links)
    total = max(found for _, found, _ in links)
    speed = links[0][2]
    about = (f"{active} of {total} links", f"{speed:g} GB/s per link" if speed else "")
    return PathHop("NVLink", tuple(text for text in about if text), active < total)


def _within(model: Model, src: Endpoint, dst: Endpoint, transport: str) -> list[PathHop]:
    path = transports.path_of(transport)
    if path is transports.Path.P2P and (hop := _nvlink(model, src, dst)) is not None:
        return [hop]
    if src.kind != "gpu":
        return [PathHop("node memory", (fit_text(transport, 30),) if transport else ())]
    sides = [_pcie(_inventory(model, end)[1]) for end in (src, dst)]
    ends = [PathHop("PCIe", (text,) if text else (), narrow) for text, narrow in sides]
    if path is transports.Path.SHM:
        return [ends[0], PathHop("host memory", ("SHM",)), ends[1]]
    return [PathHop("PCIe or NVLink", (fit_text(transport, 30) if transport else "transport ?",))]


def _nvlinks(model: Model, end: Endpoint) -> tuple[int, int, float | None]:
    """Return the number of active NVLinks of an endpoint, of all its NVLinks, and their speed (GB/s)."""
    record = model.nodes.get(end.node)
    found = field(record.probe_results.get("nvlink"), "gpus") if record is not None else None
    links = dicts(gpu_of(found, end).get("links"))
    speeds = [link["speed"] for link in links if isinstance(link.get("speed"), (int, float))]
    return sum(link.get("state") == "active" for link in links), len(links), max(speeds, default=None)


def _to_nic(model: Model, end: Endpoint, chosen: str, address: str | None, path: transports.Path) -> list[PathHop]:
    inventory, gpu = _inventory(model, end)
    names = [nic.get("name") for nic in dicts(inventory.get("nics"))]
    nic = chosen if chosen in names else end.nic
    found: list[PathHop] = []
    if end.kind == "gpu":
        link, narrow = _pcie(gpu)
        nic_path = gpu.get("nic_path") if nic == gpu.get("nic") else None
        name = _NIC_PATHS.get(str(nic_path), "PCIe")
        copied = "host memory" if path in (transports.Path.TCP, transports.Path.RDMA) else ""
        about = (link, str(nic_path) if str(nic_path) in _NIC_PATHS else "", copied)
        found.append(PathHop(name, tuple(text for text in about if text), narrow))
    state, bad = _port(inventory, nic)
    rail = "" if end.rail is None else f"rail {end.rail}"
    about = (rail, _address(address, end.address), state)
    return [*found, PathHop(_text(nic), tuple(text for text in about if text), bad)]


def _address(*found: str | None) -> str:
    """Return the first IP address, or "". For a GPU the library reports the PCI bus instead of an address."""
    for text in found:
        with contextlib.suppress(ValueError):
            return str(ipaddress.ip_address((text or "").partition("%")[0]))
    return ""


def _port(inventory: dict[str, Any], nic: str | None) -> tuple[str, bool]:
    for port in dicts(inventory.get("ib")):
        if nic is not None and nic in (port.get("ca"), port.get("netdev")):
            state = one_line(str(port.get("state") or _UNKNOWN), 20)
            rate = port.get("rate")
            return f"{state} {rate:g} Gb/s" if isinstance(rate, (int, float)) else state, state != "Active"
    for found in dicts(inventory.get("nics")):
        if nic is not None and nic in (found.get("name"), found.get("rdma")):
            state = one_line(str(found.get("state") or _UNKNOWN), 20)
            speed = found.get("speed_mbps")
            rate = f" {speed / 1000:g} Gb/s" if isinstance(speed, (int, float)) and speed > 0 else ""
            return f"{state}{rate} mtu {_text(found.get('mtu'), 8)}", state == "down"
    return "", False


def path_lines(path: list[PathHop], nodes: tuple[str, str], width: int, glyphs: Glyphs) -> Lines:
    widths = [max(map(len, (hop.name, *hop.about))) for hop in path]
    bar = "--" if glyphs.plain else "──"
    total = sum(widths) + (len(path) - 1) * (len(bar) + 2) + 2
    if total > width:
        return _below(path, nodes, glyphs)
    first, last = fit_text(nodes[0], 40), fit_text(nodes[1], 40)
    head: list[Part] = [("  ", ""), (first, "bold")]
    if nodes[0] != nodes[1]:
        head += [(" " * max(1, total - 2 - len(first) - len(last)), ""), (last, "bold")]
    names: list[Part] = [("  ", "")]
    for at, (hop, room) in enumerate(zip(path, widths, strict=True)):
        names.append((hop.name, "bold $warning" if hop.bad else "bold"))
        if at < len(path) - 1:
            names.append((" " + (bar[0] * (room - len(hop.name))) + bar + " ", MUTED))
    lines: Lines = [head, names]
    for row in range(max((len(hop.about) for hop in path), default=0)):
        line: list[Part] = [("  ", "")]
        for hop, room in zip(path, widths, strict=True):
            text = hop.about[row] if row < len(hop.about) else ""
            line.append((f"{text:<{room + len(bar) + 2}}", "$warning" if hop.bad else MUTED))
        lines.append(line)
    return lines


def _below(path: list[PathHop], nodes: tuple[str, str], glyphs: Glyphs) -> Lines:
    room = max(len(hop.name) for hop in path)
    first, last = ([("  ", ""), (fit_text(node, 60), "bold")] for node in nodes)
    lines: Lines = []
    for hop in path:
        style, muted = ("bold $warning", "$warning") if hop.bad else ("bold", MUTED)
        lines.append(
            [(f"  {glyphs.node_edge} ", MUTED), (f"{hop.name:<{room}}  ", style), (", ".join(hop.about), muted)]
        )
    return [first, *lines, last]


_MAX_ATTEMPTS = 40
#: Maximum number of drawn cells per row.
_MAX_CELLS = 64
_MAX_LINES = 24
_LIBRARY = re.compile(r"\bNCCL\b|\bgloo\b|\bWARN\b|ibv_|Traceback|RuntimeError", re.IGNORECASE)
_ALARM = re.compile(r"\bWARN\b|\berror\b|failed|timed out|Traceback", re.IGNORECASE)


def neighbour_lines(model: Model, src: Endpoint, dst: Endpoint, layer: Layer, glyphs: Glyphs) -> Lines:
    here = [e.number for e in model.table.of_node(src.node) if e.kind != "none"]
    there = [e.number for e in model.table.of_node(dst.node) if e.kind != "none"]
    a, b = src.number, dst.number
    to, of = fit_text(dst.node, 40), fit_text(src.node, 40)
    groups = [
        (f"{fit_text(str(src), 40)} > others of {to}", [(a, n) for n in there if n not in (a, b)]),
        (f"others of {of} > {fit_text(str(dst), 40)}", [(n, b) for n in here if n not in (a, b)]),
    ]
    if src.node != dst.node:
        groups.append((f"{of} > {to}", [(m, n) for m in here for n in there]))
        groups.append((f"{to} > {of}", [(m, n) for m in there for n in here]))
    else:
        groups.append((f"within {of}", [(m, n) for m in here for n in here if m != n]))
    rows: list[tuple[list[str], list[Part]]] = []
    for title, cells in groups:
        found = [model.measured_for(layer, *cell) for cell in cells]
        known = [one for one in found if one is not None]
        if not known:
            continue
        values = sorted(one.value for one in known if one.value is not None and not model.verdict(one).bad)
        bad = sum(model.verdict(one).bad for one in known)
        numbers = (
            [brief_text(x, known[0].unit) for x in (values[0], statistics.median(values), values[-1])]
            if values
            else ["-"] * 3
        )
        row = [title, str(len(known)), *numbers, str(bad)]
        rows.append((row, cells_strip(model, layer, cells[:_MAX_CELLS], glyphs)))
    if not rows:
        return []
    headings = [str(layer), "n", "lowest", "median", "highest", "bad", "cells"]
    head, *texts = (f"  {'  '.join(cells)}  " for cells in padded([headings[:6], *(row for row, _ in rows)]))
    lines: Lines = [[(f"{head}cells", MUTED)]]
    lines += [[(text, "bold" if row[5] != "0" else ""), *strip] for text, (row, strip) in zip(texts, rows, strict=True)]
    return section("neighbours", "values of good pairs") + lines


def spark_lines(model: Model, src: str, dst: str, glyphs: Glyphs) -> Lines:
    lines: Lines = []
    for ends in ((src, dst), (dst, src)):
        for layer in (Layer.P2P, Layer.WORLD):
            history = model.history(layer, *ends)
            if len(history) < 2:
                continue
            values = [one.value for one in history if one.value is not None]
            extremes = (min(values), max(values)) if values else ()
            span = " to ".join(spoken_texts(extremes, history[-1].unit)) or "no value"
            parts: list[Part] = [(f"  {layer:<6} {fit_text(f'{ends[0]} > {ends[1]}', 40):<22} ", MUTED)]
            parts += sparkline(model, history, glyphs)
            bad = sum(model.verdict(one).bad for one in history)
            parts.append((f"  {len(history)} attempts, {bad} bad, {span}", ""))
            if turned := model.results.flapping.get((layer, *ends)):
                parts.append((f"  ~ flapping: {turned} changes", "bold $warning"))
            lines.append(parts)
    return lines


def history_lines(model: Model, src: str, dst: str, glyphs: Glyphs) -> Lines:
    all_ends = ((src, dst), (dst, src))
    found = [one for ends in all_ends for layer in pair_layers() for one in model.history(layer, *ends)]
    if not found:
        return []
    found.sort(key=lambda one: one.time)
    rows: list[list[Cell]] = []
    for one in found[: -_MAX_ATTEMPTS - 1 : -1]:
        head = [time_text(one.time), ">" if one.src == src else "<", str(one.layer)]
        verdict = verdict_part(model.verdict(one), glyphs)
        rows.append([*head, verdict, measured_text(one), str(one.attempts), failure_text(one)])
    cut = f"latest {_MAX_ATTEMPTS} of {len(found)}, " if len(found) > _MAX_ATTEMPTS else ""
    note = one_line(f"{cut}latest first; > is {src} to {dst}", 160)
    headings = ["time", "", "layer", "verdict", "value", "attempt", "error"]
    return section("history", note) + spark_lines(model, src, dst, glyphs) + table(headings, rows)


def library_lines(measurements: list[Measurement]) -> Lines:
    found: dict[str, bool] = {}
    for one in measurements:
        end = ""
        for line in clean(one.raw or "", 20_000).expandtabs().splitlines():
            text = line.strip()
            if text.startswith("[") and text.endswith("]"):
                end = text.strip("[]")
            elif _LIBRARY.search(text):
                found.setdefault(f"{end}  {text}" if end else text, bool(_ALARM.search(text)))
    ordered = sorted(found.items(), key=lambda item: not item[1])[:_MAX_LINES]
    if not ordered:
        return []
    more = f"{_MAX_LINES} of {len(found)} lines" if len(found) > _MAX_LINES else ""
    return section("library log", more) + [[(f"  {text}", "$warning" if alarm else MUTED)] for text, alarm in ordered]


def event_lines(model: Model, src: str, dst: str) -> Lines:
    names = re.compile("|".join(rf"(?<![\w.:-]){re.escape(end)}(?![\w:])" for end in (src, dst)))
    found = [line for line in model.log if names.search(line.text)][-8:]
    return (section("event log") if found else []) + [
        [(f"  {time_text(line.time)}  ", MUTED), (one_line(line.text, 300), "")] for line in reversed(found)
    ]


#: Maximum number of error counters and of traffic counters per node.
_MAX_ERRORS = 40
_MAX_TRAFFIC = 16
_FULL = " or more: the counter is at its limit"
#: Endings of the names of byte counters.
_BYTES = ("_bytes", "port_xmit_data", "port_rcv_data")


def counter_lines(model: Model, measurement: Measurement | None) -> Lines:
    found = model.counters.of(measurement) if measurement is not None else {}
    if measurement is None or not found:
        return []
    note = f"per node, during {measurement.layer} at {time_text(measurement.time)}; may include other tests"
    rows: list[list[Cell]] = []
    left = 0
    for node, deltas in found.items():
        shown, more = _rows(one_line(node, 64), deltas)
        rows += shown
        left += more
    lines = table_section("counters", ["node", "where", "counter", "change"], rows, note)
    if left:
        lines.append([(f"  and {left} more in the recording", MUTED)])
    return lines


def _rows(node: str, deltas: Deltas) -> tuple[list[list[Cell]], int]:
    counts = flatten(deltas)
    errors = paths_of(deltas.get("errors"))
    failures = sorted((path for path in counts if path in errors), key=lambda path: (-counts[path], path))
    reset = sorted(paths_of(deltas.get("reset")))
    congested = counts_of(CounterMeaning.CONGESTION, deltas)
    waits = sorted(congested.keys() - errors, key=lambda path: (-counts[path], path))
    traffic = sorted(
        counts.keys() - errors - congested.keys(), key=lambda path: (not _is_bytes(path), -counts[path], path)
    )
    full = paths_of(deltas.get("full"))
    rows: list[list[Cell]] = []
    for path in failures[:_MAX_ERRORS]:
        change = f"{counts[path]:,}{_FULL if path in full else ''}"
        rows.append([node, _place(path), (path[-1], "bold $warning"), (change, "bold $warning")])
    rows += [[node, _place(path), path[-1], f"{counts[path]:,} (congested)"] for path in waits[:_MAX_ERRORS]]
    rows += [[node, _place(path), path[-1], "was reset"] for path in reset[:_MAX_ERRORS]]
    rows += [[node, _place(path), path[-1], _amount(path, counts[path])] for path in traffic[:_MAX_TRAFFIC]]
    return rows, len(failures) + len(waits) + len(reset) + len(traffic) - len(rows)


def _is_bytes(path: Path) -> bool:
    return path[-1].endswith(_BYTES)


def _amount(path: Path, count: int) -> str:
    if not _is_bytes(path):
        return f"{count:,}"
    # Four digits suffice.
    number, _, unit = bytes_text(count).partition(" ")
    return f"{float(number):.4g} {unit}" if float(number) < 1000 else f"{float(number):.0f} {unit}"


def _place(path: Path) -> str:
    if path[0] != "nvlink":
        return path[1]
    return f"GPU {path[1]}, all NVLinks" if path[2] == "all" else f"GPU {path[1]}, NVLink {path[2]}"
