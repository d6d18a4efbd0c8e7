"""Summary of a session as plain text, for `fabtui run` and `fabtui replay --text`."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable

from fabtui.diagnosis.pairs.p2p_vs_world import differing
from fabtui.model.endpoints import PairClass
from fabtui.model.exit_codes import ALL_OK, BAD, NOT_TESTED, not_tested, wants_endpoints
from fabtui.model.layers import TOOLS, Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model, NodeRecord
from fabtui.nodeset import count, fold
from fabtui.presentation.numbers import size_text, value_text
from fabtui.report.collectives import collective_tables
from fabtui.report.comparison import comparison
from fabtui.report.grid import Shown, grid, grids
from fabtui.report.preflight import before_tests
from fabtui.report.problems import Signs, problems
from fabtui.report.tables import capped
from fabtui.sanitize import one_line

_WIDEST_NODES = 40
_PAIR_CLASSES = (PairClass.SAME_NODE, PairClass.SAME_RAIL, PairClass.CROSS_LEAF, PairClass.CROSS_RAIL)

_EXIT_CODES = {
    ALL_OK: "everything ok",
    BAD: "something is slow, failed or timed out",
    NOT_TESTED: "something could not be tested",
}
UNICODE = Signs("\u2192", "\u00b7")
ASCII = Signs(">", ".")


def summary(model: Model, plain: bool = False, shown: Shown | None = None) -> str:
    """Return the summary of a session with its grids, cleaned, ending in a newline; ``plain``: ASCII only."""
    signs = ASCII if plain else UNICODE
    parts = [_head(model), _nodes(model), *_grids(model, signs, shown or Shown()), _medians(model), _mesh(model)]
    parts += [*collective_tables(model), comparison(model), *problems(model, signs)]
    parts += [before_tests(model, plain), _not_tested(model), _verdicts(model)]
    text = "\n\n".join("\n".join(part) for part in parts if part) + "\n"
    return text.encode("ascii", "replace").decode("ascii") if plain else text


def _head(model: Model) -> list[str]:
    ends = [end for end in model.endpoints if end.kind in ("gpu", "cpu")]
    kinds = Counter("CPU rank" if end.kind == "cpu" else end.name or "GPU" for end in ends)
    nodes = count(len(model.nodes), "node")
    found = ", ".join(f"{number} x {one_line(what, 60)}" for what, number in kinds.items()) or "no endpoints"
    lab = f", lab {one_line(model.lab)}" if model.lab else ""
    lines = [f"fabtui {one_line(model.software)}: {nodes}, {found}{lab}, {model.elapsed:.1f} s"]
    lines += [f"deliberate lab fault: {one_line(fault)}" for fault in model.faults]
    if model.options.get("host_key_policy") == "off":
        lines.append("HOST KEYS WERE NOT CHECKED")
    return lines


def _nodes(model: Model) -> list[str]:
    groups: dict[str, list[str]] = {}
    for record in model.nodes.values():
        # Without its own name, the text may be the same for several nodes.
        groups.setdefault(_node(model, record).replace(f" on {one_line(record.name)}", ""), []).append(record.name)
    names = {about: one_line(fold(nodes), 400) for about, nodes in groups.items()}
    width = min(_WIDEST_NODES, max((len(name) for name in names.values()), default=0))
    lines = [f"  {name:<{width}}  {about}".rstrip() for about, name in names.items()]
    return capped(["nodes"], lines, "lines", where="--json has all nodes")


def _node(model: Model, record: NodeRecord) -> str:
    endpoints = [endpoint for endpoint in model.endpoints_of(record.name) if endpoint.kind != "none"]
    about = [one_line(record.text, 300)] if record.text else []
    if record.note and wants_endpoints(model):
        about.append(one_line(record.note, 300))
    if endpoints:
        name = one_line(endpoints[0].name, 60) or endpoints[0].kind.upper()
        about.insert(0, f"{len(endpoints)} x {name}")
    hint = f" (next: {one_line(record.hint, 300)})" if record.hint and record.state.gone else ""
    return f"{record.state:<9}  {'; '.join(about)}{hint}".rstrip()


def _grids(model: Model, signs: Signs, shown: Shown) -> list[list[str]]:
    """Return the requested grids; by default p2p, and world if the two differ."""
    if shown.layers is None or shown.layers:
        return grids(model, shown.layers, signs.dot, shown.width)
    tested = {m.layer for m in model.measurements()}
    parts = [grid(model, layer, signs.dot, shown.width) for layer in (Layer.P2P,) if layer in tested]
    if Layer.WORLD in tested:
        whole = _world_line(model) if Layer.P2P in tested else []
        parts.append(whole or grid(model, Layer.WORLD, signs.dot, shown.width))
    return parts


def _world_line(model: Model) -> list[str]:
    """Return one line about the layer world if every pair has the same verdict as in p2p."""
    if differing(model):
        return []
    found = [model.verdict(m) for m in model.measurements() if m.layer is Layer.WORLD]
    bad = sum(verdict is not Verdict.OK for verdict in found)
    medians = ", ".join(f"{kind} {value_text(value)} GB/s" for kind, value in _of_classes(model, Layer.WORLD))
    what = f"{bad} of {len(found)} pairs are not ok, as in p2p" if bad else f"whole, all {len(found)} pairs are ok"
    return [f"world: {what}" + (f"; medians {medians}" if medians else "")]


def _of_classes(model: Model, layer: Layer) -> list[tuple[PairClass, float]]:
    return [(kind, value) for kind in _PAIR_CLASSES if (value := model.median(layer, kind)) is not None]


def _medians(model: Model) -> list[str]:
    tested = {m.layer for m in model.measurements()}
    sizes = sorted({size for m in model.measurements() if m.layer is Layer.P2P and (size := m.asked_bytes)})
    rows = [(f"p2p {size_text(size)}", "GB/s", _medians_at(model, size)) for size in sizes[:-1]]
    name = f"p2p {size_text(sizes[-1])}" if len(sizes) > 1 else "p2p"
    rows.append((name, "GB/s", _of_classes(model, Layer.P2P)))
    rows.append(("bidirectional", "GB/s each", _medians_of(model, Layer.P2P, lambda m: _bidirectional(model, m))))
    if Layer.P2P not in tested or differing(model):
        rows.append(("world", "GB/s", _of_classes(model, Layer.WORLD)))
    for layer, unit in ((Layer.LATENCY, "us"), *((tool, tool.spec.unit) for tool in TOOLS)):
        rows.append((str(layer), unit, _medians_of(model, layer, lambda m: m.value)))
    rows = [row for row in rows if row[2]]
    width = max((len(name) for name, _, _ in rows), default=0)
    lines = ["medians"] if rows else []
    for name, unit, values in rows:
        lines.append(f"  {name:<{width}}  " + "   ".join(f"{kind} {value_text(each)} {unit}" for kind, each in values))
    return lines


def _medians_at(model: Model, size: int) -> list[tuple[PairClass, float]]:
    return _medians_of(model, Layer.P2P, lambda m: m.value if m.asked_bytes == size else None)


def _bidirectional(model: Model, m: Measurement) -> float | None:
    """Return the rate of a pair's direction while the other ran as well, of the largest message."""
    latest = model.latest(m.layer, m.src, m.dst)
    value = (m.extra or {}).get("both_ways")
    same = latest is not None and latest.asked_bytes == m.asked_bytes
    return value if same and isinstance(value, (int, float)) else None


