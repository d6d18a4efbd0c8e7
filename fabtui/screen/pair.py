"""All that is known of a pair, both ways."""

from __future__ import annotations

import shlex
from typing import Any, ClassVar

from textual.binding import Binding, BindingType

from fabtui.fabric.endpoint import Endpoint
from fabtui.fabric.measurement import Layer, Measurement, Verdict
from fabtui.fabric.model import Model
from fabtui.fabric.text import clean, one_line
from fabtui.screen.axis import Seat
from fabtui.screen.countertable import counter_lines
from fabtui.screen.detail import DetailScreen, Lines, pairs, section, table
from fabtui.screen.levels import Glyphs, bytes_text
from fabtui.screen.pairwords import of_layer, pair_name, summary_text, what_looks_told, what_partners_told, why_untested
from fabtui.screen.words import (
    MEASURED_LAYERS,
    MUTED,
    Part,
    class_of,
    failure_text,
    share_text,
    time_text,
    value_text,
    verdict_part,
)
from fabtui.screen.wrapping import beside, stacked

#: From this width on the two directions stand side by side.
_SIDE_BY_SIDE = 100
_MOST_ATTEMPTS = 40
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
        Binding("y", "copy", "copy", id="pair.copy", tooltip="copy what is known of the pair"),
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
        model, glyphs = self.fabric_app.model, self.fabric_app.glyphs
        there = direction_lines(model, self.source, self.target, glyphs)
        back = direction_lines(model, self.target, self.source, glyphs)
        lines = beside(there, back, width) if width >= _SIDE_BY_SIDE else stacked([*there, [], *back], width)
        lines += _ends_lines(model, (self.source, self.target))
        lines += _next_lines(model, self.source, self.target)
        lines += counter_lines(model, _tested(model, self.source, self.target))
        lines += _history_lines(model, self.source, self.target, glyphs)
        lines += _raw_lines(model, self.source, self.target)
        return lines

    async def action_retest(self, both: bool) -> None:
        """Test the pair again, this way or both ways."""
        pairs_ = [(self.source, self.target)]
        if both:
            pairs_.append((self.target, self.source))
        self.fabric_app.retest(pairs_)

    def action_turn(self) -> None:
        """Look at the pair from its other end."""
        self.source, self.target = self.target, self.source
        self.draw()

    def action_node(self, which: int) -> None:
        """Look at one of the two nodes."""
        self.fabric_app.open_node(self.target.node if which else self.source.node)

    def action_copy(self) -> None:
        """Copy what is known, as plain text."""
        self.fabric_app.copy(summary_text(self.fabric_app.model, self.source, self.target))


def _tested(model: Model, source: Seat, target: Seat) -> Measurement | None:
    """Return the measurement of a pair whose time is the one to ask counters about."""
    ways = ((source, target), (target, source))
    found = (of_layer(model, layer, *way) for layer in (Layer.P2P, Layer.WORLD) for way in ways)
    return next((one for one in found if one is not None), None)


