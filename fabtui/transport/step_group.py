"""One srun that starts the node sides of many nodes, and what it reports about each of them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

from fabtui.nodeset import expand_listed
from fabtui.sanitize import clean
from fabtui.transport.byte_pipe import STDERR_KEPT, BytePipe, Ending, Tail
from fabtui.transport.launcher import SRUN, explain_with
from fabtui.transport.link import NodeUnreachable
from fabtui.transport.local import kill, wait_gone
from fabtui_node.runtime.call_back import NOT_REACHED

#: Timeout (s) for a connection that is being closed.
_GONE = 2.0


class CalledPipe(BytePipe):
    """A connection that a task of a step made, and what srun reports of the task.

    Args:
        reader: The stream from the node.
        writer: The stream to the node.
        errors: Returns the next output on standard error of the task, none at its end.
        how_it_ended: Returns how the task ended, waiting a bounded time.
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
        """Return bytes from the node, none at the end."""
        try:
            data = await self._reader.read(64 * 1024)
        except OSError:
            data = b""
        if not data:
            self._over.set()
        return data

    async def read_error(self) -> bytes:
        """Return some bytes of standard error, none at its end."""
        return await self._errors()

    async def write(self, data: bytes) -> None:
        """Write to the node."""
        self._writer.write(data)
        await self._writer.drain()

    def write_eof(self) -> None:
        """End the node's input."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write_eof()

    async def ending(self) -> Ending:
        """Wait for the end of the connection."""
        await self._over.wait()
        return await self._how_it_ended()

    def abort(self) -> None:
        """Close the connection; the node side ends by its end of input."""
        self._over.set()
        self._writer.transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed, a bounded time."""
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), _GONE)


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


class StepGroup:
    """A step on several nodes.

    srun ends the whole step when it cannot launch the task of one node, up to tens of seconds later. Until all tasks
    have been launched, nobody gets a connection.

    Args:
        job: The job, for hints.
        nodes: The nodes.

    Attributes:
        waiting: For each node its pipe, or None if its task does not connect.
        unreached: What a task printed that does not reach this machine, or "".
    """

    def __init__(self, job: str, nodes: Sequence[str]) -> None:
        self._explain = explain_with(SRUN, job)
        loop = asyncio.get_running_loop()
        self.waiting: dict[str, asyncio.Future[CalledPipe | None]] = {node: loop.create_future() for node in nodes}
        self.unreached = ""
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._tail = Tail()
        self._printed: dict[str, asyncio.Queue[bytes]] = {}
        self._tasks: dict[str, str] = {}
        self._launched: set[str] = set()
        self._failed: dict[str, NodeUnreachable | None] = {}
        self._statuses: dict[str, str] = {}
        self._changed = asyncio.Condition()
        self._over = False

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

    async def take(self, node: str, task: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Take the connection of a task; return False if its node does not wait for one."""
        future = self.waiting.get(node)
        if future is None or future.done():
            return False
        printed = self._printed.setdefault(task, asyncio.Queue())

        async def errors() -> bytes:
            return b"" if self._over and printed.empty() else await printed.get()

        future.set_result(CalledPipe(reader, writer, errors, lambda: self._ending(node)))
        async with self._changed:
            self._launched.add(node)
            self._changed.notify_all()
        return True

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(condition)

    async def _read(self, stderr: asyncio.StreamReader | None) -> None:
        assert stderr is not None
        while not stderr.at_eof():
            try:
                line = await stderr.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                line = await stderr.read(error.consumed)
            except asyncio.IncompleteReadError as error:
                line = error.partial
            text = clean(line).strip()
            async with self._changed:
                self._understand(text)
                self._changed.notify_all()
        async with self._changed:
            self._over = True
            self._changed.notify_all()
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
        if (found := _LAUNCHING.search(text)) is not None:
            self._tasks[found[1]] = found[2]
        elif (found := _STARTED.search(text)) is not None:
            self._launched.add(found[1])
        elif (found := _NOT_LAUNCHED.search(text)) is not None:
            self._failed[found[1]] = self._explain(Ending(reason="srun ended"), "", text)
        elif (found := _ENDED.search(text)) is not None:
            for node in expand_listed(found[1]) or ():
                self._statuses[node] = found[3]
                # What the task printed may come after the report of its end.
                asyncio.get_running_loop().call_later(_REPORT, self._give_up, node)

    def _give_up(self, node: str) -> None:
        """End the wait for a node whose task ended."""
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
        """Return how the task of a node ended, as srun reports it."""
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
