"""Bad pairs are tested again: alone, then each end with a partner that passed, which tells whose fault it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from fabtui.fabric.endpoint import pair_class
from fabtui.fabric.measurement import Layer, Verdict
from fabtui.fabric.model import Model

Pair = tuple[int, int]
#: More suspects than this are no suspects any more: something common is broken, and testing on tells nothing new.
MAX_SUSPECTS = 64


@dataclass(frozen=True, slots=True)
class Partners:
    """For a bad pair: for each of its ends a partner with which it passed, or None."""

    pair: Pair
    of_a: int | None
    of_b: int | None

    @property
    def pairs(self) -> list[Pair]:
        """The pairs to test."""
        found = [
            (end, other) for end, other in zip(self.pair, (self.of_a, self.of_b), strict=True) if other is not None
        ]
        return [(min(pair), max(pair)) for pair in found]


def bad_pairs(
    model: Model, swept: set[frozenset[int]], verdicts: Iterable[Verdict], layer: Layer = Layer.P2P
) -> list[Pair]:
    """Return the unordered pairs of which a direction has one of some verdicts in a layer."""
    wanted = set(verdicts)
    found: set[Pair] = set()
    for measurement in model.measurements():
        if measurement.layer is layer and model.verdict(measurement) in wanted:
            a, b = model.number(measurement.src), model.number(measurement.dst)
            if a is not None and b is not None and frozenset((a, b)) in swept:
                found.add((min(a, b), max(a, b)))
    return sorted(found)


def _verdict(model: Model, a: int, b: int) -> Verdict:
    found = [model.latest(Layer.P2P, str(model.endpoints[s]), str(model.endpoints[d])) for s, d in ((a, b), (b, a))]
    verdicts = [model.verdict(m) for m in found if m is not None]
    if len(verdicts) < 2:
        return Verdict.UNTESTED
    return Verdict.OK if all(v is Verdict.OK for v in verdicts) else next(v for v in verdicts if v is not Verdict.OK)


def partners_of(model: Model, pair: Pair) -> Partners:
    """Return partners with which the ends of a bad pair passed, of the same class where there are any."""
    ends = model.endpoints
    kind = pair_class(ends[pair[0]], ends[pair[1]])
    found: list[int | None] = []
    for end in pair:
        good = [e.number for e in ends if e.number not in pair and _verdict(model, end, e.number) is Verdict.OK]
        same = [n for n in good if pair_class(ends[end], ends[n]) is kind]
        found.append(next(iter(same or good), None))
    return Partners(pair, *found)


def told(model: Model, partners: Partners) -> str:
    """Say what the tests with other partners tell about a bad pair."""
    names = [str(model.endpoints[n]) for n in partners.pair]
    others = (partners.of_a, partners.of_b)
    good = [
        n is not None and _verdict(model, end, n) is Verdict.OK for end, n in zip(partners.pair, others, strict=True)
    ]
    with_whom = [f"{name} with {model.endpoints[n]}" for name, n in zip(names, others, strict=True) if n is not None]
    if all(good):
        return f"both ends pass with others ({', '.join(with_whom)}): it is the path between them"
    if good[0]:
        return f"{names[0]} passes with {model.endpoints[others[0] or 0]}, {names[1]} with none: look at {names[1]}"
    if good[1]:
        return f"{names[1]} passes with {model.endpoints[others[1] or 0]}, {names[0]} with none: look at {names[0]}"
    return "neither end passes with any other: look at both, or at what they share"


async def retest(
    model: Model,
    pairs: list[Pair],
    run: Callable[[list[Pair]], Awaitable[None]],
    flush: Callable[[], Awaitable[None]],
) -> list[tuple[str, str, str]]:
    """Test bad pairs with other partners, and return ``(src, dst, what that tells)`` of their bad directions.

    Args:
        model: What is known.
        pairs: The bad pairs; they were tested again alone.
        run: Tests pairs, one at a time.
        flush: Waits until all results are in the model.
    """
    partners = [partners_of(model, pair) for pair in pairs]
    tests = sorted({pair for found in partners for pair in found.pairs})
    if tests:
        await run(tests)
        await flush()
    lines = []
    for found in partners:
        a, b = (str(model.endpoints[n]) for n in found.pair)
        for src, dst in ((a, b), (b, a)):
            latest = model.latest(Layer.P2P, src, dst)
            if latest is not None and model.verdict(latest).bad:
                lines.append((src, dst, told(model, found)))
    return lines
