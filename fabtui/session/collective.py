"""all_reduce over groups of ranks: over all, over each node, over each pair of nodes."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fabtui.fabric.endpoint import Endpoint
from fabtui.fabric.measurement import Layer, Measurement, Verdict
from fabtui.fabric.text import one_line
from fabtui.session.ranks import RankHost
from fabtui.session.remote import GRACE
from fabtui.session.sides import name_ranks, number
from fabtui.session.store import StoreServer

ABORT_PATIENCE = 3.0


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks of one all_reduce and what it is called in the snapshot: ``all``, or a node, or two nodes."""

    src: str
    dst: str
    ranks: tuple[int, ...]

    def shares(self, other: Group) -> bool:
        """Whether two groups have a rank in common."""
        return not set(self.ranks).isdisjoint(other.ranks)


@dataclass(frozen=True, slots=True)
class ReduceTest:
    """How a group is tested: message sizes in bytes, iterations, and the deadline of each phase in seconds."""

    sizes: tuple[int, ...]
    iters: int
    warmup: int
    deadline: float


def groups_of(endpoints: Sequence[Endpoint], nodes: Sequence[str]) -> list[Group]:
    """Return the groups worth testing: each node with two endpoints and more, each pair of nodes, then all."""
    ranks = {node: tuple(e.number for e in endpoints if e.node == node) for node in nodes}
    ranks = {node: mine for node, mine in ranks.items() if mine}
    groups = [Group(node, node, mine) for node, mine in ranks.items() if len(mine) > 1]
    groups += [Group(a, b, ranks[a] + ranks[b]) for a, b in itertools.combinations(ranks, 2)]
    everything = tuple(itertools.chain.from_iterable(ranks.values()))
    if len(everything) > 1:
        groups.append(Group("all", "all", everything))
    return groups


def busbw(size: int, seconds: float, ranks: int) -> float:
    """Return the bus bandwidth of an all_reduce in GB/s: bytes / time * 2 (n - 1) / n, as nccl-tests defines it."""
    return size / seconds * 2 * (ranks - 1) / ranks / 1e9


@dataclass(slots=True)
class _Running:
    number: int
    group: Group
    due: float
    reports: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    free: set[int] = field(default_factory=set)
    gone: dict[int, str] = field(default_factory=dict)
    aborted: bool = False
    hung: bool = False


