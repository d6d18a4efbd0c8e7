"""Findings, bad pairs and slow messages of a summary."""

from __future__ import annotations

from typing import NamedTuple

from fabtui.diagnosis.finding import AddressPair, Domain, Finding
from fabtui.diagnosis.knowledge.error_catalogue import meaning_of_measurement
from fabtui.diagnosis.links.rdma_ports import PortNotes, port_problems
from fabtui.diagnosis.mesh.paths import address_pair
from fabtui.diagnosis.pairs.message_times import notable
from fabtui.diagnosis.pairs.p2p_vs_world import comparison_text
from fabtui.diagnosis.session import findings
from fabtui.model.layers import COLLECTIVES, MESH, Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, pairs_text, title
from fabtui.presentation.numbers import share_text, size_text, value_text
from fabtui.report.tables import capped
from fabtui.sanitize import one_line

_IN_TABLES = frozenset(COLLECTIVES.values())
#: Maximum number of slow messages listed: a busy node causes many, and CPU ranks are always busy.
_MOST_NOTABLE = 8
#: Maximum number of pairs named in a finding that only counts them.
_MOST_NAMED = 6
#: A longer list omits pairs that findings cover.
_LONG = 24
_MOST_NOTABLE_ON_CPUS = 1
#: Rules whose findings have a place of their own in a summary: nodes, ports, reasons, slow messages, the preflight.
_LISTED_ELSEWHERE = frozenset(
    {"node-lost", "rail-isolated", "fails-in-world", "pair-flaps", "slow-messages", "not-tested", "preflight"}
    | {"nvlink-inactive", "nvlink-errors", "rdma-port", "rdma-port-inactive"}
)
#: Rules whose titles count pairs instead of naming them.
_COUNTED = frozenset({"pairs-same-error", "pairs-slow"})


class Signs(NamedTuple):
    """The characters beyond letters and digits that a summary uses."""

    to: str
    dot: str


def problems(model: Model, signs: Signs) -> list[list[str]]:
    """Return the parts of a summary about problems: findings, RDMA ports, pairs that are not ok, slow messages."""
    found = findings(model)
    # The mesh comes first: it explains pairs of endpoints.
    found.sort(key=lambda one: one.rule.domain is not Domain.MESH)
    headline = [f"{title(one)}: {'; '.join(evidence(one))}" for one in found if one.rule.name == "rail-isolated"]
    listed = [one for one in found if one.rule.name not in _LISTED_ELSEWHERE and not _single(one)]
    single = [one for one in found if one.rule.domain is Domain.PAIRS and _single(one)]
    following = {min(one.cells): one.next[0] for one in single if one.next}
    many = {pair for one in listed if one.rule.domain is Domain.PAIRS for pair in one.cells}
    explained = frozenset(measurement for one in found for measurement in one.measurements)
    bad = _bad(model, signs, explained, following, many)
    return [headline, _numbered(listed), _ports(model), bad, _notable(model, signs)]


def _single(finding: Finding) -> bool:
    """Return True for a finding about a single pair of endpoints, which the list of what is not ok shows."""
    return finding.rule.domain is Domain.PAIRS and len({frozenset(pair) for pair in finding.cells}) == 1


def _finding_lines(finding: Finding) -> list[str]:
    pairs = f" ({pairs_text(finding)})" if finding.cells and finding.rule.domain is Domain.PAIRS else ""
    lines = [title(finding) + pairs, *(f"    {line}" for line in evidence(finding))]
    # Without a subject, the title only counts the pairs.
    if finding.rule.name in _COUNTED and finding.cells:
        names = [f"{src} > {dst}" for src, dst in sorted(finding.cells)]
        more = f", and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        lines.append(f"    {one_line(', '.join(names[:_MOST_NAMED]) + more, 300)}")
    return lines + [f"    next: {one_line(command, 500)}" for command in finding.next[:2]]


def _numbered(listed: list[Finding]) -> list[str]:
    lines = []
    for number, (head, *rest) in enumerate(map(_finding_lines, listed), 1):
        lines += [f"  {number} {head}", *(f"  {line}" for line in rest)]
    return capped([f"findings: {len(listed)}"], lines, "lines") if lines else []


def _ports(model: Model) -> list[str]:
    """List the problems of the RDMA ports that endpoints use, each once."""
    found = [str(one) for endpoint in model.endpoints for one in port_problems(model, endpoint)]
    lines = [f"  {line}" for line in dict.fromkeys(found)]
    return capped([f"RDMA ports that endpoints send over: {len(lines)} problems"], lines, "problems") if lines else []


