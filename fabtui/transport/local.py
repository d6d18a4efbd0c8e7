"""The byte pipe of a local process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Mapping, Sequence
from typing import Self

from fabtui.transport.byte_pipe import BytePipe, Ending
from fabtui.transport.link import NodeUnreachable

_CHUNK = 64 * 1024


def _is_relevant(record: logging.LogRecord) -> bool:
    # Closing the pipes of a process that is about to end reaps it before the watcher of asyncio, which then logs a
    # warning over the screen.
    return "will report returncode 255" not in str(record.msg)


logging.getLogger("asyncio").addFilter(_is_relevant)

#: Timeout (s) for the end of a killed process.
_GONE = 2.0


def kill(process: asyncio.subprocess.Process) -> None:
    """Kill a process, if it still runs."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def wait_gone(process: asyncio.subprocess.Process) -> None:
    """Wait until a process is gone, a bounded time."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _GONE)


class ProcessPipe(BytePipe):
    """Standard input, output and error of a process."""

    def __init__(self, process: asyncio.subprocess.Process, transport: asyncio.SubprocessTransport) -> None:
        self._process = process
        self._transport = transport

    @classmethod
    async def run(cls, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Self:
        """Start a program, in a session of its own: what the terminal's keys do must not reach it.

        ``env`` is its environment; None: that of this process.

        Raises:
            NodeUnreachable: ``local``.
        """
        loop = asyncio.get_running_loop()
        try:
            # What create_subprocess_exec does, but it keeps the transport to itself: without closing that, pipes stay
            # open that a child of the program inherited.
            transport, protocol = await loop.subprocess_exec(
                lambda: asyncio.subprocess.SubprocessStreamProtocol(limit=_CHUNK, loop=loop),
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                env=env,
            )
        except OSError as error:
            raise NodeUnreachable("local", f"cannot start {argv[0]}: {error.strerror or error}") from None
        return cls(asyncio.subprocess.Process(transport, protocol, loop), transport)

    @property
    def pid(self) -> int:
        """The process."""
        return int(self._process.pid)

    def write_eof(self) -> None:
        """End standard input."""
        with contextlib.suppress(OSError, RuntimeError):
            self._process.stdin.close()

    async def ending(self) -> Ending:
        """Wait for the process."""
        status = await self._process.wait()
        if status >= 0:
            return Ending(status=status)
        try:
            return Ending(signal=signal.Signals(-status).name)
        except ValueError:
            return Ending(signal=str(-status))

    def abort(self) -> None:
        """Kill the process; what it leads to ends by its end of input."""
        self.write_eof()
        kill(self._process)

    async def wait_closed(self) -> None:
        """Wait for the process, a bounded time."""
        await wait_gone(self._process)
        self._transport.close()
