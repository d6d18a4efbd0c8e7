"""Node sides of many nodes, started by one call of a program such as srun; each calls this machine back.

A launcher per node costs this machine two processes and 9 MB each (srun), or 45 MB (kubectl). A node that the call does
not reach costs only itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import random
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from fabtui.nodeset import count, expand_listed
from fabtui.sanitize import clean, one_line
from fabtui.transport.byte_pipe import STDERR_KEPT, BytePipe, Ending, Tail, kill, output_of, wait_gone
from fabtui.transport.launcher import explain_with
from fabtui.transport.link import NodeUnreachable
from fabtui.transport.payload import calling_boot, command, marked
from fabtui.transport.starters import ASK, STARTERS, StartCall, brokers
from fabtui_node.runtime.call_back import LONGEST, NOT_REACHED, SETTING, TIMEOUT, proof

#: Timeout (s) for a connection that is being closed.
_GONE = 2.0
# What srun and Flux print with labels, and srun 20.11 to 22.05 with --verbose.
_LABELLED = re.compile(r"\s*(\d{1,6}): ?(.*)")
_LAUNCHING = re.compile(r"launching \S{1,60} on host (\S{1,255}), \d+ tasks?: (\d{1,6})$")
_STARTED = re.compile(r"Node (\S{1,255}), \d{1,6} tasks? started")
_NOT_LAUNCHED = re.compile(r"launch for \S{1,60} failed on node (\S{1,255}): ")
_ENDED = re.compile(r"(?:^| )([^\s:]{1,255}): tasks? ([\d,-]{1,255}): (.{1,200})")
_STATUS = re.compile(r"Exited with exit code (\d{1,3})")
#: What a process prints that does not reach this machine.
_NO_WAY = "no connection to "
#: A line that may name a node where nothing starts.
_FAILURE = re.compile(
    r"error|fail|refused|denied|unreachable|no route|time[d ]*out|not (?:known|resolve)|closed|reset", re.I
)
_NOT_REACHED = "use --transport ssh"
#: Maximum length (bytes) of a line of a starter.
_LONGEST = 64 * 1024
#: Time (s) in which a starter reports the end of a task, or further failures.
_REPORT = 1.0
#: Kinds of errors that concern all nodes of a call.
_FOR_ALL = ("job", "timeout", "auth")
#: Calls that are tried for a group of nodes, each without those where the one before failed.
_ATTEMPTS = 5
#: Time (s) in which nodes are gathered for one call.
_GATHER = 0.1
#: Connections that wait to be accepted.
_BACKLOG = 4096
#: Ports of a configured range that are tried.
_TRIES = 50
_RANGE = re.compile(rb"SrunPortRange\s*=\s*(\d{1,5})-(\d{1,5})")
#: Nodes whose addresses are looked up, to know which address of this machine they reach.
_RESOLVED = 4
#: Notices about processes that call under a wrong name.
_MOST_NOTICES = 5


class CalledPipe(BytePipe):
    """A connection that a process of a call made, and what the starter reports of the process.

    ``errors`` returns the next output on standard error of the task, none at its end; ``how_it_ended`` waits a bounded
    time.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        errors: Callable[[], Awaitable[bytes]],
        how_it_ended: Callable[[], Awaitable[Ending]],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._errors = errors
        self._how_it_ended = how_it_ended
        self._over = asyncio.Event()

    async def read(self) -> bytes:
        try:
            data = await self._reader.read(64 * 1024)
        except OSError:
            data = b""
        if not data:
            self._over.set()
        return data

    async def read_error(self) -> bytes:
        return await self._errors()

    @property
    def _stdin(self) -> asyncio.StreamWriter:
        return self._writer

    def write_eof(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write_eof()

    async def ending(self) -> Ending:
        await self._over.wait()
        return await self._how_it_ended()

    def abort(self) -> None:
        self._over.set()
        self._writer.transport.abort()

    async def wait_closed(self) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), _GONE)


