"""Retests of bad pairs: alone, then each end with a partner that passed, to find the end at fault."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from fabtui.model.endpoints import PairClass
from fabtui.model.events import CHECK, PATH_BLAMED
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Partners:
    """Partners of the ends of a bad pair, with which they passed, and the pairs of them to test again."""

    pair: Pair
    others: list[int | None]
    to_test: list[Pair]


async def bad_directions(
    model: Model, swept: Container[Pair], verdicts: Sequence[Verdict], layer: Layer = Layer.P2P
) -> list[Pair]:
    """Return the ordered pairs that have one of some verdicts in a layer."""
    pairs: list[Pair] = []
    for table in model.pair_tables(layer):
        # A large fabric has hundreds of thousands of pairs: others take turns.
        await asyncio.sleep(0)
        if table is not None:
            pairs = table.pairs_with(verdicts)
    return [pair for pair in pairs if pair in swept]


def unordered(pairs: Iterable[Pair]) -> list[Pair]:
    """Return pairs without their direction, the lower end first, each once."""
    return sorted({(min(pair), max(pair)) for pair in pairs})


async def bad_pairs(
    model: Model, swept: Container[Pair], verdicts: Sequence[Verdict], layer: Layer = Layer.P2P
) -> list[Pair]:
    return unordered(await bad_directions(model, swept, verdicts, layer))


def results_of(model: Model, a: int, b: int) -> list[Measurement]:
    names = str(model.endpoints[a]), str(model.endpoints[b])
    return [m for src, dst in (names, names[::-1]) if (m := model.latest(Layer.P2P, src, dst)) is not None]


def is_tested(model: Model, layer: Layer, a: int, b: int, asked: int | None = None) -> bool:
    """Return True if both directions of a pair have a good or a slow result, of a message size if one is ``asked``."""
    names = str(model.endpoints[a]), str(model.endpoints[b])
    for src, dst in (names, names[::-1]):
        last = model.latest(layer, src, dst)
        if last is None or (src, dst) in model.untested or model.verdict(last) not in (Verdict.OK, Verdict.SLOW):
            return False
        if asked is not None and last.asked_bytes != asked:
            return False
    return True


def _passes(model: Model, a: int, b: int, since: float = float("-inf")) -> bool:
    """Return True if both directions of a pair were tested after a time and are ok."""
    results = results_of(model, a, b)
    return len(results) == 2 and all(m.time > since and model.verdict(m) is Verdict.OK for m in results)


def _tested_with(model: Model, end: int) -> list[int]:
    """Return the endpoints that one was tested with: in a large fabric few of all."""
    table = model.pair_table(Layer.P2P)
    return sorted({*table.target[table.source == end].tolist(), *table.source[table.target == end].tolist()})


def partners_of(model: Model, pair: Pair, since: float | None = None, *, fatal: bool = False) -> Partners:
    """Return partners with which the ends of a bad pair passed, of the same class where there are any.

    Partners with which an end has passed ``since`` the pair's first failure (epoch seconds) come first, and are not
    tested again. None: all partners are tested again. If the pair is ``fatal``, it ends a rank host. Then it is enough
    that an end has passed with any partner since then: the effect of a transfer on its process is weak evidence about
    links.
    """
    ends = model.endpoints
    kind = model.table.relation(*pair)
    found: list[int | None] = []
    tested: list[Pair] = []
    for end, other in (pair, pair[::-1]):
        # What passes within a node, or over another NIC, is no evidence about this one.
        nic = model.table.carriers(ends[end], ends[other])[0]
        passing = [ends[n] for n in _tested_with(model, end) if n not in pair and _passes(model, end, n)]
        good = [
            e.number
            for e in passing
            if (e.node == ends[end].node) == (kind is PairClass.SAME_NODE)
            and model.table.carriers(ends[end], e)[0] is nic
        ]
        same = [n for n in good if model.table.relation(end, n) is kind] or good
        later = [n for n in same if since is not None and _passes(model, end, n, since)]
        found.append(next(iter(later or same), None))
        alive = fatal and since is not None and any(_passes(model, end, e.number, since) for e in passing)
        if same and not later and not alive:
            tested.append((min(end, same[0]), max(end, same[0])))
    return Partners(pair, found, tested)


def _good_ends(model: Model, partners: Partners) -> list[bool]:
    """Return for each end of a bad pair whether it passes with another partner."""
    ends = zip(partners.pair, partners.others, strict=True)
    return [other is not None and _passes(model, end, other) for end, other in ends]


def _is_path(model: Model, partners: Partners) -> bool:
    """Return True if no direction of a pair fails, one is slow, and both ends pass with others."""
    verdicts = {model.verdict(m) for m in results_of(model, *partners.pair)}
    return Verdict.SLOW in verdicts <= {Verdict.OK, Verdict.SLOW} and all(_good_ends(model, partners))


def conclusion(model: Model, partners: Partners, *, fatal: bool = False) -> str:
    """Return the conclusion of the tests with other partners about a bad pair; a ``fatal`` pair ends a rank host."""
    names = [str(model.endpoints[n]) for n in partners.pair]
    others = partners.others
    good = _good_ends(model, partners)
    with_whom = [f"{name} with {model.endpoints[n]}" for name, n in zip(names, others, strict=True) if n is not None]
    if all(good):
        # What ends a process is rarely a link.
        what = "only this pair ends the ranks" if fatal else f"{PATH_BLAMED} is at fault"
        return f"{what}: both ends work with other partners ({', '.join(with_whom)})"
    for at, other in ((0, 1), (1, 0)):
        if good[at]:
            who = f"{names[at]} passes with {model.endpoints[others[at] or 0]}"
            return f"{who}, {names[other]} with none{CHECK}{names[other]}"
    if not _has_others(model, partners.pair):
        return _alone(model, partners.pair)
    return f"neither end passes with any other{CHECK}both, or what they share"


def _has_others(model: Model, pair: Pair) -> bool:
    """Return True if an end of a pair could be tested with another endpoint of the same kind of place."""
    a, b = (model.endpoints[end] for end in pair)
    inside = a.node == b.node
    return any(
        end.number not in pair and end.kind != "none" and (end.node == one.node) is inside
        for one in (a, b)
        for end in model.endpoints
    )


def _alone(model: Model, pair: Pair) -> str:
    a, b = (model.endpoints[end] for end in pair)
    what = "GPU" if "gpu" in (a.kind, b.kind) else "rank"
    if a.node != b.node:
        return f"there is no other {what} to compare with: either end, or their path, is at fault"
    passing = [
        next((f"{end} with {other}" for other in model.endpoints if _passes(model, end.number, other.number)), "")
        for end in (a, b)
    ]
    work = f"; both work with other nodes ({', '.join(passing)})" if all(passing) else ""
    return f"no other {what} on {a.node} to compare with: either {what}, or the link between them, is at fault{work}"


async def retest(
    model: Model,
    pairs: list[Pair],
    since: Mapping[frozenset[int], float],
    fatal: Set[frozenset[int]],
    run: Callable[[list[Pair]], Awaitable[None]],
    flush: Callable[[], Awaitable[None]],
) -> list[tuple[str, str, str]]:
    """Test bad pairs with other partners, and return ``(src, dst, what that tells)`` of their bad directions.

    They were tested again alone. ``since`` is the time (epoch seconds) from which on a partner that passes is evidence:
    that of their first failure, or an earlier one where the failure itself leaves no doubt. ``fatal`` ones end a rank
    host. ``run`` tests pairs, one at a time; ``flush`` waits for the results in the model.
    """
    partners = [partners_of(model, pair, since.get(frozenset(pair)), fatal=frozenset(pair) in fatal) for pair in pairs]
    tests = sorted({pair for found in partners for pair in found.to_test})
    if tests:
        await run(tests)
        await flush()
    # A path is blamed for what is slow only if that is so once more, after both ends were as fast as usual.
    slow = [found.pair for found in partners if _is_path(model, found)]
    if slow:
        await run(slow)
        await flush()
    lines = []
    for found in partners:
        ends = [model.endpoints[n] for n in found.pair]
        # A lost node is the reason; earlier results of its endpoints are no evidence about the path.
        if any(model.gone(end.node) for end in ends):
            continue
        a, b = map(str, ends)
        for src, dst in ((a, b), (b, a)):
            latest = model.latest(Layer.P2P, src, dst)
            if latest is not None and model.verdict(latest).bad:
                lines.append((src, dst, conclusion(model, found, fatal=frozenset(found.pair) in fatal)))
    return lines
