"""Text of a pair: for the side panel, the status line, lists and the clipboard."""

from __future__ import annotations

from fabtui.model.layers import Layer, Per, measured_key_layers
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import CellStyle, Glyphs
from fabtui.presentation.wording import (
    CLASS_WORDS,
    MUTED,
    Part,
    clock_text,
    common_domain,
    failure_text,
    limit_text,
    measured_text,
    ping_extra,
    state_style,
    time_text,
    usual_share_text,
    verdict_part,
    without_domain,
)
from fabtui.sanitize import one_line
from fabtui.screen.grid.axis import AxisEntry
from fabtui.screen.widgets.sparkline import LABEL, pair_trend
from fabtui_node.parsers.lines import bytes_text


def pair_name(source: AxisEntry, target: AxisEntry) -> str:
    """Return the name of a pair: ``n060:3 > n061:5``."""
    return f"{source.name} > {target.name}"


def ends_of(model: Model, source: AxisEntry, target: AxisEntry) -> tuple[str, str] | None:
    """Return the names of the endpoints of a pair; None if a node has none (yet)."""
    if source.number is None or target.number is None:
        return None
    return str(model.endpoints[source.number]), str(model.endpoints[target.number])


def why_untested(model: Model, source: AxisEntry, target: AxisEntry, now: float | None = None) -> str:
    """Return why a pair was not tested, or ""; ``now`` is the time of the session (s since the epoch)."""
    if (names := ends_of(model, source, target)) and (text := model.untested.get(names)):
        return one_line(text, 300)
    for entry in (source, target):
        record = model.nodes.get(entry.node)
        if record is not None and record.state.gone:
            ago = f" {clock_text(now - record.since)} ago" if now is not None and record.since else ""
            return one_line(f"{record.name} {record.state}{ago}: {record.text}", 300)
        if record is not None and record.note and (entry.number is None or entry.index == "-"):
            return one_line(f"{entry.node}: {record.note}", 300)
    return ""


def link_notes(model: Model, source: AxisEntry, target: AxisEntry) -> list[Part]:
    """Return the known problems of ports and cables of a pair, and how its ends did with other partners."""
    if (names := ends_of(model, source, target)) is None:
        return []
    # Diagnosis takes 0.1 s to import, and the first frame shows no pair.
    from fabtui.diagnosis.links.rdma_ports import pair_notes

    partners = one_line(model.suspects.get(names, ""), 300)
    return [(note, "$warning") for note in pair_notes(model, *names)] + ([(partners, "$accent")] if partners else [])


def of_layer(model: Model, layer: Layer, source: AxisEntry, target: AxisEntry) -> Measurement | None:
    """Return the measurement of a cell."""
    if source.number is None or target.number is None:
        return None
    if source.number == target.number and layer.spec.per is not Per.NODE_PAIR:
        return None
    return model.measured_for(layer, source.number, target.number)


def layer_parts(model: Model, layer: Layer, measurement: Measurement | None, glyphs: Glyphs) -> list[Part]:
    """Return one layer of a pair: verdict unless ok, value, share of the usual value."""
    if measurement is None:
        return [(f"{layer:<{LABEL}}", MUTED), ("-", MUTED)]
    share = usual_share_text(model, measurement) if measurement.value is not None else ""
    notes = (share, ping_extra(measurement) if layer is Layer.PING else "")
    result = _result(model, measurement, glyphs, "bold")
    return [(f"{layer:<{LABEL}}", MUTED), *result, *((f"  {note}", MUTED) for note in notes if note)]


def _result(model: Model, measurement: Measurement, glyphs: Glyphs, style: str) -> list[Part]:
    """Return the verdict of a measurement unless it is ok, and its value in a style."""
    parts: list[Part] = []
    verdict = model.verdict(measurement)
    if verdict is not Verdict.OK:
        parts += [verdict_part(verdict, glyphs), ("  ", "")]
    return parts if measurement.value is None else [*parts, (measured_text(measurement), style)]


