"""The process that owns a node's endpoints: one thread a rank, told what to do over an inherited socket.

Whatever goes wrong in an endpoint becomes a report; whatever hangs for good is killed from outside with this process.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Set

from fabtui_probes import protocol
from fabtui_probes.engines import base, reach
from fabtui_probes.engines.base import CONNECT, TRANSFER, Failed, Fault, Rank, Task, describe
from fabtui_probes.engines.channel import Channel, Message, Store, StoreTimeout
from fabtui_probes.engines.meeting import Meeting, Site

IDLE_DEADLINE = 60.0


def main(config: Dict[str, Any]) -> None:
    """Serve the controller until it hangs up; never returns.

    Args:
        config: ``fd`` is the number of an inherited connected stream socket that carries protocol frames.
    """
    sock = socket.socket(fileno=int(config["fd"]))
    # The engines' libraries fork nothing, but whatever does must not hold the line open.
    os.set_inheritable(sock.fileno(), False)
    sock.setblocking(True)
    host = RankHost(Channel(sock))
    code = 0
    try:
        host.serve()
    except protocol.ProtocolError as error:
        print("fabtui rank host: %s" % error, file=sys.stderr, flush=True)
        code = 4
    # No interpreter shutdown: engine threads may sit in C and never come back.
    os._exit(code)


class RankHost:
    """Dispatches the controller's messages to the endpoints of this process."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._store = Store(channel)
        self._threads: Dict[int, EndpointThread] = {}
        self._tasks: Dict[int, List[Task]] = {}
        self._called_off: Set[int] = set()
        self._lock = threading.Lock()
        self._site: Optional[Site] = None
        self._epoch = ""
        self._begun = False

    def serve(self) -> None:
        """Handle messages until the line closes or ``quit`` comes."""
        for message in self._channel.messages():
            op = message.get("op")
            try:
                if op == "store":
                    self._store.answer(message)
                elif op == "quit":
                    return
                elif op in ("init", "reach", "pair", "all_reduce", "rest", "abort"):
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
        threading.Thread(target=self._start, args=(message,), name="start", daemon=True).start()

    def _start(self, message: Message) -> None:
        began = time.monotonic()
        end = began + float(message.get("start_deadline") or IDLE_DEADLINE)
        ready = threading.Event()
        threading.Thread(target=self._watch_start, args=(ready, end - began), daemon=True).start()
        kind = "init"
        try:
            ranks = [Rank(int(r["rank"]), int(r["index"]), r.get("uuid")) for r in message["ranks"]]
            faults = [
                Fault(int(f["src"]), int(f["dst"]), str(f["kind"]), f.get("rate")) for f in message.get("faults") or []
            ]
            address = str(message["address"])
            self._epoch = str(message["epoch"])
            kind = "listen"
            try:
                listener = reach.Listener(address, self._epoch)
            except OSError as error:
                raise OSError("cannot listen on %s: %s" % (address, error.strerror or error)) from None
            self._site = Site(str(message["node"]), address, listener.closed_port, faults)
            kind = "import"
            engine = make_engine(str(message["engine"]), address, self._store, message.get("library"))
            version = engine.load()
            kind = "init"
            for rank in ranks:
                self._threads[rank.rank] = EndpointThread(self, engine, rank)
            states = {rank: self._threads[rank.rank].attached(end) for rank in ranks}
        except BaseException as error:
            ready.set()
            self.send({"op": "failed", "kind": kind, "error": describe(error)})
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
                "ranks": [{"rank": rank.rank, "ok": error is None, "error": error} for rank, error in states.items()],
            }
        )

    def _watch_start(self, ready: threading.Event, seconds: float) -> None:
        # Endpoints that hang are named by _start; this one is for a library that hangs while it is loaded.
        if not ready.wait(seconds + 1.0):
            self.send({"op": "failed", "kind": "timeout", "error": "not ready within %.0f s" % seconds})

    # -- work

    def _on_reach(self, message: Message) -> None:
        if self._site is None:
            raise ValueError("reach before init")
        peers = [peer for peer in message["peers"] if isinstance(peer, dict)]
        args = (peers, self._site.address, float(message["deadline"]), self.send)
        threading.Thread(target=reach.check_all, args=args, name="reach", daemon=True).start()

    def _local(self, ranks: List[int]) -> List["EndpointThread"]:
        return [self._threads[rank] for rank in ranks if rank in self._threads]

    def _on_pair(self, message: Message) -> None:
        op = {key: int(message[key]) for key in ("id", "a", "b", "bytes", "iters", "warmup", "latency_iters")}
        if op["a"] == op["b"] or op["bytes"] < 1 or op["iters"] < 1:
            raise ValueError("not a pair: %r" % (op,))
        deadline = float(message["deadline"])
        for thread in self._local([op["a"], op["b"]]):
            thread.submit(op["id"], deadline, partial(thread.pair, op))

    def _on_all_reduce(self, message: Message) -> None:
        ranks = [int(rank) for rank in message["ranks"]]
        sizes = [int(size) for size in message["sizes"]]
        iters, warmup = int(message["iters"]), int(message["warmup"])
        number, deadline = int(message["id"]), float(message["deadline"])
        for thread in self._local(ranks):
            thread.submit(number, deadline, partial(thread.all_reduce, ranks, sizes, iters, warmup))

    def _on_rest(self, message: Message) -> None:
        for thread in self._threads.values():
            thread.submit(int(message["id"]), IDLE_DEADLINE, thread.rest)

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

    @property
    def store(self) -> Store:
        """The controller's key-value store."""
        return self._store

    @property
    def site(self) -> Site:
        """What this rank host tells others about itself."""
        assert self._site is not None
        return self._site


