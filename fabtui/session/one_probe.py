"""One probe on one node after another, beside or without a session: for questions about a job."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

from fabtui.sanitize import one_line
from fabtui.session.connection import connector_options
from fabtui.session.node_client import NodeClient, ProbeFailed
from fabtui.session.options import SessionOptions
from fabtui.transport.connector import Connector
from fabtui.transport.link import NodeUnreachable

#: Nodes that are asked at the same time.
TOGETHER = 8
#: Maximum size (characters) of the texts of all parts of an answer.
MOST_TEXT = 128 << 20


class Reply(NamedTuple):
    """Answer of a node: the value and the parts of the probe, or why there is none (``problem``, ``hint``).

    ``backend`` is how it was reached; "" if it was not.
    """

    node: str
    value: dict[str, Any] | None
    parts: list[dict[str, Any]]
    problem: str = ""
    hint: str = ""
    backend: str = ""


#: Returns the open link to a node, or raises ProbeFailed.
ClientOf = Callable[[str], Awaitable[NodeClient]]


class AskNodes(Protocol):
    """Asker of several nodes."""

    async def __call__(
        self, nodes: Sequence[str], probe: str, args: dict[str, Any], deadline: float, enough: Callable[[Reply], bool]
    ) -> list[Reply]:
        """Return the answers of nodes, in order, up to one that is enough; some nodes are asked at the same time."""


def over_new_links(options: SessionOptions, notice: Callable[[str], None]) -> AskNodes:
    """Return an asker with links of its own. Of the jobs of Slurm on a node only that of the options is meant."""

    async def ask(
        nodes: Sequence[str], probe: str, args: dict[str, Any], deadline: float, enough: Callable[[Reply], bool]
    ) -> list[Reply]:
        args = {**args, "job": options.job}
        async with Connector(connector_options(options), notice) as connector:
            return await _in_groups(nodes, enough, lambda node: _connect(connector, node, probe, args, deadline))

    return ask


def over_open_links(client_of: ClientOf, job: str) -> AskNodes:
    """Return an asker over links that are open. Of the jobs of Slurm on a node only one is meant."""

    async def one(node: str, probe: str, args: dict[str, Any], deadline: float) -> Reply:
        try:
            client = await client_of(node)
        except ProbeFailed as failed:
            return Reply(node, None, [], one_line(failed.text, 300))
        return await _ask(client, node, probe, args, deadline)

    async def ask(
        nodes: Sequence[str], probe: str, args: dict[str, Any], deadline: float, enough: Callable[[Reply], bool]
    ) -> list[Reply]:
        args = {**args, "job": job}
        return await _in_groups(nodes, enough, lambda node: one(node, probe, args, deadline))

    return ask


async def replies(
    options: SessionOptions,
    probe: str,
    args: dict[str, Any],
    deadline: float,
    enough: Callable[[Reply], bool],
    notice: Callable[[str], None],
) -> list[Reply]:
    """Return the answers of the nodes of the options over links of their own, up to one that is enough."""
    return await over_new_links(options, notice)(options.hosts, probe, args, deadline, enough)


async def _in_groups(
    nodes: Sequence[str], enough: Callable[[Reply], bool], one: Callable[[str], Coroutine[Any, Any, Reply]]
) -> list[Reply]:
    found: list[Reply] = []
    for start in range(0, len(nodes), TOGETHER):
        found += await _together([asyncio.create_task(one(node)) for node in nodes[start : start + TOGETHER]], enough)
        if any(enough(reply) for reply in found):
            break
    return found


async def _together(asked: Sequence[asyncio.Task[Reply]], enough: Callable[[Reply], bool]) -> list[Reply]:
    """Return the answers of nodes that are asked at the same time, up to the first that is enough."""
    found: list[Reply] = []
    try:
        for answer in asyncio.as_completed(asked):
            found.append(await answer)
            if enough(found[-1]):
                break
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return found


async def _connect(connector: Connector, node: str, probe: str, args: dict[str, Any], deadline: float) -> Reply:
    try:
        async with _client(connector, node) as client:
            return await _ask(client, node, probe, args, deadline)
    except NodeUnreachable as failed:
        return Reply(node, None, [], one_line(failed.text, 300), failed.hint or "")


async def _ask(client: NodeClient, node: str, probe: str, args: dict[str, Any], deadline: float) -> Reply:
    parts: list[dict[str, Any]] = []
    size = 0

    def take(part: dict[str, Any]) -> None:
        nonlocal size
        size += len(str(part.get("text", "")))
        if size <= MOST_TEXT:
            parts.append(part)

    try:
        value = await client.probe(probe, args, deadline, take)
    except ProbeFailed as failed:
        return Reply(node, None, parts, one_line(failed.text, 300), backend=client.link.backend)
    return Reply(node, value, parts, backend=client.link.backend)


@contextlib.asynccontextmanager
async def _client(connector: Connector, node: str) -> AsyncIterator[NodeClient]:
    client = NodeClient(await connector.open(node))
    reading = asyncio.create_task(_read(client))
    try:
        yield client
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await client.link.close()


async def _read(client: NodeClient) -> None:
    """Receive messages, of which only answers to the probe matter."""
    async for _ in client.messages():
        pass
