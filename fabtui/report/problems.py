"""Blocks about problems: findings, pairs that are not ok, jitter, and what was not tested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.finding import Domain, Finding, Kind, Role
from fabtui.diagnosis.knowledge.error_catalogue import meaning_of_measurement
from fabtui.diagnosis.links.rdma_ports import PortNotes
from fabtui.diagnosis.mesh.mesh import address_pair
from fabtui.diagnosis.pairs.p2p_vs_world import comparison_text
from fabtui.diagnosis.pairs.tally import notable
from fabtui.model.endpoints import node_of
from fabtui.model.layers import COLLECTIVES, MESH, Layer
from fabtui.model.measurement import SEVERITY, Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import UNICODE, style_of
from fabtui.presentation.findings import FindingText, finding_text
from fabtui.presentation.numbers import percent_text, reduced_text, share_text, size_text, spoken_text, value_text
from fabtui.presentation.preflight_lines import nodes_text
from fabtui.presentation.wording import limit_text
from fabtui.report.document import Block, Entry, Items, Panel
from fabtui.report.text import capped
from fabtui.sanitize import one_line

_IN_TABLES = frozenset(COLLECTIVES.values())
#: Maximum number of slow messages listed: a busy node causes many, and CPU ranks are always busy.
_MOST_NOTABLE = 8
_MOST_NOTABLE_ON_CPUS = 1
#: Maximum width of the nodes of a finding.
_WIDEST_NODES = 100
_WHERE = "--json has them all"
_Sizes = dict[tuple[str, str], list[int]]


def problems(one: Diagnosis) -> Iterator[Block]:
    if one.findings:
        known = sum(finding.known for finding in one.findings)
        more = f", {known} of them known" if known else ""
        yield Panel(f"findings: {len(one.findings)}{more}", entries(one))
    yield from not_in_findings(one)


def entries(one: Diagnosis) -> list[Entry]:
    """Return the findings, with the order and numbers of the app, facts of single pairs and the colour of most."""
    model, listed = one.model, []
    notes, sizes = PortNotes(model), _bad_sizes(model)
    for number, finding in enumerate(one.findings, 1):
        # The list of what is not ok leaves the pair out.
        more = _facts_of_pair(model, finding, notes, sizes) if finding.subject.kind is Kind.PAIR else []
        text = finding_text(finding)
        lines = [*text.evidence, *filter(None, ["; ".join(more)])]
        # A lost node has no colour of a verdict.
        cells = finding.cells if finding.facts.get("state") is None else ()
        verdicts = Counter(filter(None, map(one.tally.bad.get, cells)))
        tone = style_of(verdicts.most_common(1)[0][0], None).key if verdicts else ""
        listed.append(entry(number, finding, text._replace(evidence=lines))._replace(tone=tone))
    return listed


def entry(number: int, finding: Finding, text: FindingText | None = None) -> Entry:
    text, rule = text or finding_text(finding), finding.rule
    labels = [f"{rule.id} {rule.name}"]
    labels += [nodes_text(finding.nodes, _WIDEST_NODES, UNICODE)] if finding.nodes else []
    labels += [f"confidence {percent_text(finding.confidence)}"] if finding.confidence is not None else []
    # An error of the catalogue has its own advice.
    advice = finding.facts.get("do") or rule.next_step
    about = [rule.description, *([one_line(advice, 500)] if advice else [])]
    return Entry(number, rule.id, str(finding.severity), text.title, labels, text.evidence, text.next, about)


def _bad_sizes(model: Model) -> _Sizes:
    """Return the message sizes at which pairs are bad in p2p, if it was tested with several."""
    if len(model.results.sizes(Layer.P2P)) < 2:
        return {}
    found: _Sizes = {}
    for m in model.bad_measurements(Layer.P2P):
        if m.asked_bytes:
            found.setdefault((m.src, m.dst), []).append(m.asked_bytes or 0)
    return found


def _facts_of_pair(model: Model, finding: Finding, notes: PortNotes, sizes: _Sizes) -> list[str]:
    """Return what is known of a finding's bad pairs and is not among its facts."""
    known, facts = finding.facts, dict[str, None]()
    for pair in sorted(finding.cells):
        m = next((m for layer in (Layer.P2P, Layer.WORLD) if (m := model.latest(layer, *pair)) is not None), None)
        if m is None or not model.verdict(m).bad:
            continue
        meaning = None if (found := meaning_of_measurement(m)) is None else found.sentence
        at = f"at {', '.join(map(size_text, sorted(sizes[pair])))}" if pair in sizes else ""
        about = [str(model.key_of(m).kind), at]
        about.append(limit_text(model, m) if known.get("limit") is None else "")
        about.append("" if meaning in (None, known.get("meaning")) else f"means: {meaning}")
        about.append((comparison_text(model, *pair) or "") if known.get("in_world") is None else "")
        if m.layer is Layer.P2P:
            about += [note for note in notes.of(*pair) if note not in (known.get("ports") or ())]
        facts |= dict.fromkeys(filter(None, about))
    return list(facts)


