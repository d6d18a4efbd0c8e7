"""Summary of a session as plain text, for `fabtui run` and `fabtui replay --text`."""

from __future__ import annotations

import statistics
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.finding import AddressPair, Domain, Finding, Kind
from fabtui.diagnosis.knowledge.error_catalogue import meaning_of_measurement
from fabtui.diagnosis.links.rdma_ports import PortNotes
from fabtui.diagnosis.mesh.mesh import address_pair
from fabtui.diagnosis.pairs.ab_comparison import KINDS, Arm, Compared, compared
from fabtui.diagnosis.pairs.p2p_vs_world import LAB_FAULT, comparison_text, differing
from fabtui.diagnosis.pairs.tally import notable
from fabtui.export.collectives_table import TableRow, table_rows
from fabtui.model.endpoints import PAIR_CLASSES, PairClass, node_of
from fabtui.model.exit_codes import ALL_OK, BAD, NOT_TESTED, wants_endpoints
from fabtui.model.layers import COLLECTIVES, MESH, TOOLS, Layer
from fabtui.model.measurement import SEVERITY, Measurement, Verdict
from fabtui.model.session_model import Model, NodeRecord
from fabtui.nodeset import count, fold
from fabtui.presentation.cell_levels import ASCII, UNICODE, Glyphs
from fabtui.presentation.findings import evidence, known_text, pairs_text, title
from fabtui.presentation.numbers import brief_text, scales_text, share_text, size_text, spoken_text, value_text
from fabtui.presentation.text_table import aligned
from fabtui.presentation.wording import limit_text
from fabtui.report.grid import Shown, grid, grids
from fabtui.report.group_sweep import group_sweep_tables
from fabtui.report.healthy import what_to_do
from fabtui.report.preflight import before_tests
from fabtui.report.session_notes import carrier_lines, networks, storage_table
from fabtui.report.tables import MOST_LINES, capped
from fabtui.sanitize import one_line

_WIDEST_NODES = 40
_COLLECTIVES_HEAD = ["group", "ranks", "size", "time us", "algbw GB/s", "busbw GB/s", "wrong", "algorithm", ""]
_ALGORITHM = 7
#: More transports than this of one class and arm are counted.
_MOST_TRANSPORTS = 2
_IN_TABLES = frozenset(COLLECTIVES.values())
#: Maximum number of slow messages listed: a busy node causes many, and CPU ranks are always busy.
_MOST_NOTABLE = 8
#: Maximum number of pairs named in a finding that only counts them.
_MOST_NAMED = 6
_MOST_NOTABLE_ON_CPUS = 1
#: Rules whose titles count pairs instead of naming them.
_COUNTED = frozenset({"pairs-same-error", "pairs-slow"})

_EXIT_CODES = {
    ALL_OK: "everything ok",
    BAD: "something is slow, failed or timed out, or a finding is bad",
    NOT_TESTED: "something could not be tested",
}


def summary(one: Diagnosis, plain: bool = False, shown: Shown | None = None) -> str:
    """Return the summary of a session with its grids, cleaned, ending in a newline; ``plain``: ASCII only."""
    model, signs = one.model, ASCII if plain else UNICODE
    parts = [
        head_lines(model),
        _nodes(model),
        *_grids(model, signs, shown or Shown()),
        _medians(model),
        [*mesh_lines(model), *networks(model)],
        carrier_lines(model, every_pair=shown is not None and shown.layers is None),
        storage_table(model),
    ]
    parts += [*_collectives(model), *group_sweep_tables(model), comparison(model)]
    width = shown.text_width if shown is not None else None
    # Commands of the advice stay on their lines, from which they can be copied.
    *texts, advice = problems(one, signs)
    parts += [*(_wrapped(part, width) for part in texts), advice, before_tests(one.preflight, plain)]
    parts += [_wrapped(not_tested_lines(one), width), [verdicts_line(model)]]
    text = "\n\n".join("\n".join(part) for part in parts if part) + "\n"
    return text.encode("ascii", "replace").decode("ascii") if plain else text