class EndpointThread:
    """One rank and the thread that does all its work, in the order in which it was asked for."""

    def __init__(self, host: RankHost, engine: base.Engine, rank: Rank) -> None:
        self._host = host
        self._engine = engine
        self._rank = rank
        self._endpoint: Optional[base.Endpoint] = None
        self._error: Optional[str] = None
        self._attached = threading.Event()
        self._queue: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._loop, name="rank-%d" % rank.rank, daemon=True).start()

    def attached(self, end: float) -> Optional[str]:
        """Wait until the rank is ready; return its error, if it has one."""
        if not self._attached.wait(base.remaining(end)):
            return "not ready at the start deadline"
        return self._error

    def submit(self, number: int, deadline: float, work: Callable[[Task], None]) -> None:
        """Queue a piece of work."""
        self._queue.put((number, deadline, work))

    def _loop(self) -> None:
        try:
            self._endpoint = self._engine.attach(self._rank)
        except BaseException as error:
            self._error = describe(error)
        self._attached.set()
        while True:
            number, deadline, work = self._queue.get()
            task = self._host.begin(number, deadline)
            try:
                work(task)
            except BaseException as error:  # the methods below report by themselves; this is the last net
                print("fabtui rank host: %s" % describe(error), file=sys.stderr, flush=True)
            self._host.finish(task, self._rank.rank)

    def rest(self, task: Task) -> None:
        """Let go of what tests have left."""
        error: Optional[str] = None
        try:
            error = self._endpoint.rest() if self._endpoint is not None else None
        except Exception as failed:
            error = describe(failed)
        self._host.send({"op": "rested", "id": task.id, "rank": self._rank.rank, "error": error})

    def pair(self, op: Message, task: Task) -> None:
        """Test both directions of a pair and report them."""
        endpoint = self._endpoint or base.Endpoint(self._rank)
        meeting = Meeting(endpoint, self._host.site, task, op, self._host.send)
        if self._endpoint is None:
            meeting.decline(Failed(CONNECT, "this rank is not ready: %s" % self._error))
            return
        meeting.run()

    def all_reduce(self, ranks: List[int], sizes: List[int], iters: int, warmup: int, task: Task) -> None:
        """Measure a collective of several sizes and report each."""
        group: Optional[base.Group] = None
        failed: Optional[Failed] = None
        phase = CONNECT
        for size in sizes:
            result: Optional[base.Reduced] = None
            try:
                if failed is None and group is None:
                    group = self._join(task, ranks)
                if failed is None:
                    phase = TRANSFER
                    result = self._reduce(task, group, size, iters, warmup)
            except Failed as error:
                failed = error
            except Exception as error:
                failed = Failed(phase, describe(error))
            self._host.send(self._reduced(task, size, result, failed))
        if group is not None:
            try:
                group.close(failed is not None)
            except Exception as error:
                print("fabtui rank host: teardown: %s" % describe(error), file=sys.stderr, flush=True)

    def _join(self, task: Task, ranks: List[int]) -> base.Group:
        """Meet the others of a group, then connect to all of them."""
        if self._endpoint is None:
            raise Failed(CONNECT, "this rank is not ready: %s" % self._error)
        endpoint, store, me = self._endpoint, self._host.store, self._rank.rank
        end = time.monotonic() + task.deadline / 2
        store.post("%shere/%d" % (task.prefix, me), b"{}")
        try:
            store.wait(["%shere/%d" % (task.prefix, rank) for rank in ranks], base.remaining(end), task)
        except StoreTimeout:
            text = "not all of %d ranks came within %.1f s" % (len(ranks), task.deadline / 2)
            raise Failed(CONNECT, text, timeout=True) from None
        group: base.Group = endpoint.run(task, lambda: endpoint.join(task, ranks, task.end), CONNECT, task.end)
        return group

    def _reduce(self, task: Task, group: Optional[base.Group], size: int, iters: int, warmup: int) -> base.Reduced:
        assert group is not None
        assert self._endpoint is not None
        work = partial(group.all_reduce, size, iters, warmup, task.end)
        result: base.Reduced = self._endpoint.run(task, work, TRANSFER, task.end)
        return result

    def _reduced(self, task: Task, size: int, result: Optional[base.Reduced], failed: Optional[Failed]) -> Message:
        message = {
            "op": "reduced",
            "id": task.id,
            "rank": self._rank.rank,
            "bytes": size,
            "ok": failed is None,
            "timeout": failed is not None and failed.timeout,
            "seconds": None,
            "wrong": 0,
            "phase": TRANSFER if failed is None else failed.phase,
            "error": None if failed is None else failed.text,
            "transport": None,
        }  # type: Message
        if result is not None:
            message.update(seconds=result.seconds, wrong=result.wrong, transport=result.transport)
            if result.wrong:
                error = "%d values are wrong" % result.wrong
                message.update(ok=False, seconds=None, phase=base.VERIFY, error=error)
        return message


def make_engine(name: str, address: str, store: Store, library: Optional[str]) -> base.Engine:
    """Return an engine by name; its libraries are not loaded yet.

    Raises:
        ValueError: There is no such engine.
    """
    if name == "gloo":
        from fabtui_probes.engines.gloo import GlooEngine

        return GlooEngine(address, store, library)
    if name == "nccl":
        from fabtui_probes.engines.nccl import NcclEngine

        return NcclEngine(address, store, library)
    raise ValueError("unknown engine %r" % name)
