"""Process A: protocol with the controller; ends all processes of the session when the controller is gone.

It never blocks: outgoing frames wait in a bounded buffer, and the lease is checked twice per second. Probes and
engines, which can hang, run in other processes. Its child, the keeper (process B), is the parent of all others.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, Dict, List, Mapping, MutableMapping, Optional, Sequence

from fabtui_node import protocol
from fabtui_node.protocol import Decoder, ErrorKind, Message, ProtocolError, encode, encode_piece
from fabtui_node.runtime import bootloader, keeper, processes
from fabtui_node.runtime.streams import (
    BYTES_PER_SECOND,
    FrameSocket,
    LineLimit,
    LogPipe,
    Outgoing,
    send_with_descriptors,
)
from fabtui_node.system import sessions

#: Interval (s) of the loop, which is the longest that it waits.
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
#: Minimum time (s) between two turns of the loop that is reported: all processes were stopped, or got no processor.
LEAST_STANDSTILL = 3.0
MAX_OPEN_PROBES = 256
MAX_PROBE_DEADLINE = 3600.0
#: Interval (s) between two ticks for the keeper.
KEEPER_TICK = 1.0
#: Seconds between the end of a channel and the end of its process, after which the process is killed.
END_TIMEOUT = 2.0
#: Timeout (s) for writing to the keeper, which never waits for long itself.
KEEPER_TIMEOUT = 3.0
#: Maximum number of unanswered ticks of the keeper.
MAX_UNANSWERED = 10
#: File of the loaded driver of NVIDIA's GPUs.
GPU_DRIVER = "/dev/nvidiactl"
#: Prefixes of variables that srun and MPI launchers set for tasks.
_OF_LAUNCHERS = ("SLURM_", "SLURMD_", "PMI_", "PMI2_", "PMIX_", "OMPI_", "MPI_", "FLUX_")


class KeeperGoneError(Exception):
    """The keeper was killed or hangs: this node is unusable."""


class RankHostProcess:
    """A rank host, or a standby process that becomes one, as seen by the supervisor."""

    def __init__(self, number: int, channel: FrameSocket, printed: LogPipe, python: str, order: Any) -> None:
        self.number = number
        self.channel = channel
        self.printed = printed
        self.python = python
        self.order = order  #: Its parameters: argv, environment and config from the controller.
        self.pid: Optional[int] = None
        self.end: Optional[Message] = None  #: Its exit message, if it ended before it became the rank host.
        self.killed = False
        self._oom_kills = oom_kills()

    def why_killed(self, signal_number: Optional[int]) -> str:
        if signal_number != signal.SIGKILL or self.killed or self._oom_kills is None:
            return ""
        now = oom_kills() or 0
        return "out of memory: oom_kill %d in /proc/vmstat" % now if now > self._oom_kills else ""

    def close(self) -> None:
        self.channel.close()
        self.printed.close()


def oom_kills(path: str = "/proc/vmstat") -> Optional[int]:
    """Return how many processes of the machine the kernel killed for lack of memory, of control groups too."""
    with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
        match = re.search(r"^oom_kill ([0-9]{1,18})$", file.read(1 << 18), re.MULTILINE)
        return int(match.group(1)) if match else None
    return None


def _order(message: Message) -> List[Any]:
    """Return argv, environment and config of a request for a rank host; raise ValueError if one is invalid."""
    argv, env, config = message.get("argv"), message.get("env") or {}, message.get("config") or {}
    if argv is not None and not (isinstance(argv, list) and argv and all(isinstance(word, str) for word in argv)):
        raise ValueError("argv is not a list of words")
    if not isinstance(config, dict) or not isinstance(env, dict):
        raise ValueError("%s is not an object" % ("env" if isinstance(config, dict) else "config"))
    merged_environment(env)
    return [argv, env, config]


def merged_environment(*layers: Any) -> Dict[str, str]:
    """Merge environment layers; later ones take precedence. Raise ValueError for what no environment can have."""
    merged: Dict[str, str] = {}
    for layer in layers:
        for name, value in (layer or {}).items():
            if not isinstance(value, str) or not name or "=" in name or "\0" in name + value:
                raise ValueError("%r cannot be an environment variable" % (name,))
            merged[name] = value
    return merged


def _log_lines(pipe: LogPipe, rest: bool) -> List[Message]:
    return [{"t": "log", "text": line} for line in pipe.lines(rest)]


class ChildProcesses:
    """Start, end and messages of the worker and the rank host.

    ``keeper`` is the socket to process B, ``printed`` the reading end of the output of B and the worker.
    """

    def __init__(self, keeper: socket.socket, printed: int, config: Mapping[str, Any]) -> None:
        keeper.settimeout(KEEPER_TIMEOUT)
        self.keeper = keeper
        self._decoder = Decoder()
        self._config = config
        self._number = 0
        self._ticked = 0.0
        self._unanswered = 0
        self._worker: Optional[FrameSocket] = None
        self._worker_number = 0
        self._rank: Optional[RankHostProcess] = None
        # The standby process; it becomes the rank host as soon as the current one has ended, if awaited.
        self._spare: Optional[RankHostProcess] = None
        self._awaited = False
        self._pending: List[Message] = []
        self._printed = LogPipe(printed)
        self._lost: Dict[int, float] = {}
        self._log_window = 0
        self._log_bytes = 0

    @property
    def rank_lives(self) -> bool:
        return self._rank is not None and not self._rank.killed

    def readers(self, now: float) -> List[Any]:
        """Return the objects to wait for, except the keeper."""
        ready: List[Any] = list(self._channels())
        if int(now) != self._log_window:
            self._log_window, self._log_bytes = int(now), 0
        if self._log_bytes < BYTES_PER_SECOND:
            ready += [pipe for pipe in self._pipes() if pipe.open]
        return ready

    def writers(self) -> List[Any]:
        return [channel for channel in self._channels() if len(channel.out)]

    def _channels(self) -> List[FrameSocket]:
        channels = [self._worker, self._rank.channel if self._rank is not None else None]
        return [channel for channel in channels if channel is not None and channel.open]

    def _pipes(self) -> List[LogPipe]:
        return [self._printed] + [rank.printed for rank in (self._rank, self._spare) if rank is not None]

    def tick(self, now: float) -> None:
        """Send the keeper a sign of life, and flush the channels."""
        if now - self._ticked >= KEEPER_TICK:
            self._ticked = now
            self._ask(encode({"op": "tick"}))
            # Counted, not timed: both processes may have been stopped for a while.
            self._unanswered += 1
            if self._unanswered > MAX_UNANSWERED:
                raise KeeperGoneError("the keeper process hangs")
        for channel in self.writers():
            channel.flush()
        for number, since in list(self._lost.items()):
            if now - since > END_TIMEOUT:
                del self._lost[number]
                self._kill(number)
        if self._rank is not None and len(self._rank.channel.out) > MAX_UNSENT_BYTES:
            self._rank.channel.out.drop()
            self.kill_rank()

    def _ask(self, frame: bytes, descriptors: Sequence[int] = ()) -> None:
        try:
            send_with_descriptors(self.keeper, frame, descriptors)
        except OSError as error:
            raise KeeperGoneError("the keeper process ended or hangs (%s)" % error) from None

    def _kill(self, number: int) -> None:
        self._ask(encode({"op": "kill", "id": number}))

    def _start(self, what: str, message: Message, *ends: int) -> int:
        self._number += 1
        try:
            order = dict(message, op="start", id=self._number, what=what, descriptors=len(ends))
            self._ask(encode(order), ends)
        finally:
            for fd in ends:
                os.close(fd)
        return self._number

    def add_modules(self, piece: bytes, last: bool) -> None:
        self._ask(encode_piece(piece, last))
        if self._worker is not None:
            self._worker.send({"t": "modules", "piece": piece.hex(), "last": last})

    def probe(self, message: Message) -> None:
        """Forward a probe to the worker, which is started if it does not run."""
        if self._worker is None:
            near, far = socket.socketpair()
            self._worker = FrameSocket(near)
            self._worker_number = self._start("worker", {}, far.detach())
        self._worker.send(message)

    def kill_worker(self) -> None:
        if self._worker is not None:
            self._kill(self._worker_number)
            self._worker.close()
            self._worker, self._worker_number = None, 0

    def spawn(self, message: Message) -> Optional[str]:
        """Start the rank host after ending the current one; return the reason if that is impossible.

        The standby process becomes the rank host, and gets messages, only when the current one has ended: so the two
        never hold the same GPUs.
        """
        excuse = self.stand_by(message)
        if excuse is not None:
            return excuse
        if self._rank is None:
            self._pending += self._promote()
        else:
            self._awaited = True
            self._end_rank()
        return None

    def stand_by(self, message: Message) -> Optional[str]:
        """Start a standby process for the next `spawn` of the same parameters; return the reason if impossible."""
        try:
            order = _order(message)
        except ValueError as error:
            return str(error)
        if self._spare is not None and (self._spare.order != order or self._spare.end is not None):
            self.stand_down()
        if self._spare is None:
            self._spare = self._start_rank(order)
        return None

    def stand_down(self) -> None:
        spare, self._spare, self._awaited = self._spare, None, False
        if spare is not None:
            if spare.end is None:
                self._kill(spare.number)
            spare.close()

    def _start_rank(self, order: List[Any]) -> RankHostProcess:
        argv, env, config = order
        own = merged_environment(self._config.get("env"), env)
        # A library that finds variables of an MPI launcher or of a job step takes the rank for a task of that.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OF_LAUNCHERS)}
        environment = dict(inherited, **own)
        words = processes.rank_command(argv, processes.choose_python(self._config.get("python"), environment))
        near, far = socket.socketpair()
        listen, printed = os.pipe()
        request = {"argv": words, "env": environment, "config": dict(config, env=own)}
        number = self._start("rank", request, far.detach(), printed)
        return RankHostProcess(number, FrameSocket(near), LogPipe(listen), words[0], order)

    def _promote(self) -> List[Message]:
        """Make the standby process the rank host; return what is to be reported of it."""
        rank, self._rank, self._spare, self._awaited = self._spare, self._spare, None, False
        assert rank is not None
        started = [] if rank.pid is None else [{"t": "spawned", "pid": rank.pid, "python": rank.python}]
        return started + ([] if rank.end is None else self._take_rank_event(rank, rank.end))

    def send_to_rank(self, body: Any) -> None:
        """Send a message to the rank host; without one it is dropped, because the exit is or will be reported."""
        if not isinstance(body, dict):
            raise TypeError("the message for the rank host is not an object")
        if self.rank_lives and self._rank is not None:
            self._rank.channel.send(body)

    def kill_rank(self) -> None:
        """Kill the rank host with all its descendants, and the standby process."""
        self.stand_down()
        self._end_rank()

    def _end_rank(self) -> None:
        if self._rank is not None and not self._rank.killed:
            self._rank.killed = True
            self._kill(self._rank.number)

    def serve(self, readable: List[Any], now: float) -> List[Message]:
        """Read the ready channels; return messages for the controller.

        It also returns ``{"t":"worker_died","text":str}`` when the worker ended by itself.

        Raises:
            KeeperGoneError: The keeper ended.
        """
        messages, self._pending = self._pending, []
        if self._worker is not None and self._worker in readable:
            messages += self._hear(self._worker, self._worker_number)
        if self._rank is not None and self._rank.channel in readable:
            heard = self._hear(self._rank.channel, self._rank.number)
            if len(heard) > 2:
                # They travel as one. The first may have begun in an earlier reading, and be as large as a frame.
                heard = [heard[0], {"op": "several", "messages": heard[1:]}]
            messages += [{"t": "rank", "m": body} for body in heard]
        for pipe in self._pipes():
            if pipe in readable:
                self._log_bytes += pipe.read()
                messages += _log_lines(pipe, not pipe.open)
        if self.keeper in readable:
            messages += self._hear_keeper()
        return messages

    def _hear(self, channel: FrameSocket, number: int) -> List[Message]:
        messages = channel.receive()
        if not channel.open:
            # The keeper will report the end of the process.
            self._lost[number] = time.monotonic()
        return messages

    def _hear_keeper(self) -> List[Message]:
        try:
            data = self.keeper.recv(65536)
        except OSError:
            data = b""
        if not data:
            raise KeeperGoneError("the keeper process ended")
        messages: List[Message] = []
        self._unanswered = 0
        for message in self._decoder.feed(data):
            if message["op"] == "tick":
                continue
            if message["op"] == "exit":
                self._lost.pop(message["id"], None)
            for left in message.get("left", ()):
                text = "process %d could not be ended: %s" % (left["pid"], left["why"])
                messages.append({"t": "log", "text": text})
            if self._rank is not None and message["id"] == self._rank.number:
                messages += self._take_rank_event(self._rank, message)
            elif self._spare is not None and message["id"] == self._spare.number:
                self._take_spare_event(self._spare, message)
            elif message["id"] == self._worker_number and message["op"] == "exit":
                messages += self._worker_ended(message)
        return messages

    def _worker_ended(self, message: Message) -> List[Message]:
        assert self._worker is not None
        messages = self._worker.drain()
        self._worker, self._worker_number = None, 0
        how = "status %s" % message["code"] if message["signal"] is None else "signal %s" % message["signal"]
        return [*messages, {"t": "worker_died", "text": "the process that runs probes ended with " + how}]

    def _take_spare_event(self, spare: RankHostProcess, message: Message) -> None:
        if message["op"] == "started":
            spare.pid = message["pid"]
        elif message["op"] == "exit":
            spare.end = message
            if not self._awaited:
                self.stand_down()

    def _take_rank_event(self, rank: RankHostProcess, message: Message) -> List[Message]:
        if message["op"] == "started":
            return [{"t": "spawned", "pid": message["pid"], "python": rank.python}]
        if message["op"] == "stopped":
            return [{"t": "stopped", "on": message["on"]}]
        messages: List[Message] = [{"t": "rank", "m": body} for body in rank.channel.drain()]
        # Read the last output from the pipe; a process that inherited the other end may still print more.
        for _ in range(16):
            if not rank.printed.open or not rank.printed.read():
                break
        messages += _log_lines(rank.printed, True)
        tail = rank.printed.tail()
        ended = {"t": "exit", "code": message["code"], "signal": message["signal"], "stderr": tail}
        why = rank.why_killed(message["signal"])
        messages.append({**ended, "why": why} if why else ended)
        rank.close()
        self._rank = None
        return messages + (self._promote() if self._awaited else [])


def lease_of(config: Dict[str, Any]) -> float:
    """Return the lease (s) of a config; the default if it is out of bounds."""
    lease = config.get("lease")
    if isinstance(lease, bool) or not isinstance(lease, (int, float)) or not 0 < lease <= MAX_LEASE:
        return DEFAULT_LEASE
    return float(lease)


def limit_gpus(limit: Any, environ: MutableMapping[str, str], cgroup: str, devices: Sequence[str]) -> None:
    """Set ``CUDA_VISIBLE_DEVICES`` to the GPUs that may be used, unless it is set or the job's cgroup shows only them.

    ``limit`` is ``{"only": indexes}`` or ``{"without": indexes}``, with ``constrained``: whether cgroups of jobs show
    their own GPUs only; None for no limit. ``cgroup`` is the content of /proc/self/cgroup, ``devices`` has the names of
    the files in /dev.
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
        self._heard = self._turned = time.monotonic()
        self._stood = 0.0
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
        hello = {"t": "hello", "protocol": protocol.VERSION, "pid": os.getpid(), "python": python, "host": host}
        self.send(dict(hello, gpus=os.path.exists(GPU_DRIVER)))
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
        before, self._turned = self._turned, time.monotonic()
        self._stood = max(self._stood, self._turned - before)
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
            answer = {"t": "hb", "n": message["n"], "rank": self._children.rank_lives}
            if self._stood >= LEAST_STANDSTILL:
                answer["stood"] = round(self._stood, 1)
            self._stood = 0.0
            self.send(answer)
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
        self._children.keeper.close()
        for pid in processes.end_descendants():
            self.log("process %d could not be ended: %s" % (pid, processes.wait_reason(pid)))
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
    for number in processes.IGNORED:
        signal.signal(number, signal.SIG_IGN)
    processes.become_subreaper()
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
    sessions.read_mark()
    near, far = socket.socketpair()
    listen, printed = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(printed, 1)
            os.dup2(printed, 2)
            processes.close_others([far.fileno()])
            keeper.run(far, lease_of(config), nonce)
        except BaseException:
            bootloader.print_traceback()
        finally:
            os._exit(0)
    far.close()
    os.close(printed)
    sessions.announce()
    Supervisor(source, sink, ChildProcesses(near, listen, config), config).run()
    os._exit(0)
