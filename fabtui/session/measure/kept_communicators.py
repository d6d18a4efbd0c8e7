"""Communicators of two ranks that are kept from one test of a pair to the next, in rank hosts on GPUs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from fabtui.model.pair_index import Pair
from fabtui.sanitize import one_line
from fabtui.session.measure.communicator_pool import ESTIMATES, LEAST, MOST, NODE_CTAS, CommunicatorPool, Key, Released
from fabtui.session.measure.context import TestBed
from fabtui.session.node_client import GRACE
from fabtui.session.ranks.gather import Gathering, GroupRequest

#: Engines whose communicators take memory of GPUs.
GPU_ENGINES = ("nccl", "torch")
#: Names of GPUs that need no more than `NODE_CTAS` for the rate of their links: NVLink 4. Faster links may need more.
HOPPER = ("H100", "H200", "H800", "H20")
#: Deadline (s) of the release of communicators; rank hosts that miss it are ended.
RELEASE_DEADLINE = 20.0


@functools.cache
def _is_hopper(name: str) -> bool:
    return any(part in name for part in HOPPER)


class KeptCommunicators:
    """Decides with which communicator a pair is tested, and has the ranks release those that there is no room for."""

    def __init__(self, bed: TestBed) -> None:
        self._bed = bed
        self.pool = CommunicatorPool()
        #: Pairs within a node that are tested with NCCL's default, as they were slow with fewer CTAs.
        self.unlimited: set[Pair] = set()
        self._groups = itertools.count()
        self._after_group = False

    @property
    def on(self) -> bool:
        """Return True if the ranks use GPUs."""
        return any(host.engine.name in GPU_ENGINES for host in self._bed.hosts.values())

    def key(self, a: int, b: int, *, unlimited: bool = False) -> Key:
        """Return the communicator of a pair: with fewer CTAs within a node, unless it is to have NCCL's default."""
        low, high = min(a, b), max(a, b)
        limited = not unlimited and (low, high) not in self.unlimited and self._needs_fewer(a, b)
        return Key(low, high, NODE_CTAS if limited else 0)

    def _needs_fewer(self, a: int, b: int) -> bool:
        ends = [self._bed.endpoints[n] for n in (a, b)]
        return ends[0].node == ends[1].node and all(_is_hopper(end.name) for end in ends)

    def reuses(self, keys: Iterable[Key]) -> bool:
        """Return True if any of some communicators is kept."""
        return len(self.pool) > 0 and any(self.pool.has(key) for key in keys)

    def full(self, *, ctas: int = 0) -> Set[int]:
        """Return the endpoints that have no room for one more communicator, of NCCL's default unless given."""
        return self.pool.full(ctas) if self.on else frozenset()

    def fits(self, key: Key) -> bool:
        """Return True if the test of a pair may begin."""
        return not self.on or self.pool.fits(key)

    def begin(self, key: Key) -> dict[str, Any]:
        """Note that the test of a pair begins; return what its ranks have to know."""
        if self.on:
            hosts = {end: self._bed.host_of(end) for end in key[:2]}
            self.pool.begin(key, {end: host.process for end, host in hosts.items()})
        return {"ctas": key.ctas, "keep": self.on}

    def measured(self, key: Key, end: int, held: Any) -> None:
        """Note how much memory a test took at an endpoint, as far as it is known; not validated."""
        if isinstance(held, int) and not isinstance(held, bool) and 0 <= held <= 8 * ESTIMATES[0]:
            self.pool.measured(key, end, held)

    def failed(self, key: Key) -> None:
        """Note that the test of a pair failed."""
        self.pool.failed(key)

    def lose(self) -> None:
        """Forget what rank hosts held that have ended."""
        self.pool.lose(self._processes())

    def _processes(self) -> dict[int, int]:
        return {rank: host.process for host in self._bed.hosts.values() for rank in host.numbers}

    async def make_room(self, keys: Sequence[Key]) -> None:
        """Release communicators so that tests of pairs can begin; no test may be running."""
        # The first ones: of very many, most find no room now.
        first = keys[: MOST * max(1, len(self._bed.endpoints))]
        if self.on:
            await self._make_room(self.pool.needs_of(first), set(first))

    async def begin_groups(self, groups: Iterable[Sequence[int]]) -> None:
        """Make room for the communicators of groups of ranks, and note them; no test may be running."""
        if not self.on:
            return
        sizes = [self._sizes(ranks) for ranks in groups]
        needs: dict[int, int] = {}
        for size in sizes:
            for rank, need in size.items():
                needs[rank] = needs.get(rank, 0) + need
        await self._make_room(needs, ())
        for size in sizes:
            self.pool.begin_group(next(self._groups), size, self._processes())
        self._after_group = True

    def _sizes(self, ranks: Sequence[int]) -> dict[int, int]:
        """Return an estimate of the memory of a communicator at each of its ranks: a part for each connection."""
        ends = self._bed.endpoints
        nodes: dict[str, int] = {}
        for rank in ranks:
            nodes[ends[rank].node] = nodes.get(ends[rank].node, 0) + 1
        local = {rank: nodes[ends[rank].node] - 1 for rank in ranks}
        return {n: local[n] * ESTIMATES[NODE_CTAS] + (len(ranks) - 1 - local[n]) * LEAST for n in ranks}

    async def _make_room(self, needs: Mapping[int, int], wanted: set[Key] | tuple[()]) -> None:
        released = self.pool.make_room(needs, self._processes(), wanted)
        if released is None and self._after_group:
            # A broken one may keep its GPU busy.
            released = Released([], False)
        if released is not None:
            links = [[*key, broken] for key, broken in released.links]
            await self._release({"whole": False, "groups": released.groups, "links": links})

    async def release(self) -> None:
        """Have the ranks release all communicators; ranks that end release them anyway."""
        if len(self.pool) or self._after_group:
            self.pool.clear()
            await self._release({"whole": True})

    async def _release(self, what: dict[str, Any]) -> None:
        self._after_group = False
        if not (ready := tuple(sorted(self._bed.ready()))):
            return
        request = GroupRequest(ready, {"op": "rest", **what}, RELEASE_DEADLINE - GRACE)
        await Gathering(self._bed, paused_too=True).run([request])
        problems = [
            f"{self._bed.endpoints[rank].node}: {one_line(str(report['error']), 300)}"
            for rank, report in request.last_reports("rested").items()
            if report and report.get("error")
        ]
        nodes = {self._bed.endpoints[rank].node: text for rank, text in request.gone.items()}
        problems += [f"{node}: communicators were not released: {text}" for node, text in nodes.items()]
        for problem in problems:
            self._bed.pump.log("warning", problem)