def panel_lines(
    model: Model, source: AxisEntry, target: AxisEntry, glyphs: Glyphs, now: float | None = None
) -> list[list[Part]]:
    """Return a summary of a pair for the side panel."""
    lines: list[list[Part]] = []
    found = {layer: of_layer(model, layer, source, target) for layer in measured_key_layers()}
    known = [m for m in found.values() if m is not None]
    if source.number is not None and source.number == target.number:
        lines.append([("an endpoint is not tested with itself", MUTED)])
        known = []
    elif not known:
        lines.append([verdict_part(Verdict.UNTESTED, glyphs)])
    else:
        lines.append(_head(model, source, target, known, glyphs))
    if known:
        lines.extend(layer_parts(model, layer, measurement, glyphs) for layer, measurement in found.items())
        p2p = found[Layer.P2P] or found[Layer.WORLD]
        if p2p is not None and p2p.transport:
            lines.append([("transport ", MUTED), (one_line(p2p.transport, 120), "")])
        if p2p is not None and (limit := limit_text(model, p2p)):
            lines.append([("limit     ", MUTED), (limit, "")])
        if p2p is not None and (p2p.src_addr or p2p.dst_addr):
            ends = f"{one_line(p2p.src_addr or '?', 60)} > {one_line(p2p.dst_addr or '?', 60)}"
            lines.append([("address   ", MUTED), (ends, "")])
        back = of_layer(model, Layer.P2P, target, source)
        if back is not None:
            lines.append([("reverse   ", MUTED), *_result(model, back, glyphs, "")])
        lines.extend(change_lines(model, source, target))
        if (names := ends_of(model, source, target)) is not None:
            lines.extend(pair_trend(model, *names, glyphs))
    errors: dict[str, Layer] = {}
    for measured in known:
        errors.setdefault(failure_text(measured), measured.layer)
    lines.extend([(f"{layer}: ", MUTED), (text, "$error")] for text, layer in errors.items() if text)
    for text, style in link_notes(model, source, target):
        # Only the text about partners names nodes.
        lines.append([(without_domain(common_domain(model.nodes), text) if style == "$accent" else text, style)])
    if why := why_untested(model, source, target, now):
        lines.append([(why, "$warning")])
    for node in dict.fromkeys((source.node, target.node)):
        if (record := model.gone(node)) is not None and record.hint:
            lines.append([("next      ", MUTED), (one_line(record.hint, 300), state_style(record.state))])
    return lines


def change_lines(model: Model, source: AxisEntry, target: AxisEntry) -> list[list[Part]]:
    """Return the change of a pair against the baseline or the previous sweep, or nothing without one."""
    if source.number is None or target.number is None or source.number == target.number:
        return []
    found = model.change(source.number, target.number)
    if found is None:
        return []
    parts: list[Part] = [(f"{Layer.CHANGE:<{LABEL}}", MUTED)]
    if found.ratio is not None:
        parts += [(f"x {found.ratio:.2f}", "bold"), ("  ", "")]
    return [[*parts, (found.text, MUTED if found.ratio is not None else "")]]


def _head(model: Model, source: AxisEntry, target: AxisEntry, known: list[Measurement], glyphs: Glyphs) -> list[Part]:
    assert source.number is not None
    assert target.number is not None
    cell = model.cell(Layer.HEALTH, source.number, target.number)
    parts: list[Part] = [verdict_part(cell.verdict, glyphs)]
    kind = model.table.class_between(str(model.endpoints[source.number]), str(model.endpoints[target.number]))
    parts.append((f"   {kind}", ""))
    attempts = max(m.attempts for m in known)
    if attempts > 1:
        parts.append((f"   {attempts} attempts", ""))
    if flaps(model, source, target):
        parts.append((f"   {glyphs.of_style[CellStyle.FLAPPING]} flapping", "bold $warning"))
    if cell.running:
        parts.append(("   test in progress", "bold $accent"))
    return parts


