"""Work that computes and reads files, in threads: the event loop continues, and a time limit holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from fabtui.mcp.answer import Answer
from fabtui.mcp.tool import ToolCall
from fabtui.sanitize import one_line

ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")
#: For files. One of 64 MiB takes seconds, in which its thread cannot be interrupted, and 400 MiB of memory; more at
#: once would also take the processor from sessions on nodes, whose heartbeats must not wait.
_FILES = ThreadPoolExecutor(4, "fabtui-mcp-files")
#: For everything else, which is short, and waits for no file of other calls.
_SHORT = ThreadPoolExecutor(16, "fabtui-mcp")


class OutOfTime(TimeoutError):
    """The time limit of a call has passed, or the client has gone."""


async def in_thread(work: Callable[[], ResultT], pool: ThreadPoolExecutor = _SHORT) -> ResultT:
    return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, work)


def answered_in_thread(
    answer: Callable[[ToolCall], Answer], is_short: Callable[[ToolCall], bool] = lambda call: False
) -> Callable[[ToolCall], Awaitable[Answer]]:
    """Return the function of a tool that answers calls in a thread each; ``is_short``: whether a call reads no file."""
    return lambda call: in_thread(lambda: answer(call), _SHORT if is_short(call) else _FILES)


def while_wanted(call: ToolCall, items: Iterable[ItemT]) -> Iterator[ItemT]:
    """Yield items as long as somebody waits for the answer, and its time is not over."""
    wanted = _wanted(call)
    for one in items:
        wanted()
        yield one


def reading(call: ToolCall, name: str) -> Callable[[float], None]:
    """Return what is called with the share of a file that was read; it ends the reading when the time is over."""
    wanted = _wanted(call)

    def progress(share: float) -> None:
        call.step = lambda: f"reading {one_line(name, 80)}: {share:.0%}" if share < 1.0 else "looking for causes"
        # After the last event, what was read is used.
        if share < 1.0:
            wanted()

    return progress


def _wanted(call: ToolCall) -> Callable[[], None]:
    """Return what raises `OutOfTime` when nobody is waiting for an answer, or its time is over."""
    until = time.monotonic() + call.seconds

    def check() -> None:
        if call.given_up or time.monotonic() > until:
            raise OutOfTime

    return check
