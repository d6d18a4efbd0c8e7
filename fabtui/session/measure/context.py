"""What all tests of a session share: the endpoints, the rank hosts, the store, the way results go."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from fabtui.model.endpoints import Endpoint
from fabtui.model.measurement import Measurement
from fabtui.model.pair_index import PairIndex
from fabtui.session.ranks.rank_host import RankHost
from fabtui.session.ranks.rendezvous_store import StoreServer

#: How long ranks that were told to stop waiting may take before their rank host is killed.
ABORT_PATIENCE = 3.0
#: How long the other ranks of a test may take when one is through and failed: they have nothing left to wait for.
LAG = 0.5
#: And when that one could not connect for a reason of its own, which it gave time to the other's to come in.
LAG_KNOWN = 0.2


@dataclass(slots=True)
class TestBed:
    """The state that tests work on.

    Attributes:
        endpoints: All endpoints, by number.
        hosts: The rank host of each node that has something to test.
        store: Where ranks meet.
        go: Cleared while the session is paused: no new test starts.
        report: Called with finished measurements.
        began: Called with the pairs (ordered, by name) that have just begun.
        untested: Called with ``(src, dst, why)`` of what will not be tested.
        say: Called with a level and a line for the event log.
        ids: Numbers for tests, never used twice in a session.
        attempts: How often each thing was tested.
        lone: Called with the nodes of a pair that runs with no other traffic, when it begins and when it ends.
        arm: Which arm of an A/B comparison runs, or None.
        flush: Waits until all that was told so far is in the model: between parts of what would be much at once.
        lasting: Whether the rank hosts are needed once the pairs are tested.
    """

    #: Not a test, whatever its name makes pytest believe.
    __test__ = False

    report: Callable[[list[Measurement]], None]
    began: Callable[[list[tuple[str, str]]], None]
    untested: Callable[[list[tuple[str, str, str]]], None]
    say: Callable[[str, str], None]
    go: asyncio.Event
    endpoints: list[Endpoint] = field(default_factory=list)
    hosts: dict[str, RankHost] = field(default_factory=dict)
    store: StoreServer = field(default_factory=StoreServer)
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    attempts: PairIndex[tuple[str, ...]] = field(default_factory=PairIndex)
    lone: Callable[[set[str]], None] = lambda nodes: None
    arm: str | None = None
    flush: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)
    lasting: bool = False

    def attempt(self, kind: str, src: str, dst: str, *more: str) -> int:
        """Count one more attempt at something between two ends, and return how many there were."""
        what = (kind, *more, self.arm or "")
        count = self.attempts.get(what, src, dst, 0) + 1
        self.attempts.set(what, src, dst, count)
        return count

    def host_of(self, rank: int) -> RankHost:
        """Return the rank host that runs an endpoint."""
        return self.hosts[self.endpoints[rank].node]

    def ready(self) -> set[int]:
        """Return the endpoints that can be tested."""
        return {rank for host in self.hosts.values() for rank in host.numbers}

    async def settled(self) -> None:
        """Wait until all rank hosts can be used or are known not to be; those that were left down are started."""
        await asyncio.gather(*(host.settled(len(self.endpoints)) for host in self.hosts.values()))

    def why_not(self, rank: int) -> str:
        """Say why an endpoint cannot be tested."""
        host = self.hosts.get(self.endpoints[rank].node)
        if host is None:
            return "it has no ranks"
        return host.broken or host.bad_ranks.get(rank, "not ready")

    def forget(self, number: int) -> None:
        """Drop what a test that has ended left in the store."""
        for epoch in {host.epoch for host in self.hosts.values()}:
            self.store.forget(f"{epoch}/{number}/")
