"""Experiments about findings, on few pairs, and the confidence that their outcomes leave.

`planned` returns the experiments of a finding, a session runs them, and `confirmed` judges their results. A replay has
the same events, and comes to the same judgement.
"""

from __future__ import annotations

import ipaddress
import itertools
import statistics
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fabtui.diagnosis.finding import ExperimentKind, Finding, Kind, Pair, Subject
from fabtui.model.endpoints import Endpoint, node_of
from fabtui.model.events import Experiment
from fabtui.model.facts.node_view import active_ports, dicts, text
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.records import listed
from fabtui.model.session_logs import Tried
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line
from fabtui_node.parsers.nccl.transports import Path, path_of

#: Returns the variables of an experiment with some pairs, or None where it shows nothing.
Env = Callable[[Model, Subject, Sequence[Pair]], Mapping[str, str] | None]

_ANY = frozenset(Kind)
_CONTENTION = frozenset({Kind.CONTENTION})
#: Components that consist of endpoints, so that their pairs follow from these.
COMPONENTS = frozenset({Kind.GPU, Kind.NIC, Kind.NODE, Kind.RAIL})
_NICS = frozenset({Kind.NIC, Kind.RAIL})
_OVER_TCP = frozenset({Path.TCP})
_RAILS = frozenset({Kind.CROSS_RAIL, Kind.RAIL_PAIR})
#: Experiments about pairs without a common component.
PAIR_EXPERIMENTS = (
    ExperimentKind.ALONE,
    ExperimentKind.PARTNERS,
    ExperimentKind.SOCKET,
    ExperimentKind.GID,
    ExperimentKind.NO_P2P,
)
#: Maximum number of bad pairs, of further partners and of controls in an experiment.
_SAMPLE, _PARTNERS, _CONTROLS = 2, 2, 2
#: Maximum number of cells of a finding and of endpoints among which they are chosen.
_MOST_CELLS, _MOST_ENDS = 256, 32
#: Factor by which an outcome makes a component likelier, and weight of what is not among the rivals.
_FACTOR, _UNNAMED = 4.0, 0.1
#: Confidence of a finding without rivals before its first experiment; smallest weight of a rival that is named.
_UNKNOWN, _LEAST = 0.5, 0.05
#: Factor by which a slow collective has to gain for an experiment to explain it.
_FASTER = 1.15
_WORDS = {1: "confirmed", 0: "tested", -1: "refuted"}
#: Number of findings that a session confirms by itself.
MOST_CONFIRMED = 5
_NEEDS_NCCL = "needs ranks of NCCL; these are CPU ranks"


class Outcome(NamedTuple):
    """Meaning of an outcome: in words, and the kinds of components that it makes likelier or less likely."""

    text: str
    likelier: frozenset[Kind] = frozenset()
    unlikelier: frozenset[Kind] = frozenset()


class ExperimentSpec(NamedTuple):
    """Declaration of an experiment."""

    name: str  #: What is changed, for readers.
    env: Env  #: Variables of the ranks.
    works: Outcome  #: Meaning if the pairs pass.
    fails: Outcome  #: Meaning if they do not.
    #: Whether it is about pairs within nodes (True), of different nodes (False), or both (None).
    inside: bool | None = None
    dead: bool = False  #: Whether it is about pairs that fail, not about slow ones.
    paths: frozenset[Path] = frozenset()  #: Paths that count as success; none: any.
    needless: frozenset[Path] = frozenset()  #: Paths of pairs that it would not change.
    collective: str = ""  #: Collective over the groups of the finding that it runs in place of pairs, or "".
    fresh: bool = False  #: Whether rank hosts start again for it, those of the pairs only: there are no controls.


def _fixed(**env: str) -> Env:
    return lambda model, subject, pairs: env


def _nodes(model: Model, pairs: Sequence[Pair]) -> list[str]:
    return list(dict.fromkeys(node_of(end) for pair in pairs for end in pair))


