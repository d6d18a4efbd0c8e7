"""Testing pairs of endpoints: hands pairs out, merges what their two sides report, gives up on those that hang."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fabtui.fabric.endpoint import Endpoint
from fabtui.fabric.measurement import Measurement
from fabtui.fabric.schedule import Dispatcher
from fabtui.session.ranks import RankHost
from fabtui.session.remote import GRACE
from fabtui.session.sides import Side, direction
from fabtui.session.store import StoreServer

#: A pair may wait for its deadline while meeting and in each direction, before the controller ends it from outside.
PHASES = 3
#: How long a rank that was told to stop waiting may take before its rank host is killed.
ABORT_PATIENCE = 3.0
#: A rank host that hangs or dies more often than this is not started again.
MAX_RESTARTS = 5


@dataclass(frozen=True, slots=True)
class PairTest:
    """How a pair is tested: message size, iterations at most, and the deadline of each phase in seconds."""

    bytes: int
    iters: int
    warmup: int
    latency_iters: int
    deadline: float
    engine: str


@dataclass(slots=True)
class _Running:
    number: int
    a: Endpoint
    b: Endpoint
    began: float
    sides: dict[tuple[int, int, str], Side] = field(default_factory=dict)
    told: set[tuple[int, int]] = field(default_factory=set)
    free: set[int] = field(default_factory=set)
    aborted: float | None = None

    @property
    def directions(self) -> list[tuple[Endpoint, Endpoint]]:
        return [(self.a, self.b), (self.b, self.a)]


class PairSweep:
    """One pass over pairs.

    Args:
        endpoints: All endpoints, by number.
        hosts: The rank host of each node.
        test: How each pair is tested.
        store: Where ranks meet.
        ids: Numbers for pairs, never used twice in a session.
        report: Called with finished measurements.
        began: Called with the pairs (ordered, by name) that have just begun.
        untested: Called with ``[[src, dst, why]]`` for pairs that will not be tested.
        attempts: Says how many attempts a direction has had, this one included.
        go: Cleared while the session is paused.
        one_at_a_time: Whether each pair runs with no other traffic.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        hosts: dict[str, RankHost],
        test: PairTest,
        store: StoreServer,
        ids: itertools.count[int],
        *,
        report: Callable[[list[Measurement]], None],
        began: Callable[[list[tuple[str, str]]], None],
        untested: Callable[[list[tuple[str, str, str]]], None],
        attempts: Callable[[str, str], int],
        go: asyncio.Event,
        one_at_a_time: bool = False,
    ) -> None:
        self._endpoints = endpoints
        self._hosts = hosts
        self._test = test
        self._store = store
        self._ids = ids
        self._report = report
        self._began = began
        self._untested = untested
        self._attempts = attempts
        self._go = go
        self._alone = one_at_a_time
        self._running: dict[int, _Running] = {}
        self._wake = asyncio.Event()
        self._restarting: set[str] = set()
        self._restarts: set[asyncio.Task[None]] = set()
        self._dispatcher = Dispatcher([], [], [])

    async def run(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Test unordered pairs of endpoint numbers, in this order as far as endpoints are free, until all ended."""
        self._dispatcher = Dispatcher(
            list(pairs),
            [e.nic for e in self._endpoints],
            [e.node for e in self._endpoints],
            width=1 if self._alone else None,
        )
        for host in self._hosts.values():
            host.on_test = self._take
            host.on_gone = self._gone
        try:
            self._drop_broken()
            while self._dispatcher.waiting or self._dispatcher.running:
                self._start_some()
                self._wake.clear()
                try:
                    async with asyncio.timeout(self._next_check()):
                        await self._wake.wait()
                except TimeoutError:
                    self._check_deadlines()
        finally:
            for host in self._hosts.values():
                host.on_test = host.on_gone = None
            await asyncio.gather(*self._restarts, return_exceptions=True)

    # -- handing out --------------------------------------------------------------------------------------------------

    def _start_some(self) -> None:
        if not self._go.is_set():
            return
        held = {e.number for name in self._restarting for e in self._hosts[name].endpoints}
        begun: list[tuple[str, str]] = []
        for a, b in self._dispatcher.take(held):
            pair = _Running(next(self._ids), self._endpoints[a], self._endpoints[b], time.monotonic())
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
            }
            for node in {pair.a.node, pair.b.node}:
                self._hosts[node].send(message)
        if begun:
            self._began(begun)

    def _next_check(self) -> float:
        if not self._go.is_set() and not self._running:
            return 0.2
        now = time.monotonic()
        due = [self._due(pair) - now for pair in self._running.values()]
        return max(0.05, min(due, default=0.5)) if self._go.is_set() else 0.2

    def _due(self, pair: _Running) -> float:
        if pair.aborted is not None:
            return pair.aborted + ABORT_PATIENCE
        return pair.began + PHASES * self._test.deadline + GRACE

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
            if {src, dst} != {pair.a.number, pair.b.number}:
                return
            if (src if role == "src" else dst) in mine:
                pair.sides.setdefault((src, dst, role), Side.read(message, self._endpoints))
                self._tell(pair)
        elif message.get("op") == "free" and message.get("rank") in mine & {pair.a.number, pair.b.number}:
            rank = int(message["rank"])
            pair.free.add(rank)
            self._fill(pair, rank, "it ended without a report")
            if len(pair.free) == 2:
                self._end(pair)

    def _tell(self, pair: _Running) -> None:
        """Report the directions of which both sides are in."""
        for src, dst in pair.directions:
            key = (src.number, dst.number)
            src_side, dst_side = pair.sides.get((*key, "src")), pair.sides.get((*key, "dst"))
            if key in pair.told or src_side is None or dst_side is None:
                continue
            pair.told.add(key)
            names = (str(src), str(dst))
            host = self._hosts[dst.node]
            how = f"{host.version or self._test.engine}, one way, up to {self._test.iters} messages, data verified"
            self._report(
                direction(*names, src_side, dst_side, time=time.time(), how=how, attempts=self._attempts(*names))
            )

    def _fill(self, pair: _Running, rank: int, text: str, *, timeout: bool = False) -> None:
        """Stand in for the reports that an endpoint will not give any more."""
        for src, dst in pair.directions:
            role = "src" if src.number == rank else "dst"
            key = (src.number, dst.number, role)
            if key not in pair.sides:
                pair.sides[key] = Side.failed(text, timeout=timeout)
        self._tell(pair)

    def _end(self, pair: _Running) -> None:
        del self._running[pair.number]
        self._dispatcher.done(pair.a.number, pair.b.number)
        self._store.forget(f"{self._epoch(pair)}/{pair.number}/")
        self._wake.set()

    def _epoch(self, pair: _Running) -> str:
        return self._hosts[pair.a.node].epoch

    # -- what goes wrong ----------------------------------------------------------------------------------------------

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for pair in list(self._running.values()):
            if now < self._due(pair):
                continue
            if pair.aborted is None:
                self._abort(pair)
            else:
                for rank in {pair.a.number, pair.b.number} - pair.free:
                    self._kill(self._endpoints[rank].node, "it did not come back from a test that was aborted")

    def _abort(self, pair: _Running) -> None:
        pair.aborted = time.monotonic()
        for endpoint in (pair.a, pair.b):
            if endpoint.number not in pair.free:
                self._hosts[endpoint.node].send({"op": "abort", "id": pair.number})

    def _kill(self, node: str, text: str) -> None:
        """End a rank host that hangs, from outside, and start it anew; pairs of other nodes go on meanwhile."""
        if node in self._restarting:
            return
        host = self._hosts[node]
        self._give_up(host, f"the rank host of {node} hung: {text}", timeout=True)
        self._restart(host)

    def _gone(self, host: RankHost, text: str) -> None:
        if host.node in self._restarting:
            return
        self._give_up(host, text)
        if host.remote.lost is not None:
            host.broken = text
            self._drop_broken()
            self._wake.set()
        else:
            self._restart(host)

    def _give_up(self, host: RankHost, text: str, *, timeout: bool = False) -> None:
        """Close the tests that run on a rank host which is gone; their other sides are told to stop waiting."""
        mine = {e.number for e in host.endpoints}
        for pair in list(self._running.values()):
            for rank in {pair.a.number, pair.b.number} & mine - pair.free:
                pair.free.add(rank)
                self._fill(pair, rank, text, timeout=timeout)
            if len(pair.free) == 2:
                self._end(pair)
            elif pair.aborted is None and {pair.a.number, pair.b.number} & mine:
                self._abort(pair)

    def _restart(self, host: RankHost) -> None:
        self._restarting.add(host.node)

        async def again() -> None:
            try:
                if host.restarts >= MAX_RESTARTS:
                    host.broken = f"the rank host of {host.node} failed {host.restarts + 1} times"
                else:
                    await host.restart(len(self._endpoints))
            finally:
                self._restarting.discard(host.node)
                self._drop_broken()
                self._wake.set()

        task = asyncio.ensure_future(again())
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    def _drop_broken(self) -> None:
        """Take out the pairs of endpoints that cannot be tested, and say why."""
        lines: list[tuple[str, str, str]] = []
        for endpoint in self._endpoints:
            host = self._hosts.get(endpoint.node)
            if host is None or endpoint.number in host.numbers:
                continue
            why = host.broken or host.bad_ranks.get(endpoint.number, "not ready")
            for a, b in self._dispatcher.drop(endpoint.number):
                names = str(self._endpoints[a]), str(self._endpoints[b])
                lines += [(*names, f"{endpoint}: {why}"), (names[1], names[0], f"{endpoint}: {why}")]
        if lines:
            self._untested(lines)
