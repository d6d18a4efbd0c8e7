"""Text of a pair: for the side panel, the status line, lists and the clipboard."""

from __future__ import annotations

from collections.abc import Iterable

from fabtui.diagnosis.links import rdma_ports
from fabtui.model.layers import Layer, Per, measured_key_layers
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import CellStyle, Glyphs, style_of
from fabtui.presentation.wording import (
    CLASS_WORDS,
    MUTED,
    Part,
    clock_text,
    common_domain,
    failure_text,
    limit_text,
    measured_text,
    message_text,
    ping_extra,
    plain,
    time_text,
    usual_share_text,
    verdict_tone,
    verdict_words,
    without_domain,
)
from fabtui.presentation.wrapping import Line, Lines, wrapped
from fabtui.sanitize import one_line
from fabtui.screen.grid.axis import AxisEntry
from fabtui.screen.widgets.sparkline import LABEL


def pair_name(source: AxisEntry, target: AxisEntry) -> str:
    """Return the name of a pair: ``n060:3 > n061:5``."""
    return f"{source.name} > {target.name}"


def ends_of(model: Model, source: AxisEntry, target: AxisEntry) -> tuple[str, str] | None:
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
    if (names := ends_of(model, source, target)) is None:
        return []
    partners = one_line(model.suspects.get(names, ""), 300)
    return [(note, "$warning") for note in rdma_ports.pair_notes(model, *names)] + (
        [(partners, "$accent")] if partners else []
    )


def of_layer(model: Model, layer: Layer, source: AxisEntry, target: AxisEntry) -> Measurement | None:
    if source.number is None or target.number is None:
        return None
    if source.number == target.number and layer.spec.per is not Per.NODE_PAIR:
        return None
    return model.measured_for(layer, source.number, target.number)


def _item(model: Model, layer: str, measurement: Measurement, glyphs: Glyphs, note: str = "") -> Line:
    """Return one result of a pair in few words: ``world 3.32 GB/s ok``."""
    value: Line = [] if measurement.value is None else [(f"{measured_text(measurement)} ", "bold")]
    return [
        (f"{layer} ", MUTED),
        *value,
        _word(model.verdict(measurement), glyphs),
        *([(f" {note}", MUTED)] if note else []),
    ]


def _word(verdict: Verdict, glyphs: Glyphs) -> Part:
    if verdict is Verdict.OK:
        return verdict_words(verdict), MUTED
    return f"{glyphs.of_style[style_of(verdict, None)]} {verdict_words(verdict)}", f"bold {verdict_tone(verdict)}"


def pair_items(model: Model, source: AxisEntry, target: AxisEntry, glyphs: Glyphs) -> list[Line]:
    items: list[Line] = []
    for layer in measured_key_layers():
        if (found := of_layer(model, layer, source, target)) is not None:
            note = ""
            if model.verdict(found).bad:
                note = usual_share_text(model, found) if found.value is not None else ""
                note = note or (ping_extra(found) if layer is Layer.PING else "")
            items.append(_item(model, layer, found, glyphs, note))
    p2p = of_layer(model, Layer.P2P, source, target) or of_layer(model, Layer.WORLD, source, target)
    back = of_layer(model, Layer.P2P, target, source)
    if back is not None:
        items.insert(1, _item(model, "reverse", back, glyphs))
    if p2p is not None and (limit := limit_text(model, p2p)):
        items.append([("limit ", MUTED), (limit, "")])
    first: list[Line] = []
    if flaps(model, source, target):
        first.append([(f"{glyphs.of_style[CellStyle.FLAPPING]} flapping", "bold $warning")])
    first += [[(f"{line[0][0].strip()} ", MUTED), *line[1:]] for line in change_lines(model, source, target)]
    return [*first, *items]


def pair_head(model: Model, source: AxisEntry, target: AxisEntry) -> Line:
    """Return the class of a pair and the way that its data takes: ``same rail, TCP``."""
    if source.number is None or target.number is None or source.number == target.number:
        return []
    kind = model.table.class_between(str(model.endpoints[source.number]), str(model.endpoints[target.number]))
    p2p = of_layer(model, Layer.P2P, source, target) or of_layer(model, Layer.WORLD, source, target)
    path = one_line(p2p.transport, 60) if p2p is not None and p2p.transport else ""
    return [(", ".join(filter(None, (str(kind).replace("-", " "), path))), MUTED)]


