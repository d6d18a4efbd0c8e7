"""A session as plain text: what `fabtui run` prints at its end, and `fabtui replay --text`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import NamedTuple, TextIO

from fabtui.cli.matrix import matrix
from fabtui.cli.numbers import size_text, value_text
from fabtui.fabric.endpoint import PairClass
from fabtui.fabric.measurement import Layer, Measurement, Verdict
from fabtui.fabric.model import Model, NodeRecord
from fabtui.fabric.outcome import not_tested
from fabtui.fabric.text import one_line

#: The matrix is printed up to this many endpoints; more do not fit a line.
WIDEST = 32
#: Lines of one list; the rest is counted.
_MOST_LINES = 60
_PAIR_CLASSES = (PairClass.SAME_NODE, PairClass.SAME_RAIL, PairClass.CROSS_RAIL)


class Signs(NamedTuple):
    """The characters beyond letters and digits that a summary uses."""

    to: str
    dot: str


_UNICODE = Signs("\u2192", "\u00b7")
_ASCII = Signs(">", ".")


def takes_unicode(out: TextIO) -> bool:
    """Say whether a stream can show characters beyond ASCII."""
    return (out.encoding or "").lower().replace("-", "") in ("utf8", "utf16", "utf32")


def summary(model: Model, plain: bool = False) -> str:
    """Return the summary of a session, ending in a newline; what came from nodes is cleaned.

    Args:
        model: All that is known.
        plain: ASCII only.
    """
    signs = _ASCII if plain else _UNICODE
    parts = [_head(model), _nodes(model), _grid(model, signs), _medians(model), _pings(model), _all_reduce(model)]
    parts += [_bad(model, signs), _not_tested(model), _verdict(model)]
    text = "\n\n".join("\n".join(part) for part in parts if part) + "\n"
    return text.encode("ascii", "replace").decode("ascii") if plain else text


def _head(model: Model) -> list[str]:
    kinds: dict[str, int] = {}
    for endpoint in model.endpoints:
        what = {"gpu": endpoint.name or "GPU", "cpu": "CPU rank"}.get(endpoint.kind)
        if what is not None:
            kinds[what] = kinds.get(what, 0) + 1
    nodes = len(model.nodes)
    found = ", ".join(f"{number} x {one_line(what, 60)}" for what, number in kinds.items()) or "no endpoints"
    lab = f", lab {one_line(model.lab)}" if model.lab else ""
    lines = [
        f"fabtui {one_line(model.software)}: {nodes} node{'s' * (nodes != 1)}, {found}{lab}, {model.elapsed:.1f} s"
    ]
    lines += [f"fault made on purpose: {one_line(fault)}" for fault in model.faults]
    if model.options.get("host_key_policy") == "off":
        lines.append("HOST KEYS WERE NOT CHECKED")
    return lines


def _nodes(model: Model) -> list[str]:
    width = max((len(name) for name in model.nodes), default=0)
    lines = [_node(model, record, width) for record in model.nodes.values()]
    return _capped(["nodes"], lines, "nodes")


def _node(model: Model, record: NodeRecord, width: int) -> str:
    endpoints = [endpoint for endpoint in model.endpoints_of(record.name) if endpoint.kind != "none"]
    about = [one_line(record.text, 200)] if record.text else []
    if record.note:
        about.append(one_line(record.note, 200))
    if endpoints:
        name = one_line(endpoints[0].name, 60) or endpoints[0].kind.upper()
        about.insert(0, f"{len(endpoints)} x {name}")
    if record.hint and record.state.gone:
        about.append(f"({one_line(record.hint, 200)})")
    return f"  {one_line(record.name):<{width}}  {record.state:<9}  {'; '.join(about)}".rstrip()


def _grid(model: Model, signs: Signs) -> list[str]:
    if not any(m.layer is Layer.P2P for m in model.measurements()):
        return []
    sizes = {m.bytes for m in model.measurements() if m.layer is Layer.P2P and m.bytes}
    size = f" at {size_text(max(sizes))}" if sizes else ""
    if len(model.endpoints) > WIDEST:
        count = len(model.endpoints)
        return [f"p2p: {count} x {count} cells, too many to print; --csv has them all, the app shows them"]
    return [f"p2p, GB/s{size}; a row sends, a column receives", *matrix(model, signs.dot)]


def _medians(model: Model) -> list[str]:
    rows = []
    for layer, unit in ((Layer.P2P, "GB/s"), (Layer.WORLD, "GB/s")):
        found = [(kind, model.median(layer, kind)) for kind in _PAIR_CLASSES]
        rows.append((layer.value, unit, [(kind, value) for kind, value in found if value is not None]))
    latencies: dict[PairClass, list[float]] = {}
    for m in model.measurements():
        if m.layer is Layer.LATENCY and m.verdict is Verdict.OK and m.value is not None:
            latencies.setdefault(model.class_between(m.src, m.dst), []).append(m.value)
    medians = [(kind, statistics.median(latencies[kind])) for kind in _PAIR_CLASSES if kind in latencies]
    rows.append(("latency", "us", medians))
    lines = [
        f"  {name:<8}" + "   ".join(f"{kind} {value_text(value)} {unit}" for kind, value in values)
        for name, unit, values in rows
        if values
    ]
    return ["medians", *lines] if lines else []


def _pings(model: Model) -> list[str]:
    found = [m for m in model.measurements() if m.layer is Layer.PING]
    if not found:
        return []
    good = [m.value for m in found if m.verdict is Verdict.OK and m.value is not None]
    times = (
        f", round trip {value_text(statistics.median(good))} ms (median), {value_text(max(good))} ms (worst)"
        if good
        else ""
    )
    return [f"ping: {len(good)} of {len(found)} address pairs answer{times}"]


def _all_reduce(model: Model) -> list[str]:
    found = [m for m in model.measurements() if m.layer is Layer.BUSBW]
    whole = sorted((m for m in found if m.src == m.dst == "all"), key=lambda m: m.bytes or 0)
    places = {name: number for number, name in enumerate(model.nodes)}
    parts = [m for m in found if not m.src == m.dst == "all"]
    parts.sort(key=lambda m: (m.src != m.dst, places.get(m.src, -1), places.get(m.dst, -1), m.bytes or 0))
    lines = [_reduced(model, "all", m) for m in whole]
    for m in parts:
        name = m.src if m.src == m.dst else f"{m.src}+{m.dst}"
        lines.append(_reduced(model, name, m))
    return _capped(["all_reduce, bus bandwidth"], lines, "rows") if lines else []


def _reduced(model: Model, name: str, m: Measurement) -> str:
    verdict = model.verdict(m)
    value = f"{value_text(m.value)} {m.unit}" if m.value is not None else "-"
    told = "" if verdict is Verdict.OK else f"  {verdict}" + (f": {one_line(m.error, 200)}" if m.error else "")
    return f"  {one_line(name):<16} {size_text(m.bytes or 0):>8}  {value:>12}{told}"


def _bad(model: Model, signs: Signs) -> list[str]:
    bad = [
        (m, verdict) for m in model.measurements() if (verdict := model.verdict(m)).bad and m.layer is not Layer.BUSBW
    ]
    # A pair that fails in bandwidth fails in latency as well; once is enough.
    failed = {(m.src, m.dst) for m, _ in bad if m.layer is Layer.P2P}
    bad = [(m, v) for m, v in bad if not (m.layer is Layer.LATENCY and (m.src, m.dst) in failed)]
    lines = [_bad_line(model, m, verdict, signs) for m, verdict in bad]
    return _capped([f"not ok: {len(lines)}"], lines, "rows") if lines else []


def _bad_line(model: Model, m: Measurement, verdict: Verdict, signs: Signs) -> str:
    ends = f"{m.src} {signs.to} {m.dst}"
    if m.layer is Layer.PING and m.src_addr and m.dst_addr:
        ends += f" ({m.src_addr} {signs.to} {m.dst_addr})"
    kind = model.class_between(m.src, m.dst)
    about = [f"{m.layer} {verdict}", str(kind)]
    if m.value is not None:
        median = model.median(m.layer, kind)
        of = f" of {value_text(median)}" if median is not None else ""
        about.append(f"{value_text(m.value)}{of} {m.unit}")
    if m.error:
        about.append(one_line(m.error, 300))
    if m.made and "made by the lab" not in (m.error or ""):
        about.append("made by the lab")
    return f"  {one_line(ends)}  {one_line('; '.join(about))}"


def _not_tested(model: Model) -> list[str]:
    lines = [f"  {one_line(text, 300)}" for text in not_tested(model)]
    return _capped(["not tested"], lines, "reasons") if lines else []


def _verdict(model: Model) -> list[str]:
    counts = model.counts()
    told = [f"{counts[verdict]} {verdict}" for verdict in Verdict if counts.get(verdict)]
    return ["measured: " + (", ".join(told) or "nothing")]


def _capped(head: list[str], lines: Iterable[str], what: str) -> list[str]:
    kept = list(lines)
    if len(kept) > _MOST_LINES:
        kept = [*kept[:_MOST_LINES], f"  and {len(kept) - _MOST_LINES} more {what}; --csv and --json have them all"]
    return head + kept
