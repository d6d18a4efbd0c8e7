"""Tests of groups of ranks: the world layer, and collectives over all ranks, each node, each rail, each pair of nodes.

The world layer repeats the transfers of the pair tests inside one communicator of all ranks, where NCCL may relay.
"""

from __future__ import annotations

import itertools
import json
import time
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from fabtui.model.endpoints import Endpoint
from fabtui.model.events import PairsStarted
from fabtui.model.layers import COLLECTIVES, Layer, busbw_factor
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.schedule import Pair, PairArray, each_round
from fabtui.model.session_model import Model
from fabtui.sanitize import clean, one_line
from fabtui.session.measure.measurement_context import MeasurementContext
from fabtui.session.measure.p2p_result import MAX_RAW, name_ranks, number, whole
from fabtui.session.ranks.gather import Failure, Gathering, GroupRequest, failure
from fabtui.transport.link import Message
from fabtui_node.protocol import ErrorKind

#: Deadline (s) for a communicator to form while the ranks that prevent it are searched; usually far less.
FORM_DEADLINE = 6.0
#: Maximum time (s) of a healthy transfer, with the wait for the peer; a rank runs one after the other.
TRANSFER = 0.25
#: Maximum number of transfers per event.
_PART = 1024
#: Largest number of nodes of which every pair is a group: 2,016 groups. Above, a node has up to three partners.
EVERY_NODE_PAIR = 64
#: Maximum number of rings that are taken from a node.
_MOST_RINGS = 32


class WorldTest(NamedTuple):
    """Parameters of the world layer: message size, maximum timed messages, warm-up, deadline of each phase (s)."""

    bytes: int
    iters: int
    warmup: int
    deadline: float


