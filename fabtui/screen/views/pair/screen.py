"""View of a pair in both directions."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from fabtui.diagnosis.knowledge.next_commands import PORT, by_fabtui, by_hand, pair_commands
from fabtui.diagnosis.pairs.carriers import carrier
from fabtui.diagnosis.pairs.message_times import spread
from fabtui.model.facts.node_view import dicts
from fabtui.model.layers import MESH, Layer, measured_key_layers
from fabtui.model.measurement import Measurement
from fabtui.model.pair_results import STALL
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs, bytes_text
from fabtui.presentation.numbers import spoken_text
from fabtui.presentation.wording import (
    MUTED,
    Part,
    failure_text,
    limit_text,
    share_text,
    time_text,
    value_text,
    verdict_part,
)
from fabtui.presentation.wrapping import Lines, beside, stacked
from fabtui.sanitize import clean, one_line
from fabtui.screen import feed_actions
from fabtui.screen.grid.axis import Seat
from fabtui.screen.keys import shortcut
from fabtui.screen.views.detail_base import as_text, pairs, section, table_section
from fabtui.screen.views.pair.context import counter_lines, event_lines, history_lines, library_lines, neighbour_lines
from fabtui.screen.views.pair.path import hops, path_lines
from fabtui.screen.views.stepped_base import SteppedScreen
from fabtui.screen.widgets import pair_text
from fabtui.screen.widgets.finding_block import detail_lines, head_lines

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

    def __init__(self, source: Seat, target: Seat) -> None:
        super().__init__()
        self.source, self.target = source, target

    @property
    def crumb(self) -> str:
        return pair_text.pair_name(self.source, self.target)

    def title_parts(self) -> list[Part]:
        model, glyphs = self.context.model, self.context.glyphs
        parts: list[Part] = [(f" {pair_text.pair_name(self.source, self.target)} ", "bold"), ("  ", "")]
        src, dst = self.source.number, self.target.number
        if src is not None and dst is not None:
            cell = model.cell(Layer.HEALTH, src, dst)
            kind = model.class_between(str(model.endpoints[src]), str(model.endpoints[dst]))
            parts += [verdict_part(cell.verdict, glyphs), (f"   {kind}", "")]
            if cell.running:
                parts.append(("   test in progress", "bold $accent"))
        return parts

    def stepped_lines(self, width: int) -> Lines:
        model, glyphs = self.context.model, self.context.glyphs
        there = direction_lines(model, self.source, self.target, glyphs)
        back = direction_lines(model, self.target, self.source, glyphs)
        names = pair_text.ends_of(model, self.source, self.target)
        findings = self._finding_lines(names, width) if names and names[0] != names[1] else []
        if width >= _SIDE_BY_SIDE:
            lines = beside(there, back, width) + findings
        else:
            lines = [*stacked(there, width), *findings, [], *stacked(back, width)]
        if self.source.number is None or self.target.number is None or names is None:
            return lines
        ends = model.endpoints[self.source.number], model.endpoints[self.target.number]
        if names[0] == names[1]:
            return lines + _ends_lines(model, (self.source, self.target))
        directions = ((self.source, self.target), (self.target, self.source))
        found = (pair_text.of_layer(model, layer, *seats) for seats in directions for layer in (Layer.P2P, Layer.WORLD))
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
        """Return the findings that explain the pair in either direction, and the next steps."""
        model = self.context.model
        either = {names, names[::-1]}
        if found := [one for one in enumerate(self.context.findings.found, 1) if either & one[1].cells]:
            lines = section("findings")
            for number, one in found:
                lines += head_lines(one, width, number) + detail_lines(one, width) + self.steps_of(one, width)
            return lines
        commands = dict.fromkeys(pair_commands(model, *names) + pair_commands(model, *names[::-1]))
        steps = [line for at, command in enumerate(commands) for line in self.step(command, at, width)]
        return [[], *steps] if steps else []

    def action_retest(self, both: bool) -> None:
        directions = [(self.source, self.target), (self.target, self.source)]
        feed_actions.retest(self.context, directions if both else directions[:1])

    def action_turn(self) -> None:
        self.source, self.target, self.selected = self.target, self.source, None
        self.draw()

    def action_node(self, end: int) -> None:
        self.context.open_node(self.target.node if end else self.source.node)

    def copy_all(self) -> None:
        model = self.context.model
        lines = [pair_text.summary_text(model, self.source, self.target)]
        if names := pair_text.ends_of(model, self.source, self.target):
            lines += ["", *as_text(self._finding_lines(names, 200)[1:]).splitlines()]
            lines += ["", f"by hand: {one_line(by_fabtui(model, *names), 4000)}"] if names[0] != names[1] else []
        self.context.copy("\n".join(lines))

    def action_copy_command(self) -> None:
        names = pair_text.ends_of(self.context.model, self.source, self.target)
        if names is None or names[0] == names[1]:
            self.context.notify("this cell has no pair to test")
        else:
            self.context.copy(one_line(by_fabtui(self.context.model, *names), 4000))


def direction_lines(model: Model, source: Seat, target: Seat, glyphs: Glyphs) -> Lines:
    """Return one direction: verdict, value and share of the usual value of each layer; transport; errors."""
    lines: Lines = [[(pair_text.pair_name(source, target), "bold $accent")]]
    for layer in (*measured_key_layers(), *_ALSO):
        measurement = pair_text.of_layer(model, layer, source, target)
        if measurement is not None or layer not in _ALSO:
            lines += _layer_lines(model, layer, measurement, glyphs)
    lines += [[("  ", ""), *line] for line in pair_text.change_lines(model, source, target)]
    p2p = pair_text.of_layer(model, Layer.P2P, source, target) or pair_text.of_layer(model, Layer.WORLD, source, target)
    if p2p is not None:
        rows = [
            ("via", one_line(p2p.transport or "unknown", 120)),
            *([("moved by", one_line(found.text, 200))] if (found := carrier(model, p2p)) else []),
            *([("limit", limit)] if (limit := limit_text(model, p2p)) else []),
            ("addresses", one_line(f"{p2p.src_addr or '?'} > {p2p.dst_addr or '?'}", 120)),
            ("message", bytes_text(p2p.bytes) or "-"),
            ("how", one_line(p2p.how or "-", 160)),
            ("when", f"{time_text(p2p.time)}, attempt {p2p.attempts}"),
            *_times(p2p),
        ]
        lines += pairs(rows, 9)
    lines += [[(f"  {note}", style)] for note, style in pair_text.link_notes(model, source, target)]
    if why := pair_text.why_untested(model, source, target):
        lines.append([(f"  {why}", "$warning")])
    return lines


def _times(measurement: Measurement) -> list[tuple[str, str]]:
    """Return the times of single messages and the bandwidth of both directions at once, if known."""
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


def _layer_lines(model: Model, layer: Layer, measurement: Measurement | None, glyphs: Glyphs) -> Lines:
    line: list[Part] = [(f"  {layer:<9} ", MUTED)]
    if measurement is None:
        return [[*line, ("-", MUTED)]]
    verdict = model.verdict(measurement)
    word, style = verdict_part(verdict, glyphs)
    line += [(word, style), (" " * (10 - len(word)), "")]
    if measurement.value is not None:
        line.append((f"{value_text(measurement):<9}", "bold"))
        if share := share_text(model, measurement):
            line.append((f" {share}", MUTED))
    loss = (measurement.extra or {}).get("loss")
    if isinstance(loss, (int, float)) and loss:
        line.append((f"  loss {loss:g} %", "$warning"))
    lines = [line]
    if problem := failure_text(measurement, 500):
        lines.append([(" " * 12, ""), (problem, "$error" if verdict.bad else "$warning")])
    return lines


def _port_text(model: Model, node: str, nic: str | None, address: str | None) -> str:
    """Return state, rate and link layer of the port of an endpoint, if known."""
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


def _ends_lines(model: Model, seats: tuple[Seat, Seat]) -> Lines:
    rows = []
    for seat in seats:
        if seat.number is None:
            continue
        endpoint = model.endpoints[seat.number]
        rail = "-" if endpoint.rail is None else str(endpoint.rail)
        device, bus = one_line(endpoint.name or endpoint.kind, 40), one_line(endpoint.bus or "-", 20)
        nic, address = one_line(endpoint.nic or "-", 20), one_line(endpoint.address or "-", 45)
        port = _port_text(model, seat.node, endpoint.nic, endpoint.address)
        rows.append([seat.name, device, bus, nic, rail, address, port])
    return table_section("ends", ["endpoint", "device", "PCI", "NIC", "rail", "address", "port"], rows)


def hand_lines(model: Model, src: str, dst: str) -> Lines:
    """Return the commands that test a pair outside this session, and their requirements."""
    lines = [*section("by hand", "Y copies the first"), [("  with fabtui, on this machine, this pair only", MUTED)]]
    lines.append([(f"  {one_line(by_fabtui(model, src, dst), 4000)}", "$accent")])
    if command := by_hand(model, src, dst):
        where = "run on this machine (lab)" if model.lab else "SSH to both nodes without a password prompt"
        lines.append([(f"  without fabtui: needs PyTorch on both nodes, free port {PORT}, {where}", MUTED)])
        lines.append([(f"  {one_line(command, 8000)}", "$accent")])
    return lines