def _medians_of(
    model: Model, layer: Layer, value_of: Callable[[Measurement], float | None]
) -> list[tuple[PairClass, float]]:
    """Return the median for each class of what a function takes out of the good measurements of a layer."""
    found: dict[PairClass, list[float]] = {}
    for m in model.measurements():
        if m.layer is layer and m.verdict is Verdict.OK and (value := value_of(m)) is not None:
            found.setdefault(model.class_of(m), []).append(value)
    return [(kind, statistics.median(found[kind])) for kind in _PAIR_CLASSES if kind in found]


def _mesh(model: Model) -> list[str]:
    """Return one line for each layer of the mesh of addresses."""
    lines = []
    for layer in (layer for layer in model.addresses.layers if not layer.spec.tool):
        verdicts = list(model.addresses.pairs(layer))
        good = [m for m in verdicts if m.verdict is Verdict.OK]
        what = f"{len(good)} of {len(verdicts)} address pairs {layer.spec.healthy}{_values(layer, good)}"
        lines += [f"{layer}: {what}"] if verdicts else []
    return lines


def _values(layer: Layer, good: list[Measurement]) -> str:
    values = [m.value for m in good if m.value is not None]
    if not values:
        return ""
    if layer is Layer.PING:
        return f", round trip {value_text(statistics.median(values))} ms (median), {value_text(max(values))} ms (worst)"
    if layer is Layer.MTU:
        sizes = sorted({int(value) for value in values})
        return f" ({', '.join(map(str, sizes[:4]))} B)"
    return ""


def _not_tested(model: Model) -> list[str]:
    lines = [f"  {one_line(text, 300)}" for text in not_tested(model)]
    return capped(["not tested"], lines, "reasons", where="--json has them all") if lines else []


def _verdicts(model: Model) -> list[str]:
    counts = model.counts()
    shown = [f"{counts[verdict]} {verdict}" for verdict in Verdict if counts.get(verdict)]
    return ["measured: " + (", ".join(shown) or "nothing")]


def outcome_line(model: Model, code: int) -> str:
    """Return one line with the verdicts of a session and the meaning of its exit code."""
    return f"{_verdicts(model)[0]}; exit code {code}: {_EXIT_CODES.get(code, 'interrupted')}"
