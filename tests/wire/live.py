"""Short live sessions over real SSH servers, with CPU ranks (gloo)."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import SessionOptions
from tests.wire import sshd


@asynccontextmanager
async def session(field: sshd.Field, *nodes: str, **options: object) -> AsyncIterator[LiveFeed]:
    """Run a first sweep over nodes; the session ends with the context."""
    chosen = {
        **{"probes": ("p2p",), "layers": ("p2p",), "bytes": 65536, "iters": 4, "warmup": 1, "ranks_per_node": 1},
        **{"remote_python": sys.executable, "ssh_config": field.config(), "hosts": nodes},
        **options,
    }
    feed = LiveFeed(SessionOptions(**chosen))  # type: ignore[arg-type]
    try:
        await feed.run()
        yield feed
    finally:
        await feed.close()