def ends_of(model: Model, subject: Subject, pairs: Sequence[Pair] = ()) -> list[Endpoint]:
    """Return the endpoints of a GPU, NIC, node or rail; for any other component, the ends of some pairs."""
    ends, mine = model.endpoints, model.table.of_node(subject.node or "")
    match subject.kind:
        case Kind.GPU:
            return [end for end in mine if str(end) == subject.name]
        case Kind.NIC:
            return [end for end in mine if f"{end.node} {end.port_name}" == subject.name]
        case Kind.NODE:
            return mine
        case Kind.RAIL:
            return [end for end in ends if str(end.index if end.rail is None else end.rail) == subject.name]
    named = dict.fromkeys(name for pair in pairs for name in pair)
    return [ends[number] for name in named if (number := model.table.number(name)) is not None]


def _without_hca(model: Model, subject: Subject, pairs: Sequence[Pair]) -> Mapping[str, str] | None:
    """Return the variable that excludes the HCA of a component, if all nodes have a second one."""
    if subject.kind not in (Kind.GPU, Kind.NIC, Kind.RAIL):
        return None
    names = {end.nic for end in ends_of(model, subject)}
    name = names.pop() if len(names) == 1 else None
    devices = [
        {port.get("ca") for port in active_ports(listed(model.nodes[node], "ib"))} for node in _nodes(model, pairs)
    ]
    if name is None or not any(name in one for one in devices) or not all(one - {name} for one in devices):
        return None
    return {"NCCL_IB_HCA": f"^={name}"}


def _roce_gid(model: Model, subject: Subject, pairs: Sequence[Pair]) -> Mapping[str, str] | None:
    ports = [port for node in _nodes(model, pairs) for port in active_ports(listed(model.nodes[node], "ib"))]
    common: set[int] | None = None
    for port in ports:
        indexes = {gid["index"] for gid in dicts(port.get("gids")) if _is_roce_v2(gid) and "index" in gid}
        common = indexes if common is None else common & indexes
    if not common or any(port.get("link_layer") != "Ethernet" for port in ports):
        return None
    return {"NCCL_IB_GID_INDEX": str(min(common))}


def _without_nvls(model: Model, subject: Subject, pairs: Sequence[Pair]) -> Mapping[str, str] | None:
    given = model.options.get("env")
    env = [str(one) for one in given] if isinstance(given, (list, tuple)) else []
    return None if "NCCL_NVLS_ENABLE=0" in env else {"NCCL_NVLS_ENABLE": "0"}


def _is_roce_v2(gid: Mapping[str, Any]) -> bool:
    try:
        address = ipaddress.IPv6Address(text(gid.get("gid")) or "")
    except ValueError:
        return False
    return "v2" in str(gid.get("type")) and address.ipv4_mapped is not None and isinstance(gid.get("index"), int)


def subject_text(model: Model, subject: Subject) -> str:
    if subject.kind is Kind.GPU and (ends := ends_of(model, subject)):
        return f"{'GPU' if ends[0].kind == 'gpu' else 'endpoint'} {subject.name}"
    if subject.kind is Kind.NIC:
        node, _, nic = subject.name.partition(" ")
        return nic if nic.startswith("NIC of ") else f"NIC {nic} of {node}"
    return f"{str(subject.kind).replace('-', ' ')} {subject.name}"


