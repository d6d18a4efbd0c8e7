"""Process A: protocol with the controller; ends all processes of the session when the controller is gone.

It never blocks: outgoing frames wait in a bounded buffer, and the lease is checked twice per second. Probes and
engines, which can hang, run in other processes. Its child, the keeper (process B), is the parent of all others.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, Dict, List, MutableMapping, Optional, Sequence

from fabtui_node import protocol
from fabtui_node.protocol import ErrorKind, Message, ProtocolError
from fabtui_node.runtime import bootloader, keeper, presence, reap, spawn
from fabtui_node.runtime.child_processes import ChildProcesses, KeeperGoneError
from fabtui_node.runtime.streams import LineLimit, Outgoing

TICK = 0.5
#: Unsent bytes for the controller from which on children are no longer read.
PAUSE_BYTES = 4 * 1024 * 1024
#: Maximum number of unsent bytes for the controller; above it the link is closed.
MAX_UNSENT_BYTES = 16 * 1024 * 1024

#: Default and maximum lease (s).
DEFAULT_LEASE = 10.0
MAX_LEASE = 24 * 3600.0

#: Seconds past its deadline after which the supervisor answers for a probe.
PROBE_GRACE = 2.0
MAX_OPEN_PROBES = 256
MAX_PROBE_DEADLINE = 3600.0


def lease_of(config: Dict[str, Any]) -> float:
    """Return the lease (s) of a config; the default if it is out of bounds."""
    lease = config.get("lease")
    if isinstance(lease, bool) or not isinstance(lease, (int, float)) or not 0 < lease <= MAX_LEASE:
        return DEFAULT_LEASE
    return float(lease)


def limit_gpus(limit: Any, environ: MutableMapping[str, str], cgroup: str, devices: Sequence[str]) -> None:
    """Set ``CUDA_VISIBLE_DEVICES`` to the GPUs that may be used, unless it is set or the job's cgroup shows only them.

    Args:
        limit: ``{"only": indexes}`` or ``{"without": indexes}``, with ``constrained``: whether cgroups of jobs show
            their own GPUs only. None for no limit.
        environ: The environment.
        cgroup: Content of /proc/self/cgroup.
        devices: Names of the files in /dev.
    """
    if not isinstance(limit, dict) or "CUDA_VISIBLE_DEVICES" in environ:
        return
    if limit.get("constrained") and "slurm" in cgroup:
        return
    indexes = limit.get("only")
    if indexes is None:
        taken = limit.get("without") or []
        there = sorted(int(name[6:]) for name in devices if name.startswith("nvidia") and name[6:].isdecimal())
        indexes = [index for index in there if index not in taken]
    environ["CUDA_VISIBLE_DEVICES"] = ",".join("%d" % index for index in indexes if isinstance(index, int))
    # The order of Slurm and nvidia-smi; CUDA may use another.
    environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def failure(number: Any, kind: ErrorKind, text: str) -> Message:
    """Return the result of a probe without a value."""
    return {"t": "result", "id": number, "ok": False, "error": {"kind": kind, "text": text}}


class OpenProbes:
    """Probes in progress: each gets exactly one result, at the latest after its deadline.

    ``stuck``: a probe passed its deadline, and its thread is still in the worker.
    """

    def __init__(self) -> None:
        self._until: Dict[int, float] = {}
        self.stuck = False

    def __len__(self) -> int:
        return len(self._until)

    def open(self, message: Message, now: float) -> Optional[Message]:
        """Add a probe request; return the result that refuses it, or None. Raise if it is not a request."""
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
        """Return True if a part or result of the worker belongs to an open probe; a result closes its probe."""
        if message["id"] not in self._until:
            return False
        if message["t"] == "result":
            del self._until[message["id"]]
        return True

    def overdue(self, now: float) -> List[Message]:
        """Close the probes past their deadline; return their results."""
        late = [number for number, until in self._until.items() if now > until]
        for number in late:
            del self._until[number]
            self.stuck = True
        return [failure(number, ErrorKind.TIMEOUT, "the probe did not end by its deadline") for number in late]

    def fail_all(self, kind: ErrorKind, text: str) -> List[Message]:
        """Close all probes; return their results."""
        numbers = list(self._until)
        self._until.clear()
        self.stuck = False
        return [failure(number, kind, text) for number in numbers]


class Supervisor:
    """The loop of process A; ``source`` and ``sink`` are the descriptors of the link to the controller."""

    def __init__(self, source: int, sink: int, children: ChildProcesses, config: Dict[str, Any]) -> None:
        os.set_blocking(source, False)
        self._source = source
        self._out = Outgoing(sink)
        self._children = children
        self._decoder = protocol.Decoder(pieces=True)
        self._lease = lease_of(config)
        self._heard = time.monotonic()
        self._probes = OpenProbes()
        self._limit = LineLimit()
        self._why: Optional[str] = None
        self._out.put(protocol.marker(str(config.get("nonce", ""))))

    def send(self, message: Message) -> None:
        """Queue a message for the controller; one that cannot be encoded is replaced by a log line."""
        try:
            self._out.put(protocol.encode(message))
        except ProtocolError as error:
            self._out.put(protocol.encode({"t": "log", "text": "a message was lost: %s" % str(error)[:300]}))

    def log(self, text: str) -> None:
        """Queue a log line of the supervisor, outside the limit for output of children."""
        self.send({"t": "log", "text": text[:4000]})

    def run(self) -> None:
        """Serve the controller until it disconnects, its lease expires, it sends ``bye``, or the keeper ends."""
        python, host = sys.version.split()[0], socket.gethostname()
        self.send({"t": "hello", "protocol": protocol.VERSION, "pid": os.getpid(), "python": python, "host": host})
        try:
            while self._why is None:
                self._turn()
        except OSError as error:
            self._why = "the link broke: %s" % error
        except KeeperGoneError as error:
            self._why = str(error)
            self.log("%s; all processes on this node are ended" % error)
        self._end()

    def _turn(self) -> None:
        readers: List[Any] = [self._source, self._children.keeper]
        if len(self._out) < PAUSE_BYTES:
            readers += self._children.readers(time.monotonic())
        writers = self._children.writers()
        if len(self._out):
            writers.append(self._out.fd)
        readable, _, _ = select.select(readers, writers, [], TICK)
        if self._source in readable:
            self._listen()
        now = time.monotonic()
        if self._why is None and now - self._heard > self._lease:
            self._why = "no heartbeat for %g s" % self._lease
        self._children.tick(now)
        self._forward(self._children.serve(readable, now), now)
        self._settle(now)
        self._out.flush()
        if len(self._out) > MAX_UNSENT_BYTES:
            self._why = "the controller does not read"

    def _listen(self) -> None:
        try:
            data = os.read(self._source, 65536)
        except BlockingIOError:
            return
        if not data:
            self._why = "the controller disconnected"
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
                self.log("an invalid message was ignored: %s: %s" % (type(error).__name__, error))

    def _obey(self, message: Message) -> None:
        kind = message.get("t")
        if kind == "hb":
            self.send({"t": "hb", "n": message["n"], "rank": self._children.rank_lives})
            self._out.flush()
        elif kind == "probe":
            refusal = self._probes.open(message, time.monotonic())
            if refusal is not None:
                self.send(refusal)
            else:
                self._children.probe(message)
        elif kind == "spawn":
            excuse = self._children.spawn(message)
            if excuse is not None:
                self.send({"t": "exit", "code": None, "signal": None, "stderr": excuse})
        elif kind == "standby":
            if message["on"] is not True:
                self._children.stand_down()
            elif (refused := self._children.stand_by(message)) is not None:
                self.log("no standby process: %s" % refused)
        elif kind == "rank":
            self._children.send_to_rank(message["m"])
        elif kind == "modules":
            self._children.add_modules(message["piece"], message["last"])
        elif kind == "kill":
            self._children.kill_rank()
        elif kind == "bye":
            self._why = "the controller sent bye"
        else:
            self.log("a message of an unknown kind was ignored: %r" % (kind,))

    def _forward(self, messages: List[Message], now: float) -> None:
        note = self._limit.note(now)
        if note is not None:
            self.log(note)
        for message in messages:
            kind = message["t"]
            if kind == "worker_died":
                for result in self._probes.fail_all(ErrorKind.WORKER_DIED, message["text"]):
                    self.send(result)
            elif kind == "log":
                if self._limit.admit():
                    self.send(message)
            elif kind not in ("part", "result") or self._probes.passes(message):
                self.send(message)

    def _settle(self, now: float) -> None:
        for result in self._probes.overdue(now):
            self.send(result)
        if self._probes.stuck and not len(self._probes):
            # Ends its stuck threads; the next probe starts another worker.
            self._probes.stuck = False
            self._children.kill_worker()

    def _end(self) -> None:
        self._children.leave()
        for pid in reap.end_descendants():
            self.log("process %d could not be ended: %s" % (pid, reap.wait_reason(pid)))
        until = time.monotonic() + 0.5
        # The controller is gone, as usual at this point, or nobody reads standard error: neither may block.
        with contextlib.suppress(OSError):
            self._out.flush()
            while len(self._out) and time.monotonic() < until:
                select.select([], [self._out.fd], [], 0.1)
                self._out.flush()
        with contextlib.suppress(OSError):
            if select.select([], [2], [], 0)[1]:
                os.write(2, ("fabtui: %s\n" % self._why).encode("utf-8", "backslashreplace")[:512])


def main(config: Dict[str, Any]) -> None:
    """Run the node side over fd 0 and fd 1 until it has to end, then end this process.

    docs/architecture.md, "The wire", explains ``config``.
    """
    for number in spawn.IGNORED:
        signal.signal(number, signal.SIG_IGN)
    reap.become_subreaper()
    if config.get("gpus") is not None:
        with contextlib.suppress(OSError), open("/proc/self/cgroup") as cgroup:
            limit_gpus(config["gpus"], os.environ, cgroup.read(), os.listdir("/dev"))
    # A crashed engine must not leave a core dump on the node's disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    # Descriptors that neither prints nor children use.
    source, sink = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (0, 1))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    nonce = os.urandom(8).hex()
    presence.read_mark()
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
            bootloader.print_traceback()
        finally:
            os._exit(0)
    far.close()
    os.close(printed)
    presence.announce()
    Supervisor(source, sink, ChildProcesses(near, listen, config), config).run()
    os._exit(0)
