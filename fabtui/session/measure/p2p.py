"""Testing pairs of endpoints: hands pairs out, merges what their two sides report, gives up on those that hang."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fabtui.model.endpoints import Endpoint
from fabtui.model.schedule import Dispatcher
from fabtui.session.measure.context import ABORT_PATIENCE, LAG, LAG_KNOWN, TestBed
from fabtui.session.measure.p2p_result import NO_REPORT, SAYS_LITTLE, Side, direction
from fabtui.session.node_client import GRACE
from fabtui.session.ranks.liveness import Pulse, frozen_text
from fabtui.session.ranks.rank_host import RankHost
from fabtui.session.ranks.recovery import Recovery


@dataclass(frozen=True, slots=True)
class PairTest:
    """How a pair is tested.

    Attributes:
        bytes: Message size.
        iters: Timed messages a direction, at most.
        warmup: Messages before them.
        latency_iters: Round trips of 8 bytes.
        deadline: Seconds for the whole meeting; each direction may use half of it.
        meet: Seconds that a rank waits for the other one to come, unless it is the last chance of the pair: then, and
            at most, half of the deadline.
        both: Whether both directions are also tested at once.
        engine: The engine's name.
    """

    bytes: int
    iters: int
    warmup: int
    latency_iters: int
    deadline: float
    meet: float
    both: bool
    engine: str


@dataclass(slots=True)
class _Running:
    number: int
    a: Endpoint
    b: Endpoint
    began: float
    sides: dict[tuple[int, int, str], Side] = field(default_factory=dict)
    free: set[int] = field(default_factory=set)
    aborted: float | None = None
    hopeless: float | None = None
    lag: float = LAG
    void: str | None = None
    spared: tuple[int, int] | None = None

    @property
    def directions(self) -> list[tuple[Endpoint, Endpoint]]:
        return [(self.a, self.b), (self.b, self.a)]

    @property
    def ends(self) -> set[int]:
        return {self.a.number, self.b.number}

    @property
    def nodes(self) -> set[str]:
        return {self.a.node, self.b.node}


class PairSweep:
    """One pass over pairs.

    A rank host that dies or hangs takes all tests with it that run on it, and most of those are not to blame. So they
    are tested once more, one at a time and the other way round first; only what fails again then is at fault. Of a pair
    that is the direction under way: one that was not begun is tested again, before the other.

    Args:
        bed: What tests share.
        test: How each pair is tested.
        one_at_a_time: Whether each pair runs with no other traffic.

    Attributes:
        tested_alone: The pairs that were tested once more after a rank host was gone.
        fatal: The pairs that took a rank host with them while nothing ran beside them.
        bad_since: When each pair that failed, or was cut off, did so first; epoch seconds.
    """

    def __init__(self, bed: TestBed, test: PairTest, *, one_at_a_time: bool = False) -> None:
        self._bed = bed
        self._test = test
        self._alone = one_at_a_time
        self._running: dict[int, _Running] = {}
        self._told: set[tuple[int, int]] = set()
        #: Pairs that were cut off, and since when each was under way then.
        self._again: list[tuple[float, tuple[int, int]]] = []
        # With nothing beside it, a rank host that dies is the fault of the pair that runs.
        self._last_chance = one_at_a_time
        self.tested_alone: set[frozenset[int]] = set()
        self.fatal: set[frozenset[int]] = set()
        self.bad_since: dict[frozenset[int], float] = {}
        self._spared: set[frozenset[int]] = set()
        self._wake = asyncio.Event()
        self._recovery = Recovery(bed, self._back)
        #: How many pairs that take a rank host with them are yet to be found.
        self._culprits = 0
        self._ended: list[asyncio.Future[None]] = []
        self._dispatcher = Dispatcher([], [], [])

    async def run(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Test unordered pairs of endpoint numbers, in this order as far as endpoints are free, until all ended."""
        for host in self._bed.hosts.values():
            host.on_test = self._take
            host.on_gone = self._gone
        pulse = asyncio.create_task(Pulse(self._bed.hosts.values(), self._busy, self._frozen).run())
        try:
            await self._pass(pairs)
            while self._again:
                # What takes a rank host with it does so after a while: who was longest under way is the likeliest to do
                # it again and comes last, when the fewest need that rank host yet.
                again, self._again = [pair for _, pair in sorted(self._again, reverse=True)], []
                self._bed.say("info", f"pairs that ran beside it are tested again, alone: {len(again)}")
                self._alone = self._last_chance = True
                self.tested_alone |= {frozenset(pair) for pair in again}
                await self._pass([(b, a) for a, b in again])
        finally:
            pulse.cancel()
            for host in self._bed.hosts.values():
                host.on_test = host.on_gone = None
            await asyncio.gather(pulse, self._recovery.leave(), *self._ended, return_exceptions=True)

    async def _pass(self, pairs: Sequence[tuple[int, int]]) -> None:
        ends = self._bed.endpoints
        self._dispatcher = Dispatcher(
            list(pairs), [e.nic for e in ends], [e.node for e in ends], width=1 if self._alone else None
        )
        self._recovery.begin_for({end for pair in pairs for end in pair})
        self._drop_broken()
        while self._dispatcher.waiting or self._dispatcher.running:
            self._start_some()
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._next_check()):
                    await self._wake.wait()
            # Also when something else woke it: where many pairs end, something always does.
            self._check_deadlines()

    def _busy(self) -> set[str]:
        """Return the nodes on which something runs."""
        return {node for pair in self._running.values() for node in (pair.a.node, pair.b.node)}

    # -- handing out --------------------------------------------------------------------------------------------------

    def _start_some(self) -> None:
        if not self._bed.go.is_set():
            return
        begun: list[tuple[str, str]] = []
        for a, b in self._dispatcher.take(self._recovery.ends):
            ends = self._bed.endpoints[a], self._bed.endpoints[b]
            pair = _Running(next(self._bed.ids), *ends, time.monotonic())
            self._running[pair.number] = pair
            begun.extend((str(src), str(dst)) for src, dst in pair.directions)
            message = {
                "op": "pair",
                "id": pair.number,
                "a": a,
                "b": b,
                "bytes": self._test.bytes,
                "iters": self._test.iters,
                "warmup": self._test.warmup,
                "latency_iters": self._test.latency_iters,
                "deadline": self._test.deadline,
                "meet": self._test.deadline / 2 if self._last_chance else self._test.meet,
                "both": self._test.both,
            }
            if self._alone:
                self._bed.lone(pair.nodes)
            for node in pair.nodes:
                self._bed.hosts[node].send(message)
        if begun:
            self._bed.began(begun)

    def _next_check(self) -> float:
        if not self._bed.go.is_set():
            return 0.2
        now = time.monotonic()
        due = [self._due(pair) - now for pair in self._running.values()]
        return max(0.05, min(due, default=0.5))

    def _due(self, pair: _Running) -> float:
        if pair.aborted is not None:
            return pair.aborted + ABORT_PATIENCE
        due = pair.began + self._test.deadline + GRACE
        return due if pair.hopeless is None else min(due, pair.hopeless + pair.lag)

    # -- what comes back ----------------------------------------------------------------------------------------------

    def _take(self, host: RankHost, message: dict[str, Any]) -> None:
        pair = self._running.get(message.get("id", -1))
        if pair is None:
            return
        mine = {e.number for e in host.endpoints}
        if message.get("op") == "side":
            src, dst, role = message.get("src"), message.get("dst"), message.get("role")
            if role not in ("src", "dst") or not isinstance(src, int) or not isinstance(dst, int):
                return
            if {src, dst} == pair.ends and (src if role == "src" else dst) in mine:
                pair.sides.setdefault((src, dst, role), Side.read(message, self._bed.endpoints))
                self._tell(pair)
        elif message.get("op") == "free" and message.get("rank") in mine & pair.ends:
            self._freed(pair, int(message["rank"]), NO_REPORT)

    def _freed(self, pair: _Running, rank: int, text: str, *, timeout: bool = False, gone: bool = False) -> None:
        """Take note that an endpoint is through with a pair, and stand in for what it did not report."""
        pair.free.add(rank)
        for src, dst in pair.directions:
            key = (src.number, dst.number, "src" if src.number == rank else "dst")
            if key not in pair.sides and pair.void is None and key[:2] != pair.spared:
                pair.sides[key] = Side.failed(text, timeout=timeout, gone=gone)
        self._tell(pair)
        if len(pair.free) == 2:
            self._end(pair)
        elif not any(side.ok for side in pair.sides.values()):
            pair.hopeless = time.monotonic()
            if any(self._knows(side) for side in pair.sides.values()):
                pair.lag = LAG_KNOWN
            self._wake.set()

    @staticmethod
    def _knows(side: Side) -> bool:
        """Say whether a side could not connect and tells why, not only that it waited in vain."""
        known = side.phase == "connect" and not side.timeout
        return known and SAYS_LITTLE.search(side.error or "") is None

    def _tell(self, pair: _Running) -> None:
        """Report the directions of which both sides are in; of a pair that is tested again, only the good ones."""
        for src, dst in pair.directions:
            key = (src.number, dst.number)
            src_side, dst_side = pair.sides.get((*key, "src")), pair.sides.get((*key, "dst"))
            if src_side is None or dst_side is None or key in self._told:
                continue
            if pair.void is not None and not (src_side.ok and dst_side.ok):
                continue
            self._told.add(key)
            names = (str(src), str(dst))
            how = f"{self._bed.hosts[dst.node].version or self._test.engine}, one way, data verified"
            attempts = self._bed.attempt("p2p", *names)
            now, asked = time.time(), self._test.bytes
            if not (src_side.ok and dst_side.ok):
                self.bad_since.setdefault(frozenset(key), now)
            self._bed.report(direction(*names, src_side, dst_side, time=now, how=how, attempts=attempts, asked=asked))

    def _end(self, pair: _Running) -> None:
        del self._running[pair.number]
        self._dispatcher.done(pair.a.number, pair.b.number)
        self._bed.forget(pair.number)
        if self._alone:
            self._bed.lone(pair.nodes)
        missing = {(s.number, d.number) for s, d in pair.directions} - self._told
        if (pair.void is not None and missing) or pair.spared in missing:
            self._again.append((pair.began, (pair.a.number, pair.b.number)))
        else:
            # Nothing asks for it any more, and there are many of them.
            self._told.difference_update((s.number, d.number) for s, d in pair.directions)
        self._wake.set()

    # -- what goes wrong ----------------------------------------------------------------------------------------------

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for pair in list(self._running.values()):
            if now < self._due(pair):
                continue
            if pair.aborted is None:
                self._abort(pair)
            else:
                for rank in pair.ends - pair.free:
                    node = self._bed.endpoints[rank].node
                    self._kill(node, f"the rank host of {node} did not come back from a test that was called off")

    def _abort(self, pair: _Running) -> None:
        pair.aborted = time.monotonic()
        for endpoint in (pair.a, pair.b):
            if endpoint.number not in pair.free:
                self._bed.hosts[endpoint.node].send({"op": "abort", "id": pair.number})

    def _frozen(self, host: RankHost, seconds: float) -> None:
        text = frozen_text(host, seconds)
        self._bed.say("warning", f"{text}; it is ended")
        self._kill(host.node, text, spare=True)

    def _kill(self, node: str, text: str, *, spare: bool = False) -> None:
        """End a rank host that hangs, from outside; pairs of other nodes go on meanwhile."""
        if node not in self._recovery.nodes and not self._bed.hosts[node].down:
            self._lose(self._bed.hosts[node], text, timeout=True, spare=spare)

    def _gone(self, host: RankHost, text: str) -> None:
        if host.node in self._recovery.nodes:
            return
        if host.remote.lost is None:
            self._lose(host, text, spare=True)
            return
        self._give_up(host, text, final=True)
        host.broken = text
        self._drop_broken()
        self._wake.set()

    def _lose(self, host: RankHost, text: str, *, timeout: bool = False, spare: bool) -> None:
        """Close what runs on a rank host that hangs or died, and start it anew if something needs it yet."""
        host.down = True
        cut_off = {node for pair in self._running.values() if host.node in pair.nodes for node in pair.nodes}
        self._give_up(host, text, timeout=timeout, spare=spare)
        if self._needed(host.node):
            self._bed.say("info", f"the rank host of {host.node} is started anew")
            self._recovery.begin(host)
            # Of the pairs that were cut off, one will do that again when they are tested alone.
            self._culprits += -1 if self._last_chance else 1
            if self._culprits > 0:
                self._recovery.expect(host, cut_off)
        else:
            self._bed.say("info", f"nothing that is left to do needs the rank host of {host.node}")
            self._ended.append(asyncio.ensure_future(host.leave_down()))

    def _needed(self, node: str) -> bool:
        """Say whether tests are left that a node takes part in."""
        if self._bed.lasting or self._dispatcher.wants(node):
            return True
        again = [pair.ends for pair in self._running.values() if pair.void is not None or pair.spared is not None]
        again += [set(ends) for _, ends in self._again]
        return any(self._bed.endpoints[end].node == node for ends in again for end in ends)

    def _give_up(
        self, host: RankHost, text: str, *, timeout: bool = False, final: bool = False, spare: bool = False
    ) -> None:
        """Close the tests that run on a rank host which is gone; their other sides are told to stop waiting."""
        mine = {e.number for e in host.endpoints}
        for pair in list(self._running.values()):
            if not pair.ends & mine:
                continue
            if not final and not self._last_chance:
                pair.void = text
                self.bad_since.setdefault(frozenset(pair.ends), time.time())
            else:
                if not final:
                    self.fatal.add(frozenset(pair.ends))
                if spare:
                    self._spare(pair)
            for rank in pair.ends & mine - pair.free:
                self._freed(pair, rank, text, timeout=timeout, gone=True)
            if pair.number in self._running and pair.aborted is None:
                self._abort(pair)

    def _spare(self, pair: _Running) -> None:
        """Blame no direction that was not begun when a rank host went; once, lest a pair be tested for ever."""
        first, second = ((src.number, dst.number) for src, dst in pair.directions)
        if not {first, second} & self._told and frozenset(pair.ends) not in self._spared:
            pair.spared = second
            self._spared.add(frozenset(pair.ends))

    def _back(self) -> None:
        """Go on with the tests of a rank host that is back, or tell those that will not be."""
        self._drop_broken()
        self._wake.set()

    def _drop_broken(self) -> None:
        """Take out the pairs of endpoints that cannot be tested, and say why."""
        lines: list[tuple[str, str, str]] = []
        ready = self._bed.ready() | self._recovery.ends
        ends = self._bed.endpoints
        for endpoint in ends:
            if endpoint.node not in self._bed.hosts or endpoint.number in ready:
                continue
            why = f"{endpoint}: {self._bed.why_not(endpoint.number)}"
            for a, b in self._dispatcher.drop(endpoint.number):
                for s, d in ((a, b), (b, a)):
                    if (s, d) not in self._told:
                        lines.append((str(ends[s]), str(ends[d]), why))
        if lines:
            self._bed.untested(lines)