def head_lines(model: Model) -> list[str]:
    """Return the size of a session, the lab faults, and a warning where host keys were not checked."""
    ends = [end for end in model.endpoints if end.kind in ("gpu", "cpu")]
    kinds = Counter("CPU rank" if end.kind == "cpu" else end.name or "GPU" for end in ends)
    nodes = count(len(model.nodes), "node")
    found = ", ".join(f"{number} x {one_line(what, 60)}" for what, number in kinds.items()) or "no endpoints"
    lab = f", lab {one_line(model.lab)}" if model.lab else ""
    lines = [f"{f'fabtui {one_line(model.software)}'.strip()}: {nodes}, {found}{lab}, {model.elapsed:.1f} s"]
    lines += [f"deliberate lab fault: {one_line(fault)}" for fault in model.faults]
    if model.options.get("host_key_policy") == "off":
        lines.append("HOST KEYS WERE NOT CHECKED")
    return lines


def node_rows(model: Model) -> list[tuple[str, str, str]]:
    """Return nodes that are alike, their state, and what is known about them."""
    groups: dict[tuple[str, str], list[str]] = {}
    for record in model.nodes.values():
        # Without its own name, the text may be the same for several nodes.
        about = _node(model, record).replace(f" on {one_line(record.name)}", "")
        groups.setdefault((str(record.state), about), []).append(record.name)
    return [(one_line(fold(nodes), 400), state, about) for (state, about), nodes in groups.items()]


def _nodes(model: Model) -> list[str]:
    rows = node_rows(model)
    width = min(_WIDEST_NODES, max((len(name) for name, _, _ in rows), default=0))
    lines = [f"  {name:<{width}}  {state:<9}  {about}".rstrip() for name, state, about in rows]
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
    return f"{'; '.join(about)}{hint}".strip()


def _grids(model: Model, signs: Glyphs, shown: Shown) -> list[list[str]]:
    """Return the requested grids; by default p2p, and world if the two differ."""
    if shown.layers is None or shown.layers:
        return grids(model, shown.layers, signs.dot, shown.width)
    tested = model.layers
    parts = [grid(model, layer, signs.dot, shown.width) for layer in (Layer.P2P,) if layer in tested]
    if Layer.WORLD in tested:
        whole = _world_line(model) if Layer.P2P in tested else []
        parts.append(whole or grid(model, Layer.WORLD, signs.dot, shown.width))
    return parts


def _world_line(model: Model) -> list[str]:
    """Return one line about the layer world if every pair has the same verdict as in p2p."""
    if differing(model):
        return []
    found = list(model.verdicts_in(Layer.WORLD))
    bad = sum(verdict is not Verdict.OK for verdict in found)
    usual = ", ".join(f"{kind} {spoken_text(value, 'GB/s')}" for kind, value in _of_classes(model, Layer.WORLD))
    what = (
        f"{bad} of {len(found)} pairs are not ok, as in p2p"
        if bad
        else f"complete, {len(found)} of {len(found)} pairs ok"
    )
    return [f"world: {what}" + (f"; usual values {usual}" if usual else "")]


def _of_classes(model: Model, layer: Layer) -> list[tuple[PairClass, float]]:
    return [(kind, value) for kind in PAIR_CLASSES if (value := model.median(layer, kind)) is not None]


def _medians(model: Model) -> list[str]:
    tested, sizes = model.layers, model.results.sizes(Layer.P2P)
    rows = [(f"p2p {size_text(size)}", "GB/s", _in_order(model.medians(Layer.P2P, size))) for size in sizes[:-1]]
    name = f"p2p {size_text(sizes[-1])}" if len(sizes) > 1 else "p2p"
    rows.append((name, "GB/s", _of_classes(model, Layer.P2P)))
    if model.results.bidirectional:
        rows.append(("bidirectional", "GB/s each", _medians_of(model, Layer.P2P, lambda m: _bidirectional(model, m))))
    if Layer.P2P not in tested or differing(model):
        rows.append(("world", "GB/s", _of_classes(model, Layer.WORLD)))
    rows.append((str(Layer.LATENCY), "us", _in_order(model.medians(Layer.LATENCY))))
    rows += [(str(tool), tool.spec.unit, _medians_of(model, tool, lambda m: m.value)) for tool in TOOLS]
    rows = [row for row in rows if row[2]]
    width = max((len(name) for name, _, _ in rows), default=0)
    lines = ["usual values"] if rows else []
    for name, unit, values in rows:
        lines.append(f"  {name:<{width}}  " + "   ".join(f"{kind} {spoken_text(each, unit)}" for kind, each in values))
    return lines


