"""Entry of a session in the history, from its diagnosis: nothing is judged a second time."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.finding import Domain, Finding, Kind
from fabtui.diagnosis.merge_findings import finding_key
from fabtui.history.components import Component, Counted, Parts
from fabtui.model.endpoints import PAIR_CLASSES, PairClass
from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line

#: Facts whose versions are kept.
VERSIONS = ("driver", "cuda", "nccl", "torch", "kernel", "ofed", "rdma_firmware", "nic_firmware", "fabric_manager")
#: Layers whose bandwidth is kept.
_LAYERS = (Layer.P2P, Layer.WORLD)
#: Relations of pairs whose data does not pass a NIC.
_INSIDE = (PairClass.SAME_NODE, PairClass.SAME_DOMAIN)
#: Maximum number of findings, and of values of a fact, of a session.
_MOST_FINDINGS, _MOST_VALUES = 500, 8
_LONGEST = 200
#: Pairs for each endpoint from which its share and its partners' can be separated.
_LEAST_PAIRS = 3
#: Rounds of the fit, rounds without weights, and the residual (logarithm) up to which all pairs weigh the same.
_STEPS, _PLAIN_STEPS, _FITS = 50, 20, 0.05


class PartShare(NamedTuple):
    """Bandwidth of a component in a session."""

    component: Component
    kind: str  #: Layer and class: ``p2p same-rail``.
    share: float  #: Median of its pairs over what is usual; 1.0 is usual.
    pairs: int  #: Number of its pairs with a value.
    bad: int  #: Number of its pairs with a bad verdict.


class UsualValue(NamedTuple):
    """Usual value of a class in a session."""

    kind: str  #: Layer, class and hardware.
    size: int  #: Message size (B); 0 if unknown.
    value: float  #: In the unit of the layer.


class Noted(NamedTuple):
    """A finding of a session."""

    key: str  #: Key of the finding, by which notes of the user find it as well.
    rule: str  #: Id of the rule, with the code of the error catalogue where there is one.
    severity: str
    component: Component | None  #: What it blames, if that is one component.
    subject: str
    title: str


@dataclass(frozen=True)
class SessionEntry:
    """One session for the history."""

    key: str  #: Identifies the session; copies of its recording have the same.
    started: float  #: Epoch seconds.
    ended: float  #: Epoch seconds.
    recording: str
    software: str
    nodes: tuple[str, ...]
    endpoints: int
    exit_code: int | None
    text: str
    lab: str
    versions: dict[str, str] = field(default_factory=dict)
    components: list[Component] = field(default_factory=list)
    carriers: list[tuple[Component, Component]] = field(default_factory=list)  #: Each GPU with a port that it uses.
    shares: list[PartShare] = field(default_factory=list)
    usual: list[UsualValue] = field(default_factory=list)
    counted: list[Counted] = field(default_factory=list)
    findings: list[Noted] = field(default_factory=list)


def session_key(model: Model) -> str:
    """Return what identifies a session: its start and its nodes. A resumed session keeps it."""
    named = "\n".join((repr(model.started), *model.nodes))
    return hashlib.sha256(named.encode(errors="replace")).hexdigest()[:24]


def entry_of(found: Diagnosis, recording: str, title: Callable[[Finding], str]) -> SessionEntry:
    """Return the entry of a session.

    Args:
        found: Its diagnosis.
        recording: Name of its recording's file, or "".
        title: Function that words the title of a finding.
    """
    model, parts = found.model, Parts(found.model)
    layers = [layer for layer in _LAYERS if model.results.has(layer)]
    shares = [share for layer in layers for share in _shares(model, parts, layer)]
    return SessionEntry(
        key=session_key(model),
        started=model.started,
        ended=model.now,
        recording=one_line(recording, _LONGEST),
        software=one_line(model.software, 40),
        nodes=tuple(one_line(name, 255) for name in model.nodes),
        endpoints=len(model.endpoints),
        exit_code=model.exit_code,
        text=one_line(model.end_text, _LONGEST),
        lab=one_line(model.lab or "", 40),
        versions=dict(_versions(found)),
        components=list(parts.all()),
        carriers=[(gpu, port) for end, gpu in parts.gpus.items() for port in parts.ports_of.get(end, ())],
        shares=[*shares, *_of_nodes(model, parts)],
        usual=[value for layer in layers for value in _usual(model, layer)],
        counted=list(parts.counted()),
        findings=list(_noted(found, parts, title)),
    )


def _shares(model: Model, parts: Parts, layer: Layer) -> Iterator[PartShare]:
    table, names = model.pair_table(layer), model.table.names
    inside: dict[int, float] = {}
    by_port: dict[tuple[Component, str], list[tuple[float, int, int]]] = {}
    for kind in sorted(set(table.kind.tolist()), key=lambda one: PAIR_CLASSES[one] not in _INSIDE):
        relation, label = PAIR_CLASSES[kind], f"{layer} {PAIR_CLASSES[kind]}"
        mine = table.where(table.kind == kind)
        known = mine.where(~np.isnan(mine.share))
        bads = _per_end(mine.source[mine.bad], mine.target[mine.bad], len(names))
        counts = _per_end(known.source, known.target, len(names))
        own = own_shares(known.source, known.target, known.share, len(names))
        for number in np.flatnonzero(counts).tolist():
            component = parts.gpus.get(names[number])
            if component is None:
                continue
            share, pairs, bad = float(own[number]), int(counts[number]), int(bads[number])
            yield PartShare(component, label, float(np.exp(share)), pairs, bad)
            if relation in _INSIDE:
                inside[number] = min(share, inside.get(number, 0.0))
                continue
            for port in parts.ports_of.get(names[number], ()):
                # A GPU that is slow within its node is slow over its port as well.
                by_port.setdefault((port, label), []).append((share - inside.get(number, 0.0), pairs, bad))
    for (port, label), found in by_port.items():
        middle = sorted(found)[(len(found) - 1) // 2][0]
        yield PartShare(port, label, float(np.exp(middle)), sum(one[1] for one in found), sum(one[2] for one in found))


def _per_end(source: Any, target: Any, ends: int) -> Any:
    return np.bincount(source, minlength=ends) + np.bincount(target, minlength=ends)


def own_shares(source: Any, target: Any, share: Any, ends: int) -> Any:
    """Return the logarithm of the own share of each endpoint in a class: what its partners do not explain.

    A pair has the product of the shares of its two ends. Least squares find them for all endpoints, then with less
    weight for pairs that do not fit. Where pairs are too few for that, it is the median of the pairs.
    """
    partners = _per_end(source, target, ends)
    if len(share) < _LEAST_PAIRS * max(1, int(np.count_nonzero(partners))):
        return _medians(source, target, share, ends)
    each, others = np.concatenate((source, target)), np.concatenate((target, source))
    values, found, weight = np.concatenate((share, share)), np.zeros(ends), np.ones(2 * len(share))
    for step in range(_STEPS):
        if step >= _PLAIN_STEPS:
            weight = 1 / np.maximum(np.abs(values - found[each] - found[others]), _FITS)
        # Half a step: whole ones overshoot where two groups only have pairs with each other.
        found = (found + _mean(each, values - found[others], weight, ends)) / 2
    return found


def _mean(ends_of: Any, values: Any, weight: Any, ends: int) -> Any:
    total = np.bincount(ends_of, weight, ends)
    return np.bincount(ends_of, values * weight, ends) / np.maximum(total, 1e-12)


def _medians(source: Any, target: Any, share: Any, ends: int) -> Any:
    found = np.zeros(ends)
    each, values = np.concatenate((source, target)), np.concatenate((share, share))
    for number in np.unique(each).tolist():
        found[number] = np.median(values[each == number])
    return found


def _of_nodes(model: Model, parts: Parts) -> Iterator[PartShare]:
    for one in model.measurements(Layer.BUSBW):
        component = parts.nodes.get(one.src) if one.src == one.dst else None
        usual = model.usual(one) if component is not None and one.value else None
        if component is not None and usual and one.value:
            bad = int(model.verdict(one).bad)
            yield PartShare(component, f"{Layer.BUSBW} {PairClass.ONE_NODE}", one.value / usual, 1, bad)


def _usual(model: Model, layer: Layer) -> Iterator[UsualValue]:
    shapes = (shape for shape in model.results.store.columns()[0] if shape is not None and shape.layer is layer)
    size = max((shape.asked or 0 for shape in shapes if shape.arm is None), default=0)
    models = sorted({end.name for end in model.endpoints if end.name})
    for kind, value in model.medians(layer, size or None).items():
        yield UsualValue(one_line(" ".join((layer, kind, *models)), _LONGEST), size, value)


def _versions(found: Diagnosis) -> Iterator[tuple[str, str]]:
    values = found.preflight.table.values
    for fact in VERSIONS:
        known = Counter(str(value) for value in values.get(fact, {}).values() if value is not None)
        if known:
            listed = [value for value, _ in known.most_common(_MOST_VALUES)]
            yield fact, one_line(", ".join(listed), _LONGEST)


def _noted(found: Diagnosis, parts: Parts, title: Callable[[Finding], str]) -> Iterator[Noted]:
    for one in found.all_findings[:_MOST_FINDINGS]:
        # What the history itself concluded is not new evidence for it.
        if one.rule.domain in (Domain.HISTORY, Domain.SUMMARY):
            continue
        subject = one.subject
        components = parts.blamed(subject.name) if subject.kind in (Kind.GPU, Kind.NIC, Kind.NODE) else []
        rule = f"{one.rule.id} {one.code}".strip()
        words = one_line(title(one), _LONGEST)
        for component in components or (None,):
            yield Noted(finding_key(one)[:500], rule, str(one.severity), component, one_line(subject.name, 255), words)
