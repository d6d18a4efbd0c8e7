"""A small controller for rank hosts: starts them on socketpairs, serves their store, collects what they report."""

from __future__ import annotations

import base64
import json
import os
import re
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROBES = ROOT / "probes" / "fabtui_node"


def importable() -> None:
    """Make the node side importable as fabtui_node where it is not installed, and the tests beside this file."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    if "fabtui_node" not in sys.modules:
        package = types.ModuleType("fabtui_node")
        package.__path__ = [str(PROBES)]
        sys.modules["fabtui_node"] = package


importable()


def came_not(error: str, rank: int, seconds: float, end: str = "") -> bool:
    """Return True if an error reports a rank that did not come in time; a busy machine may add to the time."""
    found = re.fullmatch(rf"rank {rank} did not come within (\d+\.\d) s{re.escape(end)}", error)
    return found is not None and seconds <= float(found[1]) < seconds + 20


from fabtui_node import protocol  # noqa: E402
from tests.wire import message_types  # noqa: E402

CHILD = """\
import sys, types, faulthandler
package = types.ModuleType("fabtui_node")
package.__path__ = [%r]
sys.modules["fabtui_node"] = package
trace = %r
faulthandler.enable()
if trace:
    faulthandler.dump_traceback_later(trace, exit=False)
