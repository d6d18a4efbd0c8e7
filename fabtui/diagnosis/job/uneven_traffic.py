"""Ports and NVLinks of a running job that carry less than their peers, or have more errors for each gigabyte."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple
from weakref import WeakKeyDictionary

from fabtui.diagnosis.finding import Domain, Finding, Kind, Rule, Severity, Subject, register
from fabtui.diagnosis.job.job_verdict import clock
from fabtui.model.job_evidence import JobEvidenceLog
from fabtui.model.job_sample import JobSample
from fabtui.model.session_model import Model
from fabtui.nodeset import count, fold, ranges

#: Duration (s) of a window, and number of windows in a row, the latest included, that have to agree: pauses, as for a
#: checkpoint, take all ports alike.
WINDOW, WINDOWS = 60.0, 2
#: Least usual rate (bytes/s) of the peers, and their least number.
_REAL, _PEERS = 50e6, 2
#: Share of the usual rate below which one carries less, and spread of its peers around that up to which they are alike:
#: a job whose ranks send different amounts has no usual rate.
_LESS, _ALIKE = 0.7, 0.15
#: Least number of errors in a window, and how many times more for each gigabyte than at the peers.
_ERRORS, _TIMES = 50, 10.0
_GB = 1e9
#: Time (s) between two searches for the verdict about a job, and maximum number of its nodes.
_EVERY, _MOST_NODES = 15.0, 64


class _Load(NamedTuple):
    """Traffic and errors of a component in a window."""

    carried: float  #: Bytes per second, sent and received.
    errors: float  #: Errors and repeated packets.
    seconds: float

    @property
    def per_gigabyte(self) -> float:
        return self.errors * _GB / max(self.carried * self.seconds, _GB)


Loads = Mapping[str, _Load]
#: Counters of the components of a node so far: bytes, and errors.
Counts = Mapping[str, tuple[int, int]]


def ports_of(sample: JobSample) -> Counts:
    """Return the counters of the RDMA ports of a node, else of its interfaces."""
    known = [one for one in sample.nics if one.rx is not None and one.tx is not None]
    ports = [one for one in known if "/" in one.name] or known
    return {one.name: ((one.rx or 0) + (one.tx or 0), (one.errors or 0) + (one.retransmits or 0)) for one in ports}


def nvlinks_of(sample: JobSample) -> Counts:
    return {str(one.number): (one.tx + one.rx, 0) for one in sample.gpus if one.tx is not None and one.rx is not None}


def windows(samples: Sequence[JobSample], counts: Callable[[JobSample], Counts]) -> list[tuple[float, Loads]]:
    """Return the loads of a node in windows, the latest first, each with the time (epoch seconds) that it began."""
    found: list[tuple[float, Loads]] = []
    late = samples[-1] if samples else None
    for early in reversed(samples):
        if late is None or late.time - early.time < WINDOW:
            continue
        seconds, before, after = late.time - early.time, counts(early), counts(late)
        loads = {
            # A counter that began again carried an unknown amount.
            name: _Load((now[0] - was[0]) / seconds, max(0, now[1] - was[1]), seconds)
            for name, now in after.items()
            if (was := before.get(name)) is not None and now[0] >= was[0]
        }
        found.append((early.time, loads))
        late = early
    return found


def _usual(loads: Loads, name: str) -> float | None:
    """Return the usual rate of the peers of a component; None if they are few, idle or not alike."""
    peers = [load.carried for other, load in loads.items() if other != name and load.carried >= _REAL / 10]
    usual = median(peers) if len(peers) >= _PEERS else 0.0
    alike = all(abs(rate - usual) <= _ALIKE * usual for rate in peers)
    return usual if usual >= _REAL and alike else None


class Uneven(NamedTuple):
    """A component that carries less than its peers, or has more errors."""

    node: str
    name: str
    since: float  #: Begin (epoch seconds) of the first window in which it did.
    rate: float  #: What it carried in the latest window (bytes/s).
    usual: float  #: What its peers carried (bytes/s).
    errors: float  #: Errors and repeated packets for each gigabyte, 0 where these are not the reason.


def uneven(node: str, samples: Sequence[JobSample], counts: Callable[[JobSample], Counts]) -> list[Uneven]:
    """Return the components of a node that carry less than their peers, or have more errors, in windows in a row."""
    seen = windows(samples, counts)
    components = []
    for name, load in seen[0][1].items() if len(seen) >= WINDOWS else ():
        for is_odd in (_carries_less, _has_errors):
            odd = (is_odd(loads, name) for _, loads in seen)
            agreeing = sum(1 for _ in itertools.takewhile(bool, odd))
            if agreeing >= WINDOWS:
                usual = _usual(seen[0][1], name) or 0.0
                errors = load.per_gigabyte if is_odd is _has_errors else 0.0
                components.append(Uneven(node, name, seen[agreeing - 1][0], load.carried, usual, errors))
                break
    return components


def _carries_less(loads: Loads, name: str) -> bool:
    usual, load = _usual(loads, name), loads.get(name)
    return usual is not None and load is not None and load.carried / usual < _LESS


def _has_errors(loads: Loads, name: str) -> bool:
    load = loads.get(name)
    peers = [other.per_gigabyte for known, other in loads.items() if known != name]
    if load is None or load.errors < _ERRORS or len(peers) < _PEERS:
        return False
    return load.per_gigabyte > _TIMES * max(median(peers), 0.01)


class _Uneven(Rule[Model]):
    domain = Domain.RUNNING
    severity = Severity.WARN
    evidence = ("observed: {observed}", "ranks: {ranks}")

    def about(self, model: Model, kind: Kind, name: str, found: Sequence[Uneven], what: str) -> Finding:
        first = found[0]
        now = max(latest.time for one in found if (latest := model.job.latest(one.node)) is not None)
        share = f"{100 * first.rate / first.usual:.0f} % of its peers" if first.usual else ""
        errors = f"{first.errors:.3g} errors and repeated packets per GB"
        rates = f"{first.rate / _GB:.3g} GB/s, its peers {first.usual / _GB:.3g} GB/s" if first.usual else ""
        facts = {
            "component": what,
            "amount": f"had {errors}" if first.errors else f"carried {share} ({rates})",
            "since": clock(now - min(one.since for one in found)),
            "observed": f"counters of {fold([one.node for one in found])}, {WINDOW:.0f} s windows, while the job ran",
            "ranks": _ranks(model, found) or None,
        }
        weight = round(1000 * (1 - min(1.0, first.rate / first.usual))) if first.usual else 500
        return self.finding(
            name, nodes=[one.node for one in found], facts=facts, weight=weight, blames=Subject(kind, name)
        )


def _ranks(model: Model, found: Iterable[Uneven]) -> str:
    """Return the ranks whose GPUs use components, where that is known."""
    ranks = set()
    for one in found:
        device = one.name.partition("/")[0]
        ends = {str(end) for end in model.endpoints if end.node == one.node and device in (str(end.index), end.nic)}
        sample = model.job.latest(one.node)
        ranks |= {row.process.rank for row in sample.ranks if row.process.endpoint in ends} if sample else set()
    return ranges(ranks) if ranks else ""


@register
class UnevenPorts(_Uneven):
    """A port carries less of a running job's traffic than the other ports of its node, or has more errors.

    The same port of all nodes is a rail.
    """

    id = "J24"

    def check(self, context: Model) -> Iterator[Finding | None]:
        """Yield a finding for each port, and one for each rail; None between nodes."""
        log = context.job
        found: dict[str, list[Uneven]] = {}
        for node in log.nodes:
            yield None
            for one in uneven(node, log.samples(node), ports_of):
                found.setdefault(one.name, []).append(one)
        for name, those in found.items():
            if len(those) > 1 and len(those) == len(log.nodes):
                what = f"rail of {name} on {fold(log.nodes)}"
                yield self.about(context, Kind.RAIL, name, those, what)
                continue
            for one in those:
                label = f"{one.node} {name}"
                yield self.about(context, Kind.NIC, label, [one], label)


@register
class UnevenNvlinks(_Uneven):
    """The NVLinks of a GPU carry less of a running job's traffic than those of the other GPUs of its node."""

    id = "J25"

    def check(self, context: Model) -> Iterator[Finding | None]:
        """Yield a finding for each GPU; None between nodes."""
        for node in context.job.nodes:
            yield None
            for one in uneven(node, context.job.samples(node), nvlinks_of):
                name = f"{node}:{one.name}"
                yield self.about(context, Kind.GPU, name, [one], name)


_found: WeakKeyDictionary[JobEvidenceLog, tuple[float, list[Finding]]] = WeakKeyDictionary()


def uneven_text(model: Model, nodes: Sequence[str], now: float) -> str:
    """Return what carries less or has more errors on nodes, in a few words; "" if nothing does.

    It is searched for once in `_EVERY` seconds: windows are longer than that. On many nodes this would keep the screen
    waiting; there, findings alone have it, which are searched for in steps.
    """
    if len(model.job.nodes) > _MOST_NODES:
        return ""
    at, findings = _found.get(model.job, (-_EVERY, []))
    if not 0 <= now - at < _EVERY:
        every = [one for rule in (UnevenPorts(), UnevenNvlinks()) for one in rule.check(model) if one is not None]
        at, findings = _found[model.job] = now, sorted(every, key=lambda one: -one.weight)
    here = [one for one in findings if set(one.nodes) & set(nodes)]
    if not here:
        return ""
    facts = here[0].facts
    nvlink = "NVLink of " if here[0].rule.id == UnevenNvlinks.id else ""
    more = f"; {count(len(here) - 1, 'more component')} likewise" if len(here) > 1 else ""
    return f"{nvlink}{facts['component']} {facts['amount']} over the last {facts['since']}{more}"
