"""A controller for tests: boots the node side over pipes and speaks frames with it."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fabtui_node
from fabtui_node import protocol
from fabtui_node.runtime.bootloader import BOOT, pack
from tests.wire import message_types

HOUSE = Path(next(iter(fabtui_node.__path__)))


def modules(extra: dict[str, str] | None = None) -> dict[str, str]:
    """Return the sources of the real probes package, some of them replaced."""
    found = {}
    for path in HOUSE.rglob("*.py"):
        parts = ["fabtui_node", *path.relative_to(HOUSE).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = path.read_text()
    return {**found, **(extra or {})}


def tokens_of(pid: int) -> bytes:
    text = b""
    for name in ("environ", "cmdline"):
        with contextlib.suppress(OSError):
            text += Path(f"/proc/{pid}/{name}").read_bytes()
    return text


def living(token: str) -> list[int]:
    """Return the processes that carry a token, zombies left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and token.encode() in tokens_of(int(entry.name)):
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state not in "ZX":
                found.append(int(entry.name))
    return found


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Poll until a condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def wait_gone(token: str, seconds: float = 20.0) -> None:
    """Wait until no process carries a token; what is left is killed and fails the test."""
    until = time.monotonic() + seconds
    while (left := living(token)) and time.monotonic() < until:
        time.sleep(0.05)
    what = {pid: tokens_of(pid)[-200:] for pid in left}
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, f"processes were left: {what}"


class NodeSide:
    def __init__(
        self,
        extra: dict[str, str] | None = None,
        python: str = sys.executable,
        env_: dict[str, str] | None = None,
        sources: dict[str, str] | None = None,
        **config: Any,
    ) -> None:
        self.token = f"fabtui-test-{uuid.uuid4().hex}"
        self.config = {"nonce": "ab12", "node": "n000", "lease": 30, "python": None, "env": env_ or {}, **config}
        self.process = subprocess.Popen(
            [python, "-IS", "-c", BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "FABTUI_TEST_TOKEN": self.token},
        )
        self.inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self.before: list[dict[str, Any]] = []
        self.banner = b""
        self.reader = threading.Thread(target=self._read, daemon=True)
        assert self.process.stdin is not None
        self.process.stdin.write(pack(sources or modules(extra), self.config, "fabtui_node.runtime.supervisor"))
        self.process.stdin.flush()

    def listen(self) -> None:
        """Start to read; until then the node side talks to a wall."""
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        mark = protocol.marker(self.config["nonce"])
        decoder = protocol.Decoder()
        started = False
        while data := os.read(self.process.stdout.fileno(), 65536):
            if not started:
                self.banner += data
                before, found, data = self.banner.partition(mark)
                if not found:
                    continue
                started, self.banner = True, before
            for message in decoder.feed(data):
                field = message_types.mismatch(message, message_types.FROM_NODE[message["t"]])
                if field is not None:
                    self.inbox.put({"t": "mistyped", "field": field, "message": message})
                elif message["t"] == "rank" and message["m"].get("op") == "several":
                    for one in message["m"]["messages"]:
                        self.inbox.put({"t": "rank", "m": one})
                else:
                    self.inbox.put(message)

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(protocol.encode(message))
        self.process.stdin.flush()

    def ship(self, data: bytes) -> None:
        """Send further modules, in pieces."""
        assert self.process.stdin is not None
        for number in range(0, len(data), 1000):
            piece = data[number : number + 1000]
            self.process.stdin.write(protocol.encode_piece(piece, number + 1000 >= len(data)))
        self.process.stdin.flush()

    def messages(self, seconds: float) -> Iterator[dict[str, Any]]:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                yield self.inbox.get(timeout=left)
            except queue.Empty:
                return

    def expect(self, kind: str, seconds: float = 15.0, **fields: Any) -> dict[str, Any]:
        """Return the next message of a kind; those before it are kept in ``before``."""
        for message in self.messages(seconds):
            if message["t"] == kind and all(message.get(name) == value for name, value in fields.items()):
                return message
            self.before.append(message)
        raise AssertionError(f"no {kind} {fields} came; before: {self.before[-20:]}")

    def expect_spawned(self, seconds: float = 30.0) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the report of a new rank host, and its first message: held up, a node side passes on either first."""
        found: dict[str, dict[str, Any]] = {}
        for message in self.messages(seconds):
            if message["t"] in ("spawned", "rank"):
                found[message["t"]] = message
                if len(found) == 2:
                    return found["spawned"], found["rank"]["m"]
            else:
                self.before.append(message)
        raise AssertionError(f"only {found} came; before: {self.before[-20:]}")

    def cut(self) -> None:
        """Do what the kernel does for a controller that is killed: close its ends of all pipes."""
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            # Not close(): it would wait for the reading thread.
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, pipe.fileno())
            os.close(null)

    def stderr(self) -> str:
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        return (self.process.stderr.read() or b"").decode()

    def end(self) -> None:
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(8)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        wait_gone(self.token)