from fabtui_node.ranks import rank_host as rankhost
rankhost.main({"fd": %%d, **%r})
"""

# A process of its own waits for each rank host, and reports its pid and how it ended.
ZYGOTE = """\
import json, os, signal, socket, struct, sys
os.environ.update(OMP_NUM_THREADS="1", TORCH_CPP_LOG_LEVEL="ERROR")
import torch.distributed
line = socket.socket(fileno=int(sys.argv[1]))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    order, fds, _, _ = socket.recv_fds(line, 1 << 20, 3)
    if not order:
        os._exit(0)
    if os.fork():
        for fd in fds:
            os.close(fd)
        continue
    line.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sock, errors, status = fds
    if pid := os.fork():
        os.close(sock)
        os.write(status, struct.pack("i", pid))
        os.write(status, struct.pack("i", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
        os._exit(0)
    os.close(status)
    os.dup2(errors, 2)
    os.environ.update(json.loads(order)["env"])
    exec(json.loads(order)["code"] % sock)
    os._exit(0)
"""

Message = dict[str, Any]


class Zygote:
    """A process that has loaded torch, which takes seconds, and that rank hosts are forked from."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        argv = [sys.executable, "-c", ZYGOTE, str(theirs.fileno())]
        self._process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()

    def fork(self, code: str, sock: socket.socket, env: dict[str, str]) -> Forked:
        """Run code in a fork, in which ``%d`` is the number of a socket."""
        near, far = os.pipe()
        order = json.dumps({"code": code, "env": env}).encode()
        socket.send_fds(self._line, [order], [sock.fileno(), 2, far])
        os.close(far)
        return Forked(near)

    def end(self) -> None:
        self._line.close()
        self._process.wait()


class Forked:
    """A process of a `Zygote`; ``status`` gives its pid and its exit code."""

    def __init__(self, status: int) -> None:
        self._status = status
        self._code: int | None = None
        self.pid = self._next(60)

    def _next(self, seconds: float) -> int:
        if not select.select([self._status], [], [], seconds)[0]:
            raise subprocess.TimeoutExpired("forked", seconds)
        number: int = struct.unpack("i", os.read(self._status, 4))[0]
        return number

    def wait(self, timeout: float) -> int:
        """Return the exit code, or the negative number of a signal."""
        if self._code is None:
            self._code = self._next(timeout)
            os.close(self._status)
        return self._code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Host:
    def __init__(self, name: str, process: subprocess.Popen[bytes] | Forked, sock: socket.socket) -> None:
        self.name, self.process, self.sock = name, process, sock
        self.decoder = protocol.Decoder()
        self.alive = True
        self.ready: Message = {}

    def send(self, message: Message) -> None:
        try:
            self.sock.sendall(protocol.encode(message))
        except OSError:
            self.alive = False

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)


def has(controller: Controller, number: int, count: int) -> bool:
    """Return True if ``count`` ranks are free after a test."""
    return len(controller.of("free", id=number)) == count


def more_free(controller: Controller, before: int) -> bool:
    """Return True if a rank became free since."""
    return len(controller.of("free")) > before


class Controller:
    """All rank hosts of a test, and the store between them; ``zygote`` is what they are forked from."""

    def __init__(self, zygote: Zygote | None = None) -> None:
        self._zygote = zygote
        self.hosts: dict[str, Host] = {}
        self.rank_host: dict[int, str] = {}
        self.messages: list[Message] = []
        self.store: dict[str, str] = {}
        self.store_calls = 0
        self._waiting: list[tuple[float, Host, Message]] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.sock.close()
        for host in self.hosts.values():
            try:
                host.process.wait(5)
            except subprocess.TimeoutExpired:
                host.process.kill()
                host.process.wait(5)

    def spawn(
        self,
        name: str,
        *,
        env: dict[str, str] | None = None,
        trace: float = 0,
        stderr: Any = None,
        config: dict[str, Any] | None = None,
    ) -> Host:
        ours, theirs = socket.socketpair()
        code = CHILD % (str(PROBES), trace, config or {})
        process: subprocess.Popen[bytes] | Forked
        if self._zygote is not None:
            process = self._zygote.fork(code, theirs, env or {})
        else:
            process = subprocess.Popen(
                [sys.executable, "-c", code % theirs.fileno()],
                pass_fds=[theirs.fileno()],
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stderr=stderr,
            )
        theirs.close()
        host = Host(name, process, ours)
        self.hosts[name] = host
        self._selector.register(ours, selectors.EVENT_READ, host)
        return host

    def init(
        self,
        name: str,
        ranks: list[int],
        world: int,
        address: str,
        engine: str = "gloo",
        uuids: Any = None,
        **more: Any,
    ) -> None:
        for rank in ranks:
            self.rank_host[rank] = name
        message = {
            "op": "init",
            "engine": engine,
            "node": name,
            "epoch": "e1",
            "address": address,
            "timeout": 10.0,
            "start_deadline": 60.0,
            "library": None,
            "ranks": [
                {"rank": rank, "index": index, "uuid": (uuids or {}).get(rank)} for index, rank in enumerate(ranks)
            ],
            "world": world,
            "faults": [],
        }
        message.update(more)
        self.hosts[name].send(message)

    def to_ranks(self, ranks: list[int], message: Message) -> None:
        for name in sorted({self.rank_host[rank] for rank in ranks}):
            self.hosts[name].send(message)

    def pair(self, number: int, a: int, b: int, **more: Any) -> None:
        message = {"op": "pairs", "tests": [[number, a, b, more.pop("ctas", 0)]], "bytes": 1 << 20, "iters": 20}
        message.update({"warmup": 2, "latency_iters": 20, "deadline": 10.0})
        message.update(more)
        self.to_ranks([a, b], message)

    def all_reduce(self, number: int, ranks: list[int], sizes: list[int], **more: Any) -> None:
        self.collective(number, "all_reduce", ranks, sizes, **{"warmup": 1, **more})

    def collective(self, number: int, kind: str, ranks: list[int], sizes: list[int], **more: Any) -> None:
        message: Message = {"op": "collective", "id": number, "kind": kind, "ranks": ranks, "sizes": sizes}
        message.update({"iters": 5, "warmup": 2, "deadline": 20.0})
        message.update(more)
        self.to_ranks(ranks, message)

    def world(self, number: int, ranks: list[int], rounds: list[list[tuple[int, int]]], **more: Any) -> None:
        message: Message = {"op": "world", "id": number, "ranks": ranks, "rounds": rounds}
        message.update({"bytes": 1 << 20, "iters": 5, "warmup": 1, "deadline": 10.0})
        message.update(more)
        self.to_ranks(ranks, message)

    def of(self, op: str, **fields: Any) -> list[Message]:
        """Return messages; one about the end of a world has the rows that came before."""
        found = [m for m in self.messages if m["op"] == op and all(m.get(k) == v for k, v in fields.items())]
        return [{**m, "rows": [*self._rows_before(m), *m["rows"]]} for m in found] if op == "worlded" else found

    def _rows_before(self, end: Message) -> list[Any]:
        found = self.of("rows", id=end["id"], rank=end["rank"])
        return [row for m in found for row in m["rows"]]

    def until(self, done: Callable[[], bool], seconds: float) -> float:
        """Serve until something holds; return how long it took.

        Raises:
            TimeoutError: It did not come.
        """
        began = time.monotonic()
        while not done():
            if time.monotonic() - began > seconds:
                raise TimeoutError(f"not within {seconds} s; last messages: {self.messages[-12:]}")
            self.serve(0.02)
        return time.monotonic() - began

    def serve(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            host = key.data
            try:
                data = host.sock.recv(1 << 20)
            except OSError:
                data = b""
            if not data:
                self._selector.unregister(host.sock)
                host.alive = False
                continue
            for message in host.decoder.feed(data):
                kind = message_types.FROM_RANKS[message["op"]]
                assert message_types.mismatch(message, kind) is None, (message_types.mismatch(message, kind), message)
                self._handle(host, message)
        now = time.monotonic()
        late = [item for item in self._waiting if item[0] <= now]
        for item in late:
            self._waiting.remove(item)
            item[1].send({"op": "store", "q": item[2]["q"], "value": None, "error": "timeout"})

    def _handle(self, host: Host, message: Message) -> None:
        if message["op"] != "store":
            if message["op"] == "ready":
                host.ready = message
            self.messages.append({**message, "from": host.name, "came": time.monotonic()})
            return
        self.store_calls += 1
        cmd, key = message["cmd"], message["key"]
        value: Any = None
        if cmd in ("set", "swap"):
            self.store[key] = message["value"]
        if cmd in ("get", "wait", "swap"):
            self._wake()
            if not self._answer(host, message):
                self._waiting.append((time.monotonic() + message["timeout"], host, message))
            return
        elif cmd == "check":
            value = all(k in self.store for k in key)
        elif cmd == "add":
            number = int(base64.b64decode(self.store.get(key, ""))) if key in self.store else 0
            value = number + message["value"]
            self.store[key] = base64.b64encode(str(value).encode()).decode()
        elif cmd == "compare_set":
            if self.store.get(key, message["expected"]) == message["expected"]:
                self.store[key] = message["value"]
            value = self.store[key]
        elif cmd == "delete":
            value = self.store.pop(key, None) is not None
        elif cmd == "num_keys":
            value = len(self.store)
        if "q" in message:
            host.send({"op": "store", "q": message["q"], "value": value, "error": None})
        if cmd in ("set", "add", "compare_set"):
            self._wake()

    def _wake(self) -> None:
        for item in list(self._waiting):
            if self._answer(item[1], item[2]):
                self._waiting.remove(item)

    def _answer(self, host: Host, message: Message) -> bool:
        key = message["peer"] if message["cmd"] == "swap" else message["key"]
        keys = key if isinstance(key, list) else [key]
        if not all(k in self.store for k in keys):
            return False
        value = None if message["cmd"] == "wait" else self.store[keys[0]]
        host.send({"op": "store", "q": message["q"], "value": value, "error": None})
        return True
