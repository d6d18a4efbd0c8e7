"""Work that computes and reads files, in a thread: the event loop continues, and a time limit holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fabtui.mcp.answer import Answer
from fabtui.mcp.tool import Call
from fabtui.sanitize import one_line

ResultT = TypeVar("ResultT")
#: More would take the processor from sessions on nodes, whose heartbeats must not wait.
_POOL = ThreadPoolExecutor(2, "fabtui-mcp")


class OutOfTime(TimeoutError):
    """The time limit of a call has passed, or the client has gone."""


async def in_thread(work: Callable[[], ResultT]) -> ResultT:
    """Return the result of a function that blocks."""
    return await asyncio.get_running_loop().run_in_executor(_POOL, work)


def in_threads(answer: Callable[[Call], Answer]) -> Callable[[Call], Awaitable[Answer]]:
    """Return the function of a tool that answers calls in a thread each."""
    return lambda call: in_thread(lambda: answer(call))


def reading(call: Call, name: str) -> Callable[[float], None]:
    """Return what is called with the share of a file that was read; it ends the reading when the time is over."""
    until = time.monotonic() + call.seconds

    def progress(share: float) -> None:
        call.step = lambda: f"reading {one_line(name, 80)}: {share:.0%}" if share < 1.0 else "looking for causes"
        # After the last event, what was read is used.
        if share < 1.0 and (call.given_up or time.monotonic() > until):
            raise OutOfTime

    return progress
