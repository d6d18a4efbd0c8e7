"""Connections to hosts: names, sockets, proxy commands, limits on concurrent logins, and retries of busy servers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import re
import shlex
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fabtui.sanitize import last_line
from fabtui.transport.byte_pipe import Tail, kill, wait_gone
from fabtui.transport.link import NodeUnreachable, UnreachableKind
from fabtui.transport.ssh_config import SshSettings, expand

_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
#: What may be put into a shell's command line as a user's name.
_USER = re.compile(r"[A-Za-z0-9_.@\\+-]+\Z")
#: Time (s) a server may take to send its banner before its place is released.
PATIENCE = 1.5
#: Range of the pause (s) before the first retry.
BACK_OFF = (0.2, 0.6)
TRIES = 5

Result = TypeVar("Result")


class Proxy:
    """A running ProxyCommand and its socket."""

    def __init__(self, sock: socket.socket, process: asyncio.subprocess.Process) -> None:
        self.sock = sock
        self._process = process
        self._stderr = Tail()
        self._reader = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(4096):
            self._stderr.add(data)

    async def errors(self) -> str:
        """Return the standard error of the command, after waiting briefly for it."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._reader), 0.5)
        return self._stderr.text()

    def abort(self) -> None:
        self.sock.close()
        kill(self._process)

    async def wait_closed(self) -> None:
        await wait_gone(self._process)
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)