def flaps(model: Model, source: AxisEntry, target: AxisEntry) -> int:
    """Return the number of recent changes of verdict of a flapping pair, else 0."""
    names = ends_of(model, source, target)
    return (
        0
        if names is None
        else max(model.results.flapping.get((layer, *names), 0) for layer in (Layer.P2P, Layer.WORLD))
    )


def status_parts(model: Model, layer: Layer, source: AxisEntry, target: AxisEntry, glyphs: Glyphs) -> list[Part]:
    """Return a pair on one line, most important part first."""
    parts: list[Part] = [(pair_name(source, target), "bold"), ("  ", "")]
    measurement = of_layer(model, layer if layer in measured_key_layers() else Layer.P2P, source, target)
    if source.number is not None and target.number is not None:
        cell = model.cell(layer, source.number, target.number)
        if cell.running:
            parts.append(("test in progress  ", "bold $accent"))
        if cell.measurement is not None:
            measurement = cell.measurement
            parts += [verdict_part(cell.verdict, glyphs), ("  ", "")]
    if flaps(model, source, target):
        parts.append((f"{glyphs.of_style[CellStyle.FLAPPING]} flapping  ", "bold $warning"))
    if measurement is None:
        if source.number is not None and source.number == target.number:
            return [*parts, ("same endpoint", MUTED)]
        parts.append((f"no {layer} value", MUTED))
        p2p = of_layer(model, Layer.P2P, source, target)
        if p2p is not None and layer is not Layer.P2P:
            parts += [("  p2p: ", MUTED), verdict_part(model.verdict(p2p), glyphs)]
        why = why_untested(model, source, target)
        return [*parts, (f"  {why}", "$warning")] if why else parts
    kind = model.key_of(measurement).kind
    if layer is Layer.CHANGE:
        return parts + [part for line in change_lines(model, source, target) for part in line[1:]]
    if measurement.value is not None:
        parts += [
            (measured_text(measurement), "bold"),
            (f"  {CLASS_WORDS[kind]} {usual_share_text(model, measurement)}", MUTED),
        ]
    for text, style in ((failure_text(measurement), "$error"), (one_line(measurement.transport or "", 60), MUTED)):
        if text:
            parts.append((f"  {text}", style))
    return parts


def _whole_name(source: AxisEntry, target: AxisEntry) -> str:
    """Return the name of a pair with the full names of its nodes."""
    return one_line(f"{source.node}:{source.index} > {target.node}:{target.index}", 300)


def summary_text(model: Model, source: AxisEntry, target: AxisEntry) -> str:
    """Return a pair as plain text for a mail or a ticket."""
    lines = [_whole_name(source, target)]
    if why := why_untested(model, source, target):
        lines.append(f"  {why}")
    for here, there, title in ((source, target, "forward"), (target, source, "reverse")):
        lines.append(f"{title}: {_whole_name(here, there)}")
        lines += [f"  {note}" for note, _ in link_notes(model, here, there)]
        for layer in measured_key_layers():
            measurement = of_layer(model, layer, here, there)
            if measurement is not None:
                lines.append("  " + _summary_line(model, layer, measurement))
    return "\n".join(lines)


def _summary_line(model: Model, layer: Layer, measurement: Measurement) -> str:
    parts = [f"{layer}: {model.verdict(measurement)}"]
    if measurement.value is not None:
        parts.append(measured_text(measurement))
        shares = ", ".join(filter(None, (usual_share_text(model, measurement), limit_text(model, measurement))))
        parts += [f"({shares}, class {model.key_of(measurement).kind})"] if shares else []
    if measurement.bytes:
        parts.append(f"at {bytes_text(measurement.bytes)}")
    for text in (measurement.transport, ping_extra(measurement), failure_text(measurement), measurement.how):
        if text:
            parts.append(one_line(text, 300))
    if measurement.src_addr or measurement.dst_addr:
        parts.append(one_line(f"{measurement.src_addr or '?'} > {measurement.dst_addr or '?'}", 120))
    parts.append(f"attempt {measurement.attempts}, {time_text(measurement.time)}")
    return "; ".join(parts)
