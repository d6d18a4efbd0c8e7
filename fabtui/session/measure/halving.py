"""Search by halves for what makes a group of many bad, though no pair of it is: units, two that are bad only together.

Halves are tested side by side. A half is filled up with cleared units: the number of units stays the same. The fill-ins
change sides when a test is repeated. Single tests may be wrong: each step is repeated until one
explanation is likely enough, by Bayes' theorem over the parts that are tested. What turns out to be good after all
leads back to where it was suspected first.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

#: Maximum number of culprits that are searched.
MOST_CULPRITS = 3
#: Fewest units that can be halved: a group has two at least.
FEWEST = 4
#: Probability that a single test is wrong.
NOISE = 0.05
#: Probability of an explanation that ends the repetitions of a step, of one with a part of each half, and of a culprit.
_SURE, _SURER, _CERTAIN = 0.98, 0.995, 0.999
#: Probability from which a fill-in is searched, where no part is bad.
_PROBABLE = 0.8
#: Prior probabilities: one of two halves is bad, both are, neither is; and a cleared group is not good.
_ONE_HALF, _BOTH, _NEITHER, _SPOILED = 0.44, 0.09, 0.03, 0.01
#: The same for a part that is bad only with one of the fill-ins.
_WITH_FILL = 0.001
#: The same for fill-ins, if no part is bad.
_ASTRAY = 0.15
#: The same for groups that have a part of either half: one is bad, two of them are; and for a unit at the end.
_CROSSING, _TWO, _SINGLE = 0.8, 0.02, 0.9
#: Number of rounds after which a step is begun again with other fill-ins.
_PATIENCE = 12
#: Difference of bad and good tests by which the whole, or a part of it, is known.
_MARGIN = 2

Units = tuple[int, ...]


class Trial(NamedTuple):
    """A group to test: its suspects, and cleared units that fill it up."""

    suspects: Units
    fill: Units

    @property
    def units(self) -> Units:
        return self.suspects + self.fill


class Culprit(NamedTuple):
    """Units that make a group bad; several that are bad only together. ``whole``: only the number of all does."""

    units: Units
    whole: bool = False


class _Decision(NamedTuple):
    """Outcome of the tests of some parts."""

    bad: int | None  #: Number of a bad part, or None.
    good: tuple[int, ...] = ()
    fill: Units = ()  #: Fill-ins without which that part is good; with None, those that are bad instead of any part.


class Undecided(Exception):
    """The tests contradict each other, or have no results."""


#: Whether each group of a round is bad; None without a result.
Outcomes = Sequence[bool | None]


class Halving:
    """Search among ``count`` units.

    `search` yields the groups of each round, which are disjoint, and is sent their outcomes. ``seed`` chooses fill-ins.
    """

    def __init__(self, count: int, seed: int = 0) -> None:
        self.purpose = ""  #: What the round is for: ``all``, ``halves``, ``crossing``, ``check`` or ``rest``.
        self.left: frozenset[int] = frozenset(range(count))  #: Units that may be culprits.
        self.cleared: frozenset[int] = frozenset()
        self.culprits: list[Culprit] = []
        self.rest_bad = False  #: Whether the others are bad without the culprits.
        self.rounds = 0
        self._rest: Units = tuple(range(count))
        self._random = random.Random(seed)
        self._most_rounds = 20 * max(2, math.ceil(math.log2(count))) + 40
        self._size = max(2, count // 2)

    def search(self) -> Generator[list[Trial], Outcomes, None]:
        """Search all culprits.

        Raises:
            Undecided: There is no answer after many rounds.
        """
        while True:
            out = {unit for culprit in self.culprits for unit in culprit.units}
            self._rest = rest = tuple(unit for unit in self._rest if unit not in out)
            self.left, self.cleared, self._size = frozenset(rest), frozenset(), max(2, len(rest) // 2)
            self.purpose = "rest" if self.culprits else "all"
            # The halves show at once if it is not so.
            enough = _MARGIN if self.culprits else 1
            if len(rest) < 2 or not (yield from self._is_bad(rest, enough)):
                self.left, self.cleared = frozenset(), frozenset(rest)
                return
            if len(self.culprits) == MOST_CULPRITS:
                self.rest_bad = True
                return
            if len(rest) < FEWEST:
                self.culprits.append(Culprit(rest))
                return
            culprit = yield from self._narrow(rest)
            if culprit is not None:
                self.culprits.append(culprit)
                if culprit.whole:
                    self.left = frozenset()
                    return

    def _run(self, trials: list[Trial]) -> Generator[list[Trial], Outcomes, Outcomes]:
        self.rounds += 1
        if self.rounds > self._most_rounds or not trials:
            raise Undecided
        return (yield trials)

    def _is_bad(self, units: Units, enough: int = _MARGIN) -> Generator[list[Trial], Outcomes, bool]:
        """Test a group until good results prevail, or ``enough`` bad ones."""
        margin = 0
        while -_MARGIN < margin < enough:
            (bad,) = yield from self._run([Trial(units, ())])
            margin += 0 if bad is None else 1 if bad else -1
        return margin > 0

    def _fill(self, taken: int, share: float) -> list[Units]:
        """Return fill-ins for two groups with ``taken`` suspects, or a share of them, chosen at random."""
        each = min(max(0, self._size - taken), len(self.cleared) // 2)
        each = math.ceil(each * share)
        units = self._random.sample(sorted(self.cleared), 2 * each)
        return [tuple(sorted(units[:each])), tuple(sorted(units[each:]))]

    def _narrow(self, suspects: Units) -> Generator[list[Trial], Outcomes, Culprit | None]:
        """Return a culprit among the units of a bad group; None if the group is good after all."""
        self.left = frozenset(suspects)
        if len(suspects) == 1:
            return (yield from self._checked(suspects))
        if len(suspects) < FEWEST and len(self.cleared) < 2:
            # Nothing is left that could separate them.
            return Culprit(suspects)
        halves = suspects[: len(suspects) // 2], suspects[len(suspects) // 2 :]
        # The fewer are left, the less likely are two among them.
        both = _BOTH * len(suspects) / len(self._rest) + _NEITHER / 10
        prior = {0b01: _ONE_HALF, 0b10: _ONE_HALF, 0b11: both, 0: _NEITHER}
        while True:
            self.purpose, self.left = "halves", frozenset(suspects)
            at, good, fill = yield from self._decide(halves, prior, [(0, 1)])
            if at is None and fill:
                return (yield from self._narrow(fill))
            before = self.cleared
            self.cleared |= frozenset(unit for other in good for unit in halves[other])
            if at is not None:
                culprit = yield from self._crossed(halves[at], fill) if fill else self._narrow(halves[at])
                if culprit is not None:
                    return culprit
            # Neither half is bad: one was suspected wrongly, or both are bad only together.
            self.purpose, self.left, self.cleared = "check", frozenset(suspects), before & self.cleared
            whole, _, fill = yield from self._decide([suspects], {1: 0.5, 0: 0.5}, [(0, -1)])
            if fill:
                return (yield from self._narrow(fill) if whole is None else self._crossed(suspects, fill))
            if whole is None:
                return None
            if at is None:
                return (yield from self._crossed(*halves))

    def _crossed(self, a: Units, b: Units) -> Generator[list[Trial], Outcomes, Culprit | None]:
        """Return the culprit of a group that is bad though its two parts are good; None if it is not found again."""
        self.left = frozenset(a + b)
        if len(a) == len(b) == 1:
            # One of them may be bad alone.
            prior = {0: _SINGLE, 0b01: (1 - _SINGLE) / 2, 0b10: (1 - _SINGLE) / 2}
            at, _, fill = yield from self._decide([a, b], prior, [(0, 1)], _SURER)
            return (yield from self._checked((a, b)[at] if at is not None and not fill else a + b))
        parts = [[half for half in (part[: len(part) // 2], part[len(part) // 2 :]) if half] for part in (a, b)]
        pairs = list(itertools.product(*parts))
        # Groups that share no unit are tested side by side.
        rounds = [(0, 3), (1, 2)] if len(pairs) == 4 else [(at,) for at in range(len(pairs))]
        prior = {0: _NEITHER, **{1 << at: _CROSSING / len(pairs) for at in range(len(pairs))}}
        prior |= {1 << i | 1 << j: _TWO for i, j in itertools.combinations(range(len(pairs)), 2)}
        while True:
            self.purpose = "crossing"
            at, _, fill = yield from self._decide([x + y for x, y in pairs], prior, rounds, _SURER)
            if at is None and fill:
                return (yield from self._narrow(fill))
            if at is None:
                return Culprit(tuple(sorted(a + b)), whole=True) if len(a + b) == len(self._rest) else None
            x, y = (sum(pairs[at], ()), fill) if fill else pairs[at]
            before = self.cleared
            self.cleared |= frozenset(a + b) - frozenset(x + y)
            culprit = yield from self._crossed(x, y)
            if culprit is not None:
                return culprit
            self.cleared, self.left = before & self.cleared, frozenset(a + b)

    def _checked(self, units: Units) -> Generator[list[Trial], Outcomes, Culprit | None]:
        """Return the units as a culprit if they make groups bad that are good without them."""
        self.purpose = "check"
        at, _, fill = yield from self._decide([units], {1: _SINGLE, 0: 1 - _SINGLE}, [(0, -1)], _CERTAIN)
        if fill:
            return (yield from self._narrow(fill) if at is None else self._crossed(units, fill))
        return None if at is None else Culprit(tuple(sorted(units)))

    def _decide(
        self,
        parts: Sequence[Units],
        prior: Mapping[int, float],
        rounds: Sequence[Sequence[int]],
        sure: float = _SURE,
        share: float = 1.0,
    ) -> Generator[list[Trial], Outcomes, _Decision]:
        """Test parts until one is known to be bad, or that none is.

        Args:
            parts: Units of each part.
            prior: Probability of each set of bad parts, as bits.
            rounds: The parts that are tested side by side, in turns; -1 for fill-ins alone.
            sure: Probability that is enough.
            share: Share of the fill-ins that are taken.
        """
        count = len(parts)
        # With -1, a group of fill-ins alone is as large as the others.
        fills = self._fill(min(map(len, parts)) if -1 not in rounds[0] else 0, share)
        sides = [at for at in (0, 1) if fills[at]]
        #: Explanations: sets of parts and fill-ins, as bits; a group that has all of a set is bad.
        weights: dict[tuple[int, ...], float] = {}
        for mask, weight in prior.items():
            bad = [1 << at for at in range(count) if mask >> at & 1]
            for spoiled in itertools.chain.from_iterable(itertools.combinations(sides, n) for n in range(3)):
                # What is good was suspected because of a fill-in: then one of them is bad.
                share_of = _ASTRAY if not bad and len(spoiled) == 1 else _SPOILED ** len(spoiled)
                weights[*bad, *(1 << count + at for at in spoiled)] = weight * share_of
        together = [(at, side, (1 << at | 1 << count + side,)) for at in range(count) for side in sides]
        weights |= {bad: _WITH_FILL for _, _, bad in together}
        for turn in range(_PATIENCE):
            for mask, was_bad in (yield from self._turn(parts, fills, rounds[turn % len(rounds)], turn // len(rounds))):
                for bad_sets in weights:
                    expected = any(one & mask == one for one in bad_sets)
                    weights[bad_sets] *= 1 - NOISE if expected is was_bad else NOISE
            total = sum(weights.values())
            shares = [sum(w for sets, w in weights.items() if 1 << at in sets) / total for at in range(count + 2)]
            none = sum(w for sets, w in weights.items() if not any(one & (1 << count) - 1 for one in sets)) / total
            worst = max(range(count), key=shares.__getitem__)
            if shares[worst] >= sure:
                return _Decision(worst, tuple(at for at in range(count) if shares[at] < 1 - _SURE))
            for at, side, bad_sets in together:
                if weights[bad_sets] / total >= sure:
                    self.cleared -= frozenset(fills[side])
                    return _Decision(at, (), fills[side])
            for side in sides:
                if none >= sure and shares[count + side] > _PROBABLE:
                    self.cleared -= frozenset(fills[side])
                    return _Decision(None, (), fills[side])
            if none >= sure:
                return _Decision(None)
        # No explanation is likely: other fill-ins, and fewer of them.
        return (yield from self._decide(parts, prior, rounds, sure, share / 2))

    def _turn(
        self, parts: Sequence[Units], fills: Sequence[Units], numbers: Sequence[int], swaps: int
    ) -> Generator[list[Trial], Outcomes, list[tuple[int, bool]]]:
        """Test parts side by side; return for each result the parts and fill-ins of its group as bits."""
        trials, masks = [], []
        for place, at in enumerate(numbers):
            side = (place + swaps) % 2
            suspects = parts[at] if at >= 0 else ()
            fill = fills[side][: max(0, self._size - len(suspects))]
            if len(suspects) + len(fill) > 1:
                trials.append(Trial(suspects, fill))
                masks.append((1 << at if at >= 0 else 0) | (1 << len(parts) + side if fill else 0))
        outcomes = yield from self._run(trials)
        return [(mask, bad) for mask, bad in zip(masks, outcomes, strict=True) if bad is not None]