class CalledGroup:
    """Nodes that one call starts.

    A node gets its connection as soon as it has called. srun ends the whole step when it cannot launch the task of one
    node. That may take it tens of seconds, so nobody gets a connection until it has launched all. ``job`` is
    for hints.
    """

    def __init__(self, name: str, job: str, nodes: Sequence[str], notify: Callable[[str], None]) -> None:
        self._name, self._starter = name, STARTERS[name]
        self._explain = explain_with(self._starter.errors, job)
        self._notify = notify
        loop = asyncio.get_running_loop()
        #: For each node its pipe, or None if its task does not connect.
        self.waiting: dict[str, asyncio.Future[CalledPipe | None]] = {node: loop.create_future() for node in nodes}
        self.unreached = ""  #: What a process printed that does not reach this machine, or "".
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._tail = Tail()
        self._printed: dict[str, asyncio.Queue[bytes]] = {}
        self._tasks: dict[str, str] = {}
        self._launched: set[str] = set()
        self._failed: dict[str, NodeUnreachable | None] = {}
        self._statuses: dict[str, str] = {}
        self._over = False
        self._changed = asyncio.Event()
        self._latest = loop.time()
        self._strange = 0
        self._call: StartCall | None = None

    async def start(self, call: StartCall) -> None:
        """Start the program. Raises `OSError` if that fails."""
        starter, self._call = self._starter, call
        text = starter.text(call)
        self._process = await asyncio.create_subprocess_exec(
            *starter.words(call),
            stdin=asyncio.subprocess.PIPE if text else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**starter.environment(), SETTING: call.setting},
            start_new_session=True,
            limit=_LONGEST,
        )
        if self._process.stdin is not None:
            self._process.stdin.write(text.encode())
            self._process.stdin.close()
        self._latest = asyncio.get_running_loop().time()
        self._reading = asyncio.create_task(self._read(self._process))

    async def not_launched(self, within: float) -> dict[str, NodeUnreachable | None]:
        """Wait until all processes were launched, or where they do not depend on each other, until one has called.

        Returns:
            The nodes without which the call has to be repeated, with the reason, or None if it took too long.

        Raises:
            NodeUnreachable: The call failed for a reason that concerns all nodes.
        """
        everyone, whole = set(self.waiting), self._starter.whole

        def settled() -> bool:
            arrived = everyone <= self._launched if whole else bool(self._launched or self.unreached)
            return arrived or self._over or bool(self._failed)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._until(settled)
                if self._failed or (self.unreached and not self._launched):
                    await asyncio.sleep(_REPORT)
        failed = self._failed
        if self._launched and not whole:
            return {}
        if self.unreached and not whole:
            raise NodeUnreachable("no-route", f"nodes cannot reach this machine: {self.unreached}", _NOT_REACHED)
        if self._over and not failed and not everyone <= self._launched:
            problem = self._problem()
            failed = self._named()
            if problem is not None and not failed and (problem.kind in _FOR_ALL or not whole):
                raise problem
        return {**failed} or (dict.fromkeys(everyone - self._launched) if whole else {})

    def _named(self) -> dict[str, NodeUnreachable | None]:
        """Return the nodes that the output of a call that failed names, with its line, if it does not name all."""
        named: dict[str, NodeUnreachable | None] = {}
        for line in self._tail.text().splitlines():
            words = {word.strip(".") for word in re.findall(r"[\w.-]+", line)} - {socket.gethostname()}
            for node in words & self.waiting.keys() if _FAILURE.search(line) else ():
                text = f"{self._name} cannot start a process there: {one_line(line.strip(), 300)}"
                named.setdefault(node, NodeUnreachable("refused", text))
        return named if len(named) < len(self.waiting) else {}

    async def expire(self, patience: float) -> None:
        """Give up the nodes that did not call within some time (s) after the latest that did."""
        loop = asyncio.get_running_loop()
        while left := [node for node, future in self.waiting.items() if not future.done()]:
            if (pause := self._latest + patience - loop.time()) > 0:
                await asyncio.sleep(pause)
                continue
            printed = one_line(self.unreached or self._tail.text().strip()[-200:], 300)
            text = f"{self._name} started no process there that called back within {patience:.0f} s after the others"
            for node in left:
                self._settle(node, NodeUnreachable("timeout", f"{text}: {printed}" if printed else text))

    def _settle(self, node: str, error: NodeUnreachable) -> None:
        # srun starts a step for it alone.
        if self._starter.whole and error.kind == "timeout":
            self.waiting[node].set_result(None)
        else:
            self.waiting[node].set_exception(error)

    def take(self, claim: str, task: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Take the connection of a process; return False if its node does not wait for one."""
        peer = str((writer.get_extra_info("peername") or [""])[0]).removeprefix("::ffff:")
        short = claim.partition(".")[0]
        alike = [node for node in self.waiting if node.partition(".")[0] == short] if claim not in self.waiting else []
        node = claim if claim in self.waiting else alike[0] if len(alike) == 1 else peer
        future = self.waiting.get(node)
        if future is None or future.done():
            self._strange += 1
            if self._strange <= _MOST_NOTICES:
                shown = f"a process on {one_line(claim, 100)} ({peer})"
                twice = future is not None and future.exception() is None and future.result() is not None
                why = "but another has called as this node" if twice else "and no node of this name waits for it"
                self._notify(f"{shown} called back, {why}: it is not used")
            return False
        printed = self._printed.setdefault(task, asyncio.Queue())

        async def errors() -> bytes:
            return b"" if self._over and printed.empty() else await printed.get()

        future.set_result(CalledPipe(reader, writer, errors, lambda: self._ending(node)))
        self._launched.add(node)
        self._latest = asyncio.get_running_loop().time()
        self._changed.set()
        return True

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        stderr = process.stderr
        assert stderr is not None
        while not stderr.at_eof():
            try:
                line = await stderr.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                line = await stderr.read(error.consumed)
            except asyncio.IncompleteReadError as error:
                line = error.partial
            self._understand(clean(line).strip())
            self._changed.set()
        self._over = self._starter.stays or await process.wait() != 0
        self._changed.set()
        for queue in self._printed.values():
            queue.put_nowait(b"")

    def _understand(self, text: str) -> None:
        labelled = _LABELLED.fullmatch(text)
        if labelled is not None:
            queue = self._printed.setdefault(labelled[1].lstrip("0") or "0", asyncio.Queue())
            if queue.qsize() * 80 < STDERR_KEPT:
                queue.put_nowait(labelled[2].encode() + b"\n")
        if _NO_WAY in text and not self._starter.whole:
            self.unreached = text.partition("fabtui: ")[2] or text
        # srun's lines about progress would hide the reason.
        if not self._starter.whole or "error: ***" in text or (labelled is None and "error: " in text):
            self._tail.add((labelled[2] if labelled is not None else text).encode() + b"\n")
        if labelled is not None or not self._starter.whole:
            return
        if (match := _LAUNCHING.search(text)) is not None:
            self._tasks[match[1]] = match[2]
        elif (match := _STARTED.search(text)) is not None:
            self._launched.add(match[1])
        elif (match := _NOT_LAUNCHED.search(text)) is not None:
            self._failed[match[1]] = self._explain(Ending(reason=f"{self._name} ended"), "", text)
        elif (match := _ENDED.search(text)) is not None:
            for node in expand_listed(match[1]) or ():
                self._statuses[node] = match[3]
                # What the task printed may come after the report of its end.
                asyncio.get_running_loop().call_later(_REPORT, self._give_up, node)

    def _give_up(self, node: str) -> None:
        future = self.waiting.get(node)
        if future is None or future.done():
            return
        queue = self._printed.get(self._tasks.get(node, ""))
        printed = b"".join(queue.get_nowait() for _ in range(queue.qsize())).decode() if queue is not None else ""
        ending = self._ending_of(self._statuses[node])
        if ending.status == NOT_REACHED:
            self.unreached = printed
            future.set_result(None)
        else:
            future.set_exception(self._explain(ending, "", printed))

    def _problem(self) -> NodeUnreachable | None:
        printed = self._tail.text()
        return self._explain(Ending(reason=f"{self._name} ended"), "", printed) if printed else None

    def _ending_of(self, how: str) -> Ending:
        status = _STATUS.search(how)
        if status is not None or how == "Completed":
            return Ending(status=int(status[1]) if status is not None else 0)
        return Ending(reason=f"the launched command was killed ({how})")

    async def _ending(self, node: str) -> Ending:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REPORT):
                await self._until(lambda: node in self._statuses or self._over)
        problem = self._problem()
        if problem is not None and problem.kind == "job":
            return Ending(reason=problem.text)
        if node in self._statuses:
            return self._ending_of(self._statuses[node])
        return Ending(reason=f"the {self._name} that started it ended" if self._over else "the connection closed")

    async def close(self) -> None:
        """End what was started. The owners of the links close them first."""
        if self._process is not None:
            if self._starter.stop and self._call is not None:
                with contextlib.suppress(OSError):
                    await output_of(self._starter.stop, ASK, self._starter.text(self._call).encode())
            if all(future.done() for future in self.waiting.values()):
                # Its tasks end with their connections.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._process.wait(), _REPORT)
            kill(self._process)
            await wait_gone(self._process)
        for future in self.waiting.values():
            if not future.done():
                future.set_result(None)
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)


Batch = Mapping[str, asyncio.Future[CalledPipe | None]]


class NodeStarter:
    """Starts node sides, by one call for all nodes that are asked for at the same time.

    ``name`` is one of `STARTERS`. ``job`` is for hints; ``placements`` are options of srun that select job and node, by
    node. A call has ``wait`` seconds to start, its processes again, and each then ``start`` to call back. ``notify``
    receives a line for the user.
    """

    def __init__(
        self,
        name: str,
        job: str,
        placements: Mapping[str, tuple[str, ...]],
        python: str | None,
        wait: float,
        start: float,
        manifest: str,
        notify: Callable[[str], None],
    ) -> None:
        self._name, self._starter = name, STARTERS[name]
        self._job, self._placements, self._python = job, placements, python
        self._wait, self._start, self._manifest, self._notify = wait, start, manifest, notify
        self._secret = secrets.token_hex(16)
        self._asked: set[str] = set()
        self._batch: dict[str, asyncio.Future[CalledPipe | None]] = {}
        self._gathering: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        #: By the name of each in the greeting: a process of a call that ended must not pass for one of the next.
        self._groups: dict[str, CalledGroup] = {}
        self._server: asyncio.Server | None = None
        self._opening = asyncio.Lock()
        self._joining = 0
        self._broken = ""

    async def pipe(self, node: str) -> CalledPipe | None:
        """Return the pipe of a node side, or None for a node that needs a step of its own.

        Raises:
            NodeUnreachable: The process on the node failed, or the job ended.
        """
        if self._starter.whole and (node in self._asked or self._broken):
            return None
        self._asked.add(node)
        future = self._batch[node] = asyncio.get_running_loop().create_future()
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.create_task(self._gather())
        pipe: CalledPipe | None = await future
        return pipe

    async def _gather(self) -> None:
        size = 0
        while size < len(self._batch):
            size = len(self._batch)
            await asyncio.sleep(_GATHER)
        batch, self._batch = self._batch, {}
        by_job: dict[tuple[str, ...], list[str]] = {}
        for node in batch:
            by_job.setdefault(self._placements.get(node, ())[:-1], []).append(node)
        for placement, nodes in by_job.items():
            task = asyncio.create_task(self._serve(placement, {node: batch[node] for node in nodes}))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, placement: Sequence[str], batch: Batch) -> None:
        """Give each node of a batch its pipe, the reason why it has none, or None."""
        self._joining += 1
        try:
            nodes = list(batch)
            for _ in range(_ATTEMPTS):
                if not nodes or (self._starter.whole and len(nodes) < 2) or self._broken:
                    break
                group = await self._called(placement, nodes)
                failed = await group.not_launched(2 * self._wait + self._starter.first)
                if not failed:
                    await self._pass_on(group, batch)
                    break
                # The others start again without them.
                await self._end(group)
                nodes = [node for node in nodes if node not in failed]
                for node, reason in failed.items():
                    if reason is not None and not batch[node].done():
                        batch[node].set_exception(reason)
        except (NodeUnreachable, OSError) as error:
            if isinstance(error, OSError) and self._starter.whole:
                self._notify(f"each node gets a step of its own: {error}")
            else:
                self._fail(batch, error)
        finally:
            self._joining -= 1
            if not self._joining and self._server is not None:
                # Nobody is awaited.
                self._server.close()
                self._server = None
            if not self._starter.whole:
                self._fail(batch, OSError("it failed repeatedly"))
            for future in batch.values():
                if not future.done():
                    future.set_result(None)

    def _fail(self, batch: Batch, error: Exception) -> None:
        text = f"{self._name} did not start it: {error}"
        reason = error if isinstance(error, NodeUnreachable) else NodeUnreachable("local", text)
        for future in batch.values():
            if not future.done():
                future.set_exception(reason)

    async def _called(self, placement: Sequence[str], nodes: Sequence[str]) -> CalledGroup:
        async with self._opening:
            address, port = await self._listen(nodes)
        group = CalledGroup(self._name, self._job, nodes, self._notify)
        number = secrets.token_hex(4)
        self._groups[number] = group
        words = ["/bin/sh", "-c", command(self._python, boot=marked(calling_boot(), number))]
        named = address or ("-" if self._starter.whole else socket.gethostname())
        setting = f"{self._secret} {number} {port} {named} {self._name}"
        ranks = await brokers(nodes) if self._name == "flux" else {}
        await group.start(StartCall(nodes, words, setting, number, self._wait, placement, self._manifest, ranks))
        if len(self._groups) == 1:
            where = f"{address or 'this machine'} port {port}"
            self._notify(f"one {self._name} starts {count(len(nodes), 'node')}, which call back to {where}")
        return group

    async def _end(self, group: CalledGroup) -> None:
        await group.close()
        for future in group.waiting.values():
            if future.exception() is None and (pipe := future.result()) is not None:
                pipe.abort()

    async def _pass_on(self, group: CalledGroup, batch: Batch) -> None:
        """Give the nodes of a call what becomes of them."""
        expiring = asyncio.create_task(group.expire(self._start + self._starter.first / 5))
        try:
            for node, future in group.waiting.items():
                future.add_done_callback(partial(self._hand_over, group, batch[node]))
            await asyncio.wait(group.waiting.values())
        finally:
            expiring.cancel()

    def _hand_over(
        self, group: CalledGroup, future: asyncio.Future[CalledPipe | None], done: asyncio.Future[CalledPipe | None]
    ) -> None:
        error = None if done.cancelled() else done.exception()
        pipe = None if done.cancelled() or error is not None else done.result()
        if error is None and pipe is None and group.unreached and not self._broken and self._starter.whole:
            # A firewall, most likely: the next nodes do not try.
            self._broken = group.unreached.removeprefix("fabtui: ").strip()
            self._notify(f"nodes cannot reach this machine, so each gets a step of its own: {self._broken}")
        if future.done():
            if pipe is not None:
                pipe.abort()
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(pipe)

    async def _listen(self, nodes: Sequence[str]) -> tuple[str, int]:
        """Return the address and port on which node sides connect. Raises `OSError` if there is none."""
        if self._server is None:
            # Where only Slurm knows the names of the nodes, it also knows which address of this machine they reach.
            address = await asyncio.to_thread(_address_towards, nodes, not self._starter.whole)
            ports = await _allowed_ports() if self._starter.whole else [0]
            for port in ports:
                try:
                    self._server = await asyncio.start_server(self._greet, sock=_listener(address, port))
                    break
                except OSError:
                    if port == ports[-1]:
                        raise
        assert self._server is not None
        address, port = self._server.sockets[0].getsockname()[:2]
        return ("" if address in ("::", "0.0.0.0") else address), int(port)  # noqa: S104  # nosec B104

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        known = False
        with contextlib.suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(TIMEOUT):
                greeting = await _line(reader)
                number, node, task = greeting.split(" ")[:3]
                nonce = secrets.token_hex(16)
                writer.write(f"{nonce} {proof(self._secret, 'controller', greeting, nonce)}\n".encode())
                shown = await _line(reader)
                known = hmac.compare_digest(shown, proof(self._secret, "node", greeting, nonce))
        group = self._groups.get(number) if known else None
        if group is None or not group.take(node, task, reader, writer):
            writer.transport.abort()

    async def close(self) -> None:
        """End all steps; the links are closed first."""
        if self._server is not None:
            self._server.close()
        tasks = [*self._tasks, *([self._gathering] if self._gathering is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*(group.close() for group in self._groups.values()), *tasks, return_exceptions=True)


def _listener(address: str, port: int) -> socket.socket:
    if address:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=_BACKLOG)
    with contextlib.suppress(OSError):
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
    return socket.create_server(("", port), backlog=_BACKLOG)


def _address_towards(nodes: Sequence[str], otherwise: bool) -> str:
    """Return the address of this machine from which it reaches nodes; without names, that of its default route."""
    addresses = []
    for name in (*nodes[:_RESOLVED], *(("192.0.2.1",) if otherwise else ())):
        with contextlib.suppress(OSError, UnicodeError):
            family, kind, _, _, target = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                # Sends nothing.
                probe.connect(target)
                addresses.append(str(probe.getsockname()[0]))
    # The name of this machine itself may lead to its loopback.
    return next((address for address in addresses if not address.startswith(("127.", "::1"))), (addresses or [""])[0])


async def _line(reader: asyncio.StreamReader) -> str:
    line = await reader.readuntil(b"\n")
    if len(line) > LONGEST:
        raise ValueError("too long")
    return line.decode("ascii").rstrip("\n")


async def _allowed_ports() -> list[int]:
    """Return ports to listen on: some of the range that Slurm is configured to use, else any."""
    output = b""
    with contextlib.suppress(OSError):
        _, output, _ = await output_of(("scontrol", "show", "config"), ASK)
    match = _RANGE.search(output)
    if match is None:
        return [0]
    allowed = range(int(match[1]), min(int(match[2]), 65535) + 1)
    return random.sample(allowed, min(_TRIES, len(allowed))) or [0]
