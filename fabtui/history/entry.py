"""Entry of a session in the history, from its diagnosis or its recording: nothing is judged a second time."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median_low

import numpy as np
from numpy.typing import NDArray

from fabtui.diagnosis.diagnosis import Diagnosis, diagnose
from fabtui.diagnosis.finding import Domain, Finding, Kind
from fabtui.diagnosis.merge_findings import finding_key
from fabtui.errors import InputError
from fabtui.history.components import Component, Parts, rule_of
from fabtui.history.file import HistoryWriter, Noted, PartShare, SessionEntry, UsualValue, history_file, usual_name
from fabtui.model.endpoints import PAIR_CLASSES, PairClass
from fabtui.model.events import SessionStart
from fabtui.model.layers import Layer
from fabtui.model.recording import DamagedRecording, apply_recorded, read_events
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
#: Number of recordings that are written in one transaction.
_BATCH = 50
_Numbers = NDArray[np.generic]


def session_key(model: Model) -> str:
    """Return what identifies a session: its start and its nodes. A resumed session keeps it."""
    named = "\n".join((repr(model.started), *model.nodes))
    return hashlib.sha256(named.encode(errors="replace")).hexdigest()[:24]


def entry_of(diagnosis: Diagnosis, recording: str, title: Callable[[Finding], str]) -> SessionEntry:
    """Return the entry of a session from its diagnosis, the name of its recording or "", and titles of findings."""
    model, parts = diagnosis.model, Parts(diagnosis.model)
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
        versions=dict(_versions(diagnosis)),
        components=parts.all(),
        carriers=[(gpu, port) for end, gpu in parts.gpus.items() for port in parts.ports_of.get(end, ())],
        shares=[*shares, *_of_nodes(model, parts)],
        usual=[value for layer in layers for value in _usual(model, layer)],
        counted=list(parts.counted()),
        findings=list(_noted(diagnosis, parts, title)),
    )


def _shares(model: Model, parts: Parts, layer: Layer) -> Iterator[PartShare]:
    table, names = model.pair_table(layer), model.table.names
    inside: dict[int, float] = {}
    by_port: dict[tuple[Component, str], list[tuple[float, int]]] = {}
    for kind in sorted(set(table.kind.tolist()), key=lambda kind: PAIR_CLASSES[kind] not in _INSIDE):
        relation, label = PAIR_CLASSES[kind], f"{layer} {PAIR_CLASSES[kind]}"
        mine = table.where(table.kind == kind)
        known = mine.where(~np.isnan(mine.share))
        bads = _per_end(mine.source[mine.bad], mine.target[mine.bad], len(names))
        own = own_shares(known.source, known.target, known.share, len(names))
        for number in np.flatnonzero(_per_end(known.source, known.target, len(names))).tolist():
            component = parts.gpus.get(names[number])
            if component is None:
                continue
            share, bad = float(own[number]), int(bads[number])
            yield PartShare(component, label, float(np.exp(share)), bad)
            if relation in _INSIDE:
                inside[number] = min(share, inside.get(number, 0.0))
                continue
            for port in parts.ports_of.get(names[number], ()):
                # A GPU that is slow within its node is slow over its port as well.
                by_port.setdefault((port, label), []).append((share - inside.get(number, 0.0), bad))
    for (port, label), ends in by_port.items():
        middle = median_low(share for share, _ in ends)
        yield PartShare(port, label, float(np.exp(middle)), sum(bad for _, bad in ends))


def _per_end(source: _Numbers, target: _Numbers, ends: int) -> _Numbers:
    return np.bincount(source, minlength=ends) + np.bincount(target, minlength=ends)


def own_shares(source: _Numbers, target: _Numbers, share: _Numbers, ends: int) -> _Numbers:
    """Return the logarithm of the own share of each endpoint in a class: what its partners do not explain.

    A pair has the product of the shares of its two ends. Least squares find them for all endpoints, then with less
    weight for pairs that do not fit. Where pairs are too few for that, it is the median of the pairs.
    """
    partners = _per_end(source, target, ends)
    each, others = np.concatenate((source, target)), np.concatenate((target, source))
    values, own, weight = np.concatenate((share, share)), np.zeros(ends), np.ones(2 * len(share))
    if len(share) < _LEAST_PAIRS * max(1, int(np.count_nonzero(partners))):
        own[np.unique(each)] = [np.median(values[each == number]) for number in np.unique(each)]
        return own
    for step in range(_STEPS):
        if step >= _PLAIN_STEPS:
            weight = 1 / np.maximum(np.abs(values - own[each] - own[others]), _FITS)
        weights = np.maximum(np.bincount(each, weight, ends), 1e-12)
        means = np.bincount(each, (values - own[others]) * weight, ends) / weights
        # Half a step: whole ones overshoot where two groups only have pairs with each other.
        own = (own + means) / 2
    return own


def _of_nodes(model: Model, parts: Parts) -> Iterator[PartShare]:
    for test in model.measurements(Layer.BUSBW):
        component = parts.nodes.get(test.src) if test.src == test.dst else None
        if component is not None and test.value and (usual := model.usual(test)):
            bad = int(model.verdict(test).bad)
            yield PartShare(component, f"{Layer.BUSBW} {PairClass.ONE_NODE}", test.value / usual, bad)


def _usual(model: Model, layer: Layer) -> Iterator[UsualValue]:
    shapes = (shape for shape in model.results.store.columns()[0] if shape is not None and shape.layer is layer)
    size = max((shape.asked or 0 for shape in shapes if shape.arm is None), default=0)
    for kind, value in model.medians(layer, size or None).items():
        yield UsualValue(usual_name(model, layer, kind), size, value)


def _versions(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    values = diagnosis.preflight.table.values
    for fact in VERSIONS:
        known = Counter(str(value) for value in values.get(fact, {}).values() if value is not None)
        if known:
            yield fact, one_line(", ".join(value for value, _ in known.most_common(_MOST_VALUES)), _LONGEST)


def _noted(diagnosis: Diagnosis, parts: Parts, title: Callable[[Finding], str]) -> Iterator[Noted]:
    for finding in diagnosis.all_findings[:_MOST_FINDINGS]:
        # What the history itself concluded is not new evidence for it.
        if finding.rule.domain in (Domain.HISTORY, Domain.SUMMARY):
            continue
        subject = finding.subject
        components = parts.blamed(subject.name) if subject.kind in (Kind.GPU, Kind.NIC, Kind.NODE) else []
        texts = one_line(subject.name, 255), one_line(title(finding), _LONGEST)
        for component in components or (None,):
            yield Noted(finding_key(finding)[:500], rule_of(finding), str(finding.severity), component, *texts)


def history_of(recording: Path) -> Path:
    """Return the file of the history that a recording belongs to: that of the site, or of labs."""
    start = next(read_events(recording))
    return history_file(isinstance(start, SessionStart) and bool(start.lab))


def add_recordings(paths: Sequence[Path], path: Path, title: Callable[[Finding], str]) -> Iterator[tuple[Path, str]]:
    """Yield each recording after it was added to a history, in order, with why it was not added or "".

    Of a damaged one, the part before the damage is added.

    Raises:
        InputError: The history cannot be written.
    """
    for at in range(0, len(paths), _BATCH):
        entries, problems = list[SessionEntry](), dict[Path, str]()
        for recording in paths[at : at + _BATCH]:
            try:
                entries.append(_read_entry(recording, title))
            except InputError as error:
                problems[recording] = str(error)
            except RecursionError:
                problems[recording] = f"{recording}: not read, it is nested too deeply"
        HistoryWriter(path).add(entries)
        yield from ((recording, problems.get(recording, "")) for recording in paths[at : at + _BATCH])


def _read_entry(path: Path, title: Callable[[Finding], str]) -> SessionEntry:
    model = Model()
    try:
        for event in read_events(path):
            apply_recorded(model, event, path)
    except DamagedRecording:
        # What comes before the damage is valid.
        pass
    if model.synthetic:
        raise InputError(f"{path}: its values are made up ({model.synthetic})")
    return entry_of(diagnose(model), path.name, title)
