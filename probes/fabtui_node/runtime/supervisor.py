"""Process A: speaks the protocol with the controller, and ends everything when the controller goes.

It never blocks: frames out wait in a bounded buffer, the lease is looked at twice a second whatever else goes on, and
nothing that can hang (probes, engines) runs in it. Its child, the keeper (process B), parents all the others.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, Dict, List, Optional

from fabtui_node import protocol
from fabtui_node.protocol import ErrorKind, Message, ProtocolError
from fabtui_node.runtime import keeper, reap, spawn
from fabtui_node.runtime.child_output import LineLimit
from fabtui_node.runtime.child_processes import Family, KeeperGoneError
from fabtui_node.runtime.frame_streams import Outgoing

TICK = 0.5
# With so much unread by the controller, children are no longer listened to; with so much, the link is given up.
ENOUGH_WAITING = 4 * 1024 * 1024
TOO_MUCH_WAITING = 16 * 1024 * 1024

DEFAULT_LEASE = 10.0
LONGEST_LEASE = 24 * 3600.0

#: Seconds past its deadline after which the supervisor answers for a probe.
PROBE_GRACE = 2.0
MAX_OPEN_PROBES = 256
MAX_PROBE_DEADLINE = 3600.0


def lease_of(config: Dict[str, Any]) -> float:
    """Return the lease in seconds that a config asks for, within bounds."""
    lease = config.get("lease")
    if isinstance(lease, bool) or not isinstance(lease, (int, float)) or not 0 < lease <= LONGEST_LEASE:
        return DEFAULT_LEASE
    return float(lease)


def failure(number: Any, kind: ErrorKind, text: str) -> Message:
    """Return the result of a probe that gave no value."""
    return {"t": "result", "id": number, "ok": False, "error": {"kind": kind, "text": text}}


class OpenProbes:
    """Keeps the deadline of every open probe.

    Attributes:
        stuck: A probe did not come back by its deadline; its thread is still in the worker.
    """

    def __init__(self) -> None:
        self._until: Dict[int, float] = {}
        self.stuck = False

    def __len__(self) -> int:
        return len(self._until)

    def open(self, message: Message, now: float) -> Optional[Message]:
        """Take a probe message; returns the result that refuses it, None when it may run.

        Raises:
            KeyError, TypeError, ValueError: The message is not a probe.
        """
        number, deadline = message["id"], float(message["deadline"])
        if type(number) is not int or not isinstance(message["name"], str) or not isinstance(message["args"], dict):
            raise TypeError("not a probe")
        if not 0 < deadline <= MAX_PROBE_DEADLINE:
            return failure(number, ErrorKind.REFUSED, "a deadline of %g s" % deadline)
        if number in self._until:
            raise ValueError("probe %d is open already" % number)
        if len(self._until) >= MAX_OPEN_PROBES:
            return failure(number, ErrorKind.REFUSED, "%d probes are open already" % MAX_OPEN_PROBES)
        self._until[number] = now + deadline + PROBE_GRACE
        return None

    def passes(self, message: Message) -> bool:
        """Return whether a part or result of the worker is still wanted; a result closes its probe."""
        if message["id"] not in self._until:
            return False
        if message["t"] == "result":
            del self._until[message["id"]]
        return True

    def overdue(self, now: float) -> List[Message]:
        """Close the probes whose time is over; returns their results."""
        late = [number for number, until in self._until.items() if now > until]
        for number in late:
            del self._until[number]
            self.stuck = True
        return [failure(number, ErrorKind.TIMEOUT, "the probe did not end by its deadline") for number in late]

    def fail_all(self, kind: ErrorKind, text: str) -> List[Message]:
        """Close all probes; returns their results."""
        numbers = list(self._until)
        self._until.clear()
        self.stuck = False
        return [failure(number, kind, text) for number in numbers]


class Supervisor:
    """The loop of process A.

    Args:
        source: Descriptor of what the controller sends.
        sink: Descriptor of what it reads.
        family: The keeper and, through it, the worker and the rank host.
        config: The config of the payload.
    """

    def __init__(self, source: int, sink: int, family: Family, config: Dict[str, Any]) -> None:
        os.set_blocking(source, False)
        self._source = source
        self._out = Outgoing(sink)
        self._family = family
        self._decoder = protocol.Decoder(pieces=True)
        self._lease = lease_of(config)
        self._heard = time.monotonic()
        self._probes = OpenProbes()
        self._limit = LineLimit()
        self._why: Optional[str] = None
        self._out.put(protocol.marker(str(config.get("nonce", ""))))

    def send(self, message: Message) -> None:
        """Queue a message for the controller; one that cannot be a frame is replaced by a log line."""
        try:
            self._out.put(protocol.encode(message))
        except ProtocolError as error:
            self._out.put(protocol.encode({"t": "log", "text": "a message was lost: %s" % str(error)[:300]}))

    def log(self, text: str) -> None:
        """Queue a log line of our own, outside the limit for what children print."""
        self.send({"t": "log", "text": text[:4000]})

    def run(self) -> None:
        """Serve the controller until it goes, its lease runs out, it says bye, or the keeper is killed."""
        self.send(
            {
                "t": "hello",
                "protocol": protocol.VERSION,
                "pid": os.getpid(),
                "python": sys.version.split()[0],
                "host": socket.gethostname(),
            }
        )
        try:
            while self._why is None:
                self._turn()
        except OSError as error:
            self._why = "the link broke: %s" % error
        except KeeperGoneError as error:
            self._why = str(error)
            self.log("%s; everything of this node is ended" % error)
        self._end()

    def _turn(self) -> None:
        readers: List[Any] = [self._source, self._family.keeper]
        if len(self._out) < ENOUGH_WAITING:
            readers += self._family.readers(time.monotonic())
        writers = self._family.writers()
        if len(self._out):
            writers.append(self._out.fd)
        readable, _, _ = select.select(readers, writers, [], TICK)
        if self._source in readable:
            self._listen()
        now = time.monotonic()
        if self._why is None and now - self._heard > self._lease:
            self._why = "no heartbeat for %g s" % self._lease
        self._family.tick(now)
        self._forward(self._family.serve(readable, now), now)
        self._settle(now)
        self._out.flush()
        if len(self._out) > TOO_MUCH_WAITING:
            self._why = "the controller does not read"

    def _listen(self) -> None:
        try:
            data = os.read(self._source, 65536)
        except BlockingIOError:
            return
        if not data:
            self._why = "the controller has gone"
            return
        try:
            messages = self._decoder.feed(data)
        except ProtocolError as error:
            self._why = "the controller does not speak the protocol: %s" % error
            return
        for message in messages:
            self._heard = time.monotonic()
            try:
                self._obey(message)
            except (KeyError, TypeError, ValueError, ProtocolError) as error:
                self.log("a message that makes no sense was ignored: %s: %s" % (type(error).__name__, error))

    def _obey(self, message: Message) -> None:
        kind = message.get("t")
        if kind == "hb":
            self.send({"t": "hb", "n": message["n"], "rank": self._family.rank_lives})
            self._out.flush()
        elif kind == "probe":
            refusal = self._probes.open(message, time.monotonic())
            if refusal is not None:
                self.send(refusal)
            else:
                self._family.probe(message)
        elif kind == "spawn":
            excuse = self._family.spawn(message)
            if excuse is not None:
                self.send({"t": "exit", "code": None, "signal": None, "stderr": excuse})
        elif kind == "standby":
            if message["on"] is not True:
                self._family.stand_down()
            elif (refused := self._family.stand_by(message)) is not None:
                self.log("nothing stands by: %s" % refused)
        elif kind == "rank":
            self._family.tell_rank(message["m"])
        elif kind == "modules":
            self._family.add_modules(message["piece"], message["last"])
        elif kind == "kill":
            self._family.kill_rank()
        elif kind == "bye":
            self._why = "the controller said bye"
        else:
            self.log("a message of an unknown kind was ignored: %r" % (kind,))

    def _forward(self, messages: List[Message], now: float) -> None:
        note = self._limit.note(now)
        if note is not None:
            self.log(note)
        for message in messages:
            kind = message["t"]
            if kind == "log":
                if self._limit.admit():
                    self.send(message)
            elif kind in ("part", "result"):
                if self._probes.passes(message):
                    self.send(message)
            elif kind == "worker_died":
                for result in self._probes.fail_all(ErrorKind.WORKER_DIED, message["text"]):
                    self.send(result)
            else:
                self.send(message)

    def _settle(self, now: float) -> None:
        for result in self._probes.overdue(now):
            self.send(result)
        if self._probes.stuck and not len(self._probes):
            # Its stuck threads are given back to the system; the next probe starts another worker.
            self._probes.stuck = False
            self._family.kill_worker()

    def _end(self) -> None:
        self._family.leave()
        for pid in reap.end_descendants():
            self.log("process %d could not be ended: %s" % (pid, reap.wait_reason(pid)))
        until = time.monotonic() + 0.5
        try:
            self._out.flush()
            while len(self._out) and time.monotonic() < until:
                select.select([], [self._out.fd], [], 0.1)
                self._out.flush()
        except OSError:
            # The controller has gone, as is usual at this point.
            pass
        self._say_why()

    def _say_why(self) -> None:
        """Leave the reason on standard error, unless that could block: who reads it may be gone or stuck."""
        try:
            if select.select([], [2], [], 0)[1]:
                os.write(2, ("fabtui: %s\n" % self._why).encode("utf-8", "backslashreplace")[:512])
        except OSError:
            pass


def _claim(fd: int) -> int:
    """Move a standard stream out of the way of anything that prints or reads, and out of reach of children."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)


def main(config: Dict[str, Any]) -> None:
    """Run the node side over fd 0 and fd 1 until it has to end, then end this process.

    Args:
        config: See docs/architecture.md, "The wire".
    """
    for number in spawn.IGNORED:
        signal.signal(number, signal.SIG_IGN)
    reap.become_subreaper()
    # A dump of a crashed engine would be left behind on the node's disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    source, sink = _claim(0), _claim(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    nonce = os.urandom(8).hex()
    near, far = socket.socketpair()
    listen, printed = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(printed, 1)
            os.dup2(printed, 2)
            spawn.close_others([far.fileno()])
            keeper.run(far, lease_of(config), nonce)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(0)
    far.close()
    os.close(printed)
    Supervisor(source, sink, Family(near, listen, config), config).run()
    os._exit(0)
