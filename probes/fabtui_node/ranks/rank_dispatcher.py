"""Dispatcher of a rank host, the process that owns a node's endpoints: one thread per rank, and an inherited socket.

Every error of an endpoint becomes a report. The supervisor kills this process if an endpoint hangs forever.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from fabtui_node import protocol
from fabtui_node.protocol import ErrorKind, Message
from fabtui_node.ranks import base, tcp_precheck
from fabtui_node.ranks.base import Fault, Rank, Store, Task, describe, kind_of
from fabtui_node.ranks.engine import Engine, RankEndpoint
from fabtui_node.ranks.measure import groups, host_link
from fabtui_node.ranks.measure.p2p import HostInfo, RankPairTest
from fabtui_node.ranks.nccl.engine import NcclEngine
from fabtui_node.ranks.torch.engine import GlooEngine
from fabtui_node.runtime.streams import Channel

#: Default deadline (s) of the start and of a release.
IDLE_DEADLINE = 60.0
ENGINES = {"nccl": NcclEngine, "gloo": GlooEngine}


def main(config: Dict[str, Any]) -> None:
    """Serve the controller until it hangs up; never returns. See ``rank_host.main`` for the configuration."""
    sock = socket.socket(fileno=int(config["fd"]))
    # The engines' libraries fork nothing, but a child must not keep the connection open.
    os.set_inheritable(sock.fileno(), False)
    sock.setblocking(True)
    host = RankDispatcher(sock)
    code = 0
    try:
        host.warm(config)
        host.serve()
    except protocol.ProtocolError as error:
        log(str(error))
        code = 4
    # No interpreter shutdown: engine threads may hang in C code.
    os._exit(code)


def log(text: str) -> None:
    print("fabtui rank host: " + text, file=sys.stderr, flush=True)


class RankThread:
    """One rank and the thread that does all its work, in the order of the requests."""

    def __init__(self, host: RankDispatcher, engine: Engine, rank: Rank) -> None:
        self._host = host
        self._engine = engine
        self._rank = rank
        self._endpoint = RankEndpoint(rank)
        self._error: Optional[Tuple[str, ErrorKind]] = None
        self._attached = threading.Event()
        self._queue: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._loop, name="rank-%d" % rank.rank, daemon=True).start()

    def state(self, end: float) -> Message:
        """Wait until the rank is ready, at most until ``end``; return its state."""
        ready = self._attached.wait(base.remaining(end))
        error = self._error if ready else ("not ready at the start deadline", ErrorKind.TIMEOUT)
        text, kind = error or (None, None)
        return {"rank": self._rank.rank, "ok": error is None, "error": text, "error_kind": kind}

    def submit(self, number: int, deadline: float, work: Callable[[RankEndpoint, Task], None]) -> None:
        self._queue.put((number, deadline, work))

    def _loop(self) -> None:
        try:
            self._endpoint = self._engine.attach(self._rank)
        except BaseException as error:
            self._error = describe(error), kind_of(error)
            self._endpoint.error = "rank %d is not ready: %s" % (self._rank.rank, self._error[0])
        self._attached.set()
        while True:
            number, deadline, work = self._queue.get()
            task = self._host.begin(number, deadline)
            try:
                work(self._endpoint, task)
            except BaseException as error:  # tests report errors themselves; this is the last resort
                log(describe(error))
            self._host.finish(task, self._rank.rank)


class RankDispatcher:
    """Dispatches the controller's messages to the endpoints of this process."""

    def __init__(self, sock: socket.socket) -> None:
        self._channel = Channel(sock)
        self._store = Store(self._channel)
        self._threads: Dict[int, RankThread] = {}
        self._tasks: Dict[int, List[Task]] = {}
        self._cancelled: Set[int] = set()
        self._lock = threading.Lock()
        self._info: Optional[HostInfo] = None
        self._epoch = ""
        self._begun = False
        self._warm_engine: Optional[Engine] = None
        self._warming: Optional[threading.Thread] = None

    def warm(self, config: Dict[str, Any]) -> None:
        """Begin to load the engine of the coming ``init``: that takes longest, and needs no GPU."""
        name = config.get("engine")
        if not isinstance(name, str) or name not in ENGINES:
            return
        engine = self._warm_engine = self._made(name, "", None)
        self._warming = threading.Thread(target=engine.warm, name="warm", daemon=True)
        self._warming.start()

    def _engine(self, name: str, address: str, library: Optional[str]) -> Engine:
        if self._warming is not None:
            self._warming.join()
        engine = self._warm_engine
        if engine is None or engine.name != name:
            return self._made(name, address, library)
        engine.address, engine.library = address, library
        return engine

    def _made(self, name: str, address: str, library: Optional[str]) -> Engine:
        """Return an engine whose libraries are not loaded yet; raise ValueError for an unknown name."""
        if name not in ENGINES:
            raise ValueError("unknown engine %r" % name)
        return ENGINES[name](address, self._store, library)

    def serve(self) -> None:
        """Handle messages until the connection closes or ``quit`` arrives."""
        for message in self._messages():
            op = message.get("op")
            try:
                if op == "quit":
                    return
                if op == "store":
                    self._store.answer(message)
                elif op == "alive":
                    self.send({"op": "alive", "n": int(message["n"])})
                elif op in ("init", "reach", "pairs", "collective", "world", "host", "rest", "abort"):
                    getattr(self, "_on_" + op)(message)
                else:
                    log("unknown op %r" % (op,))
            except (KeyError, TypeError, ValueError) as error:
                # From our own controller: worth a log line, but not the process.
                log("bad %s: %s" % (op, describe(error)))

    def _messages(self) -> Iterator[Message]:
        for message in self._channel.messages():
            if message.get("op") == "several":
                yield from message["messages"]
            else:
                yield message

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; end the process if the connection is closed."""
        try:
            self._channel.send(message)
        except OSError:
            os._exit(0)

    def _on_init(self, message: Message) -> None:
        if self._begun:
            raise ValueError("init came twice")
        self._begun = True
        threading.Thread(target=self._start, args=(message,), name="start", daemon=True).start()

    def _start(self, message: Message) -> None:
        began = time.monotonic()
        end = began + float(message.get("start_deadline") or IDLE_DEADLINE)
        # _start names endpoints that hang; this is for a library that hangs while it is loaded.
        late = ("timeout", "not ready within %.0f s" % (end - began), ErrorKind.TIMEOUT)
        clock = threading.Timer(end - began + 1.0, self._fail, late)
        clock.daemon = True
        clock.start()
        stage = "init"
        try:
            ranks = [Rank(int(r["rank"]), int(r["index"]), r.get("uuid"), r.get("address")) for r in message["ranks"]]
            asked = message.get("faults") or []
            faults = [Fault(int(f["src"]), int(f["dst"]), str(f["kind"]), f.get("rate")) for f in asked]
            address = str(message["address"])
            self._epoch = str(message["epoch"])
            stage = "listen"
            try:
                listener = tcp_precheck.Listener(address, self._epoch)
            except OSError as error:
                raise OSError("cannot listen on %s: %s" % (address, error.strerror or error)) from None
            self._info = HostInfo(str(message["node"]), address, listener.closed_port, faults)
            stage = "import"
            engine = self._engine(str(message["engine"]), address, message.get("library"))
            engine.largest = int(message.get("largest") or 0)
            version = engine.load()
            self.send({"op": "loaded"})
            stage = "init"
            for rank in ranks:
                self._threads[rank.rank] = RankThread(self, engine, rank)
            states = [self._threads[rank.rank].state(end) for rank in ranks]
        except BaseException as error:
            clock.cancel()
            kind = base.kind_of(error)
            if stage == "import" and kind is ErrorKind.FAILED:
                kind = ErrorKind.NO_LIBRARY
            self._fail(stage, describe(error), kind)
            return
        clock.cancel()
        seconds = {name: round(value, 4) for name, value in engine.seconds.items()}
        seconds["total"] = round(time.monotonic() - began, 4)
        report = {"op": "ready", "engine": engine.name, "version": version, "port": listener.port}
        self.send({**report, "seconds": seconds, "ranks": states})

    def _fail(self, stage: str, error: str, kind: ErrorKind) -> None:
        self.send({"op": "failed", "stage": stage, "error": error, "error_kind": kind})

    def _on_reach(self, message: Message) -> None:
        if self._info is None:
            raise ValueError("reach before init")
        peers = [peer for peer in message["peers"] if isinstance(peer, dict)]
        args = (peers, self._info.address, float(message["deadline"]), self.send)
        threading.Thread(target=tcp_precheck.check_all, args=args, name="reach", daemon=True).start()

    def _submit(self, message: Message, ranks: List[int], work: Callable[[RankEndpoint, Task], None]) -> None:
        number, deadline = int(message["id"]), float(message["deadline"])
        for rank in ranks:
            if rank in self._threads:
                self._threads[rank].submit(number, deadline, work)

    def _on_pairs(self, message: Message) -> None:
        common: Message = {key: int(message[key]) for key in ("bytes", "iters", "warmup", "latency_iters")}
        common["both"], common["keep"] = message.get("both") is True, message.get("keep") is True
        if message.get("meet") is not None:
            common["meet"] = float(message["meet"])
        for number, a, b, ctas in message["tests"]:
            op = {**common, "a": int(a), "b": int(b), "ctas": int(ctas)}
            if a == b or op["bytes"] < 1 or op["iters"] < 1:
                raise ValueError("not a pair: %r" % (op,))
            self._submit({**message, "id": number}, [op["a"], op["b"]], partial(self._test_pair, op))

    def _test_pair(self, op: Message, endpoint: RankEndpoint, task: Task) -> None:
        assert self._info is not None
        RankPairTest(endpoint, self._info, task, op, self.send).run()

    def _on_collective(self, message: Message) -> None:
        op = groups.parse(message)
        self._submit(message, op["ranks"], lambda endpoint, task: groups.run(op, endpoint, self.send, task))

    def _on_world(self, message: Message) -> None:
        op = groups.parse_world(message)
        self._submit(message, op["ranks"], lambda endpoint, task: groups.World(op, endpoint, task).run(self.send))

    def _on_host(self, message: Message) -> None:
        size = max(1 << 16, int(message["bytes"]))

        def measure(endpoint: RankEndpoint, task: Task) -> None:
            host_link.run(size, partial(endpoint.host_steps, size), self.send, task, endpoint.rank.rank)

        self._submit(message, [int(rank) for rank in message["ranks"]], measure)

    def _on_rest(self, message: Message) -> None:
        whole = message.get("whole") is not False
        groups = whole or message.get("groups") is True
        # Both ends close them in the same order: each may wait for the other.
        closed = [(int(a), int(b), int(ctas), broken) for a, b, ctas, broken in message.get("links") or ()]

        def release(endpoint: RankEndpoint, task: Task) -> None:
            me, kept = endpoint.rank.rank, endpoint.kept
            try:
                for a, b, ctas, broken in closed:
                    if me in (a, b):
                        kept.close((b if me == a else a, ctas), broken=bool(broken))
                if whole:
                    kept.clear()
                error = endpoint.release(groups)
                kind = None if error is None else ErrorKind.LIBRARY
            except Exception as problem:
                error, kind = describe(problem), kind_of(problem)
            self.send({"op": "rested", "id": task.id, "rank": me, "error": error, "error_kind": kind})

        self._submit({**message, "deadline": IDLE_DEADLINE}, list(self._threads), release)

    def _on_abort(self, message: Message) -> None:
        number = int(message["id"])
        with self._lock:
            self._cancelled.add(number)
            tasks = list(self._tasks.get(number, ()))
        for task in tasks:
            task.cancel()

    def begin(self, number: int, deadline: float) -> Task:
        """Return the task of a pair or group at one endpoint; its clock starts now."""
        task = Task(number, "%s/%d/" % (self._epoch, number), deadline, self._store)
        with self._lock:
            self._tasks.setdefault(number, []).append(task)
            cancelled = number in self._cancelled
        if cancelled:
            task.cancel()
        return task

    def finish(self, task: Task, rank: int) -> None:
        """Remove a task and notify the controller that the endpoint is free."""
        with self._lock:
            tasks = self._tasks.get(task.id, [])
            if task in tasks:
                tasks.remove(task)
            if not tasks:
                self._tasks.pop(task.id, None)
        self.send({"op": "free", "id": task.id, "rank": rank})
