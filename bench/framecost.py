"""Cost of a frame, measured from within the app that draws it."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from typing import Any

#: Cells that change within one frame.
UPDATES = 10_000


async def until_drawn(app: Any) -> None:
    """Wait until an app has drawn what is to be drawn."""
    done = asyncio.Event()
    app.call_after_refresh(done.set)
    await done.wait()


async def cpu_of(frames: int, prepare: Callable[[], object], drawn: Callable[[], Awaitable[None]]) -> float:
    """Return the least CPU milliseconds a frame over many short runs; ``prepare`` is part of the frame."""
    best = float("inf")
    run = min(10, frames)
    for _ in range(max(1, 5 * frames // run)):
        began = time.process_time()
        for _ in range(run):
            prepare()
            await drawn()
        best = min(best, (time.process_time() - began) / run * 1000)
    return best


def memory() -> float:
    """Return the most memory that this process had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def track_frames(app: Any) -> Callable[[], int]:
    """Track frames written to the terminal; the result returns the bytes of the largest since its last call."""
    largest = 0
    writer = app._driver._writer_thread
    write = writer.write

    def tracked(data: str) -> None:
        nonlocal largest
        largest = max(largest, len(data.encode()))
        write(data)

    writer.write = tracked

    def taken() -> int:
        nonlocal largest
        before, largest = largest, 0
        return before

    return taken
