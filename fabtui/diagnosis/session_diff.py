"""Differences between two sessions: pairs, facts of nodes, and findings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fabtui.diagnosis.diagnosis import Diagnosis, diagnose
from fabtui.diagnosis.finding import Finding, Severity
from fabtui.diagnosis.preflight.node_context import NodeContext
from fabtui.model.baseline import SLOW_BELOW, change
from fabtui.model.facts.compare import PreflightChanges, changes_since, earlier_of
from fabtui.model.layers import Layer, Per
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.pair_table import without_same
from fabtui.model.session_model import Model

#: A value above this multiple of the earlier one is better.
BETTER_ABOVE = 1.4
#: Times of single packets vary several-fold between sessions: only their verdicts are compared.
_NOISY = (Layer.PING, Layer.TCP)
#: Verdicts that are results; a pair with a different one has none.
_RANK = {Verdict.OK: 0, Verdict.SLOW: 1, Verdict.TIMEOUT: 2, Verdict.FAILED: 2, Verdict.WRONG: 3}


class Status(StrEnum):
    """Change of a pair, the worst first; ``new`` and ``gone`` pairs have a result in one session only.

    ``not comparable`` pairs passed with other message sizes, or between endpoints of another kind.
    """

    WORSE = "worse"
    NEW = "new"
    GONE = "gone"
    BETTER = "better"
    NOT_COMPARABLE = "not comparable"
    SAME = "same"


class Key(NamedTuple):
    """Subject of measurements that are compared; the arm of an A/B comparison, or ""."""

    layer: Layer
    arm: str
    src: str
    dst: str
    src_addr: str
    dst_addr: str


class PairChange(NamedTuple):
    """Change of a pair in a layer."""

    key: Key
    status: Status
    then: Verdict  #: Verdict of the earlier session, slowness included; ``untested`` without a measurement.
    now: Verdict  #: Verdict of the later session.
    before: Measurement | None  #: Measurement of the earlier session, or None.
    after: Measurement | None  #: Measurement of the later session, or None.
    ratio: float | None  #: Value of the later session over the earlier one; None if they cannot be compared.
    reason: str = ""  #: Why the pair is not comparable, or "".

    @property
    def gain(self) -> float | None:
        if self.ratio is None or not self.key.layer.spec.less_is_better:
            return self.ratio
        return 1 / self.ratio if self.ratio else math.inf

    @property
    def bad(self) -> bool:
        """Return True if it is worse, or new and bad."""
        return self.status is Status.WORSE or (self.status is Status.NEW and self.now.bad)

    @property
    def turned(self) -> bool:
        """Return True if it broke or was repaired: its value did not just change."""
        return self.then.bad is not self.now.bad and self.status in (Status.WORSE, Status.NEW, Status.BETTER)

    @property
    def badness(self) -> tuple[bool, int, int, float]:
        """Sort key, the worst first."""
        gain = 1.0 if self.gain is None else self.gain
        return not self.bad, list(Status).index(self.status), -_RANK.get(self.now, 0), gain


class MethodDifference(NamedTuple):
    """Differences of method between two sessions: ``endpoints``, ``message sizes`` or ``engines``; sizes in bytes."""

    what: str
    then: Sequence[str | int]
    now: Sequence[str | int]


@dataclass(frozen=True, slots=True)
class SessionDiff:
    """Differences between two sessions."""

    pairs: list[PairChange]  #: Changed pairs, the worst first.
    counts: dict[Layer, Counter[Status]]  #: Number of pairs of each layer by status.
    facts: PreflightChanges | None  #: Changed facts; None if a session has no inventory of any node, as a CSV.
    new: list[Finding]  #: Findings of the later session only, the worst first.
    gone: list[Finding]  #: Findings of the earlier session only.
    still: list[Finding]  #: Findings of both, as they are in the later one.
    differences: list[MethodDifference]  #: What limits the comparison of values.
    sessions: tuple[Diagnosis, Diagnosis]  #: The earlier and the later session.

    @property
    def worse(self) -> bool:
        """Return True if a pair is worse or new and bad, or a finding is new and bad."""
        return any(one.bad for one in self.pairs) or any(one.severity is Severity.BAD for one in self.new)


def has_facts(model: Model) -> bool:
    """Return True if the inventory of a node is known."""
    return any(record.inventory for record in model.nodes.values())


def session_diff(then: Model, now: Model) -> SessionDiff:
    """Return the differences between two sessions."""
    counts: dict[Layer, Counter[Status]] = {}
    changed = []
    rest: dict[Layer, tuple[list[int], list[int]]] = {}
    for layer in then.layers:
        if (found_same := _same(then, now, layer)) is not None:
            number, *rows = found_same
            counts[layer] = Counter({Status.SAME: number} if number else {})
            rest[layer] = (rows[0], rows[1])
    before = _by_key(then, {layer: rows for layer, (rows, _) in rest.items()})
    after = _by_key(now, {layer: rows for layer, (_, rows) in rest.items()})
    for key in {**before, **after}:
        changed_pair = _pair_change(then, now, key, before.get(key, {}), after.get(key, {}))
        counts.setdefault(key.layer, Counter())[changed_pair.status] += 1
        if changed_pair.status is not Status.SAME:
            changed.append(changed_pair)
    facts = None
    if has_facts(then) and has_facts(now):
        facts = changes_since(earlier_of(NodeContext(then).table), NodeContext(now).table)
    sessions = diagnose(then), diagnose(now)
    earlier, later = (changed_pair.all_findings for changed_pair in sessions)
    known, present = _keys(earlier), _keys(later)
    return SessionDiff(
        sorted(changed, key=lambda changed_pair: changed_pair.badness),
        counts,
        facts,
        new=[changed_pair for changed_pair in later if _key(changed_pair) not in known],
        gone=[changed_pair for changed_pair in earlier if _key(changed_pair) not in present],
        still=[changed_pair for changed_pair in later if _key(changed_pair) in known],
        differences=list(_differences(then, now)),
        sessions=sessions,
    )


def _differences(then: Model, now: Model) -> Iterator[MethodDifference]:
    """Yield kinds of endpoints, sizes and engines of the tests of pairs, where the sessions have none in common."""
    found: dict[str, list[Sequence[str | int]]] = {
        "endpoints": [sorted({end.name or end.kind for end in model.endpoints}) for model in (then, now)],
        "message sizes": [model.results.sizes(Layer.P2P) for model in (then, now)],
        "engines": [model.results.engines(Layer.P2P) for model in (then, now)],
    }
    for what, (before, after) in found.items():
        if before and after and not {*before} & {*after}:
            yield MethodDifference(what, before, after)


def _same(then: Model, now: Model, layer: Layer) -> tuple[int, list[int], list[int]] | None:
    """Return the number of equal pairs of a layer, and the rows of all others; None if arrays do not show it."""
    sizes = [model.results.sizes(layer) for model in (then, now)]
    ends = [[(str(end), end.kind) for end in model.endpoints] for model in (then, now)]
    simple = layer.spec.per is Per.ENDPOINT_PAIR and layer is not Layer.WORLD and layer in now.layers
    if not simple or len(sizes[0]) > 1 or sizes[0] != sizes[1] or ends[0] != ends[1]:
        return None
    if then.whole_table(layer) is None or now.whole_table(layer) is None:
        return None
    first, second = (model.pair_table(layer) for model in (then, now))
    low, high = (1 / BETTER_ABOVE, 1 / SLOW_BELOW) if layer.spec.less_is_better else (SLOW_BELOW, BETTER_ABOVE)
    return without_same(first, second, len(ends[0]), low, high)


def _by_key(model: Model, rest: dict[Layer, list[int]]) -> dict[Key, dict[int | None, Measurement]]:
    """Return the measurements of a session by subject and message size; of the layers in ``rest``, only these rows."""
    found: dict[Key, dict[int | None, Measurement]] = {}
    others = [layer for layer in model.layers if layer not in rest]
    chosen = (model.results.store.get(row) for rows in rest.values() for row in rows)
    for one in (*chosen, *(model.measurements(*others) if others else ()), *model.results.arms()):
        # Addresses of endpoints are part of the path, which may change.
        addresses = (one.src_addr or "", one.dst_addr or "") if one.layer.spec.by_address else ("", "")
        key = Key(one.layer, one.arm or "", one.src, one.dst, *addresses)
        found.setdefault(key, {})[one.asked_bytes if one.layer.spec.sizes else None] = one
    return found


def _pair_change(
    then: Model, now: Model, key: Key, before: dict[int | None, Measurement], after: dict[int | None, Measurement]
) -> PairChange:
    sizes = [size for size in before if size in after]
    changes = [_change(then, now, key, before[size], after[size]) for size in sizes]
    if not changes:
        changes = [_change(then, now, key, _largest(before), _largest(after))]
    return min(changes, key=lambda one: one.badness)


def _largest(sizes: dict[int | None, Measurement]) -> Measurement | None:
    return max(sizes.values(), key=lambda one: one.asked_bytes or 0, default=None)


def _change(then: Model, now: Model, key: Key, before: Measurement | None, after: Measurement | None) -> PairChange:
    old, new = _verdict(then, before), _verdict(now, after)
    compared = change(before, after, new)
    changed = PairChange(key, Status.SAME, old, new, before, after, compared.ratio)
    if {old, new} <= _RANK.keys() and (kinds := _other_kinds(then, now, key)):
        return changed._replace(status=Status.NOT_COMPARABLE, ratio=None, reason=kinds)
    gain = None if key.layer in _NOISY or (key.layer is Layer.WORLD and _passes_alone(now, after)) else changed.gain
    status = _status(_RANK.get(old), _RANK.get(new), gain)
    if status is Status.SAME and {old, new} <= _RANK.keys() and compared.verdict is Verdict.INCONCLUSIVE:
        return changed._replace(status=Status.NOT_COMPARABLE, reason=compared.text)
    return changed._replace(status=status)


def _other_kinds(then: Model, now: Model, key: Key) -> str:
    """Return how the kinds of the ends of a pair differ, or ""."""
    kinds = [_kinds(model, key) for model in (then, now)]
    return "" if kinds[0] == kinds[1] or None in kinds else f"other endpoints: {kinds[0]} then, {kinds[1]} now"


def _kinds(model: Model, key: Key) -> str | None:
    numbers = [model.table.number(name) for name in (key.src, key.dst)]
    kinds = dict.fromkeys("none" if at is None else model.endpoints[at].kind.upper() for at in numbers)
    return None if "none" in kinds else " and ".join(kinds)


def _status(old: int | None, new: int | None, gain: float | None) -> Status:
    if old is None or new is None:
        return Status.SAME if old == new else Status.NEW if old is None else Status.GONE
    if new > old or (gain is not None and gain < SLOW_BELOW):
        return Status.WORSE
    return Status.BETTER if new < old or (gain is not None and gain > BETTER_ABOVE) else Status.SAME


def _verdict(model: Model, one: Measurement | None) -> Verdict:
    verdict = Verdict.UNTESTED if one is None else model.verdict(one)
    # Beside all other traffic a value may be low by chance, see `Model.confirmed`.
    by_chance = verdict is Verdict.SLOW and one is not None and one.layer is Layer.WORLD and _passes_alone(model, one)
    return Verdict.OK if by_chance else verdict


def _passes_alone(model: Model, one: Measurement | None) -> bool:
    alone = None if one is None else model.latest(Layer.P2P, one.src, one.dst)
    return alone is not None and model.verdict(alone) is Verdict.OK


def _key(finding: Finding) -> tuple[str, str, str]:
    return (finding.rule.id, *finding.subject)


def _keys(found: Iterable[Finding]) -> set[tuple[str, str, str]]:
    keys = set()
    for one in found:
        keys.add(_key(one))
        keys |= _keys((*one.facts.get("known", ()), *one.facts.get("grown", ()), *one.facts.get("related", ())))
    return keys
