"""One node of a session: its link, its open probes, and its rank host."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from typing import Any

from fabtui.transport.link import Link, LinkLost

#: Added to a deadline that the node keeps itself, before the controller gives up on it.
GRACE = 5.0

#: A node that prints more than this fills the recording and says nothing new.
MOST_LINES = 20_000

Part = Callable[[dict[str, Any]], None]


class ProbeFailed(Exception):
    """A probe gave no value.

    Attributes:
        kind: One word: ``timeout``, ``lost``, ``worker_died``, or what the probe said.
        text: One line.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


def _fail(future: asyncio.Future[dict[str, Any]], error: ProbeFailed) -> None:
    """Let what waits for a future know that it failed; who still sends its question may never come to wait for it."""
    if not future.done():
        future.set_exception(error)
        future.exception()


class Remote:
    """Speaks with one node.

    Args:
        link: The open link.
        on_rank: Called with each message of the rank host.
        on_exit: Called with the ``exit`` message when the rank host ended.
        on_log: Called with a line that something on the node printed.
        on_halted: Called when the rank host's process was stopped (True) or goes on (False).
    """

    def __init__(
        self,
        link: Link,
        on_rank: Callable[[dict[str, Any]], None],
        on_exit: Callable[[dict[str, Any]], None],
        on_log: Callable[[str], None],
        on_halted: Callable[[bool], None] = lambda on: None,
    ) -> None:
        self.link = link
        self.node = link.node
        self.lost: LinkLost | None = None
        self._on_rank = on_rank
        self._on_exit = on_exit
        self._on_log = on_log
        self._on_halted = on_halted
        self._ids = itertools.count(1)
        self._probes: dict[int, tuple[asyncio.Future[dict[str, Any]], Part | None]] = {}
        self._spawned: asyncio.Future[dict[str, Any]] | None = None
        self._ranks_live = False
        self._lines = 0

    async def serve(self) -> LinkLost:
        """Take messages until the link ends, and return why it ended. All open probes fail then."""
        try:
            while True:
                self._take_safely(await self.link.receive())
        except LinkLost as lost:
            self.lost = lost
        for future, _ in self._probes.values():
            _fail(future, ProbeFailed("lost", self.lost.text))
        self._probes.clear()
        if self._spawned is not None:
            _fail(self._spawned, ProbeFailed("lost", self.lost.text))
        if self.lost.kind == "protocol":
            await self.link.close()
        return self.lost

    def _take_safely(self, message: dict[str, Any]) -> None:
        try:
            self._take(message)
        except Exception as error:
            # Whatever a node says, and whatever goes wrong with it here: the session of all others goes on.
            raise LinkLost("protocol", f"a message cannot be read: {type(error).__name__}: {error}") from error

    def _take(self, message: dict[str, Any]) -> None:
        kind = message.get("t")
        if kind == "rank":
            if isinstance(inner := message.get("m"), dict):
                self._on_rank(inner)
        elif kind in ("part", "result"):
            self._take_probe(kind, message)
        elif kind == "spawned":
            self._ranks_live = True
            if self._spawned is not None and not self._spawned.done():
                self._spawned.set_result(message)
        elif kind == "exit":
            # The end of one that `spawn` replaces is no news.
            if self._ranks_live:
                self._ranks_live = False
                self._on_exit(message)
        elif kind == "stopped":
            if self._ranks_live:
                self._on_halted(message.get("on") is True)
        elif kind == "log":
            self._lines += 1
            if self._lines <= MOST_LINES:
                self._on_log(str(message.get("text", "")))
            elif self._lines == MOST_LINES + 1:
                self._on_log(f"{MOST_LINES} lines were printed here; no more of them are kept")

    def _take_probe(self, kind: str, message: dict[str, Any]) -> None:
        number = message.get("id")
        found = self._probes.get(number) if isinstance(number, int) else None
        if found is None:
            return
        future, on_part = found
        value = message.get("value")
        if kind == "part":
            if on_part is not None and isinstance(value, dict):
                on_part(value)
        elif not future.done():
            if message.get("ok") is True and isinstance(value, dict):
                future.set_result(value)
            else:
                error = message.get("error")
                error = error if isinstance(error, dict) else {}
                _fail(future, ProbeFailed(str(error.get("kind", "failed")), str(error.get("text", "gave no reason"))))

    async def probe(
        self, name: str, args: dict[str, Any], deadline: float, on_part: Part | None = None
    ) -> dict[str, Any]:
        """Run a light probe on the node and return its value.

        Raises:
            ProbeFailed: It gave none within the deadline, or the node was lost.
        """
        if self.lost is not None:
            raise ProbeFailed("lost", self.lost.text)
        number = next(self._ids)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._probes[number] = (future, on_part)
        try:
            # Not within the deadline: what the probe is made of may have to go there first. The link has its own.
            await self.send({"t": "probe", "id": number, "name": name, "args": args, "deadline": deadline})
            async with asyncio.timeout(deadline + GRACE):
                return await future
        except TimeoutError:
            raise ProbeFailed("timeout", f"{name} gave nothing within {deadline:.0f} s") from None
        except LinkLost as lost:
            raise ProbeFailed("lost", lost.text) from None
        finally:
            self._probes.pop(number, None)

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message.

        Raises:
            LinkLost: The link has ended.
        """
        await self.link.send(message)

    async def rank(self, message: dict[str, Any]) -> None:
        """Send a message to the rank host; it is dropped when the node is lost, whose loss is told elsewhere."""
        try:
            await self.send({"t": "rank", "m": message})
        except LinkLost:
            return

    async def spawn(self, config: dict[str, Any], env: dict[str, str], argv: list[str] | None, deadline: float) -> None:
        """Start the rank host, after ending one that runs.

        Raises:
            ProbeFailed: It was not started within the deadline, or the node was lost.
        """
        self._spawned = asyncio.get_running_loop().create_future()
        self._ranks_live = False
        try:
            await self.send({"t": "spawn", "argv": argv, "env": env, "config": config})
            async with asyncio.timeout(deadline):
                await self._spawned
        except TimeoutError:
            raise ProbeFailed("timeout", f"the rank host did not start within {deadline:.0f} s") from None
        except LinkLost as lost:
            raise ProbeFailed("lost", lost.text) from None

    async def stand_by(
        self, config: dict[str, Any], env: dict[str, str], argv: list[str] | None, *, on: bool = True
    ) -> None:
        """Have a process wait that the next `spawn` of the same may use, or end it; a lost node is told elsewhere."""
        with contextlib.suppress(LinkLost):
            await self.send({"t": "standby", "on": on, "argv": argv, "env": env, "config": config})

    async def kill(self) -> None:
        """Kill the rank host; nothing happens when the node is lost."""
        try:
            await self.send({"t": "kill"})
        except LinkLost:
            return
