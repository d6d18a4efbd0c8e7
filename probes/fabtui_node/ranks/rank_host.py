"""The process that owns a node's endpoints: one thread a rank, told what to do over an inherited socket.

Whatever goes wrong in an endpoint becomes a report; whatever hangs for good is killed from outside with this process.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from functools import partial
from typing import Any, Dict, List, Optional, Set

from fabtui_node import protocol
from fabtui_node.protocol import ErrorKind
from fabtui_node.ranks import base, tcp_precheck
from fabtui_node.ranks.base import Fault, Rank, Task, describe
from fabtui_node.ranks.controller_channel import Channel, Message, Store
from fabtui_node.ranks.measure import collective, world
from fabtui_node.ranks.measure.p2p import Site
from fabtui_node.ranks.rank_processes import ENGINES, Crew
from fabtui_node.ranks.rank_thread import EndpointThread, Host

IDLE_DEADLINE = 60.0


def main(config: Dict[str, Any]) -> None:
    """Serve the controller until it hangs up; never returns.

    Args:
        config: ``fd`` is the number of an inherited connected stream socket that carries protocol frames; ``engine``
            and ``library``, where they are told, say what ``init`` will ask for, which is loaded meanwhile.
    """
    sock = socket.socket(fileno=int(config["fd"]))
    # The engines' libraries fork nothing, but whatever does must not hold the line open.
    os.set_inheritable(sock.fileno(), False)
    sock.setblocking(True)
    _serve(sock, alone=False, config=config)


def _serve(sock: socket.socket, alone: bool, config: Optional[Dict[str, Any]] = None) -> None:
    """Be a rank host on a socket, or one of its processes; never returns."""
    host = RankHost(sock, alone)
    code = 0
    try:
        host.foresee(config or {})
        host.serve()
    except protocol.ProtocolError as error:
        print("fabtui rank host: %s" % error, file=sys.stderr, flush=True)
        code = 4
    # No interpreter shutdown: engine threads may sit in C and never come back.
    os._exit(code)


class RankHost(Host):
    """Dispatches the controller's messages to the endpoints of this process.

    Args:
        sock: The line to the controller.
        alone: Whether this is the process of one rank, and another process the rank host.
    """

    def __init__(self, sock: socket.socket, alone: bool) -> None:
        self._line = sock.fileno()
        self._alone = alone
        self._crew: Optional[Crew] = None
        self._channel = Channel(sock)
        self._store = Store(self._channel)
        self._threads: Dict[int, EndpointThread] = {}
        self._tasks: Dict[int, List[Task]] = {}
        self._called_off: Set[int] = set()
        self._lock = threading.Lock()
        self._address: Optional[str] = None
        self._epoch = ""
        self._begun = False
        self._foreseen: Optional[base.Engine] = None
        self._warming: Optional[threading.Thread] = None

    def foresee(self, config: Dict[str, Any]) -> None:
        """Begin to load the engine that ``init`` will ask for: as a rule that takes longest, and needs no GPU."""
        name = config.get("engine")
        # Engines that run a process a rank fork, which a library that is loaded might not stand.
        if not isinstance(name, str) or name in ENGINES:
            return
        try:
            self._foreseen = make_engine(name, "", self._store, config.get("library"))
        except ValueError:
            # Whoever asks for it will be told.
            return
        self._warming = threading.Thread(target=self._foreseen.warm, name="warm", daemon=True)
        self._warming.start()

    def _engine(self, name: str, address: str, library: Optional[str]) -> base.Engine:
        """Return an engine, the one that was foreseen if it is the same, as far as that was loaded."""
        if self._warming is not None:
            self._warming.join()
        engine = self._foreseen
        if engine is None or (engine.name, engine.library) != (name, library):
            return make_engine(name, address, self._store, library)
        engine.address = address
        return engine

    def serve(self) -> None:
        """Handle messages until the line closes or ``quit`` comes."""
        for message in self._channel.messages():
            op = message.get("op")
            try:
                if op == "quit":
                    return
                if self._crew is not None:
                    self._crew.take(message)
                elif op == "store":
                    self._store.answer(message)
                elif op == "alive":
                    self.send({"op": "alive", "n": int(message["n"])})
                elif op in ("init", "reach", "pair", "collective", "world", "rest", "abort"):
                    getattr(self, "_on_" + op)(message)
                else:
                    print("fabtui rank host: unknown op %r" % (op,), file=sys.stderr, flush=True)
            except (KeyError, TypeError, ValueError) as error:
                # Our own controller sent it: worth a line, not worth the process.
                print("fabtui rank host: bad %s: %s" % (op, describe(error)), file=sys.stderr, flush=True)

    def send(self, message: Message) -> None:
        """Send a message; when the line is gone there is nobody left to work for."""
        try:
            self._channel.send(message)
        except OSError:
            os._exit(0)

    # -- start

    def _on_init(self, message: Message) -> None:
        if self._begun:
            raise ValueError("init came twice")
        self._begun = True
        if message["engine"] in ENGINES and not self._alone:
            self._crew = Crew(self.send, self._line, partial(_serve, alone=True))
            try:
                self._crew.start(message)
            except OSError as error:
                self._fail("init", "cannot fork a process per rank: %s" % error, ErrorKind.FAILED)
            return
        threading.Thread(target=self._start, args=(message,), name="start", daemon=True).start()

    def _start(self, message: Message) -> None:
        began = time.monotonic()
        end = began + float(message.get("start_deadline") or IDLE_DEADLINE)
        ready = threading.Event()
        threading.Thread(target=self._watch_start, args=(ready, end - began), daemon=True).start()
        stage = "init"
        try:
            ranks = [Rank(int(r["rank"]), int(r["index"]), r.get("uuid")) for r in message["ranks"]]
            faults = [
                Fault(int(f["src"]), int(f["dst"]), str(f["kind"]), f.get("rate")) for f in message.get("faults") or []
            ]
            address = str(message["address"])
            self._epoch = str(message["epoch"])
            stage = "listen"
            try:
                listener = tcp_precheck.Listener(address, self._epoch)
            except OSError as error:
                raise OSError("cannot listen on %s: %s" % (address, error.strerror or error)) from None
            self._address = address
            self.site = Site(str(message["node"]), address, listener.closed_port, faults)
            stage = "import"
            engine = self._engine(str(message["engine"]), address, message.get("library"))
            version = engine.load()
            self.send({"op": "loaded"})
            stage = "init"
            for rank in ranks:
                self._threads[rank.rank] = EndpointThread(self, engine, rank)
            states = {rank: self._threads[rank.rank].attached(end) for rank in ranks}
        except BaseException as error:
            ready.set()
            kind = base.kind_of(error)
            if stage == "import" and kind is ErrorKind.FAILED:
                kind = ErrorKind.NO_LIBRARY
            self._fail(stage, describe(error), kind)
            return
        ready.set()
        seconds = {name: round(value, 4) for name, value in engine.seconds.items()}
        seconds["total"] = round(time.monotonic() - began, 4)
        self.send(
            {
                "op": "ready",
                "engine": engine.name,
                "version": version,
                "port": listener.port,
                "seconds": seconds,
                "ranks": [
                    {
                        "rank": rank.rank,
                        "ok": state is None,
                        "error": state and state[0],
                        "error_kind": state and state[1],
                    }
                    for rank, state in states.items()
                ],
            }
        )

    def _watch_start(self, ready: threading.Event, seconds: float) -> None:
        # Endpoints that hang are named by _start; this one is for a library that hangs while it is loaded.
        if not ready.wait(seconds + 1.0):
            self._fail("timeout", "not ready within %.0f s" % seconds, ErrorKind.TIMEOUT)

    def _fail(self, stage: str, error: str, kind: ErrorKind) -> None:
        self.send({"op": "failed", "stage": stage, "error": error, "error_kind": kind})

    # -- work

    def _on_reach(self, message: Message) -> None:
        if self._address is None:
            raise ValueError("reach before init")
        peers = [peer for peer in message["peers"] if isinstance(peer, dict)]
        args = (peers, self._address, float(message["deadline"]), self.send)
        threading.Thread(target=tcp_precheck.check_all, args=args, name="reach", daemon=True).start()

    def _local(self, ranks: List[int]) -> List[EndpointThread]:
        return [self._threads[rank] for rank in ranks if rank in self._threads]

    def _on_pair(self, message: Message) -> None:
        op: Message = {key: int(message[key]) for key in ("id", "a", "b", "bytes", "iters", "warmup", "latency_iters")}
        op["both"] = int(message.get("both") is True)
        if op["a"] == op["b"] or op["bytes"] < 1 or op["iters"] < 1:
            raise ValueError("not a pair: %r" % (op,))
        deadline = float(message["deadline"])
        if message.get("meet") is not None:
            op["meet"] = float(message["meet"])
        for thread in self._local([op["a"], op["b"]]):
            thread.submit(op["id"], deadline, partial(thread.pair, op))

    def _on_collective(self, message: Message) -> None:
        op = collective.parse(message)
        number, deadline = int(message["id"]), float(message["deadline"])
        for thread in self._local(op["ranks"]):
            thread.submit(number, deadline, partial(thread.collective, op))

    def _on_world(self, message: Message) -> None:
        op = world.parse(message)
        number, deadline = int(message["id"]), float(message["deadline"])
        for thread in self._local(op["ranks"]):
            thread.submit(number, deadline, partial(thread.world, op))

    def _on_rest(self, message: Message) -> None:
        for thread in self._threads.values():
            thread.submit(int(message["id"]), IDLE_DEADLINE, partial(thread.rest, message.get("whole") is not False))

    def _on_abort(self, message: Message) -> None:
        number = int(message["id"])
        with self._lock:
            self._called_off.add(number)
            tasks = list(self._tasks.get(number, ()))
        for task in tasks:
            task.cancel()

    def begin(self, number: int, deadline: float) -> Task:
        """Make the task of a pair or group at one endpoint; its clock starts now."""
        task = Task(number, "%s/%d/" % (self._epoch, number), deadline, self._store)
        with self._lock:
            self._tasks.setdefault(number, []).append(task)
            off = number in self._called_off
        if off:
            task.cancel()
        return task

    def finish(self, task: Task, rank: int) -> None:
        """Forget a task and tell the controller that the endpoint is free."""
        with self._lock:
            tasks = self._tasks.get(task.id, [])
            if task in tasks:
                tasks.remove(task)
            if not tasks:
                self._tasks.pop(task.id, None)
        self.send({"op": "free", "id": task.id, "rank": rank})


def make_engine(name: str, address: str, store: Store, library: Optional[str]) -> base.Engine:
    """Return an engine by name; its libraries are not loaded yet.

    Raises:
        ValueError: There is no such engine.
    """
    if name == "gloo":
        from fabtui_node.ranks.torch.gloo import GlooEngine

        return GlooEngine(address, store, library)
    if name == "nccl":
        from fabtui_node.ranks.nccl.engine import NcclEngine

        return NcclEngine(address, store, library)
    if name == "torch" and library == "gloo":
        # A process a rank without a GPU, to see that work.
        from fabtui_node.ranks.torch.gloo import GlooEngine

        return GlooEngine(address, store, None)
    if name == "torch":
        from fabtui_node.ranks.torch.nccl import TorchNcclEngine

        return TorchNcclEngine(address, store, None)
    raise ValueError("unknown engine %r" % name)
