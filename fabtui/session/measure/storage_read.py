"""The storage check: nodes read a file or small files, one after the other, then 2, 4, 8 ... and all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

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
        reads: dict[str, Message | str] = {}
        curve: list[list[float]] = []
        for many in steps(len(nodes)):
            reads = await self._together(nodes[:many])
            if total := _total(reads.values()):
                curve.append(list(total))
        for node in nodes:
            self._report(node, first.get(node), reads.get(node), curve)
        if curve:
            *_, (readers, rate, files) = curve
            text = f"{rate:.0f} MB/s" + (f", {files:.0f} files/s" if files else "")
            self._pump.log("info", f"storage: {readers:.0f} nodes read at once: {text}")

    async def _together(self, nodes: Sequence[str]) -> dict[str, Message | str]:
        async with asyncio.TaskGroup() as group:
            # Half a place further than alone: these blocks were read by no node yet.
            tasks = {
                node: group.create_task(self._read(node, (at + 0.5) / len(nodes))) for at, node in enumerate(nodes)
            }
        return {node: task.result() for node, task in tasks.items()}

    async def _read(self, node: str, share: float) -> Message | str:
        args = {"path": self._path, "bytes": MOST, "seconds": SECONDS, "share": share}
        try:
            return await self._clients[node].probe("storage", args, SECONDS + GRACE)
        except ProbeFailed as failed:
            return one_line(failed.text, 500)

    def _report(
        self, node: str, alone: Message | str | None, together: Message | str | None, curve: list[list[float]]
    ) -> None:
        values = [read for read in (together, alone) if isinstance(read, dict)]
        problems = dict.fromkeys(read for read in (alone, together) if isinstance(read, str))
        if not values:
            self._pump.emit(ProbeResult(node=node, probe="storage", error="; ".join(problems)))
            return
        value: Message = {name: values[0].get(name) for name in ("path", "filesystem", "file_bytes", "how", "files")}
        rates = {"alone": _rate(alone), "together": _rate(together), "slowest": _rate(together or alone, "slowest")}
        rates |= {"ops_alone": _rate(alone, "ops_s"), "ops_together": _rate(together, "ops_s")}
        if curve:
            # Number of nodes, MB/s and files/s of all of them.
            value["curve"] = curve
        value |= {name: rate for name, rate in rates.items() if rate is not None}
        if problems:
            value["problem"] = "; ".join(problems)
        self._pump.emit(ProbeResult(node=node, probe="storage", value=value))


def steps(nodes: int) -> list[int]:
    """Return how many nodes read at once: 2, 4, 8 ... and all."""
    return [*(1 << turn for turn in range(1, nodes.bit_length()) if 1 << turn < nodes), nodes] if nodes > 1 else []


def _rate(read: Message | str | None, name: str = "mb_s") -> float | None:
    return number(read.get(name)) if isinstance(read, dict) else None


def _total(reads: Collection[Message | str]) -> tuple[int, float, float] | None:
    """Return how many nodes read, and MB/s and files/s of all of them; None without any."""
    rates = [rate for read in reads if (rate := _rate(read)) is not None]
    return (len(rates), sum(rates), sum(_rate(read, "ops_s") or 0.0 for read in reads)) if rates else None
