"""Links to the nodes of a running job that stay open for further questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from fabtui.sanitize import one_line
from fabtui.scheduler.slurm import GpuUse, gpu_use
from fabtui.session.node_client import NodeClient, ProbeFailed
from fabtui.session.options import SessionOptions, connector_options
from fabtui.session.running_job.inquiry import read_messages
from fabtui.transport.connector import Connector
from fabtui.transport.link import NodeUnreachable

#: Time (s) after which a node that was not reached is tried again.
RETRY = 60.0


class JobLinks:
    """Links to nodes that stay open for further questions."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._clients: dict[str, NodeClient] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._reading.values():
            task.cancel()
        await asyncio.gather(*self._reading.values(), return_exceptions=True)
        await asyncio.gather(*(client.link.close() for client in self._clients.values()), return_exceptions=True)

    async def client(self, node: str) -> NodeClient:
        """Return the open link to a node; ProbeFailed if it is not reached. Two questions at once share one link."""
        async with self._opening.setdefault(node, asyncio.Lock()):
            return await self._client(node)

    async def _client(self, node: str) -> NodeClient:
        client = self._clients.get(node)
        if client is not None and client.lost is None:
            return client
        now = asyncio.get_running_loop().time()
        when, text = self._failed.get(node, (float("-inf"), ""))
        if client is not None and client.lost is not None:
            text = client.lost.text
            await self._drop(node)
            self._failed[node] = (now, text)
            raise ProbeFailed("lost", text)
        if now - when < RETRY:
            raise ProbeFailed("lost", text)
        try:
            client = self._clients[node] = NodeClient(await self._connector.open(node))
        except NodeUnreachable as failed:
            text = one_line(failed.text, 300) + (f" (next: {one_line(failed.hint, 300)})" if failed.hint else "")
            self._failed[node] = (asyncio.get_running_loop().time(), text)
            raise ProbeFailed("lost", text) from None
        self._reading[node] = asyncio.create_task(read_messages(client))
        return client

    async def _drop(self, node: str) -> None:
        client, task = self._clients.pop(node), self._reading.pop(node)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.link.close()


@asynccontextmanager
async def links_to(options: SessionOptions, notice: Callable[[str], None]) -> AsyncIterator[JobLinks]:
    """Yield links to the nodes of a job; only GPUs that Slurm gave to it are visible there."""
    asked: asyncio.Task[GpuUse] | None = None

    async def gpus(node: str) -> Mapping[str, object] | None:
        nonlocal asked
        if asked is None:
            asked = asyncio.create_task(asyncio.to_thread(gpu_use, options.hosts, options.job))
        return (await asyncio.shield(asked)).setting(node)

    wanted: Callable[[str], Awaitable[Mapping[str, object] | None]] | None = gpus if options.job else None
    connector = Connector(connector_options(options, gpus=wanted), notice)
    async with connector, JobLinks(connector) as links:
        yield links