def direction_lines(model: Model, source: Seat, target: Seat, glyphs: Glyphs) -> Lines:
    """Return one direction: each layer's verdict, value, share of the median; path; what went wrong."""
    lines: Lines = [[(pair_name(source, target), "bold $accent")]]
    for layer in MEASURED_LAYERS:
        measurement = of_layer(model, layer, source, target)
        lines += _layer_lines(model, layer, measurement, glyphs)
    p2p = of_layer(model, Layer.P2P, source, target) or of_layer(model, Layer.WORLD, source, target)
    if p2p is not None:
        rows = [
            ("via", one_line(p2p.transport or "unknown", 120)),
            ("addresses", one_line(f"{p2p.src_addr or '?'} > {p2p.dst_addr or '?'}", 120)),
            ("message", bytes_text(p2p.bytes) or "-"),
            ("how", one_line(p2p.how or "-", 160)),
            ("when", f"{time_text(p2p.time)}, attempt {p2p.attempts}"),
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


def _layer_lines(model: Model, layer: Layer, measurement: Measurement | None, glyphs: Glyphs) -> Lines:
    line: list[Part] = [(f"  {layer:<9} ", MUTED)]
    if measurement is None:
        return [[*line, ("-", MUTED)]]
    verdict = model.verdict(measurement)
    word, style = verdict_part(verdict, glyphs)
    line.append((f"{word:<15}", style))
    if measurement.value is not None:
        line.append((f"{value_text(measurement):<11}", "bold"))
        share = share_text(model, measurement, class_of(model, measurement))
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
    for port in _dicts(record.inventory.get("ib")):
        if nic is not None and nic in (port.get("ca"), port.get("netdev")):
            rate = f" {port.get('rate')} Gb/s" if port.get("rate") is not None else ""
            words.append(
                f"{port.get('ca')} port {port.get('port')} {port.get('state')}/{port.get('phys_state')}{rate}"
                f" {port.get('link_layer')}"
            )
    for found in _dicts(record.inventory.get("nics")):
        held = [entry.get("address") for entry in _dicts(found.get("addresses"))]
        if (nic is not None and nic in (found.get("name"), found.get("rdma"))) or (address and address in held):
            speed = f" {found.get('speed_mbps')} Mb/s" if found.get("speed_mbps") else ""
            words.append(f"{found.get('name')} {found.get('state')}{speed} mtu {found.get('mtu')}")
    return one_line("; ".join(dict.fromkeys(words)), 300)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


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


def next_commands(model: Model, source: Seat, target: Seat) -> list[str]:
    """Return commands that look further into what is wrong with a pair, ready to be typed."""
    if source.number is None or target.number is None:
        return []
    src, dst = model.endpoints[source.number], model.endpoints[target.number]
    commands = []
    for layer in (Layer.PING, Layer.P2P):
        measurement = of_layer(model, layer, source, target)
        if measurement is None or src.node == dst.node:
            continue
        verdict = model.verdict(measurement)
        if verdict in (Verdict.TIMEOUT, Verdict.FAILED, Verdict.INCONCLUSIVE):
            commands += _path_commands(src, dst, measurement)
    return list(dict.fromkeys(commands))


def _path_commands(src: Endpoint, dst: Endpoint, measurement: Measurement) -> list[str]:
    here, there = measurement.src_addr or src.address, measurement.dst_addr or dst.address
    if not here or not there:
        return []
    here, there = one_line(here, 60), one_line(there, 60)
    ssh = f"ssh {shlex.quote(one_line(src.node, 255))}"
    return [
        f"{ssh} ping -c3 -I {shlex.quote(here)} {shlex.quote(there)}",
        f"{ssh} ip route get {shlex.quote(there)} from {shlex.quote(here)}",
    ]


def _next_lines(model: Model, source: Seat, target: Seat) -> Lines:
    commands = next_commands(model, source, target) + next_commands(model, target, source)
    if not commands:
        return []
    return section("look further") + [[(f"  {command}", "")] for command in commands]


def _history_lines(model: Model, source: Seat, target: Seat, glyphs: Glyphs) -> Lines:
    if source.number is None or target.number is None:
        return []
    names = [str(model.endpoints[number]) for number in (source.number, target.number)]
    found: list[Measurement] = []
    for src, dst in ((names[0], names[1]), (names[1], names[0])):
        for layer in (Layer.P2P, Layer.WORLD, Layer.LATENCY):
            found += model.history(layer, src, dst)
    if not found:
        return []
    found.sort(key=lambda m: m.time)
    rows, styles = [], {}
    for at, one in enumerate(found[-_MOST_ATTEMPTS:]):
        word, styles[at, 3] = verdict_part(one.verdict, glyphs)
        way = ">" if one.src == names[0] else "<"
        rows.append(
            [time_text(one.time), way, str(one.layer), word, value_text(one), str(one.attempts), failure_text(one)]
        )
    note = (
        f"the latest {_MOST_ATTEMPTS} of {len(found)}"
        if len(found) > _MOST_ATTEMPTS
        else f"> is {names[0]} to {names[1]}"
    )
    headings = ["time", "", "layer", "verdict", "value", "attempt", "what went wrong"]
    return section("history", one_line(note, 160)) + table(headings, rows, styles)


def _raw_lines(model: Model, source: Seat, target: Seat) -> Lines:
    lines: Lines = []
    for here, there in ((source, target), (target, source)):
        for layer in MEASURED_LAYERS:
            measurement = of_layer(model, layer, here, there)
            if measurement is None or not measurement.raw:
                continue
            lines += section(f"raw text, {layer}, {pair_name(here, there)}")
            lines += [[(f"  {line}", "")] for line in clean(measurement.raw, _RAW_LIMIT).expandtabs().splitlines()]
    return lines
