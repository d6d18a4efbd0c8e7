"""Whole sessions over played nodes: running them, and what they come to."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import SessionOptions
from tests.unit.session.fakenodes import FakeNodes, Script


def p2p_of(model: Model) -> dict[tuple[str, str], Verdict]:
    return {(m.src, m.dst): model.verdict(m) for m in model.measurements() if m.layer is Layer.P2P}


def world_of(model: Model) -> dict[tuple[str, str], Verdict]:
    return {(m.src, m.dst): model.verdict(m) for m in model.measurements() if m.layer is Layer.WORLD}


def feed_of(script: Script, **options: Any) -> tuple[LiveFeed, FakeNodes]:
    """Return a session over the nodes of a script, and the nodes."""
    nodes = FakeNodes(script)
    return LiveFeed(SessionOptions(**{"hosts": tuple(script.gpus), "timeout": 0.5, **options}), nodes), nodes


async def until(done: Callable[[], bool]) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(20):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def played(script: Script, **options: Any) -> AsyncIterator[tuple[LiveFeed, FakeNodes]]:
    feed, nodes = feed_of(script, **options)
    try:
        yield feed, nodes
    finally:
        await feed.close()


async def run(script: Script, **options: Any) -> tuple[Model, FakeNodes]:
    """Run a session to its end, and return what it found and the nodes."""
    async with played(script, **options) as (feed, nodes), asyncio.timeout(40):
        await feed.run()
    return feed.model, nodes
