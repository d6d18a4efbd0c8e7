"""Command on a node of a lab, run as an SSH server runs it.

It runs in its own session with its three streams connected to the channel. When the channel ends, only its standard
input is closed, as with a real server: the command has to end itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from typing import Protocol, cast

import asyncssh

SHELL = "/bin/sh"


class Place(Protocol):
    """Node that a command runs on."""

    environment: Mapping[str, str]
    home: str

    def started(self, pid: int) -> None:
        """Register a process that was started for a command."""

    def ended(self, pid: int) -> None:
        """Remove an ended process."""


class _Streams(asyncio.SubprocessProtocol):
    """Passes the output of a command to the channel, and reports its end."""

    def __init__(self, session: CommandSession) -> None:
        self._session = session

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._session.printed(fd, data)

    def pause_writing(self) -> None:
        self._session.channel.pause_reading()

    def resume_writing(self) -> None:
        # Later: it may bring the end of the input, and asyncio does not expect a pipe to close while it writes to it.
        asyncio.get_running_loop().call_soon(self._session.channel.resume_reading)

    def process_exited(self) -> None:
        self._session.exited()

    def connection_lost(self, exc: Exception | None) -> None:
        self._session.finished()


class CommandSession(asyncssh.SSHServerSession[bytes]):
    """Session channel of one command, without a terminal."""

    channel: asyncssh.SSHServerChannel[bytes]

    def __init__(self, place: Place) -> None:
        self._place = place
        self._command: str | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._starting: asyncio.Task[None] | None = None
        self._early: list[bytes] = []
        self._eof = False
        self._lost = False
        self._paused = False

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        """Keep the channel."""
        self.channel = chan

    def shell_requested(self) -> bool:
        """Run a shell that reads commands."""
        return True

    def exec_requested(self, command: str) -> bool:
        """Run a command by the shell."""
        self._command = command
        return True

    def session_started(self) -> None:
        """Start the command."""
        self._starting = asyncio.get_running_loop().create_task(self._start())

    async def _start(self) -> None:
        argv = [SHELL] if self._command is None else [SHELL, "-c", self._command]
        try:
            transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: _Streams(self),
                *argv,
                env=dict(self._place.environment),
                cwd=self._place.home,
                start_new_session=True,
            )
        except OSError as error:
            self._print_error(f"cannot run {SHELL}: {error}\n".encode())
            self.channel.exit(127)
            return
        self._transport = transport
        self._place.started(transport.get_pid())
        for data in self._early:
            self.data_received(data, None)
        self._early.clear()
        if self._lost:
            self.connection_lost(None)
            return
        if self._eof:
            self._close_stdin()
        if self._paused:
            self.pause_writing()
        self.channel.resume_reading()

    def _print_error(self, text: bytes) -> None:
        with contextlib.suppress(OSError):
            self.channel.write_stderr(text)

    def _pipe(self, fd: int) -> asyncio.BaseTransport | None:
        return self._transport.get_pipe_transport(fd) if self._transport is not None else None

    def _close_stdin(self) -> None:
        pipe = self._pipe(0)
        if pipe is not None:
            pipe.close()

    # -- from the client ----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """Pass on data from the client."""
        if self._transport is None:
            # asyncssh reads on when a session has started; the command takes a moment longer to start.
            self._early.append(data)
            self.channel.pause_reading()
            return
        pipe = self._pipe(0)
        if pipe is not None and not pipe.is_closing():
            cast(asyncio.WriteTransport, pipe).write(data)

    def eof_received(self) -> bool:
        """Close the command's standard input; its output goes on."""
        self._eof = True
        self._close_stdin()
        return True

    def signal_received(self, signame: str) -> None:
        """Signal the command's process group, as OpenSSH does."""
        number = getattr(signal, "SIG" + signame, None)
        if self._transport is not None and isinstance(number, signal.Signals):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.get_pid(), number)

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the command's streams; the command itself is left alone."""
        self._lost = True
        for fd in (0, 1, 2):
            pipe = self._pipe(fd)
            if pipe is not None:
                pipe.close()

    def pause_writing(self) -> None:
        """Stop reading the command's output: the client reads too slowly."""
        self._paused = True
        for fd in (1, 2):
            if (pipe := self._pipe(fd)) is not None:
                with contextlib.suppress(RuntimeError):
                    cast(asyncio.ReadTransport, pipe).pause_reading()

    def resume_writing(self) -> None:
        """Resume reading the command's output."""
        self._paused = False
        for fd in (1, 2):
            if (pipe := self._pipe(fd)) is not None and not pipe.is_closing():
                with contextlib.suppress(RuntimeError):
                    cast(asyncio.ReadTransport, pipe).resume_reading()

    # -- from the command ---------------------------------------------------------------------------------------------

    def printed(self, fd: int, data: bytes) -> None:
        """Send output of the command."""
        if self._lost:
            return
        with contextlib.suppress(OSError):
            if fd == 1:
                self.channel.write(data)
            else:
                self.channel.write_stderr(data)

    def exited(self) -> None:
        """Note the end of the command's process; its descendants may still print."""
        if self._transport is not None:
            self._place.ended(self._transport.get_pid())

    def finished(self) -> None:
        """End the channel: the process has ended and its output is closed."""
        if self._lost or self._transport is None:
            return
        status = self._transport.get_returncode()
        with contextlib.suppress(OSError):
            if status is not None and status < 0:
                self.channel.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
            else:
                self.channel.exit(255 if status is None else status)
