"""Client of one node: its link, open probes and rank host messages."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from fabtui.session.fact_store import FactStore
from fabtui.transport.link import Link, LinkLost, Message
from fabtui_node import registry

#: Time (s) added to a deadline that the node keeps itself.
GRACE = 5.0

#: Maximum size (characters) of the values in one message of several; a frame takes more.
MAX_TOGETHER = 1 << 20

#: Maximum number of log lines of a node; more would fill the recording.
MAX_LINES = 20_000

#: Messages of one node that are processed at once.
_TURN = 256

OnPart = Callable[[Message], None]


class ProbeFailed(Exception):
    """A probe gave no value; the kind is ``timeout``, ``lost``, or one of `fabtui_node.protocol.ErrorKind`."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


def fail(future: asyncio.Future[Message], error: ProbeFailed) -> None:
    """Fail a future; its exception is retrieved here, as the caller may still be sending and never wait for it."""
    if not future.done():
        future.set_exception(error)
        future.exception()


class NodeClient:
    """Client of one node with an open link; `lost` is why the link ended, or None.

    With ``read_only`` it refuses what is not passive. Commands are checked by those who run them. With ``facts`` the
    node sends digests of large values first.
    """

    def __init__(self, link: Link, *, read_only: bool = False, facts: FactStore | None = None) -> None:
        self.link = link
        self._facts = facts
        self._read_only = read_only
        self.node = link.node
        self.lost: LinkLost | None = None
        self._rejected: LinkLost | None = None
        self._closing: asyncio.Task[None] | None = None
        self._ids = itertools.count(1)
        self._probes: dict[int, tuple[asyncio.Future[Message], OnPart | None]] = {}
        self._spawned: asyncio.Future[Message] | None = None
        self._rank_host_runs = False
        self._lines = 0
        self._received = 0
        self._posted: list[Message] = []
        self._posting: asyncio.Task[None] | None = None

    async def messages(self, room: Callable[[], Awaitable[None]] | None = None) -> AsyncIterator[Message]:
        """Yield the messages that answer no request, until the link ends; `lost` is set then, and open probes fail.

        ``rank`` has a dictionary ``m`` of the rank host, ``log`` a line that a process printed; ``exit`` and
        ``stopped`` are about the process of the rank host. ``room`` returns when there is room for one more: until
        then it stays with the link, where it takes less memory.
        """
        try:
            while True:
                # Not in a variable: the next may be long in coming, and there may be hundreds of nodes.
                yield await self._next_message(room)
        except LinkLost as lost:
            self.lost = self._rejected or lost
        for future, _ in self._probes.values():
            fail(future, ProbeFailed("lost", self.lost.text))
        self._probes.clear()
        if self._spawned is not None:
            fail(self._spawned, ProbeFailed("lost", self.lost.text))
        if self.lost.kind == "protocol":
            await self.link.close()

    async def _next_message(self, room: Callable[[], Awaitable[None]] | None) -> Message:
        while True:
            if room is not None:
                await self.link.arrival()
                await room()
            message = await self.link.receive()
            self._received += 1
            if self._received % _TURN == 0:
                # A queue that is never empty needs no waiting: other nodes have their turn.
                await asyncio.sleep(0)
            if self._rejected is not None:
                continue
            try:
                unasked = self._dispatch(message)
            except Exception as error:
                # No message of one node may end the session of the others.
                raise _unreadable(error) from error
            if unasked is not None:
                return unasked
            del message

    def reject(self, error: Exception) -> None:
        """End the link because of a message that cannot be processed; the other nodes continue."""
        if self._rejected is None:
            self._rejected = _unreadable(error)
            self._closing = asyncio.ensure_future(self.link.close())

    def _dispatch(self, message: Message) -> Message | None:
        """Pass an answer to its request, or return the message."""
        kind = message.get("t")
        if kind == "rank":
            return message if isinstance(message.get("m"), dict) else None
        if kind in ("part", "result"):
            self._answer_probe(kind, message)
        elif kind == "spawned":
            self._rank_host_runs = True
            if self._spawned is not None and not self._spawned.done():
                self._spawned.set_result(message)
        elif kind in ("exit", "stopped") and self._rank_host_runs:
            # The end of a process that `spawn` replaces is not reported.
            self._rank_host_runs = kind == "stopped"
            return message
        elif kind == "log":
            self._lines += 1
            if self._lines <= MAX_LINES:
                return message
            if self._lines == MAX_LINES + 1:
                return {**message, "text": f"{MAX_LINES} lines were printed here; further lines are dropped"}
        return None

    def _answer_probe(self, kind: str, message: Message) -> None:
        number = message.get("id")
        request = self._probes.get(number) if isinstance(number, int) else None
        if request is None:
            return
        future, on_part = request
        value = message.get("value")
        if kind == "part":
            if on_part is not None and isinstance(value, dict):
                on_part(value)
        elif not future.done():
            if message.get("ok") is True and isinstance(value, dict):
                future.set_result(message)
            else:
                error = message.get("error")
                error = error if isinstance(error, dict) else {}
                fail(future, ProbeFailed(str(error.get("kind", "failed")), str(error.get("text", "gave no reason"))))

    async def probe(self, name: str, args: Message, deadline: float, on_part: OnPart | None = None) -> Message:
        """Run a probe on the node and return its value.

        Raises:
            ProbeFailed: There was no value within the deadline, or the node was lost.
        """
        if self.lost is not None:
            raise ProbeFailed("lost", self.lost.text)
        if self._read_only and not (registry.PROBES[name].passive or name == "command"):
            raise ProbeFailed("refused", f"the session is read-only, and {name} is not passive")
        request: Message = {"t": "probe", "name": name, "args": args, "deadline": deadline}
        if self._facts is None:
            return (await self._ask(request, on_part))["value"]  # type: ignore[no-any-return]
        answer = await self._ask({**request, "digest": True}, on_part)
        digests = answer.get("digests")
        if not isinstance(digests, dict):
            return answer["value"]  # type: ignore[no-any-return]

        async def further(keys: Sequence[str]) -> Message:
            return (await self._ask({**request, "of": answer["id"], "want": list(keys)}, None))["value"]  # type: ignore[no-any-return]

        texts = {str(key): str(text) for key, text in digests.items()}
        return {**answer["value"], **await self._facts.complete(texts, further)}

    async def _ask(self, request: Message, on_part: OnPart | None) -> Message:
        number, deadline = next(self._ids), request["deadline"]
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._probes[number] = (future, on_part)
        try:
            # Outside the deadline: the probe's modules may have to be sent first. The link has its own deadline.
            await self.link.send({**request, "id": number})
            async with asyncio.timeout(deadline + GRACE):
                return await future
        except TimeoutError:
            raise ProbeFailed("timeout", f"{request['name']} returned nothing within {deadline:.0f} s") from None
        except LinkLost as lost:
            raise ProbeFailed("lost", lost.text) from None
        finally:
            self._probes.pop(number, None)

    async def rank(self, message: Message) -> None:
        """Send a message to the rank host; it is dropped if the node is lost."""
        with contextlib.suppress(LinkLost):
            await self.link.send({"t": "rank", "m": message})

    def post(self, message: Message) -> None:
        """Send a message to the rank host soon; what is posted in one turn of the loop travels as one message."""
        self._posted.append(message)
        if len(self._posted) == 1 and self._posting is None:
            asyncio.get_running_loop().call_soon(self._put_posted)

    def _put_posted(self) -> None:
        while self._posted:
            message = self._take_posted()
            if not self.link.put({"t": "rank", "m": message}):
                self._posting = asyncio.ensure_future(self._send_posted(message))
                return

    async def _send_posted(self, message: Message) -> None:
        try:
            await self.rank(message)
            while self._posted:
                await self.rank(self._take_posted())
        finally:
            self._posting = None
            self._posted.clear()

    def _take_posted(self) -> Message:
        if len(self._posted) == 1:
            return self._posted.pop()
        size = count = 0
        while count < len(self._posted) and size <= MAX_TOGETHER:
            value = self._posted[count].get("value")
            size += len(value) if isinstance(value, str) else 0
            count += 1
        taken, self._posted = self._posted[:count], self._posted[count:]
        return {"op": "several", "messages": taken} if count > 1 else taken[0]

    async def spawn(self, config: Message, env: dict[str, str], argv: list[str] | None, deadline: float) -> None:
        """Start the rank host, after ending a running one.

        Raises:
            ProbeFailed: It was not started within the deadline, or the node was lost.
        """
        if self._read_only:
            raise ProbeFailed("refused", "the session is read-only: no ranks")
        self._spawned = asyncio.get_running_loop().create_future()
        self._rank_host_runs = False
        try:
            await self.link.send({"t": "spawn", "argv": argv, "env": env, "config": config})
            async with asyncio.timeout(deadline):
                await self._spawned
        except TimeoutError:
            raise ProbeFailed("timeout", f"the rank host did not start within {deadline:.0f} s") from None
        except LinkLost as lost:
            raise ProbeFailed("lost", lost.text) from None

    async def stand_by(self, config: Message, env: dict[str, str], argv: list[str] | None, *, on: bool = True) -> None:
        """Keep a standby process for the next `spawn` with the same configuration, or end it."""
        if self._read_only:
            return
        with contextlib.suppress(LinkLost):
            await self.link.send({"t": "standby", "on": on, "argv": argv, "env": env, "config": config})

    async def kill(self) -> None:
        """Kill the rank host; do nothing if the node is lost."""
        with contextlib.suppress(LinkLost):
            await self.link.send({"t": "kill"})


def _unreadable(error: Exception) -> LinkLost:
    if isinstance(error, LinkLost):
        return error
    return LinkLost("protocol", f"a message cannot be read: {type(error).__name__}: {error}")
