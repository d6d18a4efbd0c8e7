"""Limits on concurrent logins, and retries of busy servers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from fabtui.transport.link import NodeUnreachable

#: Time (s) a server may take to send its banner before its place is released.
PATIENCE = 1.5
#: Range of the pause (s) before the first retry.
BACK_OFF = (0.2, 0.6)
TRIES = 5

Result = TypeVar("Result")


class Gates:
    """Limits on concurrent logins: ``each`` through one jump host or proxy command, ``direct`` without."""

    def __init__(self, each: int, direct: int) -> None:
        self._each = each
        self._direct = direct
        self._gates: dict[str, asyncio.Semaphore] = {}

    @contextlib.asynccontextmanager
    async def login(self, via: str, greeted: Callable[[], bool]) -> AsyncIterator[None]:
        """Hold a place for the length of a login via a jump host or proxy command, empty for none.

        The place is released early if the server has sent no banner: a host that hangs must not block others.
        """
        gate = self._gates.setdefault(via, asyncio.Semaphore(self._each if via else self._direct))
        async with contextlib.AsyncExitStack() as place:
            await place.enter_async_context(gate)

            def check() -> None:
                if not greeted():
                    place.pop_all()
                    gate.release()

            timer = asyncio.get_running_loop().call_later(PATIENCE, check)
            try:
                yield
            finally:
                timer.cancel()


async def with_retries(attempt: Callable[[], Awaitable[Result]]) -> Result:
    """Repeat a login while the server drops it before the greeting, with growing, jittered pauses.

    Raises:
        NodeUnreachable: The last try's, or at once one of a kind other than ``busy``.
    """
    for number in range(TRIES - 1):
        try:
            return await attempt()
        except NodeUnreachable as error:
            if error.kind != "busy":
                raise
        await asyncio.sleep(min(2.0, random.uniform(*BACK_OFF) * 2**number))
    return await attempt()
