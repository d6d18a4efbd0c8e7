"""Blocks about nodes, addresses, networks, carriers of bytes, the storage check, and a running job."""

from __future__ import annotations

import ipaddress
import statistics
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.job.job_verdict import JobVerdict, RankRow
from fabtui.diagnosis.pairs.traffic_path import carrier, latest_pairs
from fabtui.model.exit_codes import wants_endpoints
from fabtui.model.facts.node_view import dicts, number, text
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model, NodeRecord
from fabtui.nodeset import count, fold, ranges
from fabtui.presentation.job_board import QUANTITIES, JobBoard, joined
from fabtui.presentation.numbers import value_text
from fabtui.presentation.wrapping import filled
from fabtui.report.document import Block, Items, Lines, Paragraph, Table
from fabtui.report.text import capped, shortened
from fabtui.sanitize import one_line
from fabtui_node.probes.hostlink import SCALES

#: Maximum number of lines of stacks.
_MOST_STACKS = 64
#: Maximum number of networks that are named.
_MOST = 8
#: Width of lists of pairs.
_WIDTH = 110
#: Minimum number of ranks from which those in the same state share a row.
_FOLD_FROM = 33
_HEADINGS = ["rank", "on", "process", "state", *(one.heading for one in QUANTITIES), "shown by"]
#: Columns of text.
_LEFT = (0, 1, 3, len(_HEADINGS) - 1)
Places = dict[tuple[int, str], dict[str, None]]


def nodes(model: Model) -> Table:
    groups: dict[tuple[str, str], list[str]] = {}
    for record in model.nodes.values():
        # Without its own name, the text may be the same for several nodes.
        about = _node(model, record).replace(f" on {one_line(record.name)}", "")
        groups.setdefault((str(record.state), about), []).append(record.name)
    rows = [[one_line(fold(nodes), 400), state, about] for (state, about), nodes in groups.items()]
    return Table("nodes", [["nodes", "state", "hardware, or what went wrong"], *rows], (0, 1, 2))


def _node(model: Model, record: NodeRecord) -> str:
    endpoints = [endpoint for endpoint in model.table.of_node(record.name) if endpoint.kind != "none"]
    about = [one_line(record.text, 300)] if record.text else []
    if record.note and wants_endpoints(model):
        about.append(one_line(record.note, 300))
    if endpoints:
        name = one_line(endpoints[0].name, 60) or endpoints[0].kind.upper()
        about.insert(0, f"{len(endpoints)} x {name}")
    return "; ".join(about)


def mesh_lines(model: Model) -> list[str]:
    lines = []
    for layer in (layer for layer in model.addresses.layers if not layer.spec.tool):
        verdicts = list(model.addresses.pairs(layer))
        good = [m for m in verdicts if m.verdict is Verdict.OK]
        what = layer.spec.healthy.format(pairs=f"{len(good)} of {count(len(verdicts), 'address pair')}")
        lines += [f"{layer}: {what}{_mesh_values(layer, good)}"] if verdicts else []
    return lines


def _mesh_values(layer: Layer, good: list[Measurement]) -> str:
    values = [m.value for m in good if m.value is not None]
    if not values:
        return ""
    if layer is Layer.PING:
        return f", round trip {value_text(statistics.median(values))} ms (median), {value_text(max(values))} ms (worst)"
    if layer is Layer.MTU:
        sizes = sorted({int(value) for value in values})
        return f" ({', '.join(map(str, sizes[:4]))} B)"
    return ""


def networks(model: Model) -> list[str]:
    tested: Places = {}
    left_out: Places = {}
    for record in model.nodes.values():
        inventory = record.inventory or {}
        data = {str(entry.get("address")): entry for entry in dicts(inventory.get("data_addresses"))}
        for nic in dicts(inventory.get("nics")):
            name, entries = one_line(str(nic.get("name")), 40), dicts(nic.get("addresses"))
            for entry in entries:
                rail = data.get(str(entry.get("address")), {}).get("rail", -1)
                if str(entry.get("address")) in data:
                    place = rail if isinstance(rail, int) else -1
                    tested.setdefault((place, _network(entry)), {})[name] = None
                elif nic.get("login") is True and not any(str(one.get("address")) in data for one in entries):
                    left_out.setdefault((-1, _network(entry)), {})[name] = None
    # One network without another to be confused with needs no line.
    if not tested or len(tested) + len(left_out) == 1:
        return []
    lines = ["tested networks: " + _listed(tested)]
    used = {end.rail for end in model.endpoints if end.kind == "cpu" and end.rail is not None}
    idle = sorted({rail for rail, _ in tested if rail >= 0} - used)
    if used and idle and not model.layers.isdisjoint((Layer.P2P, Layer.WORLD)):
        ranks = max(idle) + 1
        lines.append(f"no CPU rank sends over rail {', '.join(map(str, idle))}: --ranks-per-node {ranks}")
    if left_out:
        names = sorted({name for found in left_out.values() for name in found})
        lines.append(
            f"not tested, as SSH uses it: {_listed(left_out)}"
            f" (NCCL_SOCKET_IFNAME={names[0]} in the nodes' login environment makes fabtui test it)"
        )
    return lines


def _listed(places: Places) -> str:
    named = [
        f"{f'rail {rail} ' if rail >= 0 else ''}{network} ({', '.join(names)})"
        for (rail, network), names in sorted(places.items())
        if not network.startswith("fe80:")
    ]
    more = f" and {len(named) - _MOST} more" if len(named) > _MOST else ""
    return ", ".join(named[:_MOST]) + more


def _network(entry: dict[str, Any]) -> str:
    try:
        return str(ipaddress.ip_interface(f"{entry.get('address')}/{entry.get('prefix')}").network)
    except ValueError:
        return "unknown network"


