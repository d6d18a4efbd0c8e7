"""Search by halves over the ranks of a session: runs the groups that `halving` asks for, and judges them."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence

from fabtui.model.endpoints import Endpoint
from fabtui.model.events import BisectGroup, BisectRound, BisectStart
from fabtui.model.measurement import Measurement, Verdict
from fabtui.nodeset import fold
from fabtui.session.measure.group_tests import CollectiveTest, Group, run_side_by_side
from fabtui.session.measure.halving import FEWEST, Culprit, Halving, Trial, Undecided
from fabtui.session.measure.measurement_context import MeasurementContext

#: Ratio of the numbers of ranks up to which two groups are compared: all of them and a half are.
_ALIKE = 2.2
#: Verdicts that show nothing about the group.
_NOTHING = (Verdict.INCONCLUSIVE, Verdict.SKIPPED)


def units_of(endpoints: Sequence[Endpoint]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each unit: of each node, or of each endpoint if there are too few nodes."""
    nodes: dict[str, tuple[int, ...]] = {}
    for end in endpoints:
        nodes[end.node] = (*nodes.get(end.node, ()), end.number)
    return nodes if len(nodes) >= FEWEST else {str(end): (end.number,) for end in endpoints}


class Bisection:
    """One search.

    Args:
        context: The session.
        test: The collective, with one message size.
        units: The ranks of each unit.
        begin: Called with the ranks of the groups of each round, before it.
        slow_below: Share of the usual value of good groups of this size below which one is slow.
        least: Value (GB/s) below which a group is slow, instead.
    """

    def __init__(
        self,
        context: MeasurementContext,
        test: CollectiveTest,
        units: Mapping[str, tuple[int, ...]],
        begin: Callable[[list[Sequence[int]]], Awaitable[None]],
        slow_below: float,
        least: float | None = None,
    ) -> None:
        self._context, self._test, self._begin = context, test, begin
        self._names, self._ranks = list(units), list(units.values())
        self._slow_below, self._least = slow_below, least
        self._halving = Halving(len(self._names))
        self._number = -1
        self._values: list[tuple[int, float]] = []  #: Number of ranks and value of all groups.

    async def run(self) -> list[Culprit]:
        """Search; return what was found, none if only all together are bad."""
        count, pump = len(self._names), self._context.pump
        (size,) = self._test.sizes
        ranks = sum(map(len, self._ranks))
        pump.emit(BisectStart(units=self._names, collective=self._test.kind, bytes=size, ranks=ranks))
        halving, outcome, problem = self._halving, "", ""
        if count < FEWEST:
            outcome, problem = "undecided", f"a search needs {FEWEST} nodes or ranks, and there are {count}"
        else:
            try:
                await self._search()
            except Undecided:
                outcome, problem = "undecided", "the tests contradict each other, or had no results"
        whole = any(culprit.whole for culprit in halving.culprits)
        if not outcome:
            outcome = "whole" if whole else "more" if halving.rest_bad else "found" if halving.culprits else "nothing"
        self._number += 1
        self._emit([], outcome, problem)
        await pump.flush()
        return [culprit for culprit in halving.culprits if not culprit.whole]

    async def _search(self) -> None:
        every = tuple(range(len(self._names)))
        halving = self._halving
        halving.purpose = "compare"
        await self._round([Trial(every[: len(every) // 2], ()), Trial(every[len(every) // 2 :], ())])
        steps = halving.search()
        trials = next(steps)
        while True:
            outcomes = await self._round(trials)
            try:
                trials = steps.send(outcomes)
            except StopIteration:
                return

    async def _round(self, trials: Sequence[Trial]) -> list[bool | None]:
        """Test groups side by side, and return whether each is bad."""
        self._number += 1
        self._emit([BisectGroup(trial.suspects, trial.fill) for trial in trials])
        tests = {}
        for at, trial in enumerate(trials):
            ranks = tuple(rank for unit in sorted(trial.units) for rank in self._ranks[unit])
            tests[Group("bisect", str(at), ranks)] = self._test
        results = [rows[0] for rows in await run_side_by_side(self._context, tests, self._begin)]
        for group, row in zip(tests, results, strict=True):
            if row.verdict is Verdict.OK and row.value is not None:
                self._values.append((len(group.ranks), row.value))
        # All results first: one of them may be what the others are compared with.
        verdicts = [self._verdict(len(group.ranks), row) for group, row in zip(tests, results, strict=True)]
        self._emit(
            [
                BisectGroup(trial.suspects, trial.fill, verdict.value, row.value)
                for trial, verdict, row in zip(trials, verdicts, results, strict=True)
            ]
        )
        for trial, verdict, row in zip(trials, verdicts, results, strict=True):
            value = "" if row.value is None else f", {row.value:.3g} {row.unit}"
            why = f": {row.error}" if row.error else ""
            names = fold([self._names[unit] for unit in sorted(trial.units)])
            self._context.pump.log("info", f"search, round {self._number}: {names} {verdict}{value}{why}")
        # Results of a time in which this process stood still show nothing.
        void = self._context.void()
        return [None if void or verdict in _NOTHING else verdict.bad for verdict in verdicts]

    def _verdict(self, ranks: int, row: Measurement) -> Verdict:
        if row.verdict is not Verdict.OK or row.value is None:
            return row.verdict
        alike = [value for count, value in self._values if max(count, ranks) <= _ALIKE * min(count, ranks)]
        # A single value may be high by chance.
        usual = statistics.median(value for value in alike if value >= max(alike) / 2)
        least = self._slow_below * usual if self._least is None else self._least
        return Verdict.SLOW if row.value < least else Verdict.OK

    def _emit(self, groups: list[BisectGroup], outcome: str = "", problem: str = "") -> None:
        halving = self._halving
        self._context.pump.emit(
            BisectRound(
                number=self._number,
                purpose=halving.purpose,
                groups=groups,
                left=sorted(halving.left),
                cleared=sorted(halving.cleared),
                culprits=[culprit.units for culprit in halving.culprits],
                outcome=outcome,
                problem=problem,
            )
        )
