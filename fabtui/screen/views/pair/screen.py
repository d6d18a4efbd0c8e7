"""All that is known of a pair, both ways."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from fabtui.diagnosis.knowledge.next_commands import PORT, by_fabtui, by_hand, pair_commands
from fabtui.diagnosis.pairs.message_times import NOTABLE, spread
from fabtui.model.facts.node_view import dicts
from fabtui.model.layers import MESH, Layer, measured_key_layers
from fabtui.model.measurement import Measurement
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs, bytes_text
from fabtui.presentation.wording import (
    MUTED,
    Part,
    failure_text,
    plain,
    share_text,
    time_text,
    value_text,
    verdict_part,
)
from fabtui.presentation.wrapping import beside, stacked
from fabtui.sanitize import clean, one_line
from fabtui.screen import feed_actions
from fabtui.screen.grid.axis import Seat
from fabtui.screen.views.detail_base import DetailScreen, Lines, pairs, section, table
from fabtui.screen.views.findings import cause_lines
from fabtui.screen.views.pair.context import event_lines, history_lines, library_lines, neighbour_lines
from fabtui.screen.views.pair.counters import counter_lines
from fabtui.screen.views.pair.path import hops, path_lines
from fabtui.screen.widgets.pair_text import (
    change_lines,
    of_layer,
    pair_name,
    summary_text,
    what_looks_told,
    what_partners_told,
    why_untested,
)

#: From this width on the two directions stand side by side.
_SIDE_BY_SIDE = 100
#: Layers of the way between two nodes that are shown where they were measured.
_ALSO = tuple(layer for layer in MESH if layer.spec.key is None)
_RAW_LIMIT = 20_000


class PairScreen(DetailScreen):
    """Both directions of a pair: values per layer, path, history, what was read.

    Args:
        source: The row it was opened from.
        target: The column.
    """

    BINDING_GROUP_TITLE = "Pair"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "retest(False)", "re-test", id="pair.retest", tooltip="test this pair again, alone"),
        Binding("R", "retest(True)", "both ways", id="pair.retest-both", tooltip="test it again both ways"),
        Binding("x", "turn", "turn", id="pair.turn", tooltip="look from the other end"),
        Binding("n", "node(0)", "node", id="pair.node", tooltip="look at the first node"),
        Binding("N", "node(1)", "other node", id="pair.other-node", tooltip="look at the second node"),
        Binding("y", "copy", "copy", id="pair.copy", tooltip="copy what is known, the findings and what to type next"),
        Binding("Y", "copy_command", "copy command", id="pair.copy-command", tooltip="copy the command that tests it"),
    ]

    def __init__(self, source: Seat, target: Seat) -> None:
        super().__init__()
        self.source = source
        self.target = target

    def title_parts(self) -> list[Part]:
        """Return the pair's name, verdict and class."""
        model, glyphs = self.fabric_app.model, self.fabric_app.glyphs
        parts: list[Part] = [(f" {pair_name(self.source, self.target)} ", "bold"), ("  ", "")]
        src, dst = self.source.number, self.target.number
        if src is not None and dst is not None:
            cell = model.cell(Layer.HEALTH, src, dst)
            kind = model.class_between(str(model.endpoints[src]), str(model.endpoints[dst]))
            parts += [verdict_part(cell.verdict, glyphs), (f"   {kind}", "")]
            if cell.running:
                parts.append(("   testing now", "bold $accent"))
        return parts

    def body_lines(self, width: int) -> Lines:
        """Return all that is known."""
        app = self.fabric_app
        model, glyphs = app.model, app.glyphs
        there = direction_lines(model, self.source, self.target, glyphs)
        back = direction_lines(model, self.target, self.source, glyphs)
        tests = None not in (self.source.number, self.target.number) and self.source.number != self.target.number
        findings = stacked(self._finding_lines(width), width, 14) if tests else []
        if width >= _SIDE_BY_SIDE:
            lines = beside(there, back, width) + findings
        else:
            lines = [*stacked(there, width), *findings, [], *stacked(back, width)]
        if self.source.number is None or self.target.number is None:
            return lines
        if not tests:
            return lines + _ends_lines(model, (self.source, self.target))
        ends = model.endpoints[self.source.number], model.endpoints[self.target.number]
        names = str(ends[0]), str(ends[1])
        tested = _tested(model, self.source, self.target)
        latest = _latest(model, self.source, self.target)
        way = hops(model, *ends, next((one for one in latest if one.transport), tested))
        lines += section("path", "as far as it is known")
        lines += path_lines(way, (ends[0].node, ends[1].node), width, glyphs)
        layer = tested.layer if tested is not None else Layer.P2P
        lines += neighbour_lines(model, *ends, layer, glyphs)
        lines += history_lines(model, *names, glyphs)
        lines += counter_lines(model, tested)
        lines += library_lines(latest) + event_lines(model, *names)
        lines += hand_lines(model, *names)
        lines += _ends_lines(model, (self.source, self.target))
        lines += _raw_lines(model, self.source, self.target)
        return lines

    def _finding_lines(self, width: int) -> Lines:
        """Return the findings that explain the pair, either way, and what to type next."""
        model, findings = self.fabric_app.model, self.fabric_app.main.findings
        names = [str(model.endpoints[seat.number]) for seat in (self.source, self.target) if seat.number is not None]
        found = dict([*findings.of_pair(names[0], names[1]), *findings.of_pair(names[1], names[0])])
        lines: Lines = []
        for number, one in sorted(found.items()):
            lines += cause_lines(one, width, number)
        if lines:
            return section("findings") + lines
        commands = pair_commands(model, names[0], names[1]) + pair_commands(model, names[1], names[0])
        if not commands:
            return []
        return section("look further") + [
            [(f"  {one_line(command, 4000)}", "$accent")] for command in dict.fromkeys(commands)
        ]

    async def action_retest(self, both: bool) -> None:
        """Test the pair again, this way or both ways."""
        pairs_ = [(self.source, self.target)]
        if both:
            pairs_.append((self.target, self.source))
        feed_actions.retest(self.fabric_app, pairs_)

    def action_turn(self) -> None:
        """Look at the pair from its other end."""
        self.source, self.target = self.target, self.source
        self.draw()

    def action_node(self, which: int) -> None:
        """Look at one of the two nodes."""
        self.fabric_app.open_node(self.target.node if which else self.source.node)

    def action_copy(self) -> None:
        """Copy what is known, as plain text."""
        model = self.fabric_app.model
        lines = [summary_text(model, self.source, self.target)]
        if self.source.number is not None and self.target.number is not None:
            lines += ["", *(plain(line).rstrip() for line in self._finding_lines(200)[1:])]
            names = str(model.endpoints[self.source.number]), str(model.endpoints[self.target.number])
            lines += ["", f"by hand: {one_line(by_fabtui(model, *names), 4000)}"] if names[0] != names[1] else []
        self.fabric_app.copy("\n".join(lines))

    def action_copy_command(self) -> None:
        """Copy the command that tests the pair alone."""
        if self.source.number is None or self.target.number is None or self.source.number == self.target.number:
            self.fabric_app.tell("there is nothing to test between these two")
            return
        model = self.fabric_app.model
        names = str(model.endpoints[self.source.number]), str(model.endpoints[self.target.number])
        self.fabric_app.copy(one_line(by_fabtui(model, *names), 4000))


