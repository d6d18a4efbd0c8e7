"""A link over a byte pipe: start marker, frames, heartbeat, limits, back-pressure; the same for every transport."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

import msgspec

from fabtui.sanitize import last_line, one_line
from fabtui.transport.byte_pipe import BytePipe, Ending, Explain, Tail, explain_end, last_words, shorten
from fabtui.transport.link import Backend, Link, LinkLost, LostKind, Message, NodeUnreachable
from fabtui.transport.payload import Cargo
from fabtui_node.protocol import MAX_BANNER, MAX_FRAME, VERSION, Decoder, ProtocolError, decode, encode, loads, marker

#: Number of heartbeats that this process misses while it is suspended: it was stopped, or the machine slept.
_STANDSTILL = 3
#: Minimum silence (s) of a node side that is reported when it is heard again.
LEAST_SILENCE = 5.0
#: Maximum number of unanswered heartbeats whose sending time is kept.
_BEATS_KEPT = 64
#: Maximum size (bytes) of the answer to a heartbeat.
_BEAT_SIZE = 64


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a link; times in seconds, sizes in bytes."""

    start: float = 30.0  #: From the login to the first message (shells that load much, Python on slow file systems).
    heartbeat: float = 1.0  #: Between two heartbeats.
    frozen: float = 10.0  #: Silence of the node side after which it counts as frozen.
    send: float = 15.0  #: How long the node side may refuse to take a message.
    grace: float = 4.0  #: How long the node side may take to end itself after ``bye``.
    total: int = 2 * 1024**3  #: The most bytes a node may send over the life of a link.
    queue: int = 8 * 1024**2  #: Bytes received and not yet fetched after which no more are read.
    messages: int = 10_000  #: The same, counted in messages.


