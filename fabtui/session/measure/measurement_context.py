"""Shared state of a session's tests: endpoints, rank hosts, the rendezvous store, and the sinks of results."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from fabtui.model.endpoints import Endpoint
from fabtui.model.events import Measured, PlanUpdate
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.pair_results import PairIndex
from fabtui.session.event_pipeline import EventPump
from fabtui.session.node_client import NodeClient
from fabtui.session.ranks.rank_host import RankHost
from fabtui.session.ranks.rendezvous_store import StoreMember, StoreServer

#: Time (s) that ranks may take to leave an aborted test before their rank host is killed.
ABORT_PATIENCE = 3.0
#: Time (s) that the other ranks of a test may take after one has failed.
LAG = 0.5
#: The same, if the rank failed to connect by itself, after it had waited for the others to join.
LAG_KNOWN = 0.2

#: Skipped pairs in one event: a line of a recording has a bounded length.
_SKIPPED_TOGETHER = 20_000


@dataclass(slots=True)
class MeasurementContext:
    """Shared state of the tests."""

    #: Not a test class for pytest.
    __test__ = False

    pump: EventPump
    go: asyncio.Event  #: Cleared while the session is paused: no new test starts.
    clients: dict[str, NodeClient] = field(default_factory=dict)  #: All nodes of the session by name.
    endpoints: list[Endpoint] = field(default_factory=list)  #: All endpoints, by number.
    hosts: dict[str, RankHost] = field(default_factory=dict)  #: Rank host of each node that has something to test.
    store: StoreServer = field(default_factory=StoreServer)
    attempts: PairIndex[tuple[str, ...]] = field(init=False)  #: Number of attempts at each test.
    #: Called with the nodes of a pair that runs alone, at its start and at its end.
    sample_counters: Callable[[set[str]], None] = lambda nodes: None
    #: Returns True while results are not to be trusted: this process was suspended.
    void: Callable[[], bool] = lambda: False
    arm: str | None = None  #: Running arm of an A/B comparison, or None.
    lasting: bool = False  #: Whether the rank hosts are needed after the pair tests.

    def __post_init__(self) -> None:
        self.attempts = PairIndex(self.pump.model.results.names)

    def report(self, measurements: list[Measurement]) -> None:
        if self.arm is not None:
            measurements = [replace(m, arm=self.arm) for m in measurements]
        if self.void():
            measurements = [m for m in measurements if m.verdict is Verdict.OK]
        if measurements:
            self.pump.emit(Measured(measurements=measurements))

    def skip(self, lines: list[tuple[str, str, str]]) -> None:
        """Report ``(src, dst, reason)`` of pairs that will not be tested."""
        for at in range(0, len(lines), _SKIPPED_TOGETHER):
            self.pump.emit(PlanUpdate(untested=lines[at : at + _SKIPPED_TOGETHER]))

    def attempt(self, kind: str, src: str, dst: str, *more: str) -> int:
        """Count an attempt at a test between two ends, and return the number of attempts."""
        key = (kind, *more, self.arm or "")
        count = self.attempts.get(key, src, dst, 0) + 1
        self.attempts.set(key, src, dst, count)
        return count

    def host_of(self, rank: int) -> RankHost:
        return self.hosts[self.endpoints[rank].node]

    def ready(self) -> set[int]:
        return {rank for host in self.hosts.values() for rank in host.numbers}

    async def settled(self) -> None:
        """Wait until the state of all rank hosts is known; those that were left down are restarted."""
        await asyncio.gather(*(host.settled(len(self.endpoints)) for host in self.hosts.values()))

    def why_not(self, rank: int) -> str:
        host = self.hosts.get(self.endpoints[rank].node)
        if host is None:
            return "it has no ranks"
        return host.withheld.get(rank) or host.broken or host.bad_ranks.get(rank, "not ready")

    def begin(self, ranks: Iterable[int]) -> int:
        """Return the number of a test of some ranks, which no node can guess, and let them meet in the store.

        The order of the ranks is that in their messages.
        """
        number = secrets.randbits(52)
        members: dict[int, StoreMember] = {}
        gloo = False
        for rank in ranks:
            host = self.host_of(rank)
            members[rank] = StoreMember(host.node, host.address_of(rank), host.admission.reported)
            gloo = host.engine.name == "gloo"
        self.store.begin(self._prefix(number), members, gloo=gloo)
        return number

    def forget(self, number: int) -> None:
        self.store.forget(self._prefix(number))

    def _prefix(self, number: int) -> str:
        # All have the same engine.
        host = next(iter(self.hosts.values()), None)
        return f"{host.engine.epoch if host else ''}/{number}/"
