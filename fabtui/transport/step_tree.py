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
from collections.abc import Callable, Mapping, Sequence

from fabtui.transport.launcher import srun_environment, tree_words
from fabtui.transport.link import NodeUnreachable
from fabtui.transport.payload import calling_boot, command, marked
from fabtui.transport.step_group import CalledPipe, StepGroup
from fabtui_node.runtime.call_back import LONGEST, SETTING, TIMEOUT, proof

Batch = Mapping[str, asyncio.Future[CalledPipe | None]]

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


class StepTree:
    """Starts node sides on nodes of a job, as many by one srun as are asked for at the same time.

    Args:
        job: The job, for hints.
        placements: Options of srun that select the job and the node, by node.
        python: The interpreter on the nodes, or None to search for one.
        wait: Time (s) for a step to start, and again for its tasks.
        start: Time (s) for a task to connect after that.
        notify: Receives a line for the user.
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
            text = "nodes do not reach this machine, so that each gets a step of its own"
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
        """Check that a task made a connection, and hand it to its group."""
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
        if group is None or not await group.take(node, task, reader, writer):
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
    """Return a socket that listens on all addresses, of IPv6 as well where there is any."""
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
    with contextlib.suppress(OSError, TimeoutError):
        process = await asyncio.create_subprocess_exec(
            *("scontrol", "show", "config"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), _ASK)
        finally:
            if process.returncode is None:
                process.kill()
    found = _RANGE.search(output)
    if found is None:
        return [0]
    allowed = range(int(found[1]), min(int(found[2]), 65535) + 1)
    return random.sample(allowed, min(_TRIES, len(allowed))) or [0]