class ReduceSweep:
    """One pass over groups; groups that share no rank run at once.

    Args:
        endpoints: All endpoints, by number.
        hosts: The rank host of each node.
        test: How each group is tested.
        store: Where ranks meet.
        ids: Numbers for groups, never used twice in a session.
        report: Called with finished measurements.
        attempts: Says how many attempts a group has had in a message size, this one included.
        go: Cleared while the session is paused.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        hosts: dict[str, RankHost],
        test: ReduceTest,
        store: StoreServer,
        ids: itertools.count[int],
        *,
        report: Callable[[list[Measurement]], None],
        attempts: Callable[[str, str, int], int],
        go: asyncio.Event,
    ) -> None:
        self._endpoints = endpoints
        self._hosts = hosts
        self._test = test
        self._store = store
        self._ids = ids
        self._report = report
        self._attempts = attempts
        self._go = go
        self._running: dict[int, _Running] = {}
        self._wake = asyncio.Event()

    async def run(self, groups: Sequence[Group]) -> None:
        """Test the groups, the last one (all ranks) alone; return when all ended."""
        for host in self._hosts.values():
            host.on_test = self._take
            host.on_gone = self._gone
        waiting = list(groups)
        try:
            while waiting or self._running:
                waiting = self._start_some(waiting)
                self._wake.clear()
                try:
                    async with asyncio.timeout(0.5 if self._go.is_set() else 0.2):
                        await self._wake.wait()
                except TimeoutError:
                    await self._check_deadlines()
        finally:
            for host in self._hosts.values():
                host.on_test = host.on_gone = None

    def _start_some(self, waiting: list[Group]) -> list[Group]:
        if not self._go.is_set():
            return waiting
        later: list[Group] = []
        for group in waiting:
            if any(group.shares(running.group) for running in self._running.values()):
                later.append(group)
            elif missing := self._missing(group):
                self._report([self._failure(group, size, Verdict.INCONCLUSIVE, missing) for size in self._test.sizes])
            else:
                self._start(group)
        return later

    def _missing(self, group: Group) -> str | None:
        """Say why a group cannot be tested, or None."""
        for rank in group.ranks:
            endpoint = self._endpoints[rank]
            host = self._hosts[endpoint.node]
            if rank not in host.numbers:
                return f"{endpoint} cannot take part: {host.broken or host.bad_ranks.get(rank, 'not ready')}"
        return None

    def _start(self, group: Group) -> None:
        phases = 2 + len(self._test.sizes)
        running = _Running(next(self._ids), group, time.monotonic() + phases * self._test.deadline + GRACE)
        self._running[running.number] = running
        message = {
            "op": "all_reduce",
            "id": running.number,
            "ranks": list(group.ranks),
            "sizes": list(self._test.sizes),
            "iters": self._test.iters,
            "warmup": self._test.warmup,
            "deadline": self._test.deadline,
        }
        for node in {self._endpoints[rank].node for rank in group.ranks}:
            self._hosts[node].send(message)

    def _take(self, host: RankHost, message: dict[str, Any]) -> None:
        running = self._running.get(message.get("id", -1))
        rank = message.get("rank")
        if running is None or not any(e.number == rank for e in host.endpoints) or rank not in running.group.ranks:
            return
        if message.get("op") == "reduced" and message.get("bytes") in self._test.sizes:
            running.reports.setdefault((rank, message["bytes"]), message)
        elif message.get("op") == "free":
            running.free.add(rank)
            if len(running.free) == len(running.group.ranks):
                self._end(running)

    def _end(self, running: _Running) -> None:
        del self._running[running.number]
        self._report([self._measurement(running, size) for size in self._test.sizes])
        epoch = self._hosts[self._endpoints[running.group.ranks[0]].node].epoch
        self._store.forget(f"{epoch}/{running.number}/")
        self._wake.set()

    def _measurement(self, running: _Running, size: int) -> Measurement:
        group = running.group
        reports = {rank: running.reports.get((rank, size)) for rank in group.ranks}
        bad = [(rank, report) for rank, report in reports.items() if report is None or report.get("ok") is not True]
        if bad:
            # The rank that says why comes before those that only waited for it.
            rank, report = min(bad, key=lambda found: (found[1] is None, bool(found[1] and found[1].get("timeout"))))
            text = one_line(str((report or {}).get("error") or running.gone.get(rank) or "gave no report"), 1000)
            text = name_ranks(text, self._endpoints)
            timeout = running.hung or bool(report and report.get("timeout"))
            return self._failure(
                group, size, Verdict.TIMEOUT if timeout else Verdict.FAILED, f"{self._endpoints[rank]}: {text}"
            )
        seconds = [number(report.get("seconds")) for report in reports.values() if report]
        slowest = max((value for value in seconds if value), default=None)
        if slowest is None or None in seconds:
            return self._failure(group, size, Verdict.INCONCLUSIVE, "a rank passed but gave no time")
        count = len(group.ranks)
        first = self._hosts[self._endpoints[group.ranks[0]].node]
        transport = next((r.get("transport") for r in reports.values() if r and r.get("transport")), None)
        return Measurement(
            layer=Layer.BUSBW,
            src=group.src,
            dst=group.dst,
            verdict=Verdict.OK,
            value=busbw(size, slowest, count),
            unit="GB/s",
            bytes=size,
            time=time.time(),
            how=f"{first.version}, all_reduce in place over {count} ranks, up to {self._test.iters} iterations, "
            "slowest rank, result verified",
            transport=one_line(str(transport), 120) if transport else None,
            attempts=self._attempts(group.src, group.dst, size),
            extra={"algbw": size / slowest / 1e9, "ranks": count, "seconds": slowest},
        )

    def _failure(self, group: Group, size: int, verdict: Verdict, text: str) -> Measurement:
        return Measurement(
            layer=Layer.BUSBW,
            src=group.src,
            dst=group.dst,
            verdict=verdict,
            unit="GB/s",
            bytes=size,
            time=time.time(),
            how=f"all_reduce over {len(group.ranks)} ranks",
            attempts=self._attempts(group.src, group.dst, size),
            error=text,
        )

    async def _check_deadlines(self) -> None:
        now = time.monotonic()
        for running in [r for r in self._running.values() if now >= r.due]:
            nodes = {self._endpoints[rank].node for rank in set(running.group.ranks) - running.free}
            if not running.aborted:
                self._abort(running)
                continue
            running.hung = True
            for rank in set(running.group.ranks) - running.free:
                running.gone[rank] = "did not come back from a test that was aborted; its rank host was killed"
            self._end(running)
            for node in nodes:
                host = self._hosts[node]
                host.on_gone = None
                await host.restart(len(self._endpoints))
                host.on_gone = self._gone

    def _abort(self, running: _Running) -> None:
        running.aborted = True
        running.due = time.monotonic() + ABORT_PATIENCE
        for node in {self._endpoints[rank].node for rank in set(running.group.ranks) - running.free}:
            self._hosts[node].send({"op": "abort", "id": running.number})

    def _gone(self, host: RankHost, text: str) -> None:
        host.broken = text
        mine = {e.number for e in host.endpoints}
        for running in list(self._running.values()):
            for rank in mine & set(running.group.ranks) - running.free:
                running.gone[rank] = text
                running.free.add(rank)
            if len(running.free) == len(running.group.ranks):
                self._end(running)
            elif mine & set(running.group.ranks) and not running.aborted:
                self._abort(running)
        self._wake.set()
