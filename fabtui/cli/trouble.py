"""What a summary says about what is not ok, and about what passed and is still worth a word."""

from __future__ import annotations

from typing import NamedTuple

from fabtui.cli.capped import capped
from fabtui.cli.numbers import size_text, value_text
from fabtui.diagnosis.layers import rail_isolation, words
from fabtui.diagnosis.mesh import mesh_findings
from fabtui.diagnosis.meshways import MeshFinding, key_of
from fabtui.diagnosis.ports import PortNotes, port_troubles
from fabtui.diagnosis.scopes import Way
from fabtui.diagnosis.spread import Spread, notable
from fabtui.fabric.measurement import BY_ADDRESS, COLLECTIVES, MESH, Layer, Measurement, Verdict
from fabtui.fabric.model import Model
from fabtui.fabric.text import one_line

_IN_TABLES = frozenset(COLLECTIVES.values())
#: Widely spread times are listed up to this many; one busy node makes many of them, and CPU ranks are always busy.
_MOST_NOTABLE = 8
_MOST_FINDING_LINES = 60
_MOST_NOTABLE_ON_CPUS = 1


class Signs(NamedTuple):
    """The characters beyond letters and digits that a summary uses."""

    to: str
    dot: str


def trouble(model: Model, signs: Signs) -> list[list[str]]:
    """Return what is to be told of all pairs together, then the list of what is not ok, then what is notable."""
    isolation = rail_isolation(model)
    told = [isolation.text] if isolation is not None else []
    findings = mesh_findings(model)
    explained = frozenset(cell for finding in findings for cell in finding.cells)
    return [told, _findings(findings), _ports(model), _bad(model, signs, explained), _notable(model, signs)]


def _findings(findings: list[MeshFinding]) -> list[str]:
    lines = []
    for number, finding in enumerate(findings, 1):
        lines.append(f"  {number} {one_line(finding.text, 300)}")
        lines += [f"      {one_line(line, 300)}" for line in finding.evidence]
        if finding.next:
            lines.append(f"      next: {one_line(finding.next, 300)}")
    return capped([f"findings: {len(findings)}"], lines, "lines", _MOST_FINDING_LINES) if lines else []


def _ports(model: Model) -> list[str]:
    """List what looks tell of the RDMA ports that endpoints send over, each once."""
    found = [str(one) for endpoint in model.endpoints for one in port_troubles(model, endpoint)]
    lines = [f"  {line}" for line in dict.fromkeys(found)]
    return capped([f"RDMA ports that endpoints send over: {len(lines)} troubles"], lines, "troubles") if lines else []


def _bad(model: Model, signs: Signs, explained: frozenset[tuple[Layer, Way]]) -> list[str]:
    """List what is not ok and no finding tells, a line for each layer of a pair; tables tell of collectives."""
    found: dict[tuple[str | None, ...], list[Measurement]] = {}
    for m in model.measurements():
        told = m.layer in MESH and key_of(m) in explained
        if m.layer not in _IN_TABLES and not told and model.verdict(m).bad:
            found.setdefault((m.layer, m.src, m.dst, m.src_addr, m.dst_addr), []).append(m)
    # A pair that fails in bandwidth fails in latency as well; once is enough.
    failed = {(m.src, m.dst) for group in found.values() for m in group if m.layer is Layer.P2P}
    groups = [g for g in found.values() if not (g[0].layer is Layer.LATENCY and (g[0].src, g[0].dst) in failed)]
    swept = len({m.asked_bytes for m in model.measurements() if m.layer is Layer.P2P and m.asked_bytes}) > 1
    notes = PortNotes(model)
    lines = [_bad_line(model, group, signs, notes, swept=swept) for group in groups]
    return capped([f"not ok: {len(lines)}"], lines, "rows") if lines else []


def _bad_line(model: Model, group: list[Measurement], signs: Signs, notes: PortNotes, *, swept: bool) -> str:
    """Return the line of what is bad with a pair in a layer, at one message size or at several."""
    m = max(group, key=lambda one: one.asked_bytes or 0)
    ends = f"{m.src} {signs.to} {m.dst}"
    if m.layer in BY_ADDRESS and m.src_addr and m.dst_addr:
        ends += f" ({m.src_addr} {signs.to} {m.dst_addr})"
    kind = model.class_of(m)
    about = [f"{m.layer} {model.verdict(m)}", str(kind)]
    if swept and m.layer is Layer.P2P and (sizes := sorted(one.asked_bytes for one in group if one.asked_bytes)):
        about.append("at " + ", ".join(map(size_text, sizes)))
    if m.value is not None:
        median = model.median(m.layer, kind)
        of = f" of {value_text(median)}" if median is not None else ""
        about.append(f"{value_text(m.value)}{of} {m.unit}")
    if m.error:
        about.append(one_line(m.error, 300))
    if m.made and "made by the lab" not in (m.error or ""):
        about.append("made by the lab")
    if m.layer in (Layer.P2P, Layer.WORLD) and (told := words(model, m.src, m.dst)) is not None:
        about.append(told)
    if m.layer is Layer.P2P:
        about += notes.of(m.src, m.dst)
    if m.layer is Layer.P2P and (told := model.suspects.get((m.src, m.dst))) is not None:
        about.append(one_line(told, 300))
    return f"  {one_line(ends)}  {one_line('; '.join(about))}"


def _notable(model: Model, signs: Signs) -> list[str]:
    found = [one for one in notable(model) if model.verdict(one.measurement) is Verdict.OK]
    lines = [_spread_line(one, signs) for one in found]
    head = "notable: ok, but some messages took far longer than others (a link that flaps, or a busy node)"
    most = _MOST_NOTABLE if any(end.kind == "gpu" for end in model.endpoints) else _MOST_NOTABLE_ON_CPUS
    return capped([head], lines, "such times", most, "--json has them all") if lines else []


def _spread_line(found: Spread, signs: Signs) -> str:
    m = found.measurement
    size = f" at {size_text(m.bytes)}" if m.bytes else ""
    p99, median = value_text(found.p99 * 1e6), value_text(found.median * 1e6)
    times = f"p99 {p99} us, {value_text(found.ratio)} x the median of {median} us"
    return f"  {one_line(f'{m.src} {signs.to} {m.dst}')}  {m.layer}{size}: {times}"