class WorldSweep:
    """One pass of the world layer over the ordered pairs in ``wanted``."""

    def __init__(self, context: MeasurementContext, test: WorldTest, wanted: Container[Pair]) -> None:
        self._context = context
        self._test = test
        self.wanted = wanted
        self.good: list[int] = []  #: Ranks with which the world formed.
        self._reported: dict[int, set[int]] = {}  #: Sources that each rank has reported.

    async def run(self, ranks: Sequence[int], suspects: Collection[int] = ()) -> None:
        """Test the ordered pairs of ranks that are wanted; find and report the ranks that prevent the world.

        Without ``suspects``, no two ranks have a path that is known to be dead. The library may have another path: with
        them, the world is only formed at first, which has a short deadline.
        """
        good, wanted = list(ranks), self.wanted
        request = await (self._form(good) if suspects else self._go(good, wanted))
        if not self._formed(request):
            text = self._failure(request).text
            self._context.pump.log("warning", f"the world communicator does not form: {text}")
            good, reasons = await self._formable(list(ranks), suspects, request)
            out = set(ranks) - set(good)
            form = "the world communicator does not form with"
            why = {rank: f"{form} {self._name(rank)}: {reasons.get(rank, text)}" for rank in out}
            self._report_without(ranks, out, wanted, Verdict.FAILED, why.__getitem__)
            if len(good) < 2:
                return
            names = ", ".join(self._name(rank) for rank in sorted(out))
            without = f"without {names}" if out else "of all when tried again"
            self._context.pump.log("info", f"the world communicator forms {without}")
            request = await self._go(good, wanted)
        elif suspects:
            request = await self._go(good, wanted)
        self.good = good
        await self._report(request, good, wanted)

    def leave_out(self, ranks: Sequence[int], out: set[int], why: str) -> None:
        text = f"left out of the world communicator: {why}"
        self._report_without(ranks, out, self.wanted, Verdict.SKIPPED, lambda rank: text)

    async def again(self, wanted: Container[Pair]) -> None:
        """Test pairs of a formed world again; pairs that are not reached keep their earlier results."""
        if len(self.good) < 2:
            return
        request = await self._go(self.good, wanted)
        if not self._formed(request):
            text = self._failure(request).text
            self._context.pump.log("warning", f"the world communicator does not form again: {text}")
        await self._report(request, self.good, wanted, tested_only=True)

    async def _go(self, ranks: Sequence[int], wanted: Container[Pair]) -> GroupRequest:
        pairs = PairArray(
            (ranks[i], ranks[j])
            for round_ in each_round(len(ranks))
            for turned in (round_, [(j, i) for i, j in round_])
            for i, j in turned
            if (ranks[i], ranks[j]) in wanted
        )
        for at in range(0, len(pairs), _PART):
            if at:
                await self._context.pump.flush()
            part = [(self._name(s), self._name(d)) for s, d in pairs[at : at + _PART]]
            self._context.pump.emit(PairsStarted(pairs=part))
        self._reported = {}
        return await self._form(ranks, pairs)

    def _take_rows(self, ranks: frozenset[int], rank: int, report: Message) -> bool:
        if report.get("op") != "rows":
            return False
        self._context.report(self._new(rank, report.get("rows"), ranks, report))
        return True

    def _new(self, rank: int, rows: Any, ranks: Set[int], report: Message) -> list[Measurement]:
        known = self._reported.setdefault(rank, set())
        left, measurements = set(ranks - known), []
        for row in rows if isinstance(rows, list) else ():
            if (made := self._row(row, rank, left, report)) is not None:
                left.discard(made[0])
                known.add(made[0])
                measurements.append(made[1])
        return measurements

    async def _form(self, ranks: Sequence[int], pairs: PairArray | None = None) -> GroupRequest:
        request = self._request(ranks, pairs or PairArray())
        await Gathering(self._context).run([request])
        return request

    def _request(self, ranks: Sequence[int], pairs: PairArray) -> GroupRequest:
        """Return the request of ordered pairs, disjoint ones together; without pairs the world is only formed."""
        most = max(Counter(itertools.chain.from_iterable(pairs)).values(), default=0)
        deadline = max(self._test.deadline, most * TRANSFER) if pairs else min(FORM_DEADLINE, self._test.deadline)
        message = {"op": "world", "ranks": list(ranks), "rounds": [], **self._test._asdict(), "deadline": deadline}
        message["turn"] = TRANSFER
        # A node gets only its own transfers: all transfers of a large fabric exceed a message.
        own = {self._context.endpoints[rank].node: PairArray() for rank in ranks}
        for pair in pairs:
            for node in {self._context.endpoints[rank].node for rank in pair}:
                own[node].append(*pair)

        def rounds(node: str) -> dict[str, Any]:
            # No rounds would mean a world that is only formed; a transfer of other ranks is ignored by these.
            return {"rounds": [[list(pair)] for pair in own[node] or pairs[:1]]}

        take = partial(self._take_rows, frozenset(ranks))
        return GroupRequest(tuple(ranks), message, 2 * deadline, rounds, take, _with_rows_packed)

    def _formed(self, request: GroupRequest) -> bool:
        """Return True if the communicator formed, even if a later phase failed."""
        reports = request.last_reports("worlded").values()
        return all(report is not None and report.get("phase") != "connect" for report in reports)

    def _failure(self, request: GroupRequest) -> Failure:
        return failure(request, request.last_reports("worlded"), self._context.endpoints)

    async def _formable(
        self, ranks: list[int], suspects: Collection[int], failed: GroupRequest
    ) -> tuple[list[int], dict[int, str]]:
        """Return a large set of ranks that form a communicator, and the reasons to exclude the others.

        The first parts are halves, or the ``suspects`` and the rest. ``failed`` is the request of all ranks.
        """
        parts: list[list[int]] = [ranks]
        good: list[list[int]] = []
        reasons: dict[int, str] = {}
        first = [[rank for rank in ranks if rank not in suspects], sorted(suspects)] if suspects else []
        while parts:
            halves = [half for part in parts for half in (part[: len(part) // 2], part[len(part) // 2 :]) if half]
            halves, first = first or halves, []
            requests = [self._request(half, PairArray()) for half in halves]
            # Ranks of different halves form their communicators at once, so a level costs one deadline in all.
            await Gathering(self._context).run(requests)
            parts = []
            for half, request in zip(halves, requests, strict=True):
                if self._formed(request):
                    good.append(half)
                elif len(half) > 1:
                    parts.append(half)
                else:
                    reasons[half[0]] = self._failure(request)[0]
        return await self._joined(good, reasons, failed if suspects else None)

    async def _joined(
        self, good: list[list[int]], reasons: dict[int, str], failed: GroupRequest | None
    ) -> tuple[list[int], dict[int, str]]:
        """Combine parts that form by themselves, the largest first; parts that prevent the whole are excluded.

        What did not form in the last request, which may be ``failed``, is not formed again: that costs a deadline.
        """
        good.sort(key=len, reverse=True)
        whole = sorted(itertools.chain.from_iterable(good))
        if len(good) < 2:
            return whole, reasons
        request = failed if failed is not None and set(failed.ranks) == set(whole) else await self._form(whole)
        if not self._formed(request):
            whole = list(good[0])
            for part in good[1:]:
                joined = sorted(whole + part)
                if set(request.ranks) != set(joined):
                    request = await self._form(joined)
                if self._formed(request):
                    whole = joined
                else:
                    reasons.update(dict.fromkeys(part, self._failure(request)[0]))
        return whole, reasons

    def _name(self, rank: int) -> str:
        return str(self._context.endpoints[rank])

    def _report_without(
        self,
        ranks: Sequence[int],
        out: set[int],
        wanted: Container[Pair],
        verdict: Verdict,
        why: Callable[[int], str],
    ) -> None:
        pairs = (pair for pair in itertools.permutations(ranks, 2) if pair in wanted and not out.isdisjoint(pair))
        self._context.report(
            [self._measurement(src, dst, verdict, error=why(src if src in out else dst)) for src, dst in pairs]
        )

    def _measurement(
        self, src: int, dst: int, verdict: Verdict, *, channels: float | None = None, **more: Any
    ) -> Measurement:
        where = "within the communicator of all ranks" + (f", of {channels:.0f} channels at most" if channels else "")
        names = self._name(src), self._name(dst)
        ends = self._context.endpoints[src], self._context.endpoints[dst]
        return Measurement(
            layer=Layer.WORLD,
            src=names[0],
            dst=names[1],
            verdict=verdict,
            unit="GB/s",
            time=time.time(),
            how=f"{self._context.host_of(dst).version}, {where}, one way, data verified",
            src_addr=ends[0].address,
            dst_addr=ends[1].address,
            attempts=self._context.attempt("world", *names),
            **more,
        )

    def _log_times(self, reports: dict[int, Message | None]) -> None:
        """Log the time of the slowest rank for each phase: a communicator that forms slowly is a symptom."""
        times = [part for report in reports.values() if report and isinstance(part := report.get("seconds"), dict)]
        parts = []
        for name, word in (("init", "init"), ("connect", "connections"), ("rounds", "transfers")):
            if found := [value for part in times if (value := number(part.get(name))) is not None]:
                parts.append(f"{word} {max(found):.2f} s")
        if parts:
            self._context.pump.log("info", f"world communicator of {len(reports)} ranks: {', '.join(parts)}")

    async def _report(
        self, request: GroupRequest, ranks: Sequence[int], wanted: Container[Pair], *, tested_only: bool = False
    ) -> None:
        """Report all transfers, in parts, to bound the memory on large fabrics."""
        reports = request.last_reports("worlded")
        self._log_times(reports)
        known = set(ranks)
        part: list[Measurement] = []
        for rank, report in reports.items():
            part = await self._report_part(part, self._new(rank, _rows_of(report), known, report or {}))
        missing = (
            (src, dst)
            for src, dst in itertools.permutations(ranks, 2)
            if src not in self._reported[dst] and (src, dst) in wanted
        )
        failed = self._missing(request, reports, missing)
        part = await self._report_part(
            part, (m for m in failed if not tested_only or m.verdict is not Verdict.INCONCLUSIVE)
        )
        if part:
            self._context.report(part)

    async def _report_part(self, part: list[Measurement], more: Iterable[Measurement]) -> list[Measurement]:
        for one in more:
            part.append(one)
            if len(part) >= _PART:
                self._context.report(part)
                await self._context.pump.flush()
                part = []
        return part

    def _row(self, row: Any, rank: int, ranks: Set[int], report: Message) -> tuple[int, Measurement] | None:
        """Return source and measurement of ``[src, dst, bytes, rate, ok, error, transport, kind]``; None if none."""
        if not isinstance(row, list) or len(row) < 7 or not isinstance(row[0], int):
            return None
        if row[1] != rank or row[0] not in ranks or row[0] == rank:
            return None
        src, size, rate, transport = row[0], number(row[2]), number(row[3]), row[6]
        more: dict[str, Any] = {
            "channels": number(report.get("channels")),
            "bytes": int(size) if size is not None else None,
            "extra": {"asked_bytes": self._test.bytes} if size and size < self._test.bytes else None,
            "transport": one_line(str(transport), 120) if transport else None,
        }
        if row[4] is True and rate:
            return src, self._measurement(src, rank, Verdict.OK, value=rate / 1e9, **more)
        error = name_ranks(one_line(str(row[5] or "failed without a reason"), 500), self._context.endpoints)
        raw = clean(str(report["raw"]), MAX_RAW) if report.get("raw") else None
        wrong = len(row) > 7 and row[7] == ErrorKind.VERIFY.value
        verdict = Verdict.WRONG if wrong else Verdict.FAILED
        return src, self._measurement(src, rank, verdict, error=error, raw=raw, **more)

    def _missing(
        self, request: GroupRequest, reports: dict[int, Message | None], missing: Iterable[Pair]
    ) -> Iterator[Measurement]:
        """Yield the transfers without a report: those in which both ranks were stuck, and those never begun.

        One that began when little time was left shows nothing.
        """
        stuck = {rank: report.get("at") for rank, report in reports.items() if report}
        short = {rank for rank, report in reports.items() if report and report.get("short") is True}
        text, timeout, kind = self._failure(request)
        for src, dst in missing:
            if stuck.get(src) == [src, dst] and stuck.get(dst) == [src, dst]:
                verdict, why = (Verdict.TIMEOUT if timeout else Verdict.FAILED), text
                if timeout and short.intersection((src, dst)):
                    verdict, why = Verdict.INCONCLUSIVE, f"the transfers before it left it too little time: {text}"
            else:
                verdict, why = Verdict.INCONCLUSIVE, f"the world communicator broke before it: {text}"
            yield self._measurement(src, dst, verdict, error=why, extra={"error_kind": kind.value})


def _with_rows_packed(report: Message) -> Message:
    """Return a report with compressed rows: all ranks report at about the same time."""
    if not isinstance(rows := report.get("rows"), list):
        return report
    return {**report, "rows": zlib.compress(json.dumps(rows).encode(), 1)}


def _rows_of(report: Message | None) -> list[Any]:
    rows = (report or {}).get("rows")
    if not isinstance(rows, bytes):
        return []
    found: list[Any] = json.loads(zlib.decompress(rows))
    return found


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
        results = model.history(COLLECTIVES[kind], group.src, group.dst)
        good = [
            one for one in results if one.verdict is Verdict.OK and (one.extra or {}).get("ranks") == len(group.ranks)
        ]
        if not {one.asked_bytes for one in good}.issuperset(sizes):
            return False
    return True


async def run_collective(
    context: MeasurementContext,
    test: CollectiveTest,
    groups: Sequence[Group],
    begin: Callable[[list[Sequence[int]]], Awaitable[None]],
    hopeless: Mapping[Group, str] = MappingProxyType({}),
    brief: tuple[Container[Group], float] = ((), 0.0),
) -> None:
    """Test a collective over each group, the largest last, in waves of groups that share no rank; report each wave.

    ``begin`` is called with the ranks of the groups of each wave, before it. Groups in ``hopeless`` are reported as
    skipped for their reason; those in ``brief`` have the deadline beside it.
    """
    for group, why in hopeless.items():
        skipped: dict[str, Any] = {"verdict": Verdict.SKIPPED, "error": why, "extra": {"ranks": len(group.ranks)}}
        context.report([_row_of(context, test, group, size, skipped) for size in test.sizes])
    left = [group for group in groups if group not in hopeless]
    while left:
        wave: dict[Group, CollectiveTest] = {}
        used: set[int] = set()
        for group in left:
            if used.isdisjoint(group.ranks):
                wave[group] = test._replace(deadline=brief[1]) if group in brief[0] else test
                used |= set(group.ranks)
        left = [group for group in left if group not in wave]
        for results in await run_side_by_side(context, wave, begin):
            context.report(results)


async def run_side_by_side(
    context: MeasurementContext,
    tests: Mapping[Group, CollectiveTest],
    begin: Callable[[list[Sequence[int]]], Awaitable[None]],
) -> list[list[Measurement]]:
    """Test groups that share no rank at once; return the results of each, one per message size."""
    requests = {}
    for group, test in tests.items():
        message = {"op": "collective", **test._asdict(), "ranks": list(group.ranks)}
        requests[group] = GroupRequest(group.ranks, message, (1 + len(test.sizes)) * test.deadline)
    await begin([group.ranks for group in tests])
    await Gathering(context).run(list(requests.values()))
    return [
        [_measurement(context, test, group, requests[group], size) for size in test.sizes]
        for group, test in tests.items()
    ]


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
            verdict = Verdict.WRONG if error_kind is ErrorKind.VERIFY else verdict
        how = f"{test.kind} over {len(group.ranks)} ranks"
        extra = {"ranks": len(group.ranks), "error_kind": error_kind.value}
        results = {"verdict": verdict, "how": how, "error": text, "extra": extra}
    return _row_of(context, test, group, size, results)


def _row_of(
    context: MeasurementContext, test: CollectiveTest, group: Group, size: int, results: dict[str, Any]
) -> Measurement:
    return Measurement(
        layer=COLLECTIVES[test.kind],
        src=group.src,
        dst=group.dst,
        unit="GB/s",
        time=time.time(),
        attempts=context.attempt(test.kind, group.src, group.dst, str(size)),
        **{"bytes": size, **results},
    )


def _rings(reports: list[Message], count: int) -> list[list[int]] | None:
    """Return the rings that a rank reported, if they are rings of all ranks; else None."""
    rings = next((rings for report in reports if (rings := report.get("rings"))), None)
    if not isinstance(rings, list) or len(rings) > _MOST_RINGS:
        return None
    for ring in rings:
        if not isinstance(ring, list) or not all(type(rank) is int for rank in ring):
            return None
        if sorted(ring) != list(range(count)):
            return None
    return rings


def _success(
    context: MeasurementContext,
    test: CollectiveTest,
    group: Group,
    size: int,
    seconds: float,
    reports: list[Message],
) -> dict[str, Any]:
    count = len(group.ranks)
    fastest = [value for report in reports if (value := number(report.get("fastest")))]
    sent = next((value for report in reports if (value := number(report.get("sent")))), float(size))
    tested = next((value for report in reports if (value := whole(report.get("tested")))), size)
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
        "rings": _rings(reports, count),
        "asked_bytes": size if tested < size else None,
    }
    return {
        "verdict": Verdict.OK,
        "bytes": min(tested, size),
        "value": sent / seconds * busbw_factor(test.kind, count) / 1e9,
        "how": f"{how}, up to {test.iters} iterations, slowest rank, result verified",
        "transport": one_line(str(transport), 120) if transport else None,
        "extra": {name: value for name, value in extra.items() if value is not None},
    }
