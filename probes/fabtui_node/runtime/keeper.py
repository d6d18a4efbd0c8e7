"""Process B: parent of the worker and the rank host; leaves no descendant of theirs behind.

The supervisor (process A) forks it before anything heavy is imported. It stays single-threaded, because a child's death
signal is bound to the thread that forked it. It starts, kills, reaps and reports children. When A ends, or stops
ticking, it ends all its descendants.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import threading
import time
from functools import partial
from typing import Any, Dict, List, Optional, Set, Tuple

from fabtui_node.protocol import Decoder, ErrorKind, Message, ProtocolError, digest
from fabtui_node.runtime import bootloader, processes
from fabtui_node.runtime.streams import Channel, FrameSocket, Outgoing, receive_with_descriptors

TICK = 0.5
SWEEP_TICK = 0.03
# Seconds past the lease that A may be silent. A notices the end of the lease itself; this is for an A that cannot.
TICK_GRACE = 3.0
#: Size (characters) of a part of a value from which on a digest goes ahead, and number of answers whose parts are kept.
_LARGE, _MOST_KEPT = 256, 64


class Child:
    """The worker or the rank host, from its start until none of its descendants is left."""

    def __init__(self, number: int, what: str, pid: int, token: str) -> None:
        self.number = number
        self.what = what
        self.pid = pid
        self.token = token
        self.status: Optional[int] = None
        self.give_up: Optional[float] = None

    def sweep(self) -> None:
        """Kill this child and its descendants from now on, for at most ``processes.BOUND`` seconds."""
        if self.give_up is None:
            self.give_up = time.monotonic() + processes.BOUND


def token_of(pid: int) -> Optional[str]:
    """Return the token in the environment of a process, which names the child that started it."""
    wanted = processes.TOKEN.encode("ascii") + b"="
    tokens = (entry[len(wanted) :] for entry in processes.environment(pid) if entry.startswith(wanted))
    return next((token.decode("ascii", "replace") for token in tokens), None)


def exit_of(status: Optional[int]) -> Tuple[Optional[int], Optional[int]]:
    """Return (exit code, signal) of a wait status; (None, None) if the process could not be ended."""
    if status is None:
        return None, None
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None


def _serve_probes(end: int, token: str, inherited: List[int]) -> None:
    """Be the worker until its socket closes; no descriptor of the keeper stays open, all descendants have its token."""
    for fd in inherited:
        os.close(fd)
    os.set_inheritable(end, False)
    os.environ[processes.TOKEN] = token
    with contextlib.suppress(OSError, ProtocolError):
        Worker(socket.socket(fileno=end)).run()
    # Without waiting for its threads.
    os._exit(0)


class Keeper:
    """The loop of process B, which ends when A is silent for ``lease`` seconds and a grace.

    ``nonce`` makes the tokens of this session's children unlike tokens of another session on the node.
    """

    def __init__(self, up: socket.socket, lease: float, nonce: str) -> None:
        self._up = up
        self._replies = FrameSocket(up)
        self._decoder = Decoder(pieces=True)
        self._pieces = bytearray()
        self._descriptors: List[int] = []
        self._lease = lease
        self._nonce = nonce
        self._heard = time.monotonic()
        self._children: Dict[int, Child] = {}
        self._payloads: List[Outgoing] = []
        self._wake, self._wake_up = os.pipe()
        for fd in (self._wake, self._wake_up):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_up, warn_on_full_buffer=False)

    def run(self) -> None:
        while True:
            sweeping = any(child.give_up is not None for child in self._children.values())
            writers = [out.fd for out in self._payloads]
            if len(self._replies.out):
                writers.append(self._up.fileno())
            readers: List[Any] = [self._up, self._wake]
            readable, writable, _ = select.select(readers, writers, [], SWEEP_TICK if sweeping else TICK)
            if self._wake in readable:
                os.read(self._wake, 4096)
            if self._up in readable and not self._listen():
                return
            if time.monotonic() - self._heard > self._lease + TICK_GRACE:
                return
            self._replies.flush()
            self._feed(writable)
            self._collect()

    def _listen(self) -> bool:
        try:
            data, descriptors = receive_with_descriptors(self._up)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._descriptors += descriptors
        if not data:
            return False
        self._heard = time.monotonic()
        for message in self._decoder.feed(data):
            if "piece" in message:
                self._add_modules(message)
            else:
                self._obey(message)
        return True

    def _add_modules(self, message: Message) -> None:
        self._pieces += message["piece"]
        if message["last"]:
            bootloader.add(bytes(self._pieces))
            self._pieces.clear()

    def _obey(self, message: Message) -> None:
        if message["op"] == "start":
            taken = [self._descriptors.pop(0) for _ in range(message["descriptors"])]
            try:
                self._start(message, taken)
            except OSError as error:
                # Out of processes, most likely. The output pipe ends up in the exit report.
                os.write(taken[-1] if message["what"] == "rank" else 2, ("cannot fork: %s\n" % error).encode())
                self._replies.send({"op": "exit", "id": message["id"], "code": None, "signal": None})
            finally:
                for fd in taken:
                    os.close(fd)
        elif message["op"] == "tick":
            self._replies.send(message)
        elif message["op"] == "kill" and message["id"] in self._children:
            self._children[message["id"]].sweep()

    def _start(self, message: Message, taken: List[int]) -> None:
        number, what = message["id"], message["what"]
        token = "%s-%d" % (self._nonce, number)
        if what == "worker":
            inherited = [self._up.fileno(), self._wake, self._wake_up, *(out.fd for out in self._payloads)]
            pid = processes.start(partial(_serve_probes, taken[0], token, inherited))
        else:
            pid = self._start_rank_host(message, token, taken[0], taken[1])
        self._children[number] = Child(number, what, pid, token)
        self._replies.send({"op": "started", "id": number, "pid": pid})

    def _start_rank_host(self, message: Message, token: str, channel: int, output: int) -> int:
        assert bootloader.PAYLOAD is not None
        config = dict(message["config"], fd=channel)
        # Ranks do not use pynvml, which is a fourth of all modules.
        modules = {name: source for name, source in bootloader.PAYLOAD["modules"].items() if name != "pynvml"}
        payload = bootloader.pack(modules, config, "fabtui_node.ranks.rank_host", child=True)
        environment = {**message["env"], processes.TOKEN: token}
        stdin, feed = os.pipe()
        try:
            pid = processes.start(
                partial(processes.run_command, message["argv"], environment, stdin, output, [channel])
            )
        finally:
            os.close(stdin)
        out = Outgoing(feed)
        out.put(payload)
        self._payloads.append(out)
        return pid

    def _feed(self, writable: List[Any]) -> None:
        for out in list(self._payloads):
            if out.fd not in writable:
                continue
            try:
                out.flush()
                finished = not len(out)
            except OSError:
                finished = True
            if finished:
                os.close(out.fd)
                self._payloads.remove(out)

    def _collect(self) -> None:
        for pid, status in processes.reap(stops=True):
            stopped = os.WIFSTOPPED(status)
            for child in self._children.values():
                if child.pid != pid or child.status is not None:
                    continue
                if stopped or os.WIFCONTINUED(status):
                    self._replies.send({"op": "stopped", "id": child.number, "on": stopped})
                else:
                    child.status = status
                    child.sweep()
        sweeping = [(child, child.give_up) for child in self._children.values() if child.give_up is not None]
        if not sweeping:
            return
        table = processes.process_table()
        now = time.monotonic()
        for child, give_up in sweeping:
            left = self._left_of(child, table)
            processes.send(left, signal.SIGKILL)
            if (child.status is None or left) and now <= give_up:
                continue
            code, number = exit_of(child.status)
            survivors = [{"pid": pid, "why": processes.wait_reason(pid)} for pid in sorted(left)]
            self._replies.send({"op": "exit", "id": child.number, "code": code, "signal": number, "left": survivors})
            del self._children[child.number]

    def _left_of(self, child: Child, table: Dict[int, Tuple[int, str]]) -> Set[int]:
        roots = {child.pid} if child.status is None else set()
        known = {other.pid for other in self._children.values() if other.status is None}
        for pid, (parent, _) in table.items():
            if parent == os.getpid() and pid not in known:
                # An orphan that was handed up to this process. One without a token was forked by the worker.
                owner = token_of(pid)
                if owner == child.token or (owner is None and child.what == "worker"):
                    roots.add(pid)
        living = {pid for pid in roots if pid in table and table[pid][1] not in "ZX"}
        return living | processes.descendants(roots, table)


def run(up: socket.socket, lease: float, nonce: str) -> None:
    """Run process B: serve A, then end all descendants, then this process."""
    try:
        os.setsid()
        processes.become_subreaper()
        Keeper(up, lease, nonce).run()
    finally:
        up.close()
        processes.end_descendants()


class Worker:
    """Worker process: runs probes, one thread per probe, and answers the supervisor over one socket.

    A thread that hangs costs only its own probe: the supervisor answers for it after the deadline.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(True)
        self._channel = Channel(end)
        #: Large values of the latest answers, by number.
        self._kept: Dict[int, Dict[str, Any]] = {}

    def run(self) -> None:
        pieces = bytearray()
        for message in self._channel.messages():
            if message["t"] == "modules":
                pieces += bytes.fromhex(message["piece"])
                if message["last"]:
                    bootloader.add(bytes(pieces))
                    pieces.clear()
                continue
            name = "probe-%s-%s" % (message.get("name"), message.get("id"))
            try:
                threading.Thread(target=self._probe, args=(message,), name=name, daemon=True).start()
            except RuntimeError as error:
                self._fail(message, ErrorKind.FAILED, "cannot start a thread: %s%s" % (error, _limits()))

    def _fail(self, message: Message, kind: ErrorKind, text: str) -> None:
        error = {"kind": kind, "text": text[:4000]}
        self._channel.send({"t": "result", "id": message["id"], "ok": False, "error": error})

    def _digests(self, number: int, value: Any) -> Dict[str, str]:
        """Return digests of the large parts of a value, which are kept for the question for them."""
        try:
            large = {key: part for key, part in value.items() if len(json.dumps(part)) > _LARGE}
            digests = {key: digest(part) for key, part in large.items()}
        except (AttributeError, TypeError, ValueError):
            # Its encoding fails as well, which is reported.
            return {}
        self._kept[number] = large
        while len(self._kept) > _MOST_KEPT:
            del self._kept[min(list(self._kept))]
        return digests

    def _probe(self, message: Message) -> None:
        number = message["id"]

        def emit(value: Dict[str, Any]) -> None:
            self._channel.send({"t": "part", "id": number, "value": value})

        try:
            registry = importlib.import_module("fabtui_node.registry")
            probe = registry.PROBES.get(message["name"])
            if probe is None:
                self._fail(message, ErrorKind.UNKNOWN_PROBE, "no probe is called %s" % message["name"])
                return
            answer = {"t": "result", "id": number, "ok": True}
            if "want" in message:
                kept = self._kept.get(message["of"], {})
                self._channel.send(dict(answer, value={key: kept[key] for key in message["want"] if key in kept}))
                return
            value = probe.run(message["args"], emit, message["deadline"])
            digests = self._digests(number, value) if message.get("digest") else {}
            if digests:
                value = {key: value[key] for key in value if key not in digests}
                answer["digests"] = digests
            self._channel.send(dict(answer, value=value))
        except ProtocolError as error:
            self._fail(message, ErrorKind.BAD_VALUE, str(error))
        except BaseException as error:
            bootloader.print_traceback()
            # When the supervisor has ended, the main thread notices and ends the process.
            with contextlib.suppress(OSError):
                self._fail(message, ErrorKind.FAILED, "%s: %s%s" % (type(error).__name__, error, _limits()))


def _limits() -> str:
    try:
        return str(importlib.import_module("fabtui_node.system.limits").explain())
    except Exception:
        # The first error is the one to report.
        return ""