def _tested(model: Model, source: Seat, target: Seat) -> Measurement | None:
    """Return the measurement of a pair whose time is the one to ask counters about."""
    ways = ((source, target), (target, source))
    found = (of_layer(model, layer, *way) for layer in (Layer.P2P, Layer.WORLD) for way in ways)
    return next((one for one in found if one is not None), None)


def direction_lines(model: Model, source: Seat, target: Seat, glyphs: Glyphs) -> Lines:
    """Return one direction: each layer's verdict, value, share of the median; path; what went wrong."""
    lines: Lines = [[(pair_name(source, target), "bold $accent")]]
    for layer in measured_key_layers():
        measurement = of_layer(model, layer, source, target)
        lines += _layer_lines(model, layer, measurement, glyphs)
    for layer in _ALSO:
        if (measurement := of_layer(model, layer, source, target)) is not None:
            lines += _layer_lines(model, layer, measurement, glyphs)
    lines += [[("  ", ""), *line] for line in change_lines(model, source, target)]
    p2p = of_layer(model, Layer.P2P, source, target) or of_layer(model, Layer.WORLD, source, target)
    if p2p is not None:
        rows = [
            ("via", one_line(p2p.transport or "unknown", 120)),
            ("addresses", one_line(f"{p2p.src_addr or '?'} > {p2p.dst_addr or '?'}", 120)),
            ("message", bytes_text(p2p.bytes) or "-"),
            ("how", one_line(p2p.how or "-", 160)),
            ("when", f"{time_text(p2p.time)}, attempt {p2p.attempts}"),
            *_times(p2p),
        ]
        lines += pairs(rows, 9)
    lines += [[(f"  {note}", "$warning")] for note in what_looks_told(model, source, target)]
    told = what_partners_told(model, source, target)
    if told:
        lines.append([(f"  {told}", "$accent")])
    why = why_untested(model, source, target)
    if why:
        lines.append([(f"  {why}", "$warning")])
    return lines


