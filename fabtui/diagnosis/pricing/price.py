"""The price of a finding on bandwidth: what a collective gains without its node, or once its links are as usual."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fabtui.diagnosis.finding import Finding, Severity, Steps, in_steps
from fabtui.diagnosis.pricing.cost_model import Calibration, CostModel
from fabtui.diagnosis.pricing.fabric_rates import FabricRates, fabric_rates
from fabtui.diagnosis.running_job.judge import job_verdict
from fabtui.model.layers import COLLECTIVES, busbw_factor
from fabtui.model.session_model import Model

#: Collectives in the order in which they are asked for a price: the first that was measured.
_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
#: Maximum number of findings that get a price, the first ones.
_MOST_PRICED = 8


class Gain(NamedTuple):
    """Gain of a change."""

    busbw: float  #: Busbw that the model expects then, GB/s.
    ratio: float  #: The same over what the session measured.


class PriceFact(NamedTuple):
    """Price of a finding: its collective, what was measured, and what the cost model expects of a change."""

    collective: str  #: Name of the collective.
    bytes: int  #: Message size.
    nodes: int  #: Number of nodes that took part.
    busbw: float  #: Measured busbw over all of them, GB/s.
    node: str | None  #: The node that is left out for `without`; None if the finding is not about one.
    without: Gain | None  #: Without that node; None if unknown.
    fixed: Gain | None  #: With all slow pairs of the finding as usual; None if unknown.
    share: float | None  #: Time of one such collective as a share of an iteration of the job; None without its log.
    error: float  #: Relative error of the model.
    compared: int  #: Number of measured collectives that `error` is about; 0: the model has no other to compare.
    fits: bool  #: Whether the error is small enough; without that there are no gains.


def priced(model: Model, findings: Sequence[Finding]) -> Steps[list[Finding]]:
    """Return findings with their prices.

    The cost model is made only if there are findings, and a collective was measured.
    """
    found = list(findings)
    if not found or not model.layers & set(COLLECTIVES.values()):
        return found
    rates = yield from fabric_rates(model)
    if rates is None:
        return found
    wanted: list[tuple[int, list[tuple[int, int]]]] = []
    for at, one in enumerate(found):
        cells = yield from _slow_cells(model, rates, one)
        if cells and len(wanted) < _MOST_PRICED:
            wanted.append((at, cells))
    costs = CostModel(model, rates)
    of = (yield from _calibrated(costs)) if wanted else None
    if of is None or len(np.unique(rates.node[of.ranks])) < 2:
        return found
    verdict = job_verdict(model)
    share = iteration_share(of, verdict.per_minute if verdict is not None else None)
    for at, cells in wanted:
        yield
        one = found[at]
        fact = yield from _price(costs, of, one, cells, share)
        found[at] = one.replace(facts={**one.facts, "price": fact})
    return found


def iteration_share(of: Calibration, per_minute: float | None) -> float | None:
    """Return the time of one measured collective as a share of an iteration; None if the log shows no iterations."""
    if not per_minute:
        return None
    return of.bytes / 1e9 * busbw_factor(of.kind, len(of.ranks)) / of.busbw / (60.0 / per_minute)


def _calibrated(costs: CostModel) -> Steps[Calibration | None]:
    for kind in _KINDS:
        if (of := (yield from costs.calibrated(kind))) is not None:
            return of
    return None


def _slow_cells(model: Model, rates: FabricRates, one: Finding) -> Steps[list[tuple[int, int]]]:
    """Return the slow pairs of a finding on bandwidth, as numbers of endpoints; none of those that a lab made."""
    found: list[tuple[int, int]] = []
    if one.severity is Severity.NOTE or one.facts.get("made_by_lab"):
        return found
    number = model.table.number
    for some in in_steps(one.cells):
        for src, dst in some:
            a, b = number(src), number(dst)
            if a is not None and b is not None and rates.slow[a, b]:
                found.append((a, b))
        yield
    return found


def _price(
    costs: CostModel, of: Calibration, one: Finding, cells: list[tuple[int, int]], share: float | None
) -> Steps[PriceFact]:
    rates = costs.rates
    node, nodes = one.subject.node, len(np.unique(rates.node[of.ranks]))
    without = fixed = None
    if of.fits:
        if node is not None and nodes > 2:
            left = [number for number in of.ranks.tolist() if rates.ends[number].node != node]
            without = _gain(of, costs.busbw(of, np.array(left, dtype=np.int64)))
            yield
        # An array takes ten times as long to make of tuples.
        ends = np.fromiter(itertools.chain.from_iterable(cells), np.int64, 2 * len(cells))
        usual = rates.with_usual(ends[::2], ends[1::2])
        yield
        fixed = _gain(of, costs.busbw(of, of.ranks, usual))
        yield
    return PriceFact(of.kind, of.bytes, nodes, of.busbw, node, without, fixed, share, of.error, of.others, of.fits)


def _gain(of: Calibration, busbw: float | None) -> Gain | None:
    return None if busbw is None else Gain(busbw, busbw / of.busbw)
