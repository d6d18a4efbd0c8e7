"""One probe on one node after another, without a session: for questions that any node of a job can answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from fabtui.sanitize import one_line
from fabtui.session.node_client import NodeClient, ProbeFailed
from fabtui.session.options import SessionOptions
from fabtui.transport.connector import Connector, ConnectorOptions
from fabtui.transport.link import NodeUnreachable

#: Nodes that are asked at the same time.
TOGETHER = 8
#: Maximum size (characters) of the texts of all parts of an answer.
MOST_TEXT = 128 << 20


class Reply(NamedTuple):
    """Answer of a node: the value and the parts of the probe, or why there is none (``problem``, ``hint``)."""

    node: str
    value: dict[str, Any] | None
    parts: list[dict[str, Any]]
    problem: str = ""
    hint: str = ""


async def replies(
    options: SessionOptions,
    probe: str,
    args: dict[str, Any],
    deadline: float,
    enough: Callable[[Reply], bool],
    notice: Callable[[str], None],
) -> list[Reply]:
    """Return the answers of nodes, in order, up to one that is enough; some nodes are asked at the same time."""
    found: list[Reply] = []
    async with Connector(_connection(options), notice) as connector:
        for start in range(0, len(options.hosts), TOGETHER):
            nodes = options.hosts[start : start + TOGETHER]
            found += await _together(connector, nodes, probe, args, deadline, enough)
            if any(enough(reply) for reply in found):
                break
    return found


async def _together(
    connector: Connector,
    nodes: Sequence[str],
    probe: str,
    args: dict[str, Any],
    deadline: float,
    enough: Callable[[Reply], bool],
) -> list[Reply]:
    """Return the answers of nodes that are asked at the same time, up to the first that is enough."""
    asked = [asyncio.create_task(_ask(connector, node, probe, args, deadline)) for node in nodes]
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


async def _ask(connector: Connector, node: str, probe: str, args: dict[str, Any], deadline: float) -> Reply:
    parts: list[dict[str, Any]] = []
    size = 0

    def take(part: dict[str, Any]) -> None:
        nonlocal size
        size += len(str(part.get("text", "")))
        if size <= MOST_TEXT:
            parts.append(part)

    try:
        async with _client(connector, node) as client:
            value = await client.probe(probe, args, deadline, take)
    except NodeUnreachable as failed:
        return Reply(node, None, [], one_line(failed.text, 300), failed.hint or "")
    except ProbeFailed as failed:
        return Reply(node, None, parts, one_line(failed.text, 300))
    return Reply(node, value, parts)


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


def _connection(options: SessionOptions) -> ConnectorOptions:
    return ConnectorOptions(
        transport=options.transport,
        ssh_config=options.ssh_config,
        remote_python=options.remote_python,
        host_key_policy=options.host_key_policy,
        connect_timeout=options.connect_timeout,
        lease=options.lease,
        fallback=options.fallback,
        job=options.job,
        placements=options.placements,
        via=options.via,
        wrap=options.wrap,
    )