class Dialer:
    """Makes sockets. Name lookup may block a thread for seconds, so it has a pool of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(32, thread_name_prefix="names")
        #: Connections that nobody has taken yet, by the name of their host.
        self._begun: dict[str, asyncio.Task[socket.socket]] = {}

    async def close(self) -> None:
        for task in self._begun.values():
            task.cancel()
        for result in await asyncio.gather(*self._begun.values(), return_exceptions=True):
            if isinstance(result, socket.socket):
                result.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def begin(self, resolved: SshSettings, within: float) -> None:
        """Start to connect to a host; its next `dial` takes the connection."""
        if resolved.name not in self._begun:
            self._begun[resolved.name] = asyncio.create_task(self._dial(resolved, within))

    async def dial(self, resolved: SshSettings, within: float) -> socket.socket:
        """Return a socket that is connected to a host.

        Raises:
            NodeUnreachable: ``dns``, ``refused``, ``no-route``, ``timeout`` or ``local``.
        """
        begun = self._begun.pop(resolved.name, None)
        return await (self._dial(resolved, within) if begun is None else begun)

    async def _dial(self, resolved: SshSettings, within: float) -> socket.socket:
        what = f"{resolved.hostname} port {resolved.port}"
        stage = "its name was not looked up"
        try:
            async with asyncio.timeout(within):
                addresses = await self._addresses(resolved)
                stage = "no answer to a connection"
                return await self._first(resolved, addresses, within)
        except TimeoutError:
            text = f"{what}: {stage} within {within:g} s"
            hint = "is the node up? a firewall may be dropping the packets" if stage.startswith("no answer") else None
            raise NodeUnreachable("timeout", text, hint) from None
        except OSError as error:
            raise unreachable(error, what) from None
        except UnicodeError:
            raise NodeUnreachable("config", f"not a host name: {resolved.hostname!r}") from None

    async def _addresses(self, resolved: SshSettings) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
        family = _FAMILIES.get(resolved.family, socket.AF_UNSPEC)

        def look_up(flags: int) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
            host = resolved.hostname.removeprefix("[").removesuffix("]")
            entries = socket.getaddrinfo(host, resolved.port, family, socket.SOCK_STREAM, flags=flags)
            return [(item[0], item[4]) for item in entries]  # type: ignore[misc]

        # An address needs no server to be asked, and so no thread.
        with contextlib.suppress(socket.gaierror):
            return look_up(socket.AI_NUMERICHOST)
        return await asyncio.get_running_loop().run_in_executor(self._threads, look_up, 0)

    async def _first(
        self, resolved: SshSettings, addresses: list[tuple[socket.AddressFamily, tuple[str, int]]], within: float
    ) -> socket.socket:
        failure: OSError = TimeoutError(errno.ETIMEDOUT, "no answer")
        share = within / max(1, len(addresses))
        for family, address in addresses:
            try:
                async with asyncio.timeout(share):
                    return await _connected(socket.socket(family, socket.SOCK_STREAM), resolved, address)
            except OSError as error:
                # A refusal is more informative than a timeout of a different address.
                if isinstance(failure, TimeoutError) or not isinstance(error, TimeoutError):
                    failure = error
        if isinstance(failure, TimeoutError):
            raise TimeoutError
        raise failure

    async def start_proxy(self, resolved: SshSettings) -> Proxy:
        """Start the host's ProxyCommand as OpenSSH would: by the user's shell, in a session of its own.

        Raises:
            NodeUnreachable: ``config`` or ``local``.
        """
        assert resolved.proxy_command is not None
        if "%r" in resolved.proxy_command and not _USER.match(resolved.user):
            raise NodeUnreachable("config", f"the user name {resolved.user!r} cannot be used in a ProxyCommand")
        try:
            line = expand(resolved.proxy_command, resolved)
        except KeyError as error:
            raise NodeUnreachable("config", f"unknown token %{error.args[0]} in ProxyCommand") from None
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *(os.environ.get("SHELL") or "/bin/sh", "-c", f"exec {line}"),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except BaseException as error:
            ours.close()
            if isinstance(error, OSError):
                text = f"cannot start the ProxyCommand: {error.strerror or error}"
                raise NodeUnreachable("local", text) from None
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        return Proxy(ours, process)


def unreachable(error: OSError, what: str) -> NodeUnreachable:
    """Convert a failed system call on a target (``name port N``) to an error."""
    # The number's own words: asyncio puts "Connect call failed" and the address in their place.
    plain = error.errno is None or error.errno <= 0 or isinstance(error, socket.gaierror)
    text = error.strerror if plain else os.strerror(error.errno or 0)
    reason = text or str(error) or type(error).__name__
    if isinstance(error, socket.gaierror):
        name = what.partition(" port ")[0]
        hint = f"check the spelling, or ask: getent hosts {shlex.quote(name)}"
        return NodeUnreachable("dns", f"the name {name} is not known: {reason}", hint)
    if error.errno in (errno.ECONNREFUSED, errno.ECONNRESET):
        return NodeUnreachable("refused", f"{what}: {reason}", "is sshd running there, on this port?")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return NodeUnreachable("local", f"no file descriptors left here: {reason}", "raise the limit: ulimit -n 65536")
    no_route = error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EADDRNOTAVAIL)
    kind: UnreachableKind = "no-route" if no_route else "timeout" if isinstance(error, TimeoutError) else "local"
    return NodeUnreachable(kind, f"{what}: {reason}")


async def _connected(sock: socket.socket, resolved: SshSettings, address: tuple[str, int]) -> socket.socket:
    try:
        sock.setblocking(False)
        if resolved.bind_address:
            sock.bind((resolved.bind_address, 0))
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def proxy_words(errors: str) -> str:
    """Return the last output line of a proxy command in brackets, or nothing."""
    line = last_line(errors, 200)
    return f" ({line})" if line else ""


class Gates:
    """Limits on concurrent logins: ``each`` through one jump host or proxy command, ``direct`` without."""

    def __init__(self, each: int, direct: int) -> None:
        self._each = each
        self._direct = direct
        self._gates: dict[str, asyncio.Semaphore] = {}

    @contextlib.asynccontextmanager
    async def login(self, via: str, greeted: Callable[[], bool]) -> AsyncIterator[None]:
        """Hold a place for the length of a login via a jump host or proxy command, empty for none.

        The place is released early if the server has sent no banner: a host that hangs must not block others.
        """
        gate = self._gates.setdefault(via, asyncio.Semaphore(self._each if via else self._direct))
        async with contextlib.AsyncExitStack() as place:
            await place.enter_async_context(gate)

            def check() -> None:
                if not greeted():
                    place.pop_all()
                    gate.release()

            timer = asyncio.get_running_loop().call_later(PATIENCE, check)
            try:
                yield
            finally:
                timer.cancel()


async def with_retries(attempt: Callable[[], Awaitable[Result]]) -> Result:
    """Repeat a login while the server drops it before the greeting, with growing, jittered pauses.

    Raises:
        NodeUnreachable: The last try's, or at once one of a kind other than ``busy``.
    """
    for number in range(TRIES - 1):
        try:
            return await attempt()
        except NodeUnreachable as error:
            if error.kind != "busy":
                raise
        await asyncio.sleep(min(2.0, random.uniform(*BACK_OFF) * 2**number))
    return await attempt()
