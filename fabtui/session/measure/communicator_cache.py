"""Communicators that the ranks on GPUs keep from one test of a pair to the next, and the memory they take.

At any time a GPU holds at most `bound` bytes for messages and communicators; its CUDA context, about 0.5 GiB, which a
process needs before it can do anything, is not counted. The least recently used communicators go first, between tests:
destroying one takes 0.5 s and holds a lock of the driver that transfers of the same process need.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from fabtui.model.schedule import Pair
from fabtui.sanitize import one_line
from fabtui.session.measure.measurement_context import MeasurementContext
from fabtui.session.node_client import GRACE
from fabtui.session.options import MIB
from fabtui.session.ranks.gather import Gathering, GroupRequest
from fabtui.transport.link import Message

#: Minimum of the bound, and its multiple of the largest message.
BOUND = 2048 * MIB
BOUND_MESSAGES = 4
#: Buffers of a rank, in messages: one that arrives and one to send.
BUFFERS = 2
#: Memory of a CUDA context with the code of NCCL; on H200, 0.5 GiB.
CONTEXT = 640 * MIB
#: CTAs (channels) of a communicator of two ranks of one node. Measured on H200 with NVLink: the same 359 GB/s as with
#: NCCL's default of 32, with half of the memory (260 instead of 516 MiB), in half of the time (0.06 s).
NODE_CTAS = 16
#: Memory of a communicator of two ranks until it is measured, by its number of CTAs (0: NCCL's default). One over
#: shared memory takes 28 to 92 MiB.
ESTIMATES = {0: 516 * MIB, NODE_CTAS: 260 * MIB}
#: First part of the key of a group's communicator.
GROUP = -1
#: Maximum number of communicators of an endpoint; each takes eight descriptors and two threads of the rank host (H200).
MOST = 16
#: Minimum size of a communicator: other processes may have freed memory while it was measured.
LEAST = 28 * MIB
#: Names of GPUs that need no more than `NODE_CTAS` for the rate of their links: NVLink 4. Faster links may need more.
HOPPER = ("H100", "H200", "H800", "H20")
#: Deadline (s) of the release of communicators; rank hosts that miss it are ended.
RELEASE_DEADLINE = 20.0


def bound(largest: int) -> int:
    """Return the maximum GPU memory (bytes) of tests with messages up to a size."""
    return max(BOUND, BOUND_MESSAGES * largest)


def needed(largest: int) -> int:
    """Return the free bytes of a GPU without which it is not tested: context, buffers and one communicator."""
    return CONTEXT + BUFFERS * largest + ESTIMATES[0]


class CommunicatorKey(NamedTuple):
    """A communicator of two ranks, the lower one first; ``ctas`` is its maximum number of CTAs, 0 without one."""

    a: int
    b: int
    ctas: int


class Released(NamedTuple):
    """Communicators for the ranks to release: of pairs (``True``: broken) and of groups."""

    links: list[tuple[CommunicatorKey, bool]]
    groups: bool


@dataclass(slots=True)
class _Kept:
    sizes: tuple[int, ...]  #: Bytes at each end, -1 at one that is lost.
    used: float
    earlier: Mapping[int, int]  #: Bytes of an earlier one at each end that broke, and was not released yet.
    ranks: tuple[int, ...] = ()  #: Ends of a group; those of a pair are in its key.
    broken: bool = False  #: Whether a test of it failed, or an end is lost; the next release gives its memory back.


class CommunicatorPool:
    """The communicators that ranks keep, as far as the controller knows."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[tuple[int, ...], _Kept] = {}
        self._processes: dict[int, int] = {}  #: The process that holds the communicators of each endpoint.
        self._used: defaultdict[int, int] = defaultdict(int)
        self._measured = dict(ESTIMATES)  #: Size of the last one that was measured, or the estimate.
        self._count: defaultdict[int, int] = defaultdict(int)
        self._largest = 0
        self._capacity = bound(0)

    def __len__(self) -> int:
        return len(self._kept)

    def resize(self, largest: int) -> None:
        """Set the size of the largest message, whose buffers are part of the bound."""
        self._largest = largest
        self._capacity = max(0, bound(largest) - BUFFERS * largest)

    def held(self, end: int) -> int:
        return self._used[end]

    def has(self, key: CommunicatorKey) -> bool:
        kept = self._kept.get(key)
        return kept is not None and not kept.broken

    def fits(self, key: CommunicatorKey) -> bool:
        return self.has(key) or not any(self._is_full(end, key.ctas) for end in key[:2])

    def full(self, ctas: int) -> Set[int]:
        return {end for end in self._used if self._is_full(end, ctas)}

    def _count_in(self, end: int, size: int, number: int = 0) -> None:
        """Count bytes and communicators in at an endpoint, or out."""
        self._used[end] += size
        self._count[end] += number

    def _is_full(self, end: int, ctas: int) -> bool:
        # One to make, and a second one if a direction fails in the first.
        more = 2 * ESTIMATES[ctas]
        return self._used[end] > 0 and (self._used[end] + more > self._capacity or self._count[end] >= MOST)

    def begin(self, key: CommunicatorKey, processes: Mapping[int, int]) -> None:
        """Note that a pair uses or makes its communicator; ``processes`` are the processes of its ends."""
        kept = self._kept.get(key)
        if kept is None or kept.broken:
            self._add(key, dict.fromkeys(key[:2], ESTIMATES[key.ctas]), processes)
        else:
            kept.used = self._clock()

    def begin_group(self, number: int, sizes: Mapping[int, int], processes: Mapping[int, int]) -> None:
        """Note a communicator of a group, with its size at each rank; no other test uses it."""
        self._add((GROUP, number), dict(sizes), processes)

    def _add(self, key: tuple[int, ...], held: Mapping[int, int], processes: Mapping[int, int]) -> None:
        now = {end: processes.get(end, 0) for end in held}
        self._lose(end for end, process in now.items() if self._processes.get(end, process) != process)
        self._processes |= now
        earlier = self._held_by(key) if key in self._kept else {}
        for end, size in held.items():
            self._count_in(end, size, end not in earlier)
        sizes = tuple(size + earlier.get(end, 0) for end, size in held.items())
        # The last one in the order of use.
        self._kept.pop(key, None)
        self._kept[key] = _Kept(sizes, self._clock(), earlier, tuple(held) if key[0] == GROUP else ())

    def _held_by(self, key: tuple[int, ...]) -> dict[int, int]:
        """Return the bytes of a communicator at each end that is not lost."""
        kept = self._kept[key]
        return {end: size for end, size in zip(kept.ranks or key[:2], kept.sizes, strict=True) if size >= 0}

    def measured(self, key: CommunicatorKey, end: int, size: int) -> None:
        """Note how much memory of a GPU the test of a pair took that made a communicator."""
        kept = self._kept.get(key)
        if kept is not None and end in key[:2] and (before := kept.sizes[key.index(end)]) >= 0:
            self._measured[key.ctas] = max(LEAST, min(size, ESTIMATES[key.ctas]))
            size = max(LEAST, size) + kept.earlier.get(end, 0)
            if size != before:
                self._count_in(end, size - before)
                a, b = kept.sizes
                kept.sizes = (size, b) if end == key.a else (a, size)

    def failed(self, key: CommunicatorKey, *, midway: bool = False) -> None:
        """Note that a test failed: both ends close the communicator, as far as they can.

        One that failed ``midway`` in a transfer may still write to its buffer: the next test has a different one.
        """
        if (kept := self._kept.get(key)) is None:
            return
        kept.broken = True
        if midway:
            for end in self._held_by(key):
                self._count_in(end, self._largest)
            kept.sizes = tuple(size + self._largest if size >= 0 else size for size in kept.sizes)

    def _forget(self, key: tuple[int, ...]) -> None:
        for end, size in self._held_by(key).items():
            self._count_in(end, -size, -1)
        del self._kept[key]

    def clear(self) -> None:
        """Forget all: the ranks let go of everything, or have ended."""
        self._kept.clear()
        self._processes.clear()
        self._used.clear()
        self._count.clear()

    def needs_of(self, wanted: Iterable[CommunicatorKey]) -> dict[int, int]:
        """Return how much room each endpoint needs for the tests of pairs."""
        needs: dict[int, int] = {}
        for key in wanted:
            kept = self._kept.get(key)
            if kept is None or kept.broken:
                for end in key[:2]:
                    first = end not in needs
                    needs[end] = 2 * ESTIMATES[key.ctas] if first else needs[end] + self._measured[key.ctas]
        return needs

    def make_room(
        self, needs: Mapping[int, int], processes: Mapping[int, int], wanted: Collection[CommunicatorKey] = ()
    ) -> Released | None:
        """Return what to let go of so that endpoints have room, and forget it; None if there is nothing.

        An endpoint has the room that it needs then, or nothing is kept there. Those used least recently go first, and
        those that are ``wanted`` last. What belonged to ``processes`` that have ended is forgotten.
        """
        self.lose(processes)
        broken = [key for key, kept in self._kept.items() if kept.broken]
        for key in broken:
            self._forget(key)
        # An end that the other one did not meet, or that is left of two, may have kept its half.
        links = [(CommunicatorKey(*key), True) for key in broken if key[0] != GROUP]

        def order(key: tuple[int, ...]) -> tuple[bool, bool, float]:
            return key[0] != GROUP, key in wanted, self._kept[key].used

        added = Counter(end for key in wanted if not self.has(key) for end in key[:2])
        groups = False
        for key in sorted(self._kept, key=order):
            if not any(end in needs and self._is_over(end, needs[end], added[end]) for end in self._held_by(key)):
                continue
            if key[0] == GROUP:
                groups = True
            else:
                links.append((CommunicatorKey(*key), False))
            self._forget(key)
        return Released(links, groups) if links or groups or broken else None

    def _is_over(self, end: int, need: int, more: int) -> bool:
        return self._used[end] + need > self._capacity or self._count[end] + min(max(1, more), MOST) > MOST

    def lose(self, processes: Mapping[int, int]) -> None:
        """Forget what ended processes held; ``processes`` are the running ones, by endpoint."""
        self._lose(end for end, process in self._processes.items() if processes.get(end) != process)

    def _lose(self, ends: Iterable[int]) -> None:
        lost = {*ends}
        for key, kept in [*self._kept.items()] if lost else []:
            if not (gone := lost & (held := self._held_by(key)).keys()):
                continue
            for end in gone:
                self._count_in(end, -held[end], -1)
            kept.broken = kept.broken or key[0] != GROUP
            kept.sizes = tuple(
                -1 if end in lost else size for end, size in zip(kept.ranks or key[:2], kept.sizes, strict=True)
            )
            if len(gone) == len(held):
                del self._kept[key]
        for end in lost:
            del self._processes[end]