def _times(measurement: Measurement) -> list[tuple[str, str]]:
    """Return the times of single messages, and what both ways at once reached, where those are known."""
    rows = []
    found = spread(measurement)
    if found is not None:
        note = ": some take far longer" if found.ratio > NOTABLE else ""
        median, p99 = (f"{us:.0f}" if us >= 1000 else f"{us:.4g}" for us in (found.median * 1e6, found.p99 * 1e6))
        rows.append(("times", f"median {median} us, p99 {p99} us{note}"))
    both = (measurement.extra or {}).get("both_ways")
    if isinstance(both, (int, float)):
        rows.append(("both ways", f"{both:.3g} {measurement.unit}"))
    return rows


def _layer_lines(model: Model, layer: Layer, measurement: Measurement | None, glyphs: Glyphs) -> Lines:
    line: list[Part] = [(f"  {layer:<9} ", MUTED)]
    if measurement is None:
        return [[*line, ("-", MUTED)]]
    verdict = model.verdict(measurement)
    word, style = verdict_part(verdict, glyphs)
    line.append((f"{word:<15}", style))
    if measurement.value is not None:
        line.append((f"{value_text(measurement):<11}", "bold"))
        share = share_text(model, measurement, model.class_of(measurement))
        if share:
            line.append((f" {share}", MUTED))
    loss = (measurement.extra or {}).get("loss")
    if isinstance(loss, (int, float)) and loss:
        line.append((f"  loss {loss:g} %", "$warning"))
    lines = [line]
    problem = failure_text(measurement, 500)
    if problem:
        lines.append([(" " * 12, ""), (problem, "$error" if verdict.bad else "$warning")])
    return lines


def _port_words(model: Model, node: str, nic: str | None, address: str | None) -> str:
    """Return what is known of the port of an endpoint: state, rate, link layer."""
    record = model.nodes.get(node)
    if record is None or record.inventory is None:
        return ""
    words = []
    for port in dicts(record.inventory.get("ib")):
        if nic is not None and nic in (port.get("ca"), port.get("netdev")):
            rate = f" {port.get('rate')} Gb/s" if port.get("rate") is not None else ""
            words.append(
                f"{port.get('ca')} port {port.get('port')} {port.get('state')}/{port.get('phys_state')}{rate}"
                f" {port.get('link_layer')}"
            )
    for found in dicts(record.inventory.get("nics")):
        held = [entry.get("address") for entry in dicts(found.get("addresses"))]
        if (nic is not None and nic in (found.get("name"), found.get("rdma"))) or (address and address in held):
            speed = f" {found.get('speed_mbps')} Mb/s" if found.get("speed_mbps") else ""
            words.append(f"{found.get('name')} {found.get('state')}{speed} mtu {found.get('mtu')}")
    return one_line("; ".join(dict.fromkeys(words)), 300)


def _ends_lines(model: Model, seats: tuple[Seat, Seat]) -> Lines:
    rows = []
    for seat in seats:
        if seat.number is None:
            continue
        endpoint = model.endpoints[seat.number]
        rail = "-" if endpoint.rail is None else str(endpoint.rail)
        rows.append(
            [
                seat.name,
                one_line(endpoint.name or endpoint.kind, 40),
                one_line(endpoint.bus or "-", 20),
                one_line(endpoint.nic or "-", 20),
                rail,
                one_line(endpoint.address or "-", 45),
                _port_words(model, seat.node, endpoint.nic, endpoint.address),
            ]
        )
    if not rows:
        return []
    return section("ends") + table(["endpoint", "what", "PCI", "NIC", "rail", "address", "port"], rows)


def _latest(model: Model, source: Seat, target: Seat) -> list[Measurement]:
    """Return what counts of a pair in the layers that have text of the library, both ways."""
    ways = ((source, target), (target, source))
    found = (of_layer(model, layer, *way) for way in ways for layer in (Layer.P2P, Layer.WORLD))
    return [one for one in found if one is not None]


def hand_lines(model: Model, src: str, dst: str) -> Lines:
    """Return the commands that test a pair without this session, and what they need."""
    lines = section("by hand", "Y copies the first")
    lines += [
        [("  with fabtui, on this machine: this pair alone", MUTED)],
        [(f"  {one_line(by_fabtui(model, src, dst), 4000)}", "$accent")],
    ]
    command = by_hand(model, src, dst)
    if command:
        where = "on this machine, as the nodes are" if model.lab else "a login on both nodes without a question"
        lines += [
            [(f"  without it: PyTorch on both nodes, the free port {PORT}, {where}", MUTED)],
            [(f"  {one_line(command, 8000)}", "$accent")],
        ]
    return lines


def _raw_lines(model: Model, source: Seat, target: Seat) -> Lines:
    lines: Lines = []
    for here, there in ((source, target), (target, source)):
        for layer in measured_key_layers():
            measurement = of_layer(model, layer, here, there)
            if measurement is None or not measurement.raw:
                continue
            lines += section(f"raw text, {layer}, {pair_name(here, there)}")
            lines += [[(f"  {line}", "")] for line in clean(measurement.raw, _RAW_LIMIT).expandtabs().splitlines()]
    return lines
