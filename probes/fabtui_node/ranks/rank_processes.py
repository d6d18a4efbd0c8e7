"""One process per rank, for engines that need it: forked before a library is loaded; their messages are merged."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

from fabtui_node import protocol
from fabtui_node.ranks.controller_channel import Channel, Message

_PDEATHSIG = 1


class _RankProcess:
    """One rank's process, as seen by its parent."""

    def __init__(self, rank: int, pid: int, channel: Channel) -> None:
        self.rank, self.pid, self.channel = rank, pid, channel
        self.ready: Optional[Message] = None


class RankProcesses:
    """The processes of all ranks of a rank host, which forks them while it has one thread.

    To the controller they look like one rank host: their store requests get unique numbers, their ``ready`` messages
    become one, and so do their ``alive`` messages. When one of them dies, the rank host dies the same way.

    ``line`` is the rank host's own socket, which the processes must not hold open; ``serve`` serves a process's end of
    a new socket and never returns.
    """

    def __init__(self, send: Callable[[Message], None], line: int, serve: Callable[[socket.socket], None]) -> None:
        self._send = send
        self._line = line
        self._serve = serve
        self._lock = threading.Lock()
        self._processes: Dict[int, _RankProcess] = {}
        self._asked: Dict[int, Tuple[_RankProcess, int]] = {}
        self._next = 0
        self._beats: Dict[int, int] = {}

    def start(self, init: Message) -> None:
        """Fork one process per rank and initialise each; raise OSError if a process cannot be forked."""
        sockets: List[socket.socket] = []
        parent = os.getpid()
        for entry in init["ranks"]:
            ours, theirs = socket.socketpair()
            pid = os.fork()
            if pid == 0:
                self._begin(parent, theirs, [*sockets, ours])
            theirs.close()
            sockets.append(ours)
            self._processes[int(entry["rank"])] = _RankProcess(int(entry["rank"]), pid, Channel(ours))
        for entry in init["ranks"]:
            process = self._processes[int(entry["rank"])]
            process.channel.send({**init, "ranks": [entry]})
            threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def _begin(self, parent: int, mine: socket.socket, others: List[socket.socket]) -> None:
        try:
            ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)
            for other in others:
                other.close()
            os.close(self._line)
            self._serve(mine)
        finally:
            os._exit(1)

    def forward(self, message: Message) -> None:
        """Forward a message of the controller to the processes it concerns."""
        op = message.get("op")
        if op == "store":
            with self._lock:
                asked = self._asked.pop(int(message["q"]), None)
            if asked is not None:
                asked[0].channel.send({**message, "q": asked[1]})
            return
        for process in self._concerned(message):
            process.channel.send(message)

    def _concerned(self, message: Message) -> List[_RankProcess]:
        processes = list(self._processes.values())
        if message.get("op") == "pairs":
            ends = {end for _, a, b, _ in message["tests"] for end in (a, b)}
            return [process for process in processes if process.rank in ends]
        if "ranks" in message:
            return [process for process in processes if process.rank in message["ranks"]]
        # One process is enough to check whether the other nodes can be reached.
        return processes[:1] if message.get("op") == "reach" else processes

    def _listen(self, process: _RankProcess) -> None:
        try:
            for message in process.channel.messages():
                self._forward(process, message)
        except (protocol.ProtocolError, KeyError, TypeError, ValueError) as error:
            print("fabtui rank host: rank %d: %s" % (process.rank, error), file=sys.stderr, flush=True)
        self._lost(process)

    def _forward(self, process: _RankProcess, message: Message) -> None:
        op = message["op"]
        if op == "store" and "q" in message:
            with self._lock:
                self._next += 1
                q = self._next
                self._asked[q] = (process, int(message["q"]))
            self._send({**message, "q": q})
        elif op in ("ready", "failed"):
            self._ready(process, message)
        elif op == "alive":
            number = int(message["n"])
            with self._lock:
                self._beats[number] = count = self._beats.get(number, 0) + 1
            if count == len(self._processes):
                del self._beats[number]
                self._send(message)
        else:
            self._send(message)

    def _ready(self, process: _RankProcess, message: Message) -> None:
        with self._lock:
            first = process.ready is None
            process.ready = message
            replies = [(other.rank, other.ready or {}) for other in self._processes.values()]
        if first and all(reply for _, reply in replies):
            self._send(merged(replies))

    def _lost(self, process: _RankProcess) -> None:
        """End the same way as the process: the rank host is incomplete without it."""
        _, status = os.waitpid(process.pid, 0)
        print("fabtui rank host: the process of rank %d ended" % process.rank, file=sys.stderr, flush=True)
        if os.WIFSIGNALED(status):
            os.kill(os.getpid(), os.WTERMSIG(status))
        os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)


def merged(reports: List[Tuple[int, Message]]) -> Message:
    """Merge the ``ready`` messages of all processes; return the first ``failed`` if none is ready."""
    ready = [message for _, message in reports if message.get("op") == "ready"]
    if not ready:
        return reports[0][1]
    ranks: List[Dict[str, Any]] = []
    seconds: Dict[str, float] = {}
    for rank, message in reports:
        error, kind = message.get("error"), message.get("error_kind")
        ranks += message.get("ranks") or [{"rank": rank, "ok": False, "error": error, "error_kind": kind}]
        for name, value in (message.get("seconds") or {}).items():
            seconds[name] = max(seconds.get(name, 0.0), value)
    return {**ready[0], "ranks": ranks, "seconds": seconds}
