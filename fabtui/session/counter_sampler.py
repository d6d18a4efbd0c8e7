"""Reading the counters of all nodes while pairs are tested, beside the tests: nothing waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any

from fabtui.model.counter_log import counts_anything, deltas
from fabtui.model.events import CounterDeltas
from fabtui.model.session_model import Model
from fabtui.session.event_pipeline import EventPump
from fabtui.session.measure.context import TestBed
from fabtui.session.node_client import NodeClient, ProbeFailed

#: Between two looks at a node.
PERIOD = 2.0
#: With more nodes than so many a second, each is looked at less often: the numbers of one take about a millisecond.
NODES_A_SECOND = 32.0
#: What a look may take.
DEADLINE = 3.0
#: Short tests that come one after the other are not told apart any further than this.
SHORTEST = 0.1
#: A node whose looks fail so often in a row is not asked again.
MOST_FAILURES = 3


class Counting:
    """Turns the counters of nodes into events.

    Args:
        bed: Knows the nodes that have something to test.
        pump: Where events go.
        model: Holds the inventories, which say which interfaces carry data.
    """

    def __init__(self, bed: TestBed, pump: EventPump, model: Model) -> None:
        self._bed = bed
        self._pump = pump
        self._model = model
        self._depth = 0
        self._ticker: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._last: dict[str, tuple[float, dict[str, Any]]] = {}
        self._reading: set[str] = set()
        self._again: set[str] = set()
        self._silent: set[str] = set()
        self._failures: dict[str, int] = {}

    @contextlib.contextmanager
    def over(self) -> Iterator[None]:
        """Look at all nodes at the beginning, every now and then, and at the end; may be nested."""
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
                self.look(self._bed.hosts)

    def look(self, nodes: Iterable[str]) -> None:
        """Begin to look at nodes now, as when a test that runs alone begins or ends; returns at once."""
        for node in nodes:
            host = self._bed.hosts.get(node)
            if host is None or host.client.lost is not None or node in self._silent:
                continue
            if node in self._reading:
                self._again.add(node)
            else:
                self._reading.add(node)
                self._go(self._read(node, host.client))

    async def settle(self, seconds: float) -> None:
        """Wait for looks that are under way, at most so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def close(self) -> None:
        """End all looks that are under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _go(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _tick(self) -> None:
        while True:
            self.look(self._bed.hosts)
            await asyncio.sleep(max(PERIOD, len(self._bed.hosts) / NODES_A_SECOND))
            await self._bed.go.wait()

    async def _read(self, node: str, client: NodeClient) -> None:
        """Look at a node, and once more where that was asked for meanwhile."""
        try:
            while True:
                self._again.discard(node)
                await self._look_once(node, client)
                if node not in self._again or node in self._silent:
                    return
                await asyncio.sleep(SHORTEST)
        finally:
            self._reading.discard(node)

    async def _look_once(self, node: str, client: NodeClient) -> None:
        asked = time.time()
        began = time.monotonic()
        try:
            async with asyncio.timeout(DEADLINE):
                value = await client.probe("counters", {"nics": self._interfaces(node)}, DEADLINE - 0.5)
        except (ProbeFailed, TimeoutError) as failed:
            self._failures[node] = self._failures.get(node, 0) + 1
            if self._failures[node] >= MOST_FAILURES or getattr(failed, "kind", "") == "unknown_probe":
                self._silent.add(node)
            return
        self._failures.pop(node, None)
        if not counts_anything(value):
            self._silent.add(node)
            return
        # The clocks of nodes differ, so that the time of a look is ours: the middle of its way there and back.
        when = asked + (time.monotonic() - began) / 2
        before = self._last.get(node)
        self._last[node] = (when, value)
        if before is not None and (moved := deltas(before[1], value)):
            since, until = round(before[0], 6), round(when, 6)
            self._pump.emit(CounterDeltas(node=node, since=since, until=until, deltas=moved))

    def _interfaces(self, node: str) -> list[str]:
        record = self._model.nodes.get(node)
        entries = ((record.inventory if record is not None else None) or {}).get("data_addresses")
        names = [entry.get("nic") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
        return list(dict.fromkeys(name for name in names if isinstance(name, str) and name))
