"""The way to all nodes of a session: one `Reach` opens every link."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from fabtui.transport import payload as bootstrap
from fabtui.transport.asyncssh.dial import Dialer
from fabtui.transport.asyncssh.preload import load_logins
from fabtui.transport.byte_pipe import BytePipe, Explain, explain_end
from fabtui.transport.framed_link import FramedLink, Limits
from fabtui.transport.link import Backend, Link, NodeUnreachable
from fabtui.transport.local import ProcessPipe
from fabtui.transport.login_limiter import Gates, with_retries
from fabtui.transport.payload import Cargo
from fabtui.transport.ssh_config.resolve import ConfigBroken, Resolved, Resolver, check_host
from fabtui.transport.ssh_config.unsupported import is_plain

if TYPE_CHECKING:
    from fabtui.transport.asyncssh.connection import Login
    from fabtui.transport.asyncssh.jump_hosts import Logins

Transport = Literal["ssh", "openssh", "local"]
HostKeyPolicy = Literal["config", "strict", "accept-new", "off"]

_FILES_WANTED = 16384


@dataclass(frozen=True)
class ReachOptions:
    """How nodes are reached; times in seconds.

    Attributes:
        transport: ``ssh`` (asyncssh, and OpenSSH for what that cannot do), ``openssh`` or ``local``.
        ssh_config: An ssh_config file instead of the user's and the site's, or None.
        remote_python: The interpreter on the nodes, or None to look for one.
        host_key_policy: ``config`` is what the ssh configuration says, ``ask`` being strict; ``off`` checks nothing.
        connect_timeout: For the way to the server, and again for the login.
        lease: Without a heartbeat for so long the node side ends itself.
        env: Variables for the ranks.
        handshakes: Logins under way at once through one jump host or proxy command.
        direct_handshakes: Logins under way at once to hosts that are reached directly.
        rank_python: The interpreter for the rank host; None: ``remote_python``, and here with ``local`` our own.
        limits: Bounds of each link.
        entry: The module that is run on the node.
        modules: Sources to send instead of the installed node side, by dotted name (tests).
        more: Modules to send beside it: dotted name and source.
    """

    transport: Transport = "ssh"
    ssh_config: Path | None = None
    remote_python: str | None = None
    host_key_policy: HostKeyPolicy = "config"
    connect_timeout: float = 10.0
    lease: float = 10.0
    env: dict[str, str] = field(default_factory=dict)
    handshakes: int = 8
    direct_handshakes: int = 64
    rank_python: str | None = None
    limits: Limits = field(default_factory=Limits)
    entry: str = bootstrap.ENTRY
    modules: dict[str, str] | None = None
    more: tuple[tuple[str, str], ...] = ()


class Reach:
    """Opens links to nodes; shares what can be shared between them.

    Args:
        options: How.
        notice: Takes one line for the user, called from the event loop, at most once for each reason.
    """

    def __init__(self, options: ReachOptions, notice: Callable[[str], None]) -> None:
        self._options = options
        self._notice = notice
        self._noticed: set[str] = set()
        self._gates = Gates(options.handshakes, options.direct_handshakes)
        self._resolver: Resolver | None = None
        self._logins: Logins | None = None
        self._dialer = Dialer()
        self._loading: asyncio.Task[None] | None = None
        self._cargo = Cargo(options.entry, options.modules, options.more)
        allow_many_files()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close what the links share. Links are closed before, by who opened them."""
        if self._logins is not None:
            await self._logins.close()
        if self._resolver is not None:
            await self._resolver.close()
        self._dialer.close()
        await self._cargo.close()

    async def open(self, host: str) -> Link:
        """Connect to a node, start its side and return the link.

        Every step has a deadline; nodes that hang do not delay others.

        Raises:
            NodeUnreachable: It did not work; says why and what to do.
        """
        check_host(host)
        if self._options.transport == "local":
            return await self._open_local(host)
        if self._options.host_key_policy == "off":
            self._tell("host keys are not checked: anybody in between can read and change what goes to the nodes")
        if self._options.transport == "openssh":
            return await self._open_openssh(host, None)
        self._load()
        try:
            resolved = await self._resolve(host)
        except ConfigBroken as error:
            self._tell(f"the ssh configuration does not parse, so ssh itself is used: {error}")
            return await self._open_openssh(host, None)
        return await self._open_ssh(host, resolved)

    async def log_in(self, host: str) -> Login:
        """Connect to a node and log in by asyncssh, and start nothing there.

        Raises:
            NodeUnreachable: It did not work.
            ConfigBroken: The ssh configuration does not parse.
            NeedsOpenSSH: asyncssh cannot do what it asks for.
        """
        check_host(host)
        self._load()
        resolved = await self._resolve(host)
        try:
            return await (await self._made_logins(resolved)).log_in(resolved)
        finally:
            self._dialer.forget(resolved)

    def _load(self) -> asyncio.Task[None]:
        """Begin to import asyncssh, which takes a tenth of a second: late, once, and beside whatever else is done."""
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(load_logins))
        return self._loading

    async def _made_logins(self, resolved: Resolved) -> Logins:
        """Return what makes connections; while it is still loaded, the way to a host is begun already."""
        options = self._options
        loading = self._load()
        if not loading.done() and is_plain(resolved):
            self._dialer.begin(resolved, resolved.connect_timeout or options.connect_timeout)
        try:
            await asyncio.shield(loading)
        except BaseException:
            self._dialer.forget(resolved)
            raise
        from fabtui.transport.asyncssh.jump_hosts import Logins

        if self._logins is None:
            assert self._resolver is not None
            self._logins = Logins(
                *(self._resolver, options.host_key_policy, options.connect_timeout),
                *(self._gates, self._dialer, self._tell),
            )
        return self._logins

    def _tell(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._notice(text)

    async def _resolve(self, host: str) -> Resolved:
        if self._resolver is None:
            self._resolver = Resolver(self._options.ssh_config)
        return await self._resolver.resolve(host)

    async def _open_ssh(self, host: str, resolved: Resolved) -> Link:
        logins = await self._made_logins(resolved)
        from fabtui.transport.asyncssh.connection import ChannelPipe
        from fabtui.transport.asyncssh.jump_hosts import NeedsOpenSSH

        options = self._options
        try:
            login = await logins.log_in(resolved)
        except (NeedsOpenSSH, ConfigBroken) as error:
            self._tell(f"ssh itself is used where a host wants what asyncssh cannot do: {error}")
            return await self._open_openssh(host, resolved)
        finally:
            self._dialer.forget(resolved)
        pipe = await ChannelPipe.run(login, bootstrap.command(options.remote_python), options.connect_timeout)
        return await self._start(pipe, host, "asyncssh", explain_end, login.client.banner)

    async def _open_openssh(self, host: str, resolved: Resolved | None) -> Link:
        await asyncio.shield(self._load())
        from fabtui.transport.asyncssh.known_hosts import policy_for
        from fabtui.transport.openssh import SshPipe, argv, explainer

        options = self._options
        if self._resolver is None:
            self._resolver = Resolver(options.ssh_config)
        ssh = self._resolver.ssh
        if ssh is None:
            raise NodeUnreachable("local", "there is no ssh program here", "install the OpenSSH client")
        if resolved is None:
            with contextlib.suppress(ConfigBroken):
                resolved = await self._resolve(host)
        within = options.connect_timeout
        if resolved is not None:
            policy = policy_for(options.host_key_policy, resolved)
            within = resolved.connect_timeout or within
        else:
            policy = "strict" if options.host_key_policy == "config" else options.host_key_policy
        words = argv(ssh, options.ssh_config, host, bootstrap.command(options.remote_python), policy, within)
        via = ""
        if resolved is not None:
            via = ",".join(jump.host for jump in resolved.jumps) or resolved.proxy_command or ""

        async def attempt() -> Link:
            # What ssh does is not seen from here: its place is given back after a moment in any case.
            async with self._gates.login(f"openssh {via}" if via else "", lambda: False):
                pipe = await SshPipe.run(words)
                return await self._start(pipe, host, "openssh", explainer(host), "")

        return await with_retries(attempt)

    async def _open_local(self, host: str) -> Link:
        options = self._options
        pythons = (sys.executable, *bootstrap.PYTHONS)
        pipe = await ProcessPipe.run(["/bin/sh", "-c", bootstrap.command(options.remote_python, pythons)])
        return await self._start(pipe, host, "local", explain_end, "")

    async def _start(self, pipe: BytePipe, host: str, backend: Backend, explain: Explain, banner: str) -> Link:
        options = self._options
        nonce = secrets.token_hex(16)
        python = options.rank_python or options.remote_python or (sys.executable if backend == "local" else None)
        config = {"nonce": nonce, "node": host, "lease": options.lease, "python": python, "env": dict(options.env)}
        try:
            payload = await self._cargo.payload(config)
        except BaseException as error:
            pipe.abort()
            await pipe.wait_closed()
            if isinstance(error, OSError):
                raise NodeUnreachable("local", f"this installation is incomplete: {error}") from None
            raise
        return await FramedLink.start(
            pipe, host, backend, payload, nonce, options.limits, explain, banner, cargo=self._cargo
        )


def allow_many_files() -> None:
    """Raise the soft limit of open files towards the hard one: a node takes a socket or three pipes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, _FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