@functools.cache
def _is_hopper(name: str) -> bool:
    return any(part in name for part in HOPPER)


class CommunicatorCache:
    """Chooses the communicator for each pair and evicts those that no longer fit."""

    def __init__(self, context: MeasurementContext) -> None:
        self._context = context
        self.pool = CommunicatorPool()
        #: Pairs within a node that are tested with NCCL's default, as they were slow with fewer CTAs.
        self.unlimited: set[Pair] = set()
        self._groups = itertools.count()
        self._after_group = False

    @property
    def on(self) -> bool:
        # All have the same engine.
        host = next(iter(self._context.hosts.values()), None)
        return host is not None and host.engine.name == "nccl"

    def key(self, a: int, b: int, *, unlimited: bool = False) -> CommunicatorKey:
        """Return the communicator of a pair: with fewer CTAs within a node, unless it is to have NCCL's default."""
        low, high = (a, b) if a < b else (b, a)
        first, second = self._context.endpoints[low], self._context.endpoints[high]
        fewer = first.node == second.node and _is_hopper(first.name) and _is_hopper(second.name)
        limited = fewer and not unlimited and (low, high) not in self.unlimited
        return CommunicatorKey(low, high, NODE_CTAS if limited else 0)

    def reuses(self, keys: Iterable[CommunicatorKey]) -> bool:
        return len(self.pool) > 0 and any(self.pool.has(key) for key in keys)

    def full(self, *, ctas: int = 0) -> Set[int]:
        """Return the endpoints that have no room for one more communicator, of NCCL's default unless given."""
        return self.pool.full(ctas) if self.on else frozenset()

    def fits(self, key: CommunicatorKey) -> bool:
        return not self.on or self.pool.fits(key)

    def begin(self, key: CommunicatorKey) -> None:
        if self.on:
            hosts = {end: self._context.host_of(end) for end in key[:2]}
            self.pool.begin(key, {end: host.process for end, host in hosts.items()})

    def measured(self, key: CommunicatorKey, end: int, held: Any) -> None:
        """Note how much memory a test took at an endpoint, as far as it is known; not validated."""
        if isinstance(held, int) and not isinstance(held, bool) and 0 <= held <= 8 * ESTIMATES[0]:
            self.pool.measured(key, end, held)

    def lose(self) -> None:
        self.pool.lose(self._processes())

    def _processes(self) -> dict[int, int]:
        return {rank: host.process for host in self._context.hosts.values() for rank in host.numbers}

    async def make_room(self, keys: Iterable[CommunicatorKey]) -> None:
        """Release communicators so that tests of pairs can begin; no test may be running."""
        if self.on:
            # The first ones: of very many, most find no room now.
            first = [*itertools.islice(keys, MOST * max(1, len(self._context.endpoints)))]
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
        ends = self._context.endpoints
        nodes: dict[str, int] = {}
        for rank in ranks:
            nodes[ends[rank].node] = nodes.get(ends[rank].node, 0) + 1
        local = {rank: nodes[ends[rank].node] - 1 for rank in ranks}
        return {n: local[n] * ESTIMATES[NODE_CTAS] + (len(ranks) - 1 - local[n]) * LEAST for n in ranks}

    async def _make_room(self, needs: Mapping[int, int], wanted: set[CommunicatorKey] | tuple[()]) -> None:
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

    async def _release(self, what: Message) -> None:
        self._after_group = False
        if not (ready := tuple(sorted(self._context.ready()))):
            return
        request = GroupRequest(ready, {"op": "rest", **what}, RELEASE_DEADLINE - GRACE)
        await Gathering(self._context, paused_too=True).run([request])
        problems, stuck = {}, {}
        for rank, report in request.last_reports("rested").items():
            if report and report.get("error"):
                host = self._context.host_of(rank)
                problems[host.node], stuck[host.node] = one_line(str(report["error"]), 300), host
        # What does not end would be part of the next tests: the next one starts the rank host again.
        await asyncio.gather(*(host.leave_down() for host in stuck.values()))
        nodes = {self._context.endpoints[rank].node: text for rank, text in request.gone.items()}
        problems |= {node: f"communicators were not released: {text}" for node, text in nodes.items()}
        for node, problem in problems.items():
            self._context.pump.log("warning", f"{node}: {problem}")
        self.lose()