EXPERIMENTS: dict[ExperimentKind, ExperimentSpec] = {
    ExperimentKind.ALONE: ExperimentSpec(
        "alone",
        _fixed(),
        Outcome("so only other traffic, or chance, makes it look bad", _CONTENTION, _ANY - _CONTENTION),
        Outcome("so other traffic is not the reason", _ANY - _CONTENTION, _CONTENTION),
    ),
    ExperimentKind.FRESH: ExperimentSpec(
        "on fresh rank hosts",
        _fixed(),
        Outcome("so it comes and goes: it was wrong all the same"),
        Outcome("so nothing that earlier tests left behind is the reason", _ANY),
        dead=True,
        fresh=True,
    ),
    # The meaning of results follows from the components that carry the pairs.
    ExperimentKind.PARTNERS: ExperimentSpec("with other partners", _fixed(), Outcome(""), Outcome("")),
    ExperimentKind.OTHER_HCA: ExperimentSpec(
        "with another HCA (NCCL_IB_HCA)",
        _without_hca,
        Outcome("so this HCA or its rail is at fault, and the GPUs are not", _NICS, frozenset({Kind.GPU, Kind.NODE})),
        Outcome("so this HCA and its rail are not the reason", frozenset({Kind.GPU, Kind.NODE}), _NICS),
        inside=False,
        needless=_OVER_TCP,
    ),
    ExperimentKind.SOCKET: ExperimentSpec(
        "with NCCL_NET=Socket",
        _fixed(NCCL_NET="Socket"),
        Outcome("so RDMA is at fault, and the GPUs and IP are not", _ANY - {Kind.GPU}, frozenset({Kind.GPU})),
        Outcome("so it is not RDMA alone"),
        inside=False,
        needless=_OVER_TCP,
    ),
    ExperimentKind.GID: ExperimentSpec(
        "with another GID index (NCCL_IB_GID_INDEX)",
        _roce_gid,
        Outcome("so the GID index is at fault: set this variable", _ANY - {Kind.GPU}, frozenset({Kind.GPU})),
        Outcome("so the GID index is not the reason"),
        inside=False,
        needless=_OVER_TCP,
        dead=True,
    ),
    ExperimentKind.ONE_RAIL: ExperimentSpec(
        "with NCCL_CROSS_NIC=0",
        _fixed(NCCL_CROSS_NIC="0"),
        Outcome("so only traffic that leaves its rail is blocked", _RAILS, _ANY - _RAILS),
        Outcome("so it is not the path between rails alone"),
        inside=False,
        dead=True,
    ),
    ExperimentKind.NO_P2P: ExperimentSpec(
        "with NCCL_P2P_DISABLE=1",
        _fixed(NCCL_P2P_DISABLE="1"),
        Outcome("so P2P over NVLink or PCIe is at fault, and the GPUs are not", _ANY),
        Outcome("so P2P is not the reason"),
        inside=True,
        dead=True,
        needless=frozenset({Path.SHM, Path.TCP, Path.RDMA, Path.GPUDIRECT}),
    ),
    ExperimentKind.P2P: ExperimentSpec(
        "with NCCL_P2P_DISABLE=0",
        _fixed(NCCL_P2P_DISABLE="0", NCCL_P2P_LEVEL="SYS"),
        Outcome("so the hardware allows P2P: a variable keeps NCCL from using it", _ANY),
        Outcome("so it is not a variable: check ACS, IOMMU and nvidia-smi topo -p2p r", _ANY),
        inside=True,
        paths=frozenset({Path.P2P}),
    ),
    ExperimentKind.RDMA: ExperimentSpec(
        "with NCCL_NET=IB",
        _fixed(NCCL_IB_DISABLE="0", NCCL_NET="IB"),
        Outcome("so RDMA works: a variable or a plug-in keeps NCCL from using it", _ANY),
        Outcome("so NCCL cannot use RDMA, and the error gives the reason", _ANY),
        inside=False,
        paths=frozenset({Path.RDMA, Path.GPUDIRECT}),
    ),
    ExperimentKind.GPUDIRECT: ExperimentSpec(
        "with NCCL_NET_GDR_LEVEL=SYS",
        _fixed(NCCL_NET_GDR_LEVEL="SYS"),
        Outcome("so GPUDirect works: the distance between GPU and NIC, or a variable, keeps NCCL from using it", _ANY),
        Outcome("so GPUDirect does not work: check nvidia-peermem, DMA-BUF, ACS and IOMMU", _ANY),
        inside=False,
        paths=frozenset({Path.GPUDIRECT}),
    ),
    ExperimentKind.NO_NVLS: ExperimentSpec(
        "with NCCL_NVLS_ENABLE=0",
        _without_nvls,
        Outcome("so NVLink SHARP is at fault, and the NVLinks are not", _ANY),
        Outcome("so NVLink SHARP is not the reason", unlikelier=_ANY),
        collective="all_reduce",
    ),
}


