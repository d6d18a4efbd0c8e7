"""The byte pipe under a link, its end, and the output of a node beside the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from fabtui.sanitize import clean, last_line
from fabtui.transport.link import NodeUnreachable
from fabtui_node.runtime.bootloader import INPUT_TAKEN

STDERR_KEPT = 8 * 1024
BANNER_KEPT = 16 * 1024
_CHUNK = 64 * 1024
#: Timeout (s) for the end of a killed process.
_GONE = 2.0


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a byte pipe: exit status or signal of the remote command, or the reason why the connection broke."""

    status: int | None = None
    signal: str | None = None
    reason: str = ""

    @property
    def lost(self) -> bool:
        """True if the connection broke: there is neither a status nor a signal."""
        return self.status is None and self.signal is None

    def describe(self) -> str:
        if self.signal is not None:
            return f"ended by signal {self.signal}"
        if self.status is not None:
            return f"ended with status {self.status}"
        return self.reason or "the connection was lost"


class BytePipe(ABC):
    """Standard input, output and error of a command on a node.

    The processes of asyncio and of asyncssh have the same streams.
    """

    _process: Any

    async def read(self) -> bytes:
        """Return bytes of standard output, none at its end. Raises `OSError` or errors of the transport."""
        data: bytes = await self._process.stdout.read(64 * 1024)
        return data

    async def read_error(self) -> bytes:
        """Return some bytes of standard error, none at its end."""
        data: bytes = await self._process.stderr.read(4096)
        return data

    @property
    def _stdin(self) -> Any:
        return self._process.stdin

    @property
    def unsent(self) -> int:
        """Number of written bytes that the transport has not taken yet."""
        return int(self._stdin.transport.get_write_buffer_size())

    def put(self, data: bytes) -> None:
        """Write to standard input without waiting; for small data while nothing is unsent."""
        self._stdin.write(data)

    async def write(self, data: bytes) -> None:
        """Write to standard input; returns when the transport's buffer has room again."""
        self._stdin.write(data)
        await self._stdin.drain()

    @abstractmethod
    def write_eof(self) -> None:
        """End standard input. Never raises."""

    @abstractmethod
    async def ending(self) -> Ending:
        """Wait until the command ends or the connection breaks."""

    @abstractmethod
    def abort(self) -> None:
        """Close everything immediately. Never raises."""

    @abstractmethod
    async def wait_closed(self) -> None:
        """Wait until the pipe is closed, with a timeout. Never raises."""


#: Converts an early end, the banner and standard error to an error.
Explain = Callable[[Ending, str, str], NodeUnreachable]


class Tail:
    """The last bytes of a stream."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        self._data += data
        del self._data[:-STDERR_KEPT]

    def text(self) -> str:
        return clean(bytes(self._data))


def shorten(banner: bytes, kept: int = BANNER_KEPT) -> str:
    """Return a banner as text; of a long one the beginning and the end, with the number of bytes left out."""
    if len(banner) <= kept:
        return clean(banner)
    half = kept // 2
    return f"{clean(banner[:half])}\n[{len(banner) - 2 * half} bytes left out]\n{clean(banner[-half:])}"


def last_words(banner: str, stderr: str) -> str:
    """Return the last lines of what a command printed and of its errors; either may hold the reason."""
    return " | ".join(line for line in (last_line(stderr, 200), last_line(banner, 200)) if line)


def explain_end(ending: Ending, banner: str, stderr: str) -> NodeUnreachable:
    last = last_words(banner, stderr)
    detail = "\n".join(part for part in (banner, stderr) if part)
    if ending.status in (126, 127):
        text = last_line(stderr, 300) or last or "no python3 was found"
        return NodeUnreachable("no-python", text, "name an interpreter (3.8 or newer) with --remote-python", detail)
    if ending.status == INPUT_TAKEN:
        text = "a command of the login reads standard input, and took what was meant for the node side"
        hint = "look for read, or another question, in ~/.bashrc, /etc/profile.d and ForceCommand of the node"
        return NodeUnreachable("closed", f"{text}: {last}" if last else text, hint, detail)
    what = "the connection was lost" if ending.lost else f"the login {ending.describe()}"
    text = f"{what} before the node side started"
    if ending.lost and ending.reason:
        text += f" ({ending.reason})"
    return NodeUnreachable("closed", f"{text}: {last}" if last else text, None, detail)


def _is_relevant(record: logging.LogRecord) -> bool:
    # Closing the pipes of a process that is about to end reaps it before the watcher of asyncio, which then logs a
    # warning over the screen.
    return "will report returncode 255" not in str(record.msg)


logging.getLogger("asyncio").addFilter(_is_relevant)


def kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def wait_gone(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _GONE)


async def output_of(words: Sequence[str], within: float, text: bytes = b"") -> tuple[int | None, bytes, bytes]:
    """Run a program for at most some seconds, with a text as its input; return its status, output and errors.

    Raises:
        OSError: It cannot be started, or it was killed at its deadline (`TimeoutError`).
    """
    null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    given = pipe if text else null
    process = await asyncio.create_subprocess_exec(*words, stdin=given, stdout=pipe, stderr=pipe)
    try:
        output, errors = await asyncio.wait_for(process.communicate(text or None), within)
    finally:
        if process.returncode is None:
            kill(process)
            await wait_gone(process)
    return process.returncode, output, errors


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
        return int(self._process.pid)

    def write_eof(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._process.stdin.close()

    async def ending(self) -> Ending:
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
        await wait_gone(self._process)
        self._transport.close()
