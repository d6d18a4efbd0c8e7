"""Counter sampling of all nodes while pairs are tested, and at the borders of phases, without delaying the tests."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any

from fabtui.model.counter_log import counts_anything, deltas
from fabtui.model.events import CounterDeltas, NodeGrowth
from fabtui.model.facts.node_view import dicts, number
from fabtui.model.growth_log import cleaned, counter_names
from fabtui.session.measure.measurement_context import MeasurementContext
from fabtui.session.node_client import NodeClient, ProbeFailed

#: Interval (s) between two samples of a node.
PERIOD = 2.0
#: Maximum number of nodes sampled per second; the counters of one node take about a millisecond.
NODES_PER_SECOND = 32.0
#: Deadline (s) of a sample.
DEADLINE = 3.0
#: Minimum interval (s) between two samples of a node, also between short tests.
MIN_INTERVAL = 0.1
#: Maximum number of nodes whose counters are read at once at the border of a phase.
MOST_AT_ONCE = 32
#: Maximum number of failed samples in a row; after that the node is no longer sampled.
MAX_FAILURES = 3


class CounterSampler:
    """Emits the counter deltas of the nodes of a test context; inventories list the data interfaces."""

    def __init__(self, context: MeasurementContext) -> None:
        self._context = context
        self._depth = 0
        self._ticker: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._last: dict[str, tuple[float, dict[str, Any]]] = {}
        self._reading: set[str] = set()
        self._again: set[str] = set()
        self._silent: set[str] = set()
        self._failures: dict[str, int] = {}
        self._border: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def sampling(self) -> Iterator[None]:
        """Sample all nodes at the start, periodically, and at the end; may be nested."""
        self._depth += 1
        if self._depth == 1:
            self._last.clear()
            self._ticker = self._go(self._tick())
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0 and self._ticker is not None:
                self._ticker.cancel()
                self.sample(self._context.clients)

    def sample(self, nodes: Iterable[str]) -> None:
        """Start samples of nodes in the background, at the start and end of a test that runs alone."""
        for node in nodes:
            client = self._context.clients.get(node)
            if client is None or client.lost is not None or node in self._silent:
                continue
            if node in self._reading:
                self._again.add(node)
            else:
                self._reading.add(node)
                self._go(self._read(node, client))

    def border(self, phase: str = "") -> None:
        """Read all counters of all nodes in the background: how much they grew in a phase that has ended.

        Without a name, a phase begins that is of interest; what was before is not.
        """
        # The nodes of a lab of a session are this machine, with one set of counters.
        if self._context.pump.model.lab is None:
            self._border = self._go(self._read_all(phase, self._border))

    async def _read_all(self, phase: str, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await asyncio.wait([previous])
        few = asyncio.Semaphore(MOST_AT_ONCE)

        async def read(node: str, client: NodeClient) -> None:
            async with few:
                with contextlib.suppress(ProbeFailed):
                    value = await client.probe("growth", {}, DEADLINE)
                    grew, seconds = cleaned(value.get("grew")), number(value.get("seconds"))
                    if phase and grew and seconds:
                        fell = counter_names(value.get("fell"))
                        event = NodeGrowth(node=node, phase=phase, seconds=seconds, grew=grew, fell=fell)
                        self._context.pump.emit(event)

        async with asyncio.TaskGroup() as group:
            for node, client in self._context.clients.items():
                if client.lost is None:
                    group.create_task(read(node, client))

    async def settle(self, seconds: float) -> None:
        """Wait for running samples, for a maximum number of seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _go(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _tick(self) -> None:
        while True:
            self.sample(self._context.clients)
            await asyncio.sleep(max(PERIOD, len(self._context.clients) / NODES_PER_SECOND))
            await self._context.go.wait()

    async def _read(self, node: str, client: NodeClient) -> None:
        """Sample a node, and again if that was requested meanwhile."""
        try:
            while True:
                self._again.discard(node)
                await self._sample_once(node, client)
                if node not in self._again or node in self._silent:
                    return
                await asyncio.sleep(MIN_INTERVAL)
        finally:
            self._reading.discard(node)

    async def _sample_once(self, node: str, client: NodeClient) -> None:
        asked = time.time()
        began = time.monotonic()
        try:
            async with asyncio.timeout(DEADLINE):
                value = await client.probe("counters", {"nics": self._interfaces(node)}, DEADLINE - 0.5)
        except (ProbeFailed, TimeoutError) as failed:
            self._failures[node] = self._failures.get(node, 0) + 1
            if self._failures[node] >= MAX_FAILURES or getattr(failed, "kind", "") == "unknown_probe":
                self._silent.add(node)
            return
        self._failures.pop(node, None)
        if not counts_anything(value):
            self._silent.add(node)
            return
        # The clocks of nodes differ: the time of a sample is the middle of its round trip by our clock.
        when = asked + (time.monotonic() - began) / 2
        before = self._last.get(node)
        self._last[node] = (when, value)
        if before is not None and (moved := deltas(before[1], value)):
            since, until = round(before[0], 6), round(when, 6)
            self._context.pump.emit(CounterDeltas(node=node, since=since, until=until, deltas=moved))

    def _interfaces(self, node: str) -> list[str]:
        record = self._context.pump.model.nodes.get(node)
        inventory = (record.inventory if record is not None else None) or {}
        # A link that flaps may have been down when it was listed. NCCL may also send over other than data ports.
        listed = [entry for name in ("data_addresses", "down_addresses") for entry in dicts(inventory.get(name))]
        names = [entry.get("nic") for entry in listed]
        names += [
            nic.get("name") for nic in dicts(inventory.get("nics")) if nic.get("addresses") and nic.get("name") != "lo"
        ]
        return list(dict.fromkeys(name for name in names if isinstance(name, str) and name))