def not_in_findings(one: Diagnosis) -> Iterator[Items]:
    """List what is not ok and in no finding, one line per pair and layer, worst first; collectives have tables."""
    model, covered = one.model, _covered(one)
    explained = frozenset(measurement for finding in one.findings for measurement in finding.measurements)
    rows: dict[tuple[str | None, ...], list[Measurement]] = {}
    for m in model.bad_measurements(*(layer for layer in model.layers if layer not in _IN_TABLES)):
        if m.layer not in MESH or (m.layer, address_pair(m)) not in explained:
            rows.setdefault((m.layer, m.src, m.dst, m.src_addr, m.dst_addr), []).append(m)
    # A pair that fails in bandwidth fails in latency as well; it is listed once.
    failed = {(m.src, m.dst) for group in rows.values() for m in group if m.layer is Layer.P2P}
    groups = [g for g in rows.values() if not (g[0].layer is Layer.LATENCY and (g[0].src, g[0].dst) in failed)]
    swept, notes, total = len(model.results.sizes(Layer.P2P)) > 1, PortNotes(model), len(groups)
    groups = [group for group in groups if not _is_covered(model, group[0], covered)]
    groups.sort(key=lambda group: -max(SEVERITY.index(model.verdict(m)) for m in group))
    lines = [_bad_line(model, group, notes, swept=swept) for group in groups]
    hidden = total - len(lines)
    note = f", {hidden} explained by the findings above" if hidden else ""
    if lines:
        yield Items(f"not ok: {total}{note}", capped(lines, "rows"))


def _covered(one: Diagnosis) -> set[tuple[str, str]]:
    about_pairs = [f for f in one.findings if f.rule.domain is Domain.PAIRS or f.rule.role is Role.CONNECTION]
    return {pair for found in about_pairs for pair in found.cells}


def _is_covered(model: Model, m: Measurement, covered: set[tuple[str, str]]) -> bool:
    """Return True if a finding or the list of nodes covers a pair of endpoints."""
    if m.layer not in (Layer.P2P, Layer.WORLD):
        return False
    return (m.src, m.dst) in covered or any(model.gone(node_of(end)) for end in (m.src, m.dst))


def _bad_line(model: Model, group: list[Measurement], notes: PortNotes, *, swept: bool) -> str:
    """Return the line of a bad pair in a layer, for one or several message sizes."""
    m = max(group, key=lambda one: one.asked_bytes or 0)
    ends = f"{m.src} > {m.dst}"
    if m.layer.spec.by_address and m.src_addr and m.dst_addr:
        ends += f" ({m.src_addr} > {m.dst_addr})"
    kind = model.key_of(m).kind
    about = [f"{m.layer} {model.verdict(m)}", str(kind)]
    if swept and m.layer is Layer.P2P and (sizes := sorted(one.asked_bytes for one in group if one.asked_bytes)):
        about.append("at " + ", ".join(map(size_text, sizes)))
    if m.value is not None:
        usual = model.usual(m)
        about.append(share_text(m.value, usual, m.unit) if usual else spoken_text(m.value, m.unit))
        about += filter(None, [limit_text(model, m), m.reduced and reduced_text(m.reduced)])
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
    return f"{one_line(ends)}  {one_line('; '.join(about))}"


def jitter(one: Diagnosis) -> Iterator[Items]:
    model, covered, lines = one.model, _covered(one), []
    for slow in notable(model):
        m = slow.measurement
        if model.verdict(m) is Verdict.OK and (m.src, m.dst) not in covered:
            size = f" at {size_text(m.bytes)}" if m.bytes else ""
            p99, median = value_text(slow.p99 * 1e6), value_text(slow.median * 1e6)
            times = f"p99 {p99} us, {value_text(slow.ratio)} x the median of {median} us"
            lines.append(f"{one_line(f'{m.src} > {m.dst}')}  {m.layer}{size}: {times}")
    most = _MOST_NOTABLE if any(end.kind == "gpu" for end in model.endpoints) else _MOST_NOTABLE_ON_CPUS
    if lines:
        head = "jitter: pairs that passed, with slow outliers (flapping link, or busy node)"
        yield Items(head, capped(lines, "pairs", most, _WHERE))


def not_tested(one: Diagnosis) -> Iterator[Items]:
    # Why a node is gone stands among the findings.
    known = {record.text for record in one.model.nodes.values() if record.state.gone and record.text}
    if lines := [one_line(text, 300) for text in one.not_examined if text.partition(": ")[2] not in known]:
        yield Items("not tested", capped(lines, "reasons", where=_WHERE))