def _in_order(found: Mapping[PairClass, float]) -> list[tuple[PairClass, float]]:
    return [(kind, found[kind]) for kind in PAIR_CLASSES if kind in found]


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
    for m in model.measurements(layer):
        if m.verdict is Verdict.OK and (value := value_of(m)) is not None:
            found.setdefault(model.class_of(m), []).append(value)
    return _in_order({kind: statistics.median(values) for kind, values in found.items()})


def mesh_lines(model: Model) -> list[str]:
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


class CollectiveTable(NamedTuple):
    """Table of a collective in the layout of nccl-tests: a row for each group and message size, the heading first.

    Attributes:
        left: Columns of text.
        notes: Units of letters after values, and the number of rows that were left out.
    """

    kind: str
    rows: list[list[str]]
    left: frozenset[int]
    notes: list[str]


def _collectives(model: Model) -> list[list[str]]:
    found = collective_tables(model)
    return [[one.kind, *aligned(one.rows, one.left), *(f"  {note}" for note in one.notes)] for one in found]


def collective_tables(model: Model) -> list[CollectiveTable]:
    """Return the table of each collective.

    Of an A/B comparison, this shows the first arm; `comparison_rows` shows all of them.
    """
    rows = [row for row in table_rows(model) if row.arm is None]
    tables = []
    for kind in dict.fromkeys(row.kind for row in rows):
        found = [row for row in rows if row.kind == kind]
        # Those that fit a summary, in their order: bad rows first, then the first ones.
        places = sorted(range(len(found)), key=lambda at: (found[at].verdict is Verdict.OK, at))
        mine = [found[at] for at in sorted(places[:MOST_LINES])]
        cells = [_COLLECTIVES_HEAD, *map(_collective_cells, mine, [None, *mine[:-1]])]
        if not any(row.algorithm for row in mine):
            cells = [[*row[:_ALGORITHM], "", row[-1]] for row in cells]
        rates = [rate for row in mine for rate in (row.algbw, row.busbw) if rate is not None]
        scales = scales_text(min(rates, default=None), "GB/s")
        notes = [scales] if scales else []
        if len(found) > len(mine):
            notes.append(f"and {len(found) - len(mine)} more rows; --table has them all")
        tables.append(CollectiveTable(kind, cells, frozenset((0, _ALGORITHM, _ALGORITHM + 1)), notes))
    return tables


def _collective_cells(row: TableRow, before: TableRow | None) -> list[str]:
    same = before is not None and before.group == row.group
    problem = "" if row.verdict is Verdict.OK else str(row.verdict)
    return [
        "" if same else row.group,
        "" if same else "-" if row.ranks is None else str(row.ranks),
        "-" if row.bytes is None else size_text(row.bytes),
        value_text(row.time_us),
        brief_text(row.algbw, "GB/s"),
        brief_text(row.busbw, "GB/s"),
        "-" if row.wrong is None else str(row.wrong),
        row.algorithm or "",
        f"{problem}: {row.error[:200]}" if problem and row.error else problem,
    ]


def comparison(model: Model) -> list[str]:
    """Return the A/B table: every arm and its ratio per pair class, and per group and size of a collective."""
    title, rows, left = comparison_rows(model)
    lines = aligned(rows, left) if rows else []
    return capped([title, lines[0]], lines[1:], "rows") if lines else []


def comparison_rows(model: Model) -> tuple[str, list[list[str]], list[int]]:
    """Return the title of the A/B table, its rows with the heading first, and the columns of text."""
    rows = compared(model)
    if not rows:
        return "", [], []
    names = [one_line(name, 80) for name in model.comparison]
    head = ["", "", "", names[0]]
    for name in names[1:]:
        head += [name, ""]
    cells = [_compared_cells(row, rows[at - 1] if at else None) for at, row in enumerate(rows)]
    # All columns but sizes and ratios are text.
    return f"A/B, medians; ratios to {names[0]}", [head, *cells], [0, 1, 3, *range(4, len(head), 2)]


