"""The storage check: nodes read a file, one after the other and then all at once."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Mapping, Sequence

from fabtui.model.events import PhaseStart, ProbeResult
from fabtui.sanitize import one_line
from fabtui.session.event_pipeline import EventPump
from fabtui.session.measure.p2p_result import number
from fabtui.session.node_client import NodeClient, ProbeFailed
from fabtui.transport.link import Message

#: Bytes that a read takes at most, and its time (s).
MOST, SECONDS = 1 << 30, 5.0
#: Time (s) beyond that in which an answer must come: a file system that hangs must not hold up the session.
GRACE = 10.0
#: Maximum number of nodes that read alone: at `SECONDS` each.
MOST_ALONE = 16


class StorageRead:
    """Measures how fast nodes read a file."""

    def __init__(self, pump: EventPump, clients: Mapping[str, NodeClient], path: str) -> None:
        self._pump = pump
        self._clients = clients
        self._path = path

    async def run(self, nodes: Sequence[str]) -> None:
        """Have each node read alone, then all at once, and report a result for each."""
        self._pump.emit(PhaseStart(name="storage", total=0))
        alone = nodes if len(nodes) <= MOST_ALONE else nodes[:: -(-len(nodes) // MOST_ALONE)]
        if len(alone) < len(nodes):
            self._pump.log("notice", f"storage: {len(alone)} of {len(nodes)} nodes read alone; all read at once")
        first = {node: await self._read(node, at / len(nodes)) for at, node in enumerate(nodes) if node in alone}
        reads: dict[str, asyncio.Task[Message | str]] = {}
        if len(nodes) > 1:
            async with asyncio.TaskGroup() as group:
                for at, node in enumerate(nodes):
                    # Half a place further than alone: these blocks were read by no node yet.
                    reads[node] = group.create_task(self._read(node, (at + 0.5) / len(nodes)))
        for node in nodes:
            together = reads[node].result() if node in reads else None
            self._report(node, first.get(node), together)
        rates = [rate for read in reads.values() if (rate := _rate(read.result())) is not None]
        if rates:
            text = f"{sum(rates):.0f} MB/s, {statistics.median(rates):.0f} MB/s each (median)"
            self._pump.log("info", f"storage: {len(rates)} nodes read at once: {text}")

    async def _read(self, node: str, share: float) -> Message | str:
        args = {"path": self._path, "bytes": MOST, "seconds": SECONDS, "share": share}
        try:
            return await self._clients[node].probe("storage", args, SECONDS + GRACE)
        except ProbeFailed as failed:
            return one_line(failed.text, 500)

    def _report(self, node: str, alone: Message | str | None, together: Message | str | None) -> None:
        values = [read for read in (together, alone) if isinstance(read, dict)]
        problems = dict.fromkeys(read for read in (alone, together) if isinstance(read, str))
        if not values:
            self._pump.emit(ProbeResult(node=node, probe="storage", error="; ".join(problems)))
            return
        value: Message = {name: values[0].get(name) for name in ("path", "filesystem", "file_bytes", "how")}
        rates = {"alone": _rate(alone), "together": _rate(together)}
        value |= {name: rate for name, rate in rates.items() if rate is not None}
        if problems:
            value["problem"] = "; ".join(problems)
        self._pump.emit(ProbeResult(node=node, probe="storage", value=value))


def _rate(read: Message | str | None) -> float | None:
    return number(read.get("mb_s")) if isinstance(read, dict) else None
