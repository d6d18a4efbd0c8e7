"""Connectivity of addresses: a row and a column per node and network segment, as pings found it."""

from __future__ import annotations

import ipaddress
from collections import Counter

import numpy as np

from fabtui.model.facts.node_view import dicts
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement
from fabtui.model.session_model import Model
from fabtui.pictures.heatmap import (
    MOST_ENDPOINTS,
    Cells,
    Heatmap,
    Mode,
    by_node,
    method_of,
    method_text,
    usual_method,
    words_of,
)
from fabtui.pictures.scene import Scene, label
from fabtui.presentation.cell_levels import CellStyle, style_of
from fabtui.presentation.legends import layer_title
from fabtui.presentation.numbers import spoken_text
from fabtui.presentation.wording import common_domain, verdict_words, without_domain
from fabtui.sanitize import one_line

#: Prefix lengths of segments whose networks are not known, of IPv4 and IPv6.
_USUAL_PREFIX = {4: 24, 6: 64}
#: A row: node and address.
_Seat = tuple[str, str]


def connectivity_scene(model: Model, layer: Layer = Layer.PING, mode: Mode = "verdict") -> Scene:
    pairs = list(model.addresses.pairs(layer))
    seats = _seats(model, pairs)
    domain = common_domain(model.nodes)
    names = list(dict.fromkeys(f"{without_domain(domain, node)} {segment}" for (node, _), segment in seats.items()))
    if len(names) < len(seats):
        names = [f"{without_domain(domain, node)} {address}" for node, address in seats]
    place = {seat: at for at, seat in enumerate(seats)}
    slots = np.full((len(seats), len(seats)), CellStyle.UNTESTED, dtype=np.uint8)
    np.fill_diagonal(slots, CellStyle.DIAGONAL)
    values = np.full(slots.shape, np.nan)
    cells: dict[tuple[int, int], Measurement] = {}
    for one in pairs:
        where = place[one.src, one.src_addr or ""], place[one.dst, one.dst_addr or ""]
        slots[where], cells[where] = style_of(model.verdict(one), None), one
        values[where] = np.nan if one.value is None else one.value
    groups = list(seats.values())
    method, methods = usual_method(Counter(map(method_of, pairs)))
    notes = [method_text(method, methods), f"rows and columns by network segment: {len(set(groups))}"]
    if len(names) > MOST_ENDPOINTS:
        nodes = [without_domain(domain, node) for node, _ in seats]
        slots, values, names = by_node(slots, values, nodes, layer.spec.less_is_better)
        groups, cells = names, {}
        notes[1] = f"{len(seats)} addresses: a cell is the worst pair of addresses of two nodes"

    def describe(row: int, column: int) -> str:
        pair = f"{label(names[row])} > {label(names[column])}"
        measured = cells.get((row, column))
        if measured is None:
            return f"{pair}: {CellStyle(slots[row, column]).key}"
        value = "" if measured.value is None else spoken_text(measured.value, one_line(measured.unit, 20))
        why = one_line(measured.error, 120) if measured.error else ""
        return f"{pair}: {', '.join(part for part in (verdict_words(model.verdict(measured)), value, why) if part)}"

    title = f"{layer} by network segment: {layer_title(layer)}"
    shown = Cells(names, groups, [], slots, values, method, methods)
    return Heatmap(title, shown, notes, words_of(layer), describe).scene(mode)


def _seats(model: Model, found: list[Measurement]) -> dict[_Seat, str]:
    prefixes = {
        (node, str(entry.get("address"))): entry["prefix"]
        for node, record in model.nodes.items()
        for nic in dicts((record.inventory or {}).get("nics"))
        for entry in dicts(nic.get("addresses"))
        if isinstance(entry.get("prefix"), int)
    }
    nodes = {name: at for at, name in enumerate(model.nodes)}
    ends = {
        (node, address or "") for one in found for node, address in ((one.src, one.src_addr), (one.dst, one.dst_addr))
    }
    segments = {seat: _segment(model, seat, prefixes.get(seat)) for seat in ends}
    order = sorted(ends, key=lambda seat: (segments[seat][0], nodes.get(seat[0], len(nodes)), *seat))
    return {seat: segments[seat][1] for seat in order}


def _segment(model: Model, seat: _Seat, prefix: int | None) -> tuple[tuple[int, int, str], str]:
    """Return a sort key and the name of the segment of an address: its network, or the rail of an RDMA port."""
    node, address = seat
    try:
        ip = ipaddress.ip_address(address)
        network = ipaddress.ip_network((ip, _USUAL_PREFIX[ip.version] if prefix is None else prefix), strict=False)
    except ValueError:
        rail = model.addresses.seat(node, address).rail
        name = address if rail is None else f"rail {rail}"
        return (0, -1 if rail is None else rail, name), name
    return (network.version, int(network.network_address), str(network)), str(network)