def experiments_text(experiments: Sequence[ExperimentKind]) -> str:
    """Return experiments in words: ``alone; with other partners``."""
    return "; ".join(EXPERIMENTS[kind].name for kind in experiments)


_KNOWN = frozenset(kind.value for kind in EXPERIMENTS)


class GroupFact(NamedTuple):
    """A collective over a group of ranks that a finding is about."""

    src: str  #: First name of the group in the snapshot.
    dst: str  #: Second name of the group.
    value: float | None  #: Bus bandwidth; None if it failed.
    unit: str  #: Unit of the value.


class ConfirmationFact(NamedTuple):
    """Outcome of the experiments about a finding."""

    lines: tuple[str, ...]  #: What was tried and what it showed, one sentence each.
    before: float | None  #: Confidence before them, or None if it was unknown.
    after: float | None  #: Confidence after them, or None if none of them decided.

    @property
    def tried(self) -> int:
        return sum(line.startswith(tuple(_WORDS.values())) for line in self.lines)


def planned(model: Model, finding: Finding) -> list[Experiment]:
    """Return the experiments that separate a finding from its rivals; those that cannot be run have a `problem`."""
    nccl = any(end.kind == "gpu" for end in model.endpoints) and model.options.get("engine") != "gloo"
    cells = sorted(finding.cells) if finding.rule.experiments else []
    cells = cells[:: max(1, len(cells) // _MOST_CELLS)]
    experiments = []
    for kind in finding.rule.experiments:
        spec = EXPERIMENTS[kind]
        sample = _sample(model, cells, spec)
        pairs = _with_partners(model, finding, sample) if kind is ExperimentKind.PARTNERS else sample
        groups = _groups_of(finding)[:_SAMPLE] if spec.collective else []
        env = spec.env(model, finding.subject, pairs) if pairs or groups else None
        if env is None:
            continue
        experiments.append(
            Experiment(
                rule=finding.rule.id,
                subject=tuple(map(str, finding.subject)),
                trial=kind.value,
                env=env,
                pairs=[] if groups else pairs,
                controls=[] if groups or spec.fresh else _controls(model, finding, sample[0], pairs),
                groups=[(one.src, one.dst) for one in groups],
                collective=spec.collective if groups else "",
                problem=_NEEDS_NCCL if env and not nccl else "",
                fresh=spec.fresh,
            )
        )
    return experiments


def _groups_of(finding: Finding) -> list[GroupFact]:
    groups = finding.facts.get("groups")
    return [one for one in groups if isinstance(one, GroupFact)] if isinstance(groups, tuple) else []


def first_planned(model: Model, found: Iterable[Finding]) -> list[Experiment]:
    plans = (plan for one in found if (plan := planned(model, one)))
    return [one for plan in itertools.islice(plans, MOST_CONFIRMED) for one in plan]


def _sample(model: Model, cells: Sequence[Pair], spec: ExperimentSpec) -> list[Pair]:
    """Return a few of the bad pairs that an experiment is about, with as many different ends as possible."""
    cells = [
        pair
        for pair in cells
        if spec.inside in (None, node_of(pair[0]) == node_of(pair[1]))
        and not any(model.gone(node_of(end)) for end in pair)
        and (last := model.latest(Layer.P2P, *pair)) is not None
        and path_of(last.transport) not in spec.needless
        and not (spec.dead and model.verdict(last) is Verdict.SLOW)
    ]
    chosen: list[Pair] = []
    while cells and len(chosen) < _SAMPLE:
        used = {name for pair in chosen for end in pair for name in (end, node_of(end))}
        best = min(cells, key=lambda pair: sum(name in used for end in pair for name in (end, node_of(end))))
        chosen.append(best)
        # Both directions are tested at once.
        cells = [pair for pair in cells if set(pair) != set(best)]
    return chosen


def _with_partners(model: Model, finding: Finding, sample: Sequence[Pair]) -> list[Pair]:
    """Return pairs of the ends of bad pairs with other partners.

    Where a component is blamed, these are other pairs of it, if possible such that its first rival does not carry.
    Where a path is blamed, each of its ends gets a partner that it works with.
    """
    subject, chosen = finding.subject, list[Pair]()
    mine = _names_of(model, subject)
    theirs = _names_of(model, finding.rivals[0]) if mine and finding.rivals else set()
    apart = (mine ^ theirs) if theirs and mine != theirs else set()
    for pair in sample:
        for at in (0, 1):
            if mine and pair[at] not in mine:
                continue
            options = [
                (end, other) if at == 0 else (other, end)
                for end in sorted(apart or {pair[at]})
                for other in map(str, _near(model, pair))
                if other not in {*pair[:at], *pair[at + 1 :], end, *mine, *theirs}
                and (not mine or model.table.class_between(end, other) is model.table.class_between(*pair))
            ]
            known = {frozenset(one) for one in (*sample, *chosen)}
            options = [way for way in options if frozenset(way) not in known]
            if options and len(chosen) < _PARTNERS:
                chosen.append(min(options, key=lambda way: _partner_rank(model, pair, way, passing=not mine)))
    return chosen


def _names_of(model: Model, subject: Subject) -> set[str]:
    return {str(end) for end in ends_of(model, subject)} if subject.kind in COMPONENTS else set()


def _partner_rank(model: Model, pair: Pair, way: Pair, *, passing: bool) -> tuple[bool, bool]:
    """Return what orders pairs with other partners: the same class first, then passing or other ones."""
    last, class_of = model.latest(Layer.P2P, *way), model.table.class_between
    bad = last is not None and model.verdict(last).bad
    return class_of(*way) is not class_of(*pair), bad if passing else last is not None and not bad


def _controls(model: Model, finding: Finding, pair: Pair, tested: Iterable[Pair]) -> list[Pair]:
    """Return a few pairs that passed, of the same class as a bad pair, and without the component that is blamed."""
    without = _names_of(model, finding.subject) or set(pair)
    near = [end for end in _near(model, pair) if str(end) not in without]
    bad = model.latest(Layer.P2P, *pair)
    known = {frozenset(one) for one in tested}
    controls = []
    for source, target in itertools.permutations(near, 2):
        way = str(source), str(target)
        last = model.latest(Layer.P2P, *way)
        if frozenset(way) in known or last is None or bad is None or model.key_of(last) != model.key_of(bad):
            continue
        if model.verdict(last) is Verdict.OK and way not in finding.cells and way[::-1] not in finding.cells:
            known.add(frozenset(way))
            controls.append(way)
            if len(controls) == _CONTROLS:
                break
    return controls


def _near(model: Model, pair: Pair) -> list[Endpoint]:
    """Return endpoints that can be tested, those on the nodes of a pair first: further nodes have to start ranks."""
    nodes = dict.fromkeys((*map(node_of, pair), *itertools.islice(model.nodes, _MOST_ENDS)))
    ends = [end for node in nodes if not model.gone(node) for end in model.table.of_node(node) if end.kind != "none"]
    return ends[:_MOST_ENDS]


class _Step(NamedTuple):
    """Judgement of an experiment."""

    text: str  #: What it showed.
    votes: dict[Subject, int]  #: 1 for each component that the outcome speaks for, -1 for those it speaks against.


def confirmed(model: Model, finding: Finding) -> Finding:
    """Return a finding with the outcomes of the experiments about it: evidence, confidence, and the likeliest rival."""
    subjects = {tuple(map(str, one)) for one in (finding.subject, *finding.rivals)}
    done = model.experiments.about(finding.rule.id, subjects, model.sweep_since) if finding.rule.experiments else []
    # A later version may have others.
    done = [one for one in done if one.event.trial in _KNOWN]
    if not done:
        return finding
    subject, lines, votes = finding.subject, [], []
    # Pairs with other partners may be no cells of it.
    slow = bool(finding.facts.get("slowest") or finding.facts.get("of_usual"))
    latest = (model.latest(Layer.P2P, *pair) for one in done for pair in one.event.pairs if pair in finding.cells)
    slow = slow or any(last is not None and model.verdict(last) is Verdict.SLOW for last in latest)
    for one in done:
        if problem := one.event.problem:
            lines.append(
                f"not tried: {one.event.env_text or EXPERIMENTS[ExperimentKind(one.event.trial)].name} {problem}"
            )
            continue
        step = _judged(model, finding, one, slow=slow)
        votes.append(step.votes)
        lines.append(f"{_WORDS[step.votes.get(subject, 0)]}: {step.text}")
    weights = _weighed(finding, votes)
    likeliest = max(weights, key=lambda one: weights[one])
    if likeliest != subject:
        lines.append(f"{subject_text(model, likeliest)} is likelier than {subject_text(model, subject)}")
    after = weights[likeliest] if any(any(one.values()) for one in votes) else None
    if after is not None and all(one.get(subject, 0) >= 0 for one in votes):
        after = max(after, finding.confidence or 0.0)
    before = finding.confidence if finding.rivals else None
    rivals = [one for one in weights if one != likeliest and weights[one] >= _LEAST]
    return finding.replace(
        facts={**finding.facts, "confirmation": ConfirmationFact(tuple(lines), before, after)},
        blames=likeliest,
        rivals=tuple(sorted(rivals, key=lambda one: -weights[one])),
        confidence=finding.confidence if after is None else after,
    )


def _weighed(finding: Finding, votes: Iterable[dict[Subject, int]]) -> dict[Subject, float]:
    rivals = finding.rivals
    first = finding.confidence if rivals and finding.confidence is not None else _UNKNOWN
    weights = {finding.subject: first, **{one: (1 - first) / len(rivals) for one in rivals}}
    unnamed = _UNNAMED if rivals else 1 - first
    for outcome in votes:
        for one in weights:
            weights[one] *= _FACTOR ** outcome.get(one, 0)
    whole = sum(weights.values()) + unnamed
    return {one: weight / whole for one, weight in weights.items()}


def _judged(model: Model, finding: Finding, tried: Tried, *, slow: bool) -> _Step:
    one, spec = tried.event, EXPERIMENTS[ExperimentKind(tried.event.trial)]
    if one.groups:
        return _judged_by_groups(finding, tried, spec)
    results = {pair: _passes(model, tried, spec.paths, pair, slow=slow) for pair in one.pairs}
    passed = [pair for pair, result in results.items() if result]
    failed = [pair for pair, result in results.items() if result is False]
    how = f"with {one.env_text}" if one.env else spec.name
    ended = ((passed, True), (failed, False))
    parts = [_result_text(tried, pairs, how, passed=good, slow=slow) for pairs, good in ended if pairs]
    text = ", ".join(parts) or f"no result {how}"
    controls = [_passes(model, tried, frozenset(), pair, slow=False) for pair in one.controls]
    if failed and controls and all(result is False for result in controls):
        return _Step(
            f"{text}, and so {'does' if len(controls) == 1 else 'do'} {_names(one.controls)}: no conclusion", {}
        )
    if one.trial == ExperimentKind.PARTNERS:
        return _judged_by_partners(model, finding, text, passed, failed)
    if not parts or (passed and failed):
        return _Step(f"{text}: no conclusion", {})
    return _voted(finding, text, spec.fails if failed else spec.works)


def _voted(finding: Finding, text: str, outcome: Outcome) -> _Step:
    candidates = (finding.subject, *finding.rivals)
    votes = {each: (each.kind in outcome.likelier) - (each.kind in outcome.unlikelier) for each in candidates}
    return _Step(f"{text}, {outcome.text}", votes)


def _judged_by_groups(finding: Finding, tried: Tried, spec: ExperimentSpec) -> _Step:
    """Return what collectives over the groups of a finding show: they pass, and are faster if they were slow."""
    before = {(one.src, one.dst): one for one in _groups_of(finding)}
    parts, outcomes = [], set()
    for group in map(tuple, tried.event.groups):
        now, then = tried.groups.get((group[0], group[1])), before.get((group[0], group[1]))
        if now is None or then is None:
            continue
        name = group[0] if group[0] == group[1] else "+".join(group)
        where = f"{tried.event.collective} over {name}"
        if now.value is None:
            outcomes.add(False)
            error = f" ({one_line(now.error, 120)})" if now.error else ""
            parts.append(f"{where} fails {spec.name}{error}")
        elif then.value is None:
            outcomes.add(True)
            parts.append(f"{where} passes {spec.name} ({now.value:.3g} {now.unit})")
        else:
            outcomes.add(now.value >= _FASTER * then.value)
            parts.append(f"{where}: {now.value:.3g} {now.unit} {spec.name}, {then.value:.3g} {then.unit} before")
    if len(outcomes) != 1:
        return _Step(f"{', '.join(parts) or f'no result {spec.name}'}: no conclusion", {})
    return _voted(finding, ", ".join(parts), spec.works if outcomes.pop() else spec.fails)


def _judged_by_partners(
    model: Model, finding: Finding, text: str, passed: Sequence[Pair], failed: Sequence[Pair]
) -> _Step:
    """Return what pairs with other partners show: a component at fault fails in all its pairs, and in no others."""
    if not passed and not failed:
        return _Step(text, {})
    votes = {}
    for one in (finding.subject, *finding.rivals):
        ends = _names_of(model, one)
        wrong = any(ends & set(pair) for pair in passed) or any(not ends & set(pair) for pair in failed)
        votes[one] = -1 if wrong else 1
    if not _names_of(model, finding.subject):
        parts = "an endpoint is at fault" if failed else "the endpoints work, and the path does not"
    else:
        name, good = subject_text(model, finding.subject), votes[finding.subject] > 0
        other = next((f", not {subject_text(model, one)}" for one in finding.rivals if votes[one] < 0), "")
        parts = f"{name} is at fault{other or ' with any partner'}" if good else f"not all of {name} is at fault"
    return _Step(f"{text}, so {parts}", votes)


def _names(pairs: Iterable[Pair]) -> str:
    return " and ".join(f"{src} > {dst}" for src, dst in pairs)


def _result_text(tried: Tried, pairs: Sequence[Pair], how: str, *, passed: bool, slow: bool) -> str:
    found, spec = tried.results[pairs[0]], EXPERIMENTS[ExperimentKind(tried.event.trial)]
    verbs = ("passes", "pass") if passed else ("fails", "fail")
    detail = ""
    if found.verdict is Verdict.WRONG and spec.fresh:
        verbs = ("is wrong again", "are wrong again")
    elif found.verdict.bad:
        # Without other variables, it is the error of the finding.
        detail = f" ({one_line(found.error, 120)})" if found.error and tried.event.env else ""
    else:
        if not passed:
            verbs = ("takes another path", "take another path") if spec.paths else ("stays slow", "stay slow")
        if found.value is not None and (slow or tried.event.env):
            over = f" over {one_line(found.transport, 60)}" if found.transport else ""
            detail = f" ({found.value:.3g} {found.unit}{over})"
    return f"{_names(pairs)} {verbs[len(pairs) > 1]} {how}{detail}"


def _passes(model: Model, tried: Tried, paths: Container[Path], pair: Pair, *, slow: bool) -> bool | None:
    """Return whether a pair passed in an experiment, and as fast as controls if it was slow; None if unknown."""
    result = tried.results.get(pair)
    if result is None or result.verdict is not Verdict.OK:
        return False if result is not None and result.verdict.bad else None
    if paths:
        return path_of(result.transport) in paths
    if not slow:
        return True
    key = model.key_of(result)
    usual, limit = model.median(Layer.P2P, key), model.limit(Layer.P2P, key)
    beside = [m for way in tried.event.controls if (m := tried.results.get(way)) is not None]
    values = [m.value for m in beside if m.value is not None and model.key_of(m) == key]
    # With other variables, values of the session are not a measure.
    reference = statistics.median(values) if values else None if tried.event.env else usual
    if reference is None or not usual or limit is None or result.value is None:
        return None
    return result.value >= reference * limit / usual
