"""Node sides of many nodes by one srun: Slurm's tree starts them, and each connects back to this machine.

A step per node costs this machine two processes and 9 MB each, and the controller of Slurm a step each. Here one srun
serves up to `GROUP` nodes. Nodes for which that fails get a step of their own, so that one node costs only itself.
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

from fabtui.nodeset import expand_listed
from fabtui.sanitize import clean
from fabtui.transport.byte_pipe import STDERR_KEPT, BytePipe, Ending, Tail, kill, output_of, wait_gone
from fabtui.transport.launcher import SRUN, explain_with, srun_environment, tree_words
from fabtui.transport.link import NodeUnreachable
from fabtui.transport.payload import calling_boot, command, marked
from fabtui_node.runtime.call_back import LONGEST, NOT_REACHED, SETTING, TIMEOUT, proof

#: Timeout (s) for a connection that is being closed.
_GONE = 2.0
# What srun prints with --label and --verbose, Slurm 20.11 to 22.05.
_LABELLED = re.compile(r"\s*(\d{1,6}): ?(.*)")
_LAUNCHING = re.compile(r"launching \S{1,60} on host (\S{1,255}), \d+ tasks?: (\d{1,6})$")
_STARTED = re.compile(r"Node (\S{1,255}), \d{1,6} tasks? started")
_NOT_LAUNCHED = re.compile(r"launch for \S{1,60} failed on node (\S{1,255}): ")
_ENDED = re.compile(r"(?:^| )([^\s:]{1,255}): tasks? ([\d,-]{1,255}): (.{1,200})")
_STATUS = re.compile(r"Exited with exit code (\d{1,3})")
#: Maximum length (bytes) of a line of srun.
_LONGEST = 64 * 1024
#: Time (s) in which srun reports the end of a task, or further failures.
_REPORT = 1.0
#: Kinds of errors of srun that concern all nodes of the step.
_FOR_ALL = ("job", "timeout", "auth")
#: Most nodes of one step.
GROUP = 256
#: Steps that are tried for a group of nodes, each without those where the one before failed.
_ATTEMPTS = 3
#: Time (s) in which nodes are gathered for one step.
_GATHER = 0.1
#: Connections that wait to be accepted.
_BACKLOG = 1024
#: Ports of a configured range that are tried, and the deadline (s) of the question for it.
_TRIES, _ASK = 50, 5.0
_RANGE = re.compile(rb"SrunPortRange\s*=\s*(\d{1,5})-(\d{1,5})")


class CalledPipe(BytePipe):
    """A connection that a task of a step made, and what srun reports of the task.

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


