"""Pair tests: dispatch of pairs, merging of the reports of their two sides, deadlines and lost rank hosts."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from fabtui.model.endpoints import Endpoint
from fabtui.model.events import Incident, PairsStarted
from fabtui.model.interval_log import IntervalKind
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.schedule import Dispatcher
from fabtui.nodeset import count
from fabtui.session.measure.communicator_cache import NODE_CTAS, CommunicatorCache, CommunicatorKey
from fabtui.session.measure.measurement_context import ABORT_PATIENCE, LAG, LAG_KNOWN, MeasurementContext
from fabtui.session.measure.p2p_result import NO_REPORT, Side, direction
from fabtui.session.node_client import GRACE
from fabtui.session.ranks.rank_host import (
    LINK_SILENCE,
    HostFrozen,
    HostLoaded,
    HostLost,
    HostMessage,
    HostReports,
    HostRestarted,
    RankHost,
    Report,
)
from fabtui.transport.link import Message
from fabtui_node.protocol import ErrorKind

#: How often a pair is tested again that ran on a rank host which ended, when an earlier test had failed in its process.
MOST_SPARED = 2
#: Results that are reported together at most.
_TOGETHER = 50


class PairTest(NamedTuple):
    """Parameters of a pair test."""

    bytes: int
    iters: int  #: Maximum number of timed messages per direction.
    warmup: int  #: Number of messages before them.
    latency_iters: int  #: Number of round trips of 8 bytes.
    deadline: float  #: Deadline of the pair (s); each direction may use half of it.
    meet: float  #: Time (s) that a rank waits for its peer; half of the deadline at most, and in the last attempt.
    both: bool  #: Whether both directions are also tested at the same time.


def _side(src: int, dst: int, role: str) -> int:
    return 2 * (src > dst) + (role == "dst")


@dataclass(slots=True)
class _Running:
    number: int
    a: Endpoint
    b: Endpoint
    began: float
    key: CommunicatorKey
    sides: dict[int, Side] = field(default_factory=dict)  #: By `_side`.
    free: frozenset[int] = frozenset()
    aborted: float | None = None
    hopeless: float | None = None
    lag: float = LAG
    void: str | None = None
    not_begun: tuple[int, int] | None = None

    # Thousands run at once: what follows from its ends is not part of it.
    @property
    def keys(self) -> tuple[tuple[int, int], tuple[int, int]]:
        a, b = self.a.number, self.b.number
        return (a, b), (b, a)

    @property
    def ends(self) -> frozenset[int]:
        return frozenset((self.a.number, self.b.number))

    @property
    def nodes(self) -> set[str]:
        return {self.a.node, self.b.node}


class Recovery:
    """Restarts of rank hosts during a pass of tests, by node; ``put`` is called at the end of each."""

    def __init__(self, context: MeasurementContext, put: Callable[[HostRestarted], None]) -> None:
        self._context = context
        self._put = put
        self.nodes: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        #: Nodes that get a standby process as soon as a restarting rank host has loaded the driver.
        self._standbys: dict[RankHost, list[str]] = {}

    @property
    def ends(self) -> set[int]:
        return {e.number for node in self.nodes for e in self._context.hosts[node].endpoints}

    def begin(self, host: RankHost) -> None:
        """Restart a rank host in the background; a restart that is under way is waited for."""
        self.nodes.add(host.node)
        task = asyncio.ensure_future(self._restart(host))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _restart(self, host: RankHost) -> None:
        try:
            await host.restart(len(self._context.endpoints))
        finally:
            self.nodes.discard(host.node)
            if not self._closed:
                self._put(HostRestarted(host))

    def stand_by_after(self, host: RankHost, nodes: Iterable[str]) -> None:
        """Start standby processes on nodes as soon as a restarting rank host has loaded the driver.

        Not sooner: two processes that load the driver at the same time wait for each other.
        """
        self._standbys[host] = sorted(nodes)

    def loaded(self, host: RankHost) -> None:
        """Start the standby processes that waited for a rank host to load the driver."""
        for name in self._standbys.pop(host, ()):
            other = self._context.hosts[name]
            if not self._closed and (other is host or other.ready):
                other.stand_by()

    def begin_for(self, ends: Iterable[int]) -> None:
        """Restart the rank hosts of endpoints that were left down or are being started."""
        for node in {self._context.endpoints[end].node for end in ends} - self.nodes:
            host = self._context.hosts.get(node)
            if host is not None and (host.down or host.starting):
                self.begin(host)

    async def close(self) -> None:
        """Stop waiting for restarts, which continue in the background, and end all standby processes."""
        self._closed = True
        self._standbys.clear()
        for host in self._context.hosts.values():
            host.stand_by(on=False)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class PairSweep:
    """One pass over pairs.

    A rank host that dies or hangs ends all tests that run on it, most of which are not at fault. These pairs are tested
    once more, one at a time and with the directions swapped; only a second failure counts. It counts for the direction
    that was running: a direction that had not begun is tested again, before the other. It counts for no pair if another
    test had failed in the process before.

    With ``doubts``, a pair that fails while its nodes are there is only noted in `doubted`: it is to be tested again.
    """

    def __init__(
        self,
        context: MeasurementContext,
        test: PairTest,
        kept: CommunicatorCache,
        *,
        one_at_a_time: bool = False,
        unlimited: bool = False,
        doubts: bool = False,
    ) -> None:
        self._context = context
        self._test = test
        self._kept = kept
        self._unlimited = unlimited
        self._doubts = doubts
        #: Pairs that failed or timed out, if that is in doubt: these results are not reported.
        self.doubted: set[tuple[int, int]] = set()
        #: Pairs that were slow with fewer CTAs than NCCL takes by default; these results are not reported.
        self.limited: set[tuple[int, int]] = set()
        self._alone = one_at_a_time
        self._running: dict[int, _Running] = {}
        self._reported: set[tuple[int, int]] = set()
        #: Interrupted pairs, each with the time it had started.
        self._again: list[tuple[float, tuple[int, int]]] = []
        # If nothing else runs, the running pair is the reason why a rank host dies.
        self._last_chance = one_at_a_time
        self.tested_alone: set[frozenset[int]] = set()  #: Pairs that were tested once more after a rank host was lost.
        self.fatal: set[frozenset[int]] = set()  #: Pairs that ended a rank host while nothing else ran.
        #: Time of the first failure or interruption of each pair (epoch seconds).
        self.bad_since: dict[frozenset[int], float] = {}
        self._excused: set[frozenset[int]] = set()
        self._spared = Counter[frozenset[int]]()
        self._reports = HostReports(context.hosts.values(), self._busy_nodes, self._process)
        self._recovery = Recovery(context, self._reports.put)
        #: Number of pairs that end a rank host and have not been identified.
        self._culprits = 0
        self._ended: list[asyncio.Future[None]] = []
        self._dispatcher = Dispatcher([], [], [])
        self._found: list[Measurement] = []
        self._names = [str(endpoint) for endpoint in context.endpoints]
        self._reuses = False  #: Whether communicators of pairs to test are kept.
        self._earliest = math.inf  #: Time before which no deadline of a running pair ends.
        self._full: Set[int] = frozenset()  #: Endpoints without room for one with NCCL's default.

    async def run(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Test unordered pairs of endpoint numbers, in this order as far as endpoints are free."""
        try:
            async with self._reports:
                await self._pass(pairs)
                while self._again:
                    # The longest-running pair is the most likely culprit: it comes last, when fewest need its host.
                    again, self._again = [pair for _, pair in sorted(self._again, reverse=True)], []
                    self._context.pump.log(
                        "info", f"tested again, alone: {count(len(again), 'pair')} that ran beside it"
                    )
                    self._alone = self._last_chance = True
                    self.tested_alone |= {frozenset(pair) for pair in again}
                    await self._pass([(b, a) for a, b in again])
        finally:
            self._report_found()
            await asyncio.gather(self._recovery.close(), *self._ended, return_exceptions=True)

    async def _pass(self, pairs: Sequence[tuple[int, int]]) -> None:
        ends = self._context.endpoints
        self._dispatcher = Dispatcher(
            pairs,
            [e.nic for e in ends],
            [e.node for e in ends],
            width=1 if self._alone else None,
            domains=self._context.pump.model.table.domains,
        )
        self._reuses = self._kept.reuses(self._key(*pair) for pair in pairs)
        self._recovery.begin_for({end for pair in pairs for end in pair})
        self._drop_broken()
        while self._dispatcher.waiting or self._dispatcher.running:
            self._start_some()
            if (self._full or self._dispatcher.is_full) and not self._running:
                await self._kept.make_room(self._key(*pair) for pair in self._dispatcher.pairs)
                self._recovery.begin_for({end for pair in self._dispatcher.pairs for end in pair})
                self._drop_broken()
                self._start_some()
            for report in await self._reports.take(self._next_check()):
                self._process(report)
            self._check_deadlines()
            self._report_found()

    def _process(self, report: Report) -> None:
        match report:
            case HostMessage(host, message):
                try:
                    self._take(host, message)
                except Exception as error:
                    host.client.reject(error)
            case HostLost(host, text, kind):
                self._on_lost(host, text, kind)
            case HostFrozen(host, text):
                self._context.pump.log("warning", f"{text}; it is ended")
                since = time.time()
                incident = Incident(node=host.node, what=IntervalKind.RANK_HOST, since=since, text=text)
                self._context.pump.emit(incident)
                self._kill(host.node, text, excuse=True)
            case HostLoaded(host):
                self._recovery.loaded(host)
                self._kept.lose()
            case _:
                self._drop_broken()

    def _key(self, a: int, b: int) -> CommunicatorKey:
        return self._kept.key(a, b, unlimited=self._unlimited)

    def _busy_nodes(self) -> set[str]:
        return {node for pair in self._running.values() for node in pair.nodes}

    def _start_some(self) -> None:
        if not self._context.go.is_set():
            return
        begun: list[tuple[str, str]] = []
        tests: dict[str, list[list[int]]] = {}
        # Endpoints without room are left out at once, as there may be very many pairs of them.
        self._full = frozenset() if self._reuses else self._kept.full()
        held, full = self._recovery.ends, self._full
        if self._alone:
            # Their order counts.
            full = frozenset()
        elif full:
            held |= self._kept.full(ctas=NODE_CTAS)
        for a, b in self._dispatcher.take(held, lambda a, b: self._kept.fits(self._key(a, b)), full):
            ends = self._context.endpoints
            pair = _Running(self._context.begin((a, b)), ends[a], ends[b], time.monotonic(), self._key(a, b))
            self._running[pair.number] = pair
            self._earliest = min(self._earliest, self._due(pair))
            begun += ((self._names[a], self._names[b]), (self._names[b], self._names[a]))
            self._kept.begin(pair.key)
            if self._alone:
                self._context.sample_counters(pair.nodes)
            for node in pair.nodes:
                tests.setdefault(node, []).append([pair.number, a, b, pair.key.ctas])
        if begun:
            message = {"op": "pairs", **self._test._asdict(), "keep": self._kept.on}
            if self._last_chance:
                message["meet"] = self._test.deadline / 2
            for node, rows in tests.items():
                self._context.hosts[node].send({**message, "tests": rows})
            self._context.pump.emit(PairsStarted(pairs=begun))

    def _next_check(self) -> float:
        if not self._context.go.is_set():
            return 0.2
        return max(0.05, self._earliest - time.monotonic()) if self._running else 0.5

    def _due(self, pair: _Running) -> float:
        if pair.aborted is not None:
            return pair.aborted + ABORT_PATIENCE
        due = pair.began + self._test.deadline + GRACE
        return due if pair.hopeless is None else min(due, pair.hopeless + pair.lag)

    def _take(self, host: RankHost, message: Message) -> None:
        pair = self._running.get(message.get("id", -1))
        if pair is None:
            return
        op = message.get("op")
        if op == "side":
            key, role = (message.get("src"), message.get("dst")), message.get("role")
            if key not in pair.keys or role not in ("src", "dst"):
                return
            src, dst = pair.keys[key != pair.keys[0]]
            rank = src if role == "src" else dst
            if rank in host.ranks and _side(src, dst, role) not in pair.sides:
                pair.sides[_side(src, dst, role)] = side = Side.read(message, self._context.endpoints)
                if not side.ok and side.phase == "connect":
                    host.note_failure()
                self._kept.measured(pair.key, rank, message.get("held"))
                self._report(pair, src, dst)
        elif op == "free" and message.get("rank") in pair.ends.intersection(host.ranks):
            self._freed(pair, int(message["rank"]), NO_REPORT, ErrorKind.NO_REPORT)

    def _freed(
        self, pair: _Running, rank: int, text: str, kind: ErrorKind, *, timeout: bool = False, gone: bool = False
    ) -> None:
        """Note that an endpoint has ended its part of a pair, and replace the reports it did not send."""
        pair.free |= {rank}
        for src, dst in pair.keys if len(pair.sides) < 4 and pair.void is None else ():
            key = _side(src, dst, "src" if src == rank else "dst")
            if key not in pair.sides and (src, dst) != pair.not_begun:
                pair.sides[key] = Side(False, timeout, text, kind, gone)
                self._report(pair, src, dst)
        if len(pair.free) == 2:
            self._end(pair)
        elif not any(side.ok for side in pair.sides.values()):
            pair.hopeless = time.monotonic()
            if any(s.phase == "connect" and not s.timeout and not s.is_consequence for s in pair.sides.values()):
                pair.lag = LAG_KNOWN
            self._earliest = min(self._earliest, self._due(pair))

    def _report(self, pair: _Running, src: int, dst: int) -> None:
        """Report a direction with both sides; of a pair that is tested again, only if it passed."""
        src_side, dst_side = pair.sides.get(_side(src, dst, "src")), pair.sides.get(_side(src, dst, "dst"))
        if src_side is None or dst_side is None or (src, dst) in self._reported:
            return
        passed = src_side.ok and dst_side.ok
        if pair.void is not None and not passed:
            return
        self._reported.add((src, dst))
        names = (self._names[src], self._names[dst])
        host = self._context.hosts[self._context.endpoints[dst].node]
        how = f"{host.version or host.engine.name}, one way, data verified"
        ctas = pair.key.ctas or None
        if ctas is not None:
            how = f"{how}, at most {ctas} CTAs"
        now, asked = time.time(), self._test.bytes
        if not passed:
            self.bad_since.setdefault(pair.ends, now)
        attempts = self._context.attempt("p2p", *names)
        rows = direction(*names, src_side, dst_side, time=now, how=how, attempts=attempts, asked=asked, ctas=ctas)
        # The result has them; the other direction may take long.
        src_side.raw = dst_side.raw = None
        if ctas is not None and self._context.pump.model.results.was_slow(rows[0]):
            # It may be slow because of that: it is tested once more, and only that result counts.
            self.limited.add(pair.key[:2])
            text = f"{' > '.join(names)} is slow with at most {ctas} CTAs: tested again with NCCL's default number"
            self._context.pump.log("info", f"{text} ({rows[0].value:.3g} {rows[0].unit})")
        elif self._doubts and rows[0].verdict in (Verdict.FAILED, Verdict.TIMEOUT) and self._are_there(src, dst):
            self.doubted.add(pair.key[:2])
        else:
            self._found += rows
            if len(self._found) >= _TOGETHER:
                self._report_found()

    def _are_there(self, *ends: int) -> bool:
        return all(self._context.host_of(end).client.lost is None for end in ends)

    def _report_found(self) -> None:
        self._context.report(self._found)
        self._found = []

    def _end(self, pair: _Running) -> None:
        del self._running[pair.number]
        if pair.void is not None or not all(side.ok for side in pair.sides.values()):
            midway = any(side.timeout and side.phase == "transfer" for side in pair.sides.values())
            self._kept.pool.failed(pair.key, midway=pair.void is not None or midway)
        self._dispatcher.done(pair.a.number, pair.b.number)
        self._context.forget(pair.number)
        if self._alone:
            self._context.sample_counters(pair.nodes)
        missing = set(pair.keys) - self._reported
        if (pair.void is not None and missing) or pair.not_begun in missing:
            self._again.append((pair.began, (pair.a.number, pair.b.number)))
        else:
            # No longer needed, and there are many.
            self._reported.difference_update(pair.keys)

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        if now < self._earliest:
            # Thousands may be running.
            return
        self._look_at_deadlines(now)
        self._earliest = min(map(self._due, self._running.values()), default=math.inf)

    def _look_at_deadlines(self, now: float) -> None:
        for pair in list(self._running.values()):
            if now < self._due(pair):
                continue
            if pair.aborted is None:
                self._abort(pair)
            else:
                for rank in pair.ends - pair.free:
                    node = self._context.endpoints[rank].node
                    if self._context.hosts[node].client.link.silence > LINK_SILENCE:
                        # It did not hear of that. The link ends soon, or is heard again.
                        continue
                    text = f"the rank host of {node} did not come back from a cancelled test"
                    self._kill(node, text)

    def _abort(self, pair: _Running) -> None:
        pair.aborted = time.monotonic()
        self._earliest = min(self._earliest, self._due(pair))
        for rank in pair.ends - pair.free:
            self._context.host_of(rank).send({"op": "abort", "id": pair.number})

    def _kill(self, node: str, text: str, *, excuse: bool = False) -> None:
        """End a rank host that hangs, from outside; pairs of other nodes continue."""
        if node not in self._recovery.nodes and not self._context.hosts[node].down:
            self._lose(self._context.hosts[node], text, ErrorKind.FROZEN, timeout=True, excuse=excuse)

    def _on_lost(self, host: RankHost, text: str, kind: ErrorKind) -> None:
        if host.node in self._recovery.nodes:
            return
        if host.client.lost is None:
            self._lose(host, text, kind, excuse=True)
            return
        self._give_up(host, text, kind, final=True, excuse=False)
        host.broken = text
        self._drop_broken()

    def _lose(self, host: RankHost, text: str, kind: ErrorKind, *, timeout: bool = False, excuse: bool) -> None:
        """Close what runs on a rank host that hangs or died, and restart it if a remaining test needs it."""
        host.down = True
        interrupted = {node for pair in self._running.values() if host.node in pair.nodes for node in pair.nodes}
        self._give_up(host, text, kind, timeout=timeout, excuse=excuse)
        if self._needed(host.node):
            self._context.pump.log("info", f"the rank host of {host.node} is restarted")
            self._recovery.begin(host)
            # One of the interrupted pairs will end it again when they are tested alone.
            self._culprits += -1 if self._last_chance else 1
            if self._culprits > 0:
                self._recovery.stand_by_after(host, interrupted)
        else:
            self._context.pump.log("info", f"no remaining test needs the rank host of {host.node}")
            self._ended.append(asyncio.ensure_future(host.leave_down()))

    def _needed(self, node: str) -> bool:
        if self._context.lasting or self._dispatcher.wants(node):
            return True
        again = [pair.ends for pair in self._running.values() if pair.void is not None or pair.not_begun is not None]
        again += [frozenset(ends) for _, ends in self._again]
        return any(self._context.endpoints[end].node == node for ends in again for end in ends)

    def _give_up(
        self, host: RankHost, text: str, kind: ErrorKind, *, timeout: bool = False, final: bool = False, excuse: bool
    ) -> None:
        """Close the tests that run on a lost rank host, and abort them on the other side."""
        mine = {e.number for e in host.endpoints}
        for pair in list(self._running.values()):
            if not pair.ends & mine:
                continue
            if not final and (not self._last_chance or self._spare(host, pair)):
                pair.void = text
                self.bad_since.setdefault(pair.ends, time.time())
            else:
                if not final:
                    self.fatal.add(pair.ends)
                if excuse:
                    self._excuse(pair)
            for rank in pair.ends & mine - pair.free:
                self._freed(pair, rank, text, kind, timeout=timeout, gone=True)
            if pair.number in self._running and pair.aborted is None:
                self._abort(pair)

    def _spare(self, host: RankHost, pair: _Running) -> bool:
        """Return True if an earlier test may have ended a rank host; a bounded number of times for a pair."""
        if not host.had_failed(pair.began) or self._spared[pair.ends] >= MOST_SPARED:
            return False
        self._spared[pair.ends] += 1
        return True

    def _excuse(self, pair: _Running) -> None:
        """Do not count a direction that had not begun when a rank host was lost; once, to bound the attempts."""
        if not self._reported.intersection(pair.keys) and pair.ends not in self._excused:
            pair.not_begun = pair.keys[1]
            self._excused.add(pair.ends)

    def _drop_broken(self) -> None:
        lines: list[tuple[str, str, str]] = []
        ready = self._context.ready() | self._recovery.ends
        ends = self._context.endpoints
        for endpoint in ends:
            if endpoint.node not in self._context.hosts or endpoint.number in ready:
                continue
            why = f"{endpoint}: {self._context.why_not(endpoint.number)}"
            for a, b in self._dispatcher.drop(endpoint.number):
                for s, d in ((a, b), (b, a)):
                    if (s, d) not in self._reported:
                        lines.append((str(ends[s]), str(ends[d]), why))
        self._context.skip(lines)