class FramedLink(Link):
    """A link over a byte pipe. Made by `FramedLink.start`; `close` has to be called in the end, lost or not."""

    def __init__(self, pipe: BytePipe, node: str, backend: Backend, limits: Limits) -> None:
        self.node = node
        self.backend = backend
        self.banner = ""
        self.hello: Message = {}
        self.round_trip = None
        self._pipe = pipe
        self._limits = limits
        self._decoder = Decoder()
        self._stderr = Tail()
        #: Frames, each with its cost: messages of hundreds of nodes would take several times the memory.
        self._inbox: list[tuple[bytes, int]] = []
        self._queued = 0
        self._uncharged = 0
        self._received = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._held = False
        self._lost: LinkLost | None = None
        self._writing = asyncio.Lock()
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._heard = self._sent_at = self._ticked = self._loop.time()
        self._overslept = 0.0
        self._stood = 0.0
        self._beats: dict[int, float] = {}
        self._beats_sent = 0
        self._beat_waits = False
        self._ticking: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._cargo: Cargo | None = None
        self._carrying = asyncio.Lock()
        self._supplied: dict[str, asyncio.Task[None]] = {}
        self._modules: set[str] = set()

    @classmethod
    async def start(
        cls,
        pipe: BytePipe,
        node: str,
        backend: Backend,
        payload: bytes,
        nonce: str,
        limits: Limits,
        explain: Explain = explain_end,
        banner: str = "",
        cargo: Cargo | None = None,
    ) -> FramedLink:
        """Send the payload, wait for the node side's first message and return the link.

        ``banner`` is what the login printed before, and ``cargo`` what follows the payload when it is needed. The pipe
        is closed when this fails.

        Raises:
            NodeUnreachable: The node side did not start, or does not speak the protocol.
        """
        link = cls(pipe, node, backend, limits)
        link._cargo = cargo
        errors = asyncio.create_task(link._drain_errors())
        # The payload is written while the banner is read: a shell that prints before it reads would block both sides.
        feeding = asyncio.create_task(link._feed(payload))
        link._tasks += [errors, feeding]
        feeding.add_done_callback(link._tasks.remove)
        noise = bytearray()
        try:
            async with asyncio.timeout(limits.start):
                await link._find_marker(noise, marker(nonce))
                link.hello = await link._first_message()
        except BaseException as error:
            failure = await link._explain(error, banner + shorten(bytes(noise)), explain)
            await link._tear_down()
            if failure is None:
                raise
            raise failure from None
        link.banner = banner + shorten(bytes(noise))
        link._heard = link._loop.time()
        link._tasks.append(asyncio.create_task(link._read_loop()))
        link._ticked = link._loop.time()
        link.beat()
        link._ticking = link._loop.call_later(limits.heartbeat, link._watch)
        return link

    async def _explain(self, error: BaseException, banner: str, explain: Explain) -> NodeUnreachable | None:
        if isinstance(error, _EndedEarly):
            # Standard error ends with the command; its last line is often the reason.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._tasks[0]), 1.0)
            return explain(error.ending, banner, self._stderr.text())
        detail = "\n".join(part for part in (banner, self.stderr_tail()) if part)
        if isinstance(error, TimeoutError):
            last = last_words(banner, self.stderr_tail())
            text = f"the node side did not start within {self._limits.start:g} s (slow login shell or Python?)"
            return NodeUnreachable("timeout", f"{text}; last output: {last}" if last else text, None, detail)
        if isinstance(error, ProtocolError):
            return NodeUnreachable("protocol", str(error), None, detail)
        return None

    async def _find_marker(self, noise: bytearray, mark: bytes) -> None:
        """Read up to the start marker; what comes before it goes into ``noise``, what comes after is decoded."""
        searched = 0
        while True:
            data = await self._read_raw()
            noise += data
            place = noise.find(mark, searched)
            if place >= 0:
                rest = bytes(noise[place + len(mark) :])
                del noise[place:]
                self._take(rest)
                return
            searched = max(0, len(noise) - len(mark) + 1)
            if len(noise) > MAX_BANNER:
                raise ProtocolError(f"the login printed over {MAX_BANNER // 1024} KiB and the node side did not start")

    async def _first_message(self) -> Message:
        while not self._inbox:
            self._take(await self._read_raw())
        hello = self._next()
        if hello.get("t") != "hello":
            raise ProtocolError("the node side's first message is not a hello")
        if hello.get("protocol") != VERSION:
            spoken = one_line(str(hello.get("protocol")), 20)
            raise ProtocolError(f"the node side speaks protocol {spoken}, not {VERSION}")
        return hello

    def _next(self) -> Message:
        frame, cost = self._inbox.pop(0)
        self._queued -= cost
        return decode(frame, parse)

    async def _read_raw(self) -> bytes:
        try:
            data = await self._pipe.read()
        except Exception as error:
            raise _EndedEarly(Ending(reason=_text(error))) from None
        if not data:
            raise _EndedEarly(await self._how_it_ended())
        return data

    async def _how_it_ended(self) -> Ending:
        try:
            return await asyncio.wait_for(self._pipe.ending(), 3.0)
        except TimeoutError:
            return Ending(reason="output ended but the command did not")
        except Exception as error:
            return Ending(reason=_text(error))

    async def _feed(self, payload: bytes) -> None:
        # A command that ends early breaks this write; its exit status and output are better than "broken pipe".
        with contextlib.suppress(Exception):
            await self._pipe.write(payload)

    async def _drain_errors(self) -> None:
        with contextlib.suppress(Exception):
            while data := await self._pipe.read_error():
                self._stderr.add(data)
                self._count(data)

    def _count(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > self._limits.total:
            self._lose("protocol", f"the node sent more than {self._limits.total} bytes")

    def _take(self, data: bytes) -> None:
        """Put frames into the inbox; heartbeat answers end here."""
        # A message is charged with all bytes since the one before: a large frame comes in many pieces.
        self._uncharged += len(data)
        for frame, _ in self._decoder.split(data):
            if len(frame) <= _BEAT_SIZE and (message := decode(frame, parse)).get("t") == "hb":
                number = message.get("n")
                if isinstance(stood := message.get("stood"), (int, float)):
                    self._stood = float(stood)
                sent = self._beats.pop(number, None) if type(number) is int else None
                if sent is not None:
                    self.round_trip = self._loop.time() - sent
            elif not self._closing:
                self._inbox.append((frame, self._uncharged))
                self._queued += self._uncharged
                self._uncharged = 0
        if self._inbox:
            self._arrived.set()

    async def _read_loop(self) -> None:
        try:
            while self._lost is None:
                await self._wait_for_room()
                data = await self._pipe.read()
                if not data:
                    break
                silence = self.silence - self._stalled
                self._heard = self._loop.time()
                self._count(data)
                self._take(data)
                if silence >= LEAST_SILENCE:
                    self.on_silence(silence, self._stood)
                    self._stood = 0.0
        except ProtocolError as error:
            self._lose("protocol", str(error))
        except Exception as error:
            self._lose("lost", _text(error))
        if self._lost is None:
            self._lose(*self._verdict(await self._how_it_ended()))

    async def _wait_for_room(self) -> None:
        while self._full() and not self._closing:
            self._held = True
            self._room.clear()
            await self._room.wait()
        if self._held:
            self._held = False
            self._heard = self._loop.time()

    def _full(self) -> bool:
        return self._queued >= self._limits.queue or len(self._inbox) >= self._limits.messages

    def _verdict(self, ending: Ending) -> tuple[LostKind, str]:
        if self._closing:
            return "closed", "the link was closed"
        last = last_line(self._stderr.text(), 300)
        if "no heartbeat" in last and self.round_trip is None and self.backend in ("srun", "via"):
            # Its first message came when it ended, so what it had to answer never arrived in time.
            return "lease", f"the launcher passes on output only when the command ends, not line by line ({last})"
        if "no heartbeat" in last:
            stood = self._stood_still()
            return "lease", f"the node side ended itself: {last}" + (f"; {stood}" if stood else "")
        text = ending.describe() if ending.lost else f"the node side {ending.describe()}"
        return "lost" if ending.lost else "exit", f"{text}: {last}" if last else text

    def beat(self) -> None:
        self._beats_sent += 1
        self._beats[self._beats_sent] = self._loop.time()
        self._beats.pop(self._beats_sent - _BEATS_KEPT, None)
        message = {"t": "hb", "n": self._beats_sent}
        # A task only if it has to wait for other messages: there are hundreds of links.
        if not self.put(message) and not self._beat_waits:
            self._beat_waits = True
            task = asyncio.create_task(self._write_beat(encode(message)))
            self._tasks.append(task)
            task.add_done_callback(self._tasks.remove)

    async def _write_beat(self, data: bytes) -> None:
        with contextlib.suppress(LinkLost):
            await self._write(data)
        self._beat_waits = False

    def _watch(self) -> None:
        tick, now = self._limits.heartbeat, self._loop.time()
        overslept = now - self._ticked - tick
        if overslept > tick:
            self._overslept = overslept
            # This side was stopped or busy, so it could not have heard: that is not a silence of the node.
            self._heard = min(now, self._heard + overslept)
        if not self._held and now - self._heard > self._limits.frozen:
            silence = now - self._heard
            self._lose("frozen", f"no answer for {silence:.0f} s although the connection is up")
        if self._lost is None:
            self._ticked = now
            self._ticking = self._loop.call_later(tick, self._watch)
            # What both sides sent since the latest is as good.
            if now - self._sent_at > tick or now - self._heard > tick or self.round_trip is None:
                self.beat()

    def _stood_still(self) -> str:
        """Return that this process was stopped or busy for long, which no node is to blame for; "" if it was not."""
        # The reader may wake up before the loop that watches.
        stood = max(self._overslept, self._stalled)
        return f"fabtui itself was stalled for {stood:.0f} s" if stood > _STANDSTILL * self._limits.heartbeat else ""

    @property
    def _stalled(self) -> float:
        """Time (s) for which this process has been stopped or busy until now."""
        return max(0.0, self._loop.time() - self._ticked - self._limits.heartbeat)

    def _lose(self, kind: LostKind, text: str) -> None:
        if self._lost is None:
            self._lost = LinkLost(kind, text)
            self._ended.set_result(None)
        self._arrived.set()
        self._room.set()

    def _gone(self) -> LinkLost:
        lost = self._lost or LinkLost("lost", "the connection was lost")
        return LinkLost(lost.kind, lost.text)

    async def _write(self, data: bytes) -> None:
        if self._lost is not None:
            raise self._gone()
        try:
            async with asyncio.timeout(self._limits.send), self._writing:
                await self._pipe.write(data)
                self._sent_at = self._loop.time()
        except TimeoutError:
            self._lose("stalled", f"the node side accepted nothing for {self._limits.send:g} s")
            raise self._gone() from None
        except Exception as error:
            # The reader learns the reason; "broken pipe" is not one.
            await asyncio.wait([self._ended], timeout=3.0)
            self._lose("lost", _text(error))
            raise self._gone() from None

    @property
    def silence(self) -> float:
        return 0.0 if self._held else self._loop.time() - self._heard

    def stderr_tail(self) -> str:
        return self._stderr.text()

    async def send(self, message: Message) -> None:
        try:
            data = _encode(message)
        except ProtocolError as error:
            raise ValueError(str(error)) from None
        if self._cargo is not None:
            await self._supply(self._cargo, message)
        await self._write(data)

    def put(self, message: Message) -> bool:
        # `send` finds the same problem, and reports it.
        with contextlib.suppress(Exception):
            if self._lost is None and not self._writing.locked() and not self._pipe.unsent:
                self._pipe.put(_encode(message))
                self._sent_at = self._loop.time()
                return True
        return False

    async def _supply(self, cargo: Cargo, message: Message) -> None:
        """Send ahead what a message needs and the node does not have yet."""
        if (part := cargo.needed_by(message)) is None:
            return
        if part not in self._supplied:
            # A task of the link: the sender may be cancelled, but other messages need the part too.
            self._supplied[part] = asyncio.create_task(self._carry(cargo, part))
            self._tasks.append(self._supplied[part])
        await asyncio.shield(self._supplied[part])

    async def _carry(self, cargo: Cargo, part: str) -> None:
        # The pieces of two parts look alike.
        async with self._carrying:
            try:
                pieces = await cargo.pieces(part, self._modules)
            except OSError as error:
                self._lose("lost", f"this installation is incomplete: {error}")
                raise self._gone() from None
            for piece in pieces:
                await self._write(piece)

    async def arrival(self) -> None:
        while not self._inbox and self._lost is None:
            self._arrived.clear()
            await self._arrived.wait()

    async def receive(self) -> Message:
        await self.arrival()
        if not self._inbox:
            raise self._gone()
        try:
            message = self._next()
        except ProtocolError as error:
            self._inbox.clear()
            self._lose("protocol", str(error))
            raise self._gone() from None
        if not self._full():
            self._room.set()
        return message

    async def close(self) -> None:
        if self._closing:
            await self._pipe.wait_closed()
            return
        self._closing = True
        self._room.set()
        try:
            if self._lost is None:
                with contextlib.suppress(LinkLost, TimeoutError):
                    async with asyncio.timeout(self._limits.grace):
                        await self._write(encode({"t": "bye"}))
                        self._pipe.write_eof()
                        await asyncio.wait([self._ended])
        finally:
            self._lose("closed", "the link was closed")
            await self._tear_down()

    async def _tear_down(self) -> None:
        self._pipe.abort()
        if self._ticking is not None:
            self._ticking.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pipe.wait_closed()


def parse(body: bytes) -> object:
    """Return the value of a JSON text; raise ValueError or RecursionError."""
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        # Half a surrogate pair, as in file names, is text for Python alone; its errors are clearer, too.
        return loads(body)


def _encode(message: Message) -> bytes:
    """Return the frame of a message; those for ranks are many, and made of what was checked when it came."""
    if message.get("t") == "rank":
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            body = msgspec.json.encode(message)
            if len(body) < MAX_FRAME:
                return (len(body) + 1).to_bytes(4, "big") + body + b"\n"
    return encode(message)


class _EndedEarly(Exception):
    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.describe())
        self.ending = ending


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