class StepGroup:
    """A step on several nodes.

    srun ends the whole step when it cannot launch the task of one node, up to tens of seconds later. Until all tasks
    have been launched, nobody gets a connection. ``job`` is for hints.
    """

    def __init__(self, job: str, nodes: Sequence[str]) -> None:
        self._explain = explain_with(SRUN, job)
        loop = asyncio.get_running_loop()
        #: For each node its pipe, or None if its task does not connect.
        self.waiting: dict[str, asyncio.Future[CalledPipe | None]] = {node: loop.create_future() for node in nodes}
        self.unreached = ""  #: What a task printed that does not reach this machine, or "".
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

    async def start(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start srun. Raises `OSError` if that fails."""
        self._process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
            limit=_LONGEST,
        )
        self._reading = asyncio.create_task(self._read(self._process.stderr))

    async def not_launched(self, within: float) -> dict[str, NodeUnreachable | None]:
        """Wait until the tasks of all nodes were launched.

        Returns:
            The nodes where that failed, with the reason, or took too long.

        Raises:
            NodeUnreachable: srun failed for a reason that concerns all nodes.
        """
        everyone = set(self.waiting)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._until(lambda: self._over or bool(self._failed) or everyone <= self._launched)
                if self._failed:
                    await asyncio.sleep(_REPORT)
        if self._over and not self._failed and not everyone <= self._launched:
            problem = self._problem()
            if problem is not None and problem.kind in _FOR_ALL:
                raise problem
        return {**self._failed} or dict.fromkeys(everyone - self._launched)

    def take(self, node: str, task: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Take the connection of a task; return False if its node does not wait for one."""
        future = self.waiting.get(node)
        if future is None or future.done():
            return False
        printed = self._printed.setdefault(task, asyncio.Queue())

        async def errors() -> bytes:
            return b"" if self._over and printed.empty() else await printed.get()

        future.set_result(CalledPipe(reader, writer, errors, lambda: self._ending(node)))
        self._launched.add(node)
        self._changed.set()
        return True

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def _read(self, stderr: asyncio.StreamReader | None) -> None:
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
        self._over = True
        self._changed.set()
        for queue in self._printed.values():
            queue.put_nowait(b"")

    def _understand(self, text: str) -> None:
        labelled = _LABELLED.fullmatch(text)
        if labelled is not None:
            queue = self._printed.setdefault(labelled[1].lstrip("0") or "0", asyncio.Queue())
            if queue.qsize() * 80 < STDERR_KEPT:
                queue.put_nowait(labelled[2].encode() + b"\n")
        # srun's lines about progress would hide the reason.
        if "error: ***" in text or (labelled is None and "error: " in text):
            self._tail.add((labelled[2] if labelled is not None else text).encode() + b"\n")
        if labelled is not None:
            return
        if (match := _LAUNCHING.search(text)) is not None:
            self._tasks[match[1]] = match[2]
        elif (match := _STARTED.search(text)) is not None:
            self._launched.add(match[1])
        elif (match := _NOT_LAUNCHED.search(text)) is not None:
            self._failed[match[1]] = self._explain(Ending(reason="srun ended"), "", text)
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
        return self._explain(Ending(reason="srun ended"), "", printed) if printed else None

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
        return Ending(reason="the srun that started it ended" if self._over else "the connection closed")

    async def close(self) -> None:
        """End the step. The owners of the links close them first."""
        if self._process is not None:
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


class StepTree:
    """Starts node sides on nodes of a job, as many by one srun as are asked for at the same time.

    ``job`` is for hints; ``placements`` are options of srun that select job and node, by node. A step has ``wait``
    seconds to start, its tasks again, and each then ``start`` to connect. ``notify`` receives a line for the user.
    """

    def __init__(
        self,
        job: str,
        placements: Mapping[str, tuple[str, ...]],
        python: str | None,
        wait: float,
        start: float,
        notify: Callable[[str], None],
    ) -> None:
        self._job, self._placements, self._python = job, placements, python
        self._wait, self._start, self._notify = wait, start, notify
        self._secret = secrets.token_hex(16)
        self._asked: set[str] = set()
        self._batch: dict[str, asyncio.Future[CalledPipe | None]] = {}
        self._gathering: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        #: By the name of each in the greeting: a task of a step that ended must not pass for one of the next step.
        self._groups: dict[str, StepGroup] = {}
        self._server: asyncio.Server | None = None
        self._broken = False

    async def pipe(self, node: str) -> CalledPipe | None:
        """Return the pipe of a node side, or None for a node that needs a step of its own.

        Raises:
            NodeUnreachable: The task of the node failed, or the job ended.
        """
        if node in self._asked or self._broken:
            return None
        self._asked.add(node)
        future = self._batch[node] = asyncio.get_running_loop().create_future()
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.create_task(self._gather())
        pipe: CalledPipe | None = await future
        return pipe

    async def _gather(self) -> None:
        await asyncio.sleep(_GATHER)
        batch, self._batch = self._batch, {}
        by_job: dict[tuple[str, ...], list[str]] = {}
        for node in batch:
            by_job.setdefault(self._placements[node][:-1], []).append(node)
        for placement, nodes in by_job.items():
            for first in range(0, len(nodes), GROUP):
                chosen = {node: batch[node] for node in nodes[first : first + GROUP]}
                task = asyncio.create_task(self._serve(placement, chosen))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _serve(self, placement: Sequence[str], batch: Batch) -> None:
        """Give each node of a batch its pipe, the reason why it has none, or None."""
        try:
            nodes = list(batch)
            for _ in range(_ATTEMPTS):
                if len(nodes) < 2 or self._broken:
                    break
                group = await self._step(placement, nodes)
                failed = await group.not_launched(2 * self._wait)
                if not failed:
                    await asyncio.gather(*(self._pass_on(group, node, batch[node]) for node in nodes))
                    break
                # The others start again without them.
                await self._end(group)
                nodes = [node for node in nodes if node not in failed]
                for node, reason in failed.items():
                    if reason is not None and not batch[node].done():
                        batch[node].set_exception(reason)
        except NodeUnreachable as error:
            for future in batch.values():
                if not future.done():
                    future.set_exception(error)
        except OSError as error:
            self._notify(f"each node gets a step of its own: {error}")
        finally:
            for future in batch.values():
                if not future.done():
                    future.set_result(None)

    async def _step(self, placement: Sequence[str], nodes: Sequence[str]) -> StepGroup:
        port = await self._listen()
        group = StepGroup(self._job, nodes)
        number = secrets.token_hex(4)
        self._groups[number] = group
        words = ["/bin/sh", "-c", command(self._python, boot=marked(calling_boot(), number))]
        environment = {**srun_environment(), SETTING: f"{self._secret} {number} {port}"}
        await group.start(tree_words(placement, nodes, words, self._wait), environment)
        return group

    async def _end(self, group: StepGroup) -> None:
        await group.close()
        for future in group.waiting.values():
            if future.exception() is None and (pipe := future.result()) is not None:
                pipe.abort()

    async def _pass_on(self, group: StepGroup, node: str, future: asyncio.Future[CalledPipe | None]) -> None:
        try:
            pipe = await asyncio.wait_for(asyncio.shield(group.waiting[node]), self._start)
        except (NodeUnreachable, TimeoutError) as error:
            if not future.done():
                future.set_exception(error) if isinstance(error, NodeUnreachable) else future.set_result(None)
            return
        if pipe is None and group.unreached and not self._broken:
            # A firewall, most likely: the next nodes do not try.
            self._broken = True
            text = "nodes cannot reach this machine, so each gets a step of its own"
            self._notify(f"{text}: {group.unreached.removeprefix('fabtui: ').strip()}")
        if not future.done():
            future.set_result(pipe)
        elif pipe is not None:
            pipe.abort()

    async def _listen(self) -> int:
        """Return the port on which node sides connect. Raises `OSError` if there is none."""
        if self._server is None:
            ports = await _allowed_ports()
            for port in ports:
                try:
                    self._server = await asyncio.start_server(self._greet, sock=_listener(port))
                    break
                except OSError:
                    if port == ports[-1]:
                        raise
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return int(port)

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


def _listener(port: int) -> socket.socket:
    with contextlib.suppress(OSError):
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
    return socket.create_server(("", port), backlog=_BACKLOG)


async def _line(reader: asyncio.StreamReader) -> str:
    line = await reader.readuntil(b"\n")
    if len(line) > LONGEST:
        raise ValueError("too long")
    return line.decode("ascii").rstrip("\n")


async def _allowed_ports() -> list[int]:
    """Return ports to listen on: some of the range that Slurm is configured to use, else any."""
    output = b""
    with contextlib.suppress(OSError):
        _, output, _ = await output_of(("scontrol", "show", "config"), _ASK)
    match = _RANGE.search(output)
    if match is None:
        return [0]
    allowed = range(int(match[1]), min(int(match[2]), 65535) + 1)
    return random.sample(allowed, min(_TRIES, len(allowed))) or [0]
