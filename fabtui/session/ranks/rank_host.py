"""The rank host of a node as the session sees it: started, made ready, restarted when it hangs or dies."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from fabtui.model.endpoints import Endpoint
from fabtui.sanitize import one_line
from fabtui.session.measure.p2p_result import number
from fabtui.session.node_client import GRACE, ProbeFailed, Remote
from fabtui.session.ranks.rendezvous_store import StoreServer

#: Importing torch and making CUDA contexts takes seconds, on a loaded node many.
START_DEADLINE = 90.0
#: A rank host that hangs or dies more often than this is not started again.
MAX_RESTARTS = 8
#: Starting its process alone is quick.
SPAWN_DEADLINE = 15.0

#: The parts of a rank host's start that are told, ``total`` last.
LAPS = ("import", "driver", "nccl", "contexts", "total")


@dataclass(frozen=True, slots=True)
class Engine:
    """What the ranks of a sweep run.

    Attributes:
        name: ``nccl`` or ``gloo``.
        timeout: Deadline in seconds of one test.
        env: Variables for the ranks.
        faults: Lab faults for the ranks: ``{"src", "dst", "kind", "rate"}`` with endpoint numbers.
        epoch: Prefix of the store keys of this session.
    """

    name: str
    timeout: float
    env: dict[str, str] = field(default_factory=dict)
    faults: tuple[dict[str, Any], ...] = ()
    epoch: str = "e"


class RankHost:
    """The rank host of one node.

    Attributes:
        version: What the engine says of itself, once ready.
        port: Where it listens for the reach check, once ready.
        broken: Why it cannot be used, or None.
        bad_ranks: The endpoints that could not be made ready, with the reason.
        heard: When it last said anything, monotonic seconds.
        stopped: Whether it was told to end.
        starting: Whether its ranks are being made ready.
        laps: Seconds that the parts of its start took, ``total`` among them, as far as it told.
        down: Whether it ended and was not started again, because nothing that was left to do needed it.
        halted: Whether its process is known to be stopped.
        on_loaded: Called when it is through with what comes before its ranks: libraries, the driver.
    """

    def __init__(
        self,
        remote: Remote,
        endpoints: list[Endpoint],
        engine: Engine,
        argv: list[str] | None,
        library: str | None,
        store: StoreServer,
    ) -> None:
        self.remote = remote
        self.node = remote.node
        self.endpoints = endpoints
        self.version = ""
        self.laps: dict[str, float] = {}
        self.port = 0
        self.address = next((e.address for e in endpoints if e.address), None)
        self.broken: str | None = None
        self.bad_ranks: dict[int, str] = {}
        self.on_test: Callable[[RankHost, dict[str, Any]], None] | None = None
        self.on_gone: Callable[[RankHost, str], None] | None = None
        self.restarts = 0
        self.heard = 0.0
        self.stopped = False
        self.starting = False
        self.down = False
        self.halted = False
        self.on_loaded: Callable[[], None] | None = None
        self._standing = False
        self._revival: asyncio.Task[None] | None = None
        self._engine = engine
        self._argv = argv
        self._library = library
        self._store = store
        self._ready: asyncio.Future[dict[str, Any]] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def engine(self) -> Engine:
        """What its ranks run."""
        return self._engine

    @property
    def ready(self) -> bool:
        """Whether it runs and can be used."""
        return self._ready is not None and not self._away and self.broken is None

    @property
    def _away(self) -> bool:
        return self.starting or self.stopped or self.down

    @property
    def _config(self) -> dict[str, Any]:
        """What a process is started with; one that stands by is of use only for a start with the same."""
        return {"engine": self._engine.name, "library": self._library}

    @property
    def epoch(self) -> str:
        """Prefix of the store keys of its tests."""
        return self._engine.epoch

    @property
    def numbers(self) -> list[int]:
        """The endpoint numbers that can be tested."""
        if self.broken or self._away:
            return []
        return [e.number for e in self.endpoints if e.number not in self.bad_ranks]

    async def start(self, world: int) -> None:
        """Start it and make its ranks ready; on failure `broken` says why."""
        self.broken = None
        self.stopped = self.down = self.halted = False
        self.starting = True
        try:
            await self._start(world)
        finally:
            self.starting = False

    async def _start(self, world: int) -> None:
        self._ready = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(START_DEADLINE + GRACE):
                self._standing = False
                await self.remote.spawn(self._config, self._engine.env, self._argv, SPAWN_DEADLINE)
                await self.remote.rank(self._init(world))
                ready = await self._ready
        except ProbeFailed as failed:
            self.broken = failed.text
            return
        except TimeoutError:
            self.broken = f"the ranks were not ready within {START_DEADLINE:.0f} s"
            await self.remote.kill()
            return
        self.version = one_line(str(ready.get("version", "")), 80)
        port = ready.get("port")
        self.port = port if isinstance(port, int) else 0
        self.laps = _laps(ready.get("seconds"))
        self.bad_ranks = {
            rank["rank"]: one_line(str(rank.get("error") or "not ready"), 500)
            for rank in (ready["ranks"] if isinstance(ready.get("ranks"), list) else [])
            if isinstance(rank, dict) and isinstance(rank.get("rank"), int) and rank.get("ok") is not True
        }

    def _init(self, world: int) -> dict[str, Any]:
        return {
            "op": "init",
            "engine": self._engine.name,
            "node": self.node,
            "epoch": self._engine.epoch,
            "address": self.address,
            "timeout": self._engine.timeout,
            "start_deadline": START_DEADLINE,
            "library": self._library,
            "ranks": [{"rank": e.number, "index": e.index, "uuid": e.uuid} for e in self.endpoints],
            "world": world,
            "faults": list(self._engine.faults),
        }

    async def restart(self, world: int) -> None:
        """Kill it with all its ranks and start it anew, unless that was done too often."""
        if self.restarts >= MAX_RESTARTS:
            await self.remote.kill()
            self.starting = self.down = False
            self.broken = f"the rank host of {self.node} failed {self.restarts + 1} times"
            return
        self.restarts += 1
        await self.start(world)

    async def revived(self, world: int) -> None:
        """Start it anew unless that is under way, and wait until it can be used or `broken` says why not.

        It goes on in the background when whoever waits is cancelled.
        """
        if self._revival is None or self._revival.done():
            # Not ready from now on, and not only when the task begins to run.
            self.starting = True
            self._revival = asyncio.ensure_future(self.restart(world))
        await asyncio.shield(self._revival)

    async def settled(self, world: int) -> None:
        """Wait until it can be used or `broken` says why not; one that was left down is started."""
        if self.down or (self._revival is not None and not self._revival.done()):
            await self.revived(world)

    def stand_by(self, *, on: bool = True) -> None:
        """Have a process wait on the node, with all done that needs no GPU, for a start to come; or end it."""
        if self._standing != on and self.remote.lost is None:
            self._standing = on
            self._begin(self.remote.stand_by(self._config, self._engine.env, self._argv, on=on))

    async def leave_down(self) -> None:
        """See that it has ended, and leave it at that."""
        self.down = True
        # Which ends what stands by as well.
        self._standing = False
        await self.remote.kill()

    def abandon(self) -> None:
        """End a start that is under way in the background."""
        if self._revival is not None:
            self._revival.cancel()

    def take(self, message: dict[str, Any]) -> None:
        """Take a message of the rank host in."""
        self.heard = time.monotonic()
        op = message.get("op")
        if op == "store":
            self._store.handle(self.node, message, self.remote.rank)
        elif op == "loaded":
            if self.on_loaded is not None:
                self.on_loaded()
        elif op == "ready":
            self._settle(lambda ready: ready.set_result(message))
        elif op == "failed":
            text = one_line(f"{message.get('stage', 'failed')}: {message.get('error', '')}", 1000)
            self._settle(lambda ready: ready.set_exception(ProbeFailed("failed", text)))
        elif self.on_test is not None and all(isinstance(message.get(name, 0), int) for name in ("id", "rank")):
            self.on_test(self, message)

    def _settle(self, how: Callable[[asyncio.Future[dict[str, Any]]], None]) -> None:
        if self._ready is not None and not self._ready.done():
            how(self._ready)

    def gone(self, text: str) -> None:
        """Say that the rank host, or its node, has ended."""
        self._settle(lambda ready: ready.set_exception(ProbeFailed("exit", text)))
        if self.starting or (self.remote.lost is None and (self.stopped or self.down)):
            return
        if self.on_gone is not None:
            self.on_gone(self, text)
        else:
            self.broken = text

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to it, in the background; a lost node is told elsewhere."""
        self._begin(self.remote.rank(message))

    def send_made(self, make: Callable[[], dict[str, Any]]) -> None:
        """Send a message like `send`; it is made when its turn comes, as those of all nodes together may be large."""

        async def send() -> None:
            await self.remote.rank(make())

        self._begin(send())

    def _begin(self, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """End it: its ranks give back what they hold."""
        self.stopped = True
        self.abandon()
        self.stand_by(on=False)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                # One that is only starting may not be there yet to hear it.
                await (self.remote.kill() if self.starting else self.remote.rank({"op": "quit"}))


def _laps(value: Any) -> dict[str, float]:
    """Return the parts of a start that are known, in seconds."""
    told = value if isinstance(value, dict) else {}
    return {name: found for name in LAPS if (found := number(told.get(name))) is not None}


def exit_text(node: str, message: dict[str, Any]) -> str:
    """Return one line on how the rank host of a node ended, from its ``exit`` message, whatever that holds."""
    told = f"signal {message['signal']}" if message.get("signal") else f"exit code {message.get('code')}"
    how = one_line(told, 60)
    printed = str(message.get("stderr") or "").strip().splitlines()
    last = f": {one_line(printed[-1], 300)}" if printed else ""
    return f"the rank host of {node} ended with {how}{last}"