def carrier_block(one: Diagnosis, every_pair: bool) -> Iterator[Block]:
    """Yield what carries the bytes, and with ``every_pair`` the pairs as well, identical ones together."""
    model, sentence = one.model, one.carriers.sentence
    if not sentence or not every_pair:
        yield from [Paragraph(sentence)] if sentence else []
        return
    alike: dict[str, list[str]] = {}
    number_of = model.table.number
    for m in sorted(latest_pairs(model), key=lambda m: (number_of(m.src) or 0, number_of(m.dst) or 0)):
        if found := carrier(model, m):
            alike.setdefault(one_line(found.text, 300), []).append(f"{m.src} > {m.dst}")
    lines = []
    for shown, pairs in alike.items():
        named = one_line(", ".join(pairs), 1 << 20)
        lines += [f"  {shown}", *textwrap.wrap(named, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 4)]
    yield Lines(sentence, capped(lines, "lines", where="--json has all pairs", indent="  "))


def storage(model: Model) -> Iterator[Table]:
    rows, files, together, curve = [], [], [], None
    for record in model.nodes.values():
        value = record.probe_results.get("storage")
        if value is None:
            continue
        files.append(text(value.get("path")) or "")
        rates = [number(value.get(name)) for name in ("alone", "together")]
        together += [rate for rate in rates[1:] if rate is not None]
        curve = curve or value.get("curve")
        how = [text(value.get(name)) or "" for name in ("how", "filesystem", "problem", "error")]
        cells = ["-" if rate is None else f"{rate:.0f}" for rate in rates]
        rows.append([record.name, *cells, one_line(", ".join(word for word in how if word), 160)])
    if not rows:
        return
    where = next((one_line(file, 200) for file in files if file), "")
    title = f"storage, MB/s: read of {where}" if where else "storage"
    notes = [f"all nodes at once: {sum(together):.0f} MB/s"] if together else []
    points = [point for point in curve if _is_point(point)] if isinstance(curve, list) else []
    if points:
        texts = [f"{many:.0f}: {rate:.0f} MB/s" + (f", {ops:.0f} files/s" if ops else "") for many, rate, ops in points]
        notes.append(f"by number of nodes at once: {'; '.join(texts)}")
    table = Table(title, [["", "alone", "all at once", "read by"], *rows], (0, 3), notes)
    yield shortened(table, "nodes", "--json has them all")


def host_links(model: Model) -> Iterator[Table]:
    """Yield what each GPU shows by itself."""
    rows = [["", "from host", "to host", "both", "own memory", "product", "lag from", "lag to"]]
    rows += [["", *["GB/s"] * 4, "TFLOP/s", "us", "us"]]
    for record in model.nodes.values():
        for gpu in dicts((record.probe_results.get("hostlink") or {}).get("gpus")):
            values = ((number(gpu.get(name)), unit) for name, unit in SCALES.items())
            cells = ["-" if value is None else f"{value / unit:.3g}" for value, unit in values]
            rows.append([one_line(f"{record.name}:{gpu.get('index')}", 60), *cells])
    if len(rows) > 2:
        yield shortened(Table("each GPU alone, results checked", rows), "GPUs", "--json has them all")


def _is_point(point: object) -> bool:
    return isinstance(point, list) and len(point) == 3 and all(number(value) is not None for value in point)


def job_blocks(verdict: JobVerdict) -> Iterator[Block]:
    yield Paragraph(one_line(verdict.sentence, 1000))
    yield from evidence_blocks(verdict)


def evidence_blocks(verdict: JobVerdict) -> Iterator[Block]:
    if verdict.stacks:
        tree = [f"  {line}" for branch in verdict.stacks for line in branch.lines()]
        yield Lines("stacks", tree[:_MOST_STACKS])
    if verdict.ranks:
        rows = _folded(verdict) if len(verdict.ranks) >= _FOLD_FROM else [*map(_rank, verdict.ranks)]
        kept = filled(rows, ("",))
        left = [place for place, at in enumerate(kept) if at in _LEFT]
        yield Table("ranks", [[row[at] for at in kept] for row in (_HEADINGS, *rows)], left)
    lines = []
    for source in verdict.sources:
        if verdict.stacks and source.name == "stacks":
            continue
        blind = f"; but {source.blind}" if source.blind else ""
        lines.append(one_line(f"{source.name}: {source.text or 'nothing'}{blind}", 1000))
    if verdict.fabric and not any(verdict.fabric in source.text for source in verdict.sources):
        lines.append(one_line(f"fabric: {verdict.fabric}", 1000))
    if lines:
        yield Items("evidence", lines)
    if verdict.next:
        yield Lines("next", [f"  {one_line(command, 1000)}" for command in verdict.next])


def _rank(row: RankRow) -> list[str]:
    on, pid = one_line(row.endpoint or row.place.node, 60), "" if row.place.pid is None else str(row.place.pid)
    return [str(row.rank), on, pid, str(row.state), *_numbers([row]), one_line(row.why, 120)]


def _numbers(rows: Sequence[RankRow]) -> list[str]:
    return [one.span(rows) for one in QUANTITIES]


def _folded(verdict: JobVerdict) -> list[list[str]]:
    late = {place.rank for place in verdict.behind}
    rows = [_rank(row) for row in verdict.ranks if row.rank in late]
    for group in joined(JobBoard(verdict)):
        rest = [row for row in group.rows if row.rank not in late]
        if rest:
            nodes = count(len({row.place.node for row in rest}), "node")
            cells = [ranges(row.rank for row in rest), nodes, "", str(group.state)]
            rows.append([*cells, *_numbers(rest), count(len(rest), "rank")])
    return rows
