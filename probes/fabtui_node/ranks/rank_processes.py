"""A process a rank, for engines that want that: forks them before a library is loaded, and carries their messages."""

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

ENGINES = ("torch",)
"""Engines that run a process a rank."""

_PDEATHSIG = 1


class _Mate:
    """One rank's process, as its parent sees it."""

    def __init__(self, rank: int, pid: int, channel: Channel) -> None:
        self.rank, self.pid, self.channel = rank, pid, channel
        self.ready: Optional[Message] = None


class Crew:
    """The processes of all ranks of a rank host.

    To the controller they look like one rank host: their requests to its store are told apart, their ``ready`` becomes
    one, and so does their ``alive``. When one of them dies, the rank host dies the same way.

    Args:
        send: Sends a message to the controller.
        line: The rank host's own socket, which the processes must not hold open.
        serve: What a process does with its end of a new socket; never returns.
    """

    def __init__(self, send: Callable[[Message], None], line: int, serve: Callable[[socket.socket], None]) -> None:
        self._send = send
        self._line = line
        self._serve = serve
        self._lock = threading.Lock()
        self._mates: Dict[int, _Mate] = {}
        self._asked: Dict[int, Tuple[_Mate, int]] = {}
        self._next = 0
        self._beats: Dict[int, int] = {}

    def start(self, init: Message) -> None:
        """Fork a process a rank and tell each what it is; called while this process has one thread.

        Raises:
            OSError: There cannot be so many.
        """
        sockets: List[socket.socket] = []
        parent = os.getpid()
        for entry in init["ranks"]:
            ours, theirs = socket.socketpair()
            pid = os.fork()
            if pid == 0:
                self._begin(parent, theirs, [*sockets, ours])
            theirs.close()
            sockets.append(ours)
            self._mates[int(entry["rank"])] = _Mate(int(entry["rank"]), pid, Channel(ours))
        for entry in init["ranks"]:
            mate = self._mates[int(entry["rank"])]
            mate.channel.send({**init, "ranks": [entry]})
            threading.Thread(target=self._listen, args=(mate,), daemon=True).start()

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

    # -- from the controller

    def take(self, message: Message) -> None:
        """Pass a message of the controller on to those whom it concerns."""
        op = message.get("op")
        if op == "store":
            with self._lock:
                asked = self._asked.pop(int(message["q"]), None)
            if asked is not None:
                asked[0].channel.send({**message, "q": asked[1]})
            return
        for mate in self._concerned(message):
            mate.channel.send(message)

    def _concerned(self, message: Message) -> List[_Mate]:
        mates = list(self._mates.values())
        if message.get("op") == "pair":
            return [mate for mate in mates if mate.rank in (message["a"], message["b"])]
        if "ranks" in message:
            return [mate for mate in mates if mate.rank in message["ranks"]]
        # One is enough to see whether the other nodes can be reached.
        return mates[:1] if message.get("op") == "reach" else mates

    # -- from the processes

    def _listen(self, mate: _Mate) -> None:
        try:
            for message in mate.channel.messages():
                self._pass_on(mate, message)
        except (protocol.ProtocolError, KeyError, TypeError, ValueError) as error:
            print("fabtui rank host: rank %d: %s" % (mate.rank, error), file=sys.stderr, flush=True)
        self._lost(mate)

    def _pass_on(self, mate: _Mate, message: Message) -> None:
        op = message["op"]
        if op == "store":
            with self._lock:
                self._next += 1
                q = self._next
                # Nobody waits for the answer to a request that only posts; the controller's answer clears it.
                self._asked[q] = (mate, int(message["q"]))
            self._send({**message, "q": q})
        elif op in ("ready", "failed"):
            self._ready(mate, message)
        elif op == "alive":
            number = int(message["n"])
            with self._lock:
                self._beats[number] = count = self._beats.get(number, 0) + 1
                if count == len(self._mates):
                    del self._beats[number]
            if count == len(self._mates):
                self._send(message)
        else:
            self._send(message)

    def _ready(self, mate: _Mate, message: Message) -> None:
        with self._lock:
            first = mate.ready is None
            mate.ready = message
            told = [other.ready for other in self._mates.values()]
        if first and all(told):
            self._send(merged([(other.rank, other.ready or {}) for other in self._mates.values()]))

    def _lost(self, mate: _Mate) -> None:
        """End as the process did: whatever it was doing, this node's rank host is not whole any more."""
        _, status = os.waitpid(mate.pid, 0)
        print("fabtui rank host: the process of rank %d ended" % mate.rank, file=sys.stderr, flush=True)
        if os.WIFSIGNALED(status):
            os.kill(os.getpid(), os.WTERMSIG(status))
        os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)


def merged(told: List[Tuple[int, Message]]) -> Message:
    """Return one ``ready`` of what all processes told, or the ``failed`` of the first if none is ready."""
    ready = [message for _, message in told if message.get("op") == "ready"]
    if not ready:
        return told[0][1]
    ranks: List[Dict[str, Any]] = []
    seconds: Dict[str, float] = {}
    for rank, message in told:
        ranks.extend(
            message.get("ranks")
            or [{"rank": rank, "ok": False, "error": message.get("error"), "error_kind": message.get("error_kind")}]
        )
        for name, value in (message.get("seconds") or {}).items():
            seconds[name] = max(seconds.get(name, 0.0), value)
    return {**ready[0], "ranks": ranks, "seconds": seconds}