def _bad(
    model: Model,
    signs: Signs,
    explained: frozenset[tuple[Layer, AddressPair]],
    following: dict[tuple[str, str], str],
    many: set[tuple[str, str]],
) -> list[str]:
    """List what is not ok and in no finding, one line per pair and layer; collectives have tables.

    Findings cover the measurements of the mesh ``explained`` and the pairs ``many``, which a long list omits;
    ``following`` is the next command per pair.
    """
    found: dict[tuple[str | None, ...], list[Measurement]] = {}
    for m in model.measurements():
        covered = m.layer in MESH and (m.layer, address_pair(m)) in explained
        if m.layer not in _IN_TABLES and not covered and model.verdict(m).bad:
            found.setdefault((m.layer, m.src, m.dst, m.src_addr, m.dst_addr), []).append(m)
    # A pair that fails in bandwidth fails in latency as well; it is listed once.
    failed = {(m.src, m.dst) for group in found.values() for m in group if m.layer is Layer.P2P}
    groups = [g for g in found.values() if not (g[0].layer is Layer.LATENCY and (g[0].src, g[0].dst) in failed)]
    swept = len({m.asked_bytes for m in model.measurements() if m.layer is Layer.P2P and m.asked_bytes}) > 1
    notes = PortNotes(model)
    total = len(groups)
    if total > _LONG:
        groups = [group for group in groups if not _is_covered(model, group[0], many)]
    lines = []
    for group in groups:
        line = _bad_line(model, group, signs, notes, swept=swept)
        if group[0].layer in (Layer.P2P, Layer.WORLD) and (todo := following.pop((group[0].src, group[0].dst), "")):
            line += f"\n      next: {one_line(todo, 500)}"
        lines.append(line)
    more = f", of which {total - len(lines)} are covered above; --csv and --json have them all"
    return capped([f"not ok: {total}{more if len(lines) < total else ''}"], lines, "rows") if total else []


def _is_covered(model: Model, m: Measurement, many: set[tuple[str, str]]) -> bool:
    """Return True if a finding or the list of nodes covers a pair of endpoints."""
    if m.layer not in (Layer.P2P, Layer.WORLD):
        return False
    return (m.src, m.dst) in many or any(model.gone(end.rpartition(":")[0]) for end in (m.src, m.dst))


def _bad_line(model: Model, group: list[Measurement], signs: Signs, notes: PortNotes, *, swept: bool) -> str:
    """Return the line of a bad pair in a layer, for one or several message sizes."""
    m = max(group, key=lambda one: one.asked_bytes or 0)
    ends = f"{m.src} {signs.to} {m.dst}"
    if m.layer.spec.by_address and m.src_addr and m.dst_addr:
        ends += f" ({m.src_addr} {signs.to} {m.dst_addr})"
    kind = model.class_of(m)
    about = [f"{m.layer} {model.verdict(m)}", str(kind)]
    if swept and m.layer is Layer.P2P and (sizes := sorted(one.asked_bytes for one in group if one.asked_bytes)):
        about.append("at " + ", ".join(map(size_text, sizes)))
    if m.value is not None:
        median = model.median(m.layer, kind)
        about.append(share_text(m.value, median, m.unit) if median else f"{value_text(m.value)} {m.unit}")
    if m.error:
        about.append(one_line(m.error, 300))
    if (meaning := meaning_of_measurement(m)) is not None:
        about.append(f"means: {meaning.text}")
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


def _notable(model: Model, signs: Signs) -> list[str]:
    lines = []
    for one in notable(model):
        m = one.measurement
        if model.verdict(m) is not Verdict.OK:
            continue
        size = f" at {size_text(m.bytes)}" if m.bytes else ""
        p99, median = value_text(one.p99 * 1e6), value_text(one.median * 1e6)
        times = f"p99 {p99} us, {value_text(one.ratio)} x the median of {median} us"
        lines.append(f"  {one_line(f'{m.src} {signs.to} {m.dst}')}  {m.layer}{size}: {times}")
    head = "slow messages: ok pairs with some messages far above their median (flapping link, or busy node)"
    most = _MOST_NOTABLE if any(end.kind == "gpu" for end in model.endpoints) else _MOST_NOTABLE_ON_CPUS
    return capped([head], lines, "pairs", most, "--json has them all") if lines else []
