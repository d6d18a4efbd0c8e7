"""Collectives over groups of ranks: all ranks, each node, each rail, each pair of nodes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from fabtui.model.endpoints import Endpoint
from fabtui.model.layers import COLLECTIVES, busbw_factor
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.sanitize import one_line
from fabtui.session.measure.measurement_context import MeasurementContext
from fabtui.session.measure.p2p_result import number
from fabtui.session.ranks.gather import Gathering, GroupRequest, failure
from fabtui_node.protocol import ErrorKind

#: Largest number of nodes of which every pair is a group: 2,016 groups. Above, a node has up to three partners.
EVERY_NODE_PAIR = 64


class Group(NamedTuple):
    """Ranks of one collective, and its name in the snapshot: ``all``, a node, a rail, two nodes, or ``first8``."""

    src: str
    dst: str
    ranks: tuple[int, ...]


class CollectiveTest(NamedTuple):
    """Parameters of a group test: which collective, message sizes (bytes), iterations, deadline of each phase (s)."""

    kind: str
    sizes: tuple[int, ...]
    iters: int
    warmup: int
    deadline: float


def groups_of(endpoints: Sequence[Endpoint], nodes: Sequence[str]) -> list[Group]:
    """Return the groups to test: nodes, rails, pairs of nodes, then all; each of two or more ranks.

    A rail of two ranks is left out: it is a pair, which has its own test.
    """
    ranks = {node: tuple(e.number for e in endpoints if e.node == node) for node in nodes}
    ranks = {node: mine for node, mine in ranks.items() if mine}
    groups = [Group(node, node, mine) for node, mine in ranks.items() if len(mine) > 1]
    rails: dict[int, list[int]] = {}
    for endpoint in endpoints:
        rails.setdefault(endpoint.index if endpoint.rail is None else endpoint.rail, []).append(endpoint.number)
    if len(rails) > 1:
        groups += [Group(f"rail{r}", f"rail{r}", tuple(mine)) for r, mine in sorted(rails.items()) if len(mine) > 2]
    groups += [Group(a, b, ranks[a] + ranks[b]) for a, b in _node_pairs([*ranks])]
    everything = tuple(itertools.chain.from_iterable(ranks.values()))
    # One node, or one pair of nodes, is all.
    if len(ranks) > 2:
        groups.append(Group("all", "all", everything))
    return groups


def _node_pairs(nodes: Sequence[str]) -> list[tuple[str, str]]:
    """Return every pair of nodes; of many nodes, each with the next and with those half the list away."""
    if len(nodes) <= EVERY_NODE_PAIR:
        return list(itertools.combinations(nodes, 2))
    count = len(nodes)
    pairs = {(min(at, to), max(at, to)) for at in range(count) for to in ((at + 1) % count, (at + count // 2) % count)}
    return [(nodes[a], nodes[b]) for a, b in sorted(pairs)]


def first_groups(endpoints: Sequence[Endpoint], nodes: Sequence[str], counts: Sequence[int]) -> list[Group]:
    """Return a group of the first ranks for each number of them, node after node; without numbers beyond all."""
    places = {node: at for at, node in enumerate(nodes)}
    ranks = [e.number for e in sorted(endpoints, key=lambda e: (places[e.node], e.index))]
    return [Group(f"first{count}", f"first{count}", tuple(ranks[:count])) for count in counts if count <= len(ranks)]


def is_measured(model: Model, group: Group, kinds: Sequence[str], sizes: Sequence[int]) -> bool:
    """Return True if collectives over a group, with as many ranks, have good results of all sizes."""
    for kind in kinds:
        found = model.history(COLLECTIVES[kind], group.src, group.dst)
        good = [
            one for one in found if one.verdict is Verdict.OK and (one.extra or {}).get("ranks") == len(group.ranks)
        ]
        if not {one.bytes for one in good}.issuperset(sizes):
            return False
    return True


async def run_collective(
    context: MeasurementContext,
    test: CollectiveTest,
    groups: Sequence[Group],
    begin: Callable[[list[Sequence[int]]], Awaitable[None]],
) -> None:
    """Test a collective over each group, the largest last, in waves of groups that share no rank; report each wave.

    ``begin`` is called with the ranks of the groups of each wave, before it.
    """
    message = {"op": "collective", **test._asdict()}
    seconds = (1 + len(test.sizes)) * test.deadline
    left = list(groups)
    while left:
        wave: dict[Group, GroupRequest] = {}
        used: set[int] = set()
        for group in left:
            if used.isdisjoint(group.ranks):
                wave[group] = GroupRequest(group.ranks, {**message, "ranks": list(group.ranks)}, seconds)
                used |= set(group.ranks)
        left = [group for group in left if group not in wave]
        await begin([group.ranks for group in wave])
        await Gathering(context).run(list(wave.values()))
        for group, request in wave.items():
            context.report([_measurement(context, test, group, request, size) for size in test.sizes])


def _measurement(
    context: MeasurementContext, test: CollectiveTest, group: Group, request: GroupRequest, size: int
) -> Measurement:
    reports = request.last_reports("reduced", bytes=size)
    passed = [report for report in reports.values() if report is not None and report.get("ok") is True]
    times = [number(report.get("seconds")) for report in passed]
    slowest = max((value for value in times if value), default=None)
    results: dict[str, Any]
    if len(passed) == len(reports) and slowest is not None and None not in times:
        results = _success(context, test, group, size, slowest, passed)
    else:
        if len(passed) == len(reports):
            verdict, text = Verdict.INCONCLUSIVE, "a rank passed but reported no time"
            error_kind = ErrorKind.NO_REPORT
        else:
            text, timeout, error_kind = failure(request, reports, context.endpoints)
            missing = all("cannot take part" in why for why in request.gone.values()) and bool(request.gone)
            verdict = Verdict.INCONCLUSIVE if missing else Verdict.TIMEOUT if timeout else Verdict.FAILED
        how = f"{test.kind} over {len(group.ranks)} ranks"
        extra = {"ranks": len(group.ranks), "error_kind": error_kind.value}
        results = {"verdict": verdict, "how": how, "error": text, "extra": extra}
    return Measurement(
        layer=COLLECTIVES[test.kind],
        src=group.src,
        dst=group.dst,
        unit="GB/s",
        bytes=size,
        time=time.time(),
        attempts=context.attempt(test.kind, group.src, group.dst, str(size)),
        **results,
    )


def _success(
    context: MeasurementContext,
    test: CollectiveTest,
    group: Group,
    size: int,
    seconds: float,
    reports: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return the fields of a collective that all ranks passed."""
    count = len(group.ranks)
    fastest = [value for report in reports if (value := number(report.get("fastest")))]
    sent = next((value for report in reports if (value := number(report.get("sent")))), float(size))
    transport = next((report.get("transport") for report in reports if report.get("transport")), None)
    algorithm = next((report.get("algorithm") for report in reports if report.get("algorithm")), None)
    how = f"{context.host_of(group.ranks[0]).version}, {test.kind} over {count} ranks"
    extra = {
        "algbw": sent / seconds / 1e9,
        "ranks": count,
        "seconds": seconds,
        "fastest": max(fastest, default=None),
        "wrong": 0,
        "algorithm": one_line(str(algorithm), 40) if algorithm else None,
    }
    return {
        "verdict": Verdict.OK,
        "value": sent / seconds * busbw_factor(test.kind, count) / 1e9,
        "how": f"{how}, up to {test.iters} iterations, slowest rank, result verified",
        "transport": one_line(str(transport), 120) if transport else None,
        "extra": {name: value for name, value in extra.items() if value is not None},
    }
