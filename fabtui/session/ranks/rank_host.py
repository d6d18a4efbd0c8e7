"""Rank host of a node on the session's side: start, readiness, restart when it hangs or dies, reports."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from fabtui.sanitize import one_line
from fabtui.session.endpoint_admission import Admission
from fabtui.session.measure.p2p_result import number
from fabtui.session.node_client import GRACE, NodeClient, ProbeFailed, fail
from fabtui.session.ranks.rendezvous_store import StoreServer
from fabtui.transport.link import Message
from fabtui_node.protocol import ErrorKind

#: Deadline (s) for ready ranks. Importing torch and creating CUDA contexts takes seconds, on a loaded node many.
START_DEADLINE = 90.0
#: Maximum number of restarts of one rank host.
MAX_RESTARTS = 8
#: Deadline (s) for the start of the process alone.
SPAWN_DEADLINE = 15.0

#: Interval (s) between two checks of a rank host.
ALIVE_PERIOD = 1.0
#: Interval (s) at which answers are looked for.
ALIVE_TICK = 0.1
#: Maximum delay (s) of an answer; it comes from a thread that does nothing else, but the node may be crowded.
ALIVE_PATIENCE = 3.0
#: Silence (s) of a node's link after which its rank host cannot be judged: the network is cut, or the node is.
LINK_SILENCE = 2.5
#: Maximum delay (s) of an answer if the supervisor reports that the process is stopped.
HALTED_PATIENCE = 0.5

_PROCESSES = itertools.count(1)

#: Parts of a rank host's start, in the order they are logged; ``total`` comes last.
LAPS = ("import", "driver", "nccl", "contexts", "total")


@dataclass(frozen=True, slots=True)
class RankSettings:
    """Configuration of the ranks of a sweep."""

    name: str  #: ``nccl``, ``torch`` or ``gloo``.
    timeout: float  #: Deadline of one test (s).
    env: dict[str, str] = field(default_factory=dict)
    #: Lab faults for the ranks: ``{"src", "dst", "kind", "rate"}`` with endpoint numbers.
    faults: tuple[Message, ...] = ()
    epoch: str = "e"  #: Prefix of the store keys of this session.
    largest: int = 0  #: Size (bytes) of the largest message to come.


def process_config(engine: str) -> Message:
    """Return the configuration of the process of an engine; a standby process serves only a start with an equal one."""
    return {"engine": engine}


class HostMessage(NamedTuple):
    """Message of a rank host about a test."""

    host: RankHost
    message: Message


class HostLost(NamedTuple):
    """End of a rank host, or of the connection to its node."""

    host: RankHost
    text: str
    kind: ErrorKind


class HostLoaded(NamedTuple):
    """A starting rank host has loaded its libraries and the driver."""

    host: RankHost


class HostFrozen(NamedTuple):
    """A busy rank host has not answered for some seconds."""

    host: RankHost
    text: str


class HostRestarted(NamedTuple):
    """A restart of a rank host has ended; `RankHost.broken` is set if it failed."""

    host: RankHost


Report = HostMessage | HostLost | HostLoaded | HostFrozen | HostRestarted


class RankHost:
    """The rank host of one node."""

    def __init__(
        self,
        client: NodeClient,
        admission: Admission,
        engine: RankSettings,
        store: StoreServer,
        withheld: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self.client = client
        self.node = client.node
        self.engine = engine
        self.subscribers: list[Callable[[Report], None]] = []  #: Queues that its reports are put into.
        self.endpoints = admission.endpoints
        self.ranks = tuple(endpoint.number for endpoint in admission.endpoints)
        self.version = ""  #: Version of the engine, once ready.
        self.laps: dict[str, float] = {}  #: Duration (s) of each reported part of its start, including ``total``.
        self.port = 0  #: Port of its listener for the TCP check, once ready.
        self.address = next((e.address for e in self.endpoints if e.address), None)
        # GPUs have NICs of their own, which NCCL chooses.
        self._addresses = {e.number: e.address for e in self.endpoints if e.address and e.kind == "cpu"}
        self.broken: str | None = None  #: Why it cannot be used, or None.
        self.withheld = withheld  #: Endpoints that get no rank, with the reason: their GPUs are left alone.
        self.bad_ranks: dict[int, str] = {}  #: Endpoints that could not be made ready, with the reason.
        self.restarts = 0
        self.process = 0  #: Number of its process, unique among all rank hosts; 0 before the first.
        self.heard = 0.0  #: Time of its last message (monotonic seconds).
        #: Time (monotonic seconds) of the first test that failed in its process, or None. What that leaves behind may
        #: end the process later: gloo crashes now and then after a connection that failed.
        self.failed_at: float | None = None
        self.stopped = False  #: Whether it was asked to end.
        self.starting = False
        self.down = False  #: Whether it ended and was not restarted, because no remaining test needs it.
        self.halted = False  #: Whether its process is known to be stopped (SIGSTOP).
        self._standing_by = False
        self._restart: asyncio.Task[None] | None = None
        self.admission = admission
        self._config = process_config(engine.name)
        self._store = store
        self._ready: asyncio.Future[Message] | None = None  #: Its report of a start that is under way.
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def ready(self) -> bool:
        return not (self.process == 0 or self.starting or self.stopped or self.down or self.broken)

    @property
    def numbers(self) -> list[int]:
        if self.broken or self.starting or self.stopped or self.down:
            return []
        return [e.number for e in self.endpoints if e.number not in self.bad_ranks and e.number not in self.withheld]

    async def start(self, world: int) -> None:
        """Start it and make its ranks ready; on failure `broken` gives the reason."""
        self.broken = None
        self.stopped = self.down = self.halted = self.starting = False
        if self.address is None:
            self.broken = self.admission.unaddressed or f"{self.node} has no address for its ranks"
            return
        self.starting = True
        self.process = next(_PROCESSES)
        self.failed_at = None
        self._ready = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(START_DEADLINE + GRACE):
                self._standing_by = False
                await self.client.spawn(self._config, self.engine.env, self.admission.argv, SPAWN_DEADLINE)
                await self.client.rank(self._init(world))
                ready = await self._ready
        except ProbeFailed as failed:
            self.broken = failed.text.removesuffix(self.admission.limits) + self.admission.limits
            return
        except TimeoutError:
            self.broken = f"the ranks were not ready within {START_DEADLINE:.0f} s"
            await self.client.kill()
            return
        finally:
            self.starting = False
            self._ready = None
        self.version = one_line(str(ready.get("version", "")), 80)
        port = ready.get("port")
        self.port = port if isinstance(port, int) else 0
        laps = ready["seconds"] if isinstance(ready.get("seconds"), dict) else {}
        self.laps = {name: seconds for name in LAPS if (seconds := number(laps.get(name))) is not None}
        self.bad_ranks = {
            rank["rank"]: one_line(str(rank.get("error") or "not ready"), 500)
            for rank in (ready["ranks"] if isinstance(ready.get("ranks"), list) else [])
            if isinstance(rank, dict) and isinstance(rank.get("rank"), int) and rank.get("ok") is not True
        }

    def note_failure(self) -> None:
        if self.failed_at is None:
            self.failed_at = time.monotonic()

    def had_failed(self, before: float) -> bool:
        """Return True if a test had failed in its process before a time (monotonic seconds)."""
        return self.failed_at is not None and self.failed_at < before

    def address_of(self, rank: int) -> str | None:
        return self._addresses.get(rank, self.address)

    def _init(self, world: int) -> Message:
        return {
            "op": "init",
            "engine": self.engine.name,
            "node": self.node,
            "epoch": self.engine.epoch,
            "address": self.address,
            "timeout": self.engine.timeout,
            "start_deadline": START_DEADLINE,
            "library": self.admission.library,
            "largest": self.engine.largest,
            "ranks": [
                {"rank": e.number, "index": e.index, "uuid": e.uuid, "address": self._addresses.get(e.number)}
                for e in self.endpoints
                if e.number not in self.withheld
            ],
            "world": world,
            "faults": list(self.engine.faults),
        }

    async def _kill_and_start(self, world: int) -> None:
        if self.restarts >= MAX_RESTARTS:
            await self.client.kill()
            self.starting = self.down = False
            self.broken = f"the rank host of {self.node} failed {self.restarts + 1} times"
            return
        self.restarts += 1
        await self.start(world)

    async def restart(self, world: int) -> None:
        """Kill and restart it unless that is under way; return when it is ready or `broken` gives the reason.

        The restart continues in the background when the caller is cancelled.
        """
        if self._restart is None or self._restart.done():
            # Set now, not when the task begins to run: it is no longer ready.
            self.starting = True
            self._restart = asyncio.ensure_future(self._kill_and_start(world))
        await asyncio.shield(self._restart)

    async def settled(self, world: int) -> None:
        """Return when it is ready or `broken` gives the reason; one that was left down is started."""
        if self.down or (self._restart is not None and not self._restart.done()):
            await self.restart(world)

    def stand_by(self, *, on: bool = True) -> None:
        """Keep a process on the node for the next start, with everything done that needs no GPU; or end it."""
        if self._standing_by != on and self.client.lost is None:
            self._standing_by = on
            self._begin(self.client.stand_by(self._config, self.engine.env, self.admission.argv, on=on))

    async def leave_down(self) -> None:
        """Make sure that it has ended, and do not restart it."""
        self.down = True
        # The kill ends a standby process too.
        self._standing_by = False
        await self.client.kill()

    def cancel_start(self) -> None:
        if self._restart is not None:
            self._restart.cancel()

    async def stop(self) -> None:
        self.stopped = True
        self.cancel_start()
        self.stand_by(on=False)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                # One that is starting may not read messages yet.
                await (self.client.kill() if self.starting else self.client.rank({"op": "quit"}))

    def _publish(self, report: Report) -> None:
        for put in self.subscribers:
            put(report)

    def receive(self, message: Message) -> None:
        """Process a message of the rank host, or several that came as one."""
        self.heard = time.monotonic()
        op = message.get("op")
        if op == "several":
            inner = message.get("messages")
            for one in inner if isinstance(inner, list) else ():
                if isinstance(one, dict):
                    self._receive(one, one.get("op"))
        else:
            self._receive(message, op)

    def _receive(self, message: Message, op: Any) -> None:
        if op == "store":
            self._store.handle(self.node, message, self.client.post)
        elif op == "loaded":
            self._publish(HostLoaded(self))
        elif op == "ready":
            self._settle(message)
        elif op == "failed":
            text = one_line(f"{message.get('stage') or 'failed'}: {message.get('error', '')}", 1000)
            self._settle(ProbeFailed("failed", text))
        elif isinstance(message.get("id", 0), int) and isinstance(message.get("rank", 0), int):
            self._publish(HostMessage(self, message))

    def _settle(self, ready: Message | ProbeFailed) -> None:
        if self._ready is None or self._ready.done():
            return
        if isinstance(ready, ProbeFailed):
            fail(self._ready, ready)
        else:
            self._ready.set_result(ready)

    def end(self, text: str, kind: ErrorKind) -> None:
        """Handle the end of the rank host, or of the connection to its node."""
        self._settle(ProbeFailed("exit", text))
        if self.starting or (self.client.lost is None and (self.stopped or self.down)):
            return
        if self.subscribers:
            self._publish(HostLost(self, text, kind))
        else:
            self.lose(text)

    def lose(self, text: str) -> None:
        """Note its end while it runs no test: the next one that needs it starts it again, unless its node is lost."""
        if self.client.lost is None:
            self.down = True
        else:
            self.broken = text

    def send(self, message: Message) -> None:
        self.client.post(message)

    def send_late(self, build: Callable[[], Message]) -> None:
        """Build a message when it is sent, as the large ones of all nodes together may not fit into memory."""

        async def send() -> None:
            await self.client.rank(build())

        self._begin(send())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class HostReports:
    """Queue of the reports of rank hosts, from entering it as a context until it is left.

    Busy rank hosts, those of the nodes that ``busy`` returns, are asked every second, so that one that hangs is found
    before a deadline. With ``at_once``, messages of rank hosts are passed to it as they come, unless something is in
    the queue: the messages of thousands of tests take much memory.
    """

    def __init__(
        self,
        hosts: Collection[RankHost],
        busy: Callable[[], set[str]] = set,
        at_once: Callable[[HostMessage], None] | None = None,
    ) -> None:
        self._hosts = list(hosts)
        self._busy = busy
        self._at_once = at_once
        self._queue: list[Report] = []
        self._wake = asyncio.Event()
        #: By node: time of the check that has not been answered, and time of the next check after an answer.
        self._asked: dict[str, float] = {}
        self._next: dict[str, float] = {}
        self._numbers = itertools.count()
        self._checking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        for host in self._hosts:
            host.subscribers.append(self.put)
        self._checking = asyncio.create_task(self._check_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        for host in self._hosts:
            host.subscribers.remove(self.put)
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)

    def put(self, report: Report) -> None:
        if self._at_once is not None and not self._queue and isinstance(report, HostMessage):
            self._at_once(report)
        else:
            self._queue.append(report)
        self._wake.set()

    async def take(self, seconds: float) -> list[Report]:
        """Return the reports in the queue as soon as there are any or one was passed on, or after some seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return []
        self._wake.clear()
        taken, self._queue = self._queue, []
        return taken

    async def _check_all(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_TICK)
            now = time.monotonic()
            busy = self._busy()
            for host in self._hosts:
                self._check(host, now, busy=host.node in busy and not host.broken)

    def _check(self, host: RankHost, now: float, *, busy: bool) -> None:
        node = host.node
        asked = self._asked.get(node)
        if not busy:
            self._asked.pop(node, None)
            self._next.pop(node, None)
        elif asked is not None and host.heard > asked:
            del self._asked[node]
            self._next[node] = asked + ALIVE_PERIOD
        elif asked is not None and host.client.link.silence > LINK_SILENCE:
            # Its answer cannot arrive; it has the whole time again when the link is heard.
            self._asked[node] = now
        elif asked is not None:
            if now - asked > (HALTED_PATIENCE if host.halted else ALIVE_PATIENCE):
                del self._asked[node]
                seconds = now - asked
                text = f"the rank host of {node} is frozen: no answer for {seconds:.{0 if seconds >= 2 else 1}f} s"
                self.put(HostFrozen(host, f"{text}, and its process is stopped" if host.halted else text))
        elif now >= max(self._next.get(node, 0.0), host.heard + ALIVE_PERIOD) or host.halted:
            self._asked[node] = now
            if host.client.link.silence > ALIVE_PERIOD:
                # Heartbeats of many nodes are seldom.
                host.client.link.beat()
            host.send({"op": "alive", "n": next(self._numbers)})


def exit_reason(node: str, message: Message) -> tuple[str, ErrorKind]:
    """Return why the rank host of a node ended, from its unvalidated ``exit`` message: one line, and the kind."""
    killed = bool(message.get("signal"))
    status = one_line(f"signal {message['signal']}" if killed else f"exit code {message.get('code')}", 60)
    printed = str(message.get("stderr") or "").strip().splitlines()
    why = str(message.get("why") or "") or (printed[-1] if printed else "")
    last = f": {one_line(why, 300)}" if why else ""
    kind = ErrorKind.KILLED if killed else ErrorKind.EXITED
    return f"the rank host of {node} ended with {status}{last}", kind