def pair_notes(
    model: Model, source: AxisEntry, target: AxisEntry, now: float | None = None, *, explained: bool = False
) -> list[Line]:
    """Return what explains the results of a pair; ``explained``: a finding has its errors and other tests."""
    lines: list[Line] = []
    found = [of_layer(model, layer, source, target) for layer in measured_key_layers()]
    known = [m for m in found if m is not None]
    if source.number is not None and source.number == target.number:
        return [[("an endpoint is not tested with itself", MUTED)]]
    if not known:
        left_out = f", as the plan leaves it out ({one_line(model.plan, 100)}); r tests it" if model.plan else ""
        lines.append([(f"not tested{left_out}", MUTED)])
    elif model.cell(Layer.HEALTH, source.number or 0, target.number or 0).running:
        lines.append([("test in progress", "bold $accent")])
    errors: dict[str, Layer] = {}
    for measured in known if not explained else ():
        errors.setdefault(failure_text(measured), measured.layer)
    lines.extend([(f"{layer}: ", MUTED), (text, "")] for text, layer in errors.items() if text)
    for text, style in link_notes(model, source, target) if not explained else ():
        # Only the text about partners names nodes.
        lines.append([(without_domain(common_domain(model.nodes), text) if style == "$accent" else text, style)])
    if why := why_untested(model, source, target, now):
        lines.append([(why, "$warning")])
    for node in dict.fromkeys((source.node, target.node)):
        if (record := model.gone(node)) is not None and record.hint:
            lines.append([("next  ", MUTED), (one_line(record.hint, 300), "$primary")])
    return lines


def flowed(items: Iterable[Line], width: int, indent: int = 1, gap: int = 3) -> Lines:
    lines: Lines = []
    for item in items:
        if lines and len(plain(lines[-1])) + gap + len(plain(item)) <= width:
            lines[-1] += [(" " * gap, ""), *item]
        else:
            lines += wrapped([(" " * indent, ""), *item], width, indent + 2)
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


def flaps(model: Model, source: AxisEntry, target: AxisEntry) -> int:
    flapping, names = model.results.flapping, ends_of(model, source, target)
    return 0 if names is None else max(flapping.get((layer, *names), 0) for layer in (Layer.P2P, Layer.WORLD))


def status_parts(model: Model, layer: Layer, source: AxisEntry, target: AxisEntry, glyphs: Glyphs) -> list[Part]:
    parts: list[Part] = [(pair_name(source, target), "bold"), ("  ", "")]
    measurement = of_layer(model, layer if layer in measured_key_layers() else Layer.P2P, source, target)
    if source.number is not None and target.number is not None:
        cell = model.cell(layer, source.number, target.number)
        if cell.running:
            parts.append(("test in progress  ", "bold $accent"))
        if cell.measurement is not None:
            measurement = cell.measurement
            parts += [_word(cell.verdict, glyphs), ("  ", "")]
    if flaps(model, source, target):
        parts.append((f"{glyphs.of_style[CellStyle.FLAPPING]} flapping  ", "bold $warning"))
    if measurement is None:
        if source.number is not None and source.number == target.number:
            return [*parts, ("same endpoint", MUTED)]
        parts.append((f"no {layer} value", MUTED))
        p2p = of_layer(model, Layer.P2P, source, target)
        if p2p is not None and layer is not Layer.P2P:
            parts += [("  p2p: ", MUTED), _word(model.verdict(p2p), glyphs)]
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
        parts += [(f"  ({message_text(measurement)})", MUTED)] if measurement.reduced else []
    for text, style in ((failure_text(measurement), MUTED), (one_line(measurement.transport or "", 60), MUTED)):
        if text:
            parts.append((f"  {text}", style))
    return parts


def _whole_name(source: AxisEntry, target: AxisEntry) -> str:
    names = (one.node if one.index == "-" else f"{one.node}:{one.index}" for one in (source, target))
    return one_line(" > ".join(names), 300)


def summary_text(model: Model, source: AxisEntry, target: AxisEntry) -> str:
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
    parts = [f"{layer}: {verdict_words(model.verdict(measurement))}"]
    if measurement.value is not None:
        parts.append(measured_text(measurement))
        shares = ", ".join(filter(None, (usual_share_text(model, measurement), limit_text(model, measurement))))
        parts += [f"({shares}, class {model.key_of(measurement).kind})"] if shares else []
    if measurement.bytes:
        parts.append(f"at {message_text(measurement)}")
    for text in (measurement.transport, ping_extra(measurement), failure_text(measurement), measurement.how):
        if text:
            parts.append(one_line(text, 300))
    if measurement.src_addr or measurement.dst_addr:
        parts.append(one_line(f"{measurement.src_addr or '?'} > {measurement.dst_addr or '?'}", 120))
    parts.append(f"attempt {measurement.attempts}, {time_text(measurement.time)}")
    return "; ".join(parts)