def _compared_cells(row: Compared, before: Compared | None) -> list[str]:
    layer = KINDS.get(row.layer, str(row.layer))
    same = before is not None and before.layer is row.layer
    cells = ["" if same else layer, "" if same and before and before.what == row.what else one_line(row.what)]
    cells += ["" if row.bytes is None else size_text(row.bytes), _arm_text(row, row.arms[0])]
    for arm in row.arms[1:]:
        ratio = row.ratio(arm)
        cells += [_arm_text(row, arm), "-" if ratio is None else f"{ratio:.2f}x"]
    return cells


def _arm_text(row: Compared, arm: Arm) -> str:
    parts = []
    if arm.transports:
        more = len(arm.transports) - _MOST_TRANSPORTS
        shown = ", ".join(one_line(transport, 40) for transport in arm.transports[:_MOST_TRANSPORTS])
        parts.append(shown + (f" +{more}" if more > 0 else ""))
    if arm.median is not None:
        parts.append(spoken_text(arm.median, row.unit))
    if arm.failed:
        parts.append(f"{arm.failed} of {arm.failed + len(arm.values)} not ok")
    return " ".join(parts) or "not tested"


def problems(one: Diagnosis, signs: Glyphs) -> list[list[str]]:
    """Return the parts of a summary about problems: findings, ports, pairs that are not ok, and what to do now."""
    return [_numbered(one.model, one.findings), *not_in_findings(one, signs), what_to_do(one)]


def not_in_findings(one: Diagnosis, signs: Glyphs) -> list[list[str]]:
    """Return the pairs that are not ok and that no finding explains, and ok pairs with slow messages."""
    covered = {pair for found in one.findings if found.rule.domain is Domain.PAIRS for pair in found.cells}
    explained = frozenset(measurement for found in one.findings for measurement in found.measurements)
    return [_bad(one.model, signs, explained, covered), _notable(one.model, signs, covered)]


class FindingText(NamedTuple):
    """Text of a finding: its title with its number of pairs, its evidence, and its next commands."""

    title: str
    evidence: list[str]
    next: list[str]


def finding_text(finding: Finding) -> FindingText:
    """Return the text of a finding."""
    pairs = f" ({pairs_text(finding)})" if finding.cells and finding.rule.domain is Domain.PAIRS else ""
    lines = [line for line in (known_text(finding), *evidence(finding)) if line]
    # Without a subject, the title only counts the pairs.
    if finding.rule.name in _COUNTED and finding.cells:
        names = [f"{src} > {dst}" for src, dst in sorted(finding.cells)]
        more = f", and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        lines.append(one_line(", ".join(names[:_MOST_NAMED]) + more, 300))
    commands = [one_line(command, 500) for command in finding.next[:2]]
    return FindingText(f"{title(finding)}{pairs}", lines, commands)


def finding_lines(finding: Finding, text: FindingText | None = None) -> list[str]:
    """Return title, evidence and next commands of a finding, by default of its text alone."""
    text = text or finding_text(finding)
    lines = [f"    {line}" for line in text.evidence] + [f"    next: {command}" for command in text.next]
    return [f"{text.title}  {finding.rule.id}", *lines]


def _wrapped(lines: list[str], width: int | None) -> list[str]:
    return [piece for line in lines for piece in folded(line, width)]


def folded(line: str, width: int | None) -> list[str]:
    """Return a line in pieces of at most ``width`` characters, if possible; all but the first are indented further.

    A command stays on its line, from which it can be copied.
    """
    if width is None or len(line) <= width or line.lstrip().startswith("next: "):
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    pieces = textwrap.wrap(
        line.strip(),
        max(40, width),
        initial_indent=indent[2:],
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return pieces or [line]


def finding_texts(model: Model, found: Sequence[Finding]) -> list[FindingText]:
    """Return the texts of the findings of a session, with facts of single pairs that their rules do not state."""
    texts = []
    notes, sizes = PortNotes(model), _bad_sizes(model)
    for finding in found:
        # The list of what is not ok leaves the pair out.
        more = _facts_of_pair(model, finding, notes, sizes) if finding.subject.kind is Kind.PAIR else []
        if LAB_FAULT in more:
            finding = finding.replace(facts={**finding.facts, "made_by_lab": None})
        text = finding_text(finding)
        texts.append(text._replace(evidence=[*text.evidence, *(["; ".join(more)] if more else [])]))
    return texts


def _numbered(model: Model, listed: list[Finding]) -> list[str]:
    lines = []
    for number, (finding, text) in enumerate(zip(listed, finding_texts(model, listed), strict=True), 1):
        head, *rest = finding_lines(finding, text)
        lines += [f"  {number} {head}", *(f"  {line}" for line in rest)]
    return capped([findings_head(listed)], lines, "lines") if lines else []


def findings_head(listed: Sequence[Finding]) -> str:
    """Return the number of findings, and of those that the user knows about."""
    known = sum(one.known for one in listed)
    return f"findings: {len(listed)}" + (f", {known} of them known" if known else "")


def _bad_sizes(model: Model) -> dict[tuple[str, str], list[int]]:
    """Return the message sizes at which pairs are bad in p2p, if it was tested with several."""
    if len(model.results.sizes(Layer.P2P)) < 2:
        return {}
    found: dict[tuple[str, str], list[int]] = {}
    for m in model.bad_measurements(Layer.P2P):
        if m.asked_bytes:
            found.setdefault((m.src, m.dst), []).append(m.asked_bytes or 0)
    return found


def _facts_of_pair(
    model: Model, finding: Finding, notes: PortNotes, sizes: dict[tuple[str, str], list[int]]
) -> list[str]:
    """Return class, sizes, limit, meaning of the error, comparison with world, and ports of a finding's bad pairs.

    Facts that the finding itself has are left out.
    """
    known, facts = finding.facts, dict[str, None]()
    for pair in sorted(finding.cells):
        m = next((m for layer in (Layer.P2P, Layer.WORLD) if (m := model.latest(layer, *pair)) is not None), None)
        if m is None or not model.verdict(m).bad:
            continue
        meaning = None if (found := meaning_of_measurement(m)) is None else found.sentence
        at = f"at {', '.join(map(size_text, sorted(sizes[pair])))}" if pair in sizes else ""
        about = [str(model.class_of(m)), at]
        about.append(limit_text(model, m) if known.get("limit") is None else "")
        about.append("" if meaning in (None, known.get("meaning")) else f"means: {meaning}")
        about.append((comparison_text(model, *pair) or "") if known.get("in_world") is None else "")
        if m.layer is Layer.P2P:
            about += [note for note in notes.of(*pair) if note not in (known.get("ports") or ())]
        facts |= dict.fromkeys(filter(None, about))
    return list(facts)


def _bad(
    model: Model,
    signs: Glyphs,
    explained: frozenset[tuple[Layer, AddressPair]],
    covered_pairs: set[tuple[str, str]],
) -> list[str]:
    """List what is not ok and in no finding, one line per pair and layer, worst first; collectives have tables.

    Findings cover the measurements of the mesh ``explained`` and ``covered_pairs``.
    """
    found: dict[tuple[str | None, ...], list[Measurement]] = {}
    for m in model.bad_measurements(*(layer for layer in model.layers if layer not in _IN_TABLES)):
        covered = m.layer in MESH and (m.layer, address_pair(m)) in explained
        if not covered:
            found.setdefault((m.layer, m.src, m.dst, m.src_addr, m.dst_addr), []).append(m)
    # A pair that fails in bandwidth fails in latency as well; it is listed once.
    failed = {(m.src, m.dst) for group in found.values() for m in group if m.layer is Layer.P2P}
    groups = [g for g in found.values() if not (g[0].layer is Layer.LATENCY and (g[0].src, g[0].dst) in failed)]
    swept = len(model.results.sizes(Layer.P2P)) > 1
    notes = PortNotes(model)
    total = len(groups)
    groups = [group for group in groups if not _is_covered(model, group[0], covered_pairs)]
    groups.sort(key=lambda group: -max(SEVERITY.index(model.verdict(m)) for m in group))
    lines = [_bad_line(model, group, signs, notes, swept=swept) for group in groups]
    hidden = total - len(lines)
    note = f", {hidden if lines else 'all'} explained by the findings above" if hidden else ""
    return capped([f"not ok: {total}{note}"], lines, "rows") if total else []


def _is_covered(model: Model, m: Measurement, covered: set[tuple[str, str]]) -> bool:
    """Return True if a finding or the list of nodes covers a pair of endpoints."""
    if m.layer not in (Layer.P2P, Layer.WORLD):
        return False
    return (m.src, m.dst) in covered or any(model.gone(node_of(end)) for end in (m.src, m.dst))


def _bad_line(model: Model, group: list[Measurement], signs: Glyphs, notes: PortNotes, *, swept: bool) -> str:
    """Return the line of a bad pair in a layer, for one or several message sizes."""
    m = max(group, key=lambda one: one.asked_bytes or 0)
    ends = f"{m.src} {signs.arrow} {m.dst}"
    if m.layer.spec.by_address and m.src_addr and m.dst_addr:
        ends += f" ({m.src_addr} {signs.arrow} {m.dst_addr})"
    kind = model.class_of(m)
    about = [f"{m.layer} {model.verdict(m)}", str(kind)]
    if swept and m.layer is Layer.P2P and (sizes := sorted(one.asked_bytes for one in group if one.asked_bytes)):
        about.append("at " + ", ".join(map(size_text, sizes)))
    if m.value is not None:
        usual = model.usual(m)
        about.append(share_text(m.value, usual, m.unit) if usual else spoken_text(m.value, m.unit))
        about += filter(None, [limit_text(model, m)])
    if m.error:
        about.append(one_line(m.error, 300))
    if (meaning := meaning_of_measurement(m)) is not None:
        about.append(f"means: {meaning.sentence}")
    compared = comparison_text(model, m.src, m.dst) if m.layer in (Layer.P2P, Layer.WORLD) else None
    if compared is not None:
        about.append(compared)
    elif m.made and "made by the lab" not in (m.error or ""):
        about.append("deliberate lab fault")
    if m.layer is Layer.P2P:
        about += notes.of(m.src, m.dst)
    if m.layer is Layer.P2P and (retest := model.suspects.get((m.src, m.dst))) is not None:
        about.append(one_line(retest, 300))
    return f"  {one_line(ends)}  {one_line('; '.join(about))}"


def _notable(model: Model, signs: Glyphs, covered: set[tuple[str, str]]) -> list[str]:
    """List ok pairs with slow messages that no finding names."""
    lines = []
    for one in notable(model):
        m = one.measurement
        if model.verdict(m) is not Verdict.OK or (m.src, m.dst) in covered:
            continue
        size = f" at {size_text(m.bytes)}" if m.bytes else ""
        p99, median = value_text(one.p99 * 1e6), value_text(one.median * 1e6)
        times = f"p99 {p99} us, {value_text(one.ratio)} x the median of {median} us"
        lines.append(f"  {one_line(f'{m.src} {signs.arrow} {m.dst}')}  {m.layer}{size}: {times}")
    head = "jitter: pairs that passed, with slow outliers (flapping link, or busy node)"
    most = _MOST_NOTABLE if any(end.kind == "gpu" for end in model.endpoints) else _MOST_NOTABLE_ON_CPUS
    return capped([head], lines, "pairs", most, "--json has them all") if lines else []


def not_tested_lines(one: Diagnosis) -> list[str]:
    """Return what was requested and could not be tested, with a heading."""
    lines = [f"  {one_line(text, 300)}" for text in one.not_examined]
    return capped(["not tested"], lines, "reasons", where="--json has them all") if lines else []


def verdicts_line(model: Model) -> str:
    """Return the number of measurements with each verdict."""
    counts = model.counts()
    shown = [f"{counts[verdict]} {verdict}" for verdict in Verdict if counts.get(verdict)]
    return "measured: " + (", ".join(shown) or "nothing")


def outcome_line(model: Model, code: int) -> str:
    """Return one line with the verdicts of a session and the meaning of its exit code."""
    return f"{verdicts_line(model)}; exit code {code}: {outcome_text(code)}"


def outcome_text(code: int) -> str:
    """Return the meaning of the exit code of a session."""
    return _EXIT_CODES.get(code, "interrupted")
