"""Open links to the nodes of a session over any transport."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes.util
import gc
import resource
import secrets
import shlex
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fabtui.sanitize import one_line
from fabtui.transport import payload as bootstrap
from fabtui.transport.byte_pipe import BytePipe, Explain, ProcessPipe, explain_end
from fabtui.transport.dial import Dialer, Gates, with_retries
from fabtui.transport.framed_link import FramedLink, Limits
from fabtui.transport.launcher import (
    SRUN,
    VIA,
    LauncherPipe,
    SshPipe,
    explain_with,
    openssh_explainer,
    srun_environment,
    srun_words,
    ssh_argv,
    ssh_environment,
    via_words,
)
from fabtui.transport.link import Backend, Link, NodeUnreachable
from fabtui.transport.login_answers import Ask, LoginAnswers
from fabtui.transport.node_starter import NodeStarter
from fabtui.transport.payload import Cargo
from fabtui.transport.registry import TRANSPORTS
from fabtui.transport.ssh_config import (
    ConfigBroken,
    NeedsOpenSSH,
    Policy,
    PolicyOption,
    Resolver,
    SshSettings,
    check_host,
    no_ssh,
    policy_for,
)
from fabtui.transport.starters import STARTERS

if TYPE_CHECKING:
    from fabtui.transport.connection import Login
    from fabtui.transport.jump_hosts import Logins


#: Most nodes that get a launcher process each, srun or kubectl; one call starts more of them.
MOST_APART = 32
_FILES_WANTED = 16384
#: An optional module of asyncssh.
_X509 = "asyncssh.crypto.x509"
#: Why ssh may fail where a step of the job starts: no login on compute nodes, or names that only Slurm knows.
_FALL_BACK = ("auth", "closed", "dns", "no-route", "refused", "unknown-host-key")


@dataclass(frozen=True)
class ConnectorOptions:
    """Options of a connector; times in seconds."""

    transport: str = next(iter(TRANSPORTS))
    #: The transport for nodes that `transport` cannot reach, or "".
    fallback: str = ""
    job: str = ""  #: The Slurm job or jobs whose nodes these are, or "".
    #: Options of srun that select the job and the node, by node.
    placements: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    most_apart: int = MOST_APART  #: Most nodes of a job of Slurm that get an srun each.
    manifest: str = ""  #: Text of the manifest of a Job of Kubernetes (docs/scale.md).
    via: str = ""  #: Command line of a launcher, with ``{node}``.
    #: Returns which GPUs of a node may be used (`fabtui_node.runtime.supervisor.limit_gpus`), or None for all of them.
    gpus: Callable[[str], Awaitable[Mapping[str, object] | None]] | None = None
    wrap: str = ""  #: Command line on the node in front of the node side, such as ``docker exec -i train``.
    ssh_config: Path | None = None  #: An ssh_config file instead of the user's and the site's, or None.
    remote_python: str | None = None  #: The interpreter on the nodes, or None to search for one.
    #: ``config`` follows the ssh configuration, ``ask`` meaning strict; ``off`` checks nothing.
    host_key_policy: PolicyOption = "config"
    connect_timeout: float = 10.0  #: Timeout of the connection, and again of the login.
    lease: float = 10.0  #: The node side stops itself after this time without a heartbeat.
    env: dict[str, str] = field(default_factory=dict)
    handshakes: int = 8  #: Maximum number of concurrent logins through one jump host or proxy command.
    direct_handshakes: int = 64  #: Maximum number of concurrent logins to hosts that are reached directly.
    #: The interpreter for the rank host; None: ``remote_python``, with ``local`` that of this process.
    rank_python: str | None = None
    limits: Limits = field(default_factory=Limits)
    entry: str = bootstrap.ENTRY  #: The module that runs on the node.
    #: Sources to send instead of the installed node side, by dotted name (tests).
    modules: dict[str, str] | None = None
    more: tuple[tuple[str, str], ...] = ()  #: Additional modules: dotted name and source.


class Connector:
    """Opens links to nodes; they share keys, known hosts and jump hosts.

    ``notice`` receives a line for the user from the event loop, each text once; ``ask`` asks the user what a server
    wants to know at a login, None: nobody can answer.
    """

    def __init__(self, options: ConnectorOptions, notice: Callable[[str], None], ask: Ask | None = None) -> None:
        self._answers = LoginAnswers(ask)
        self.options = options
        self._notice = notice
        self._transport = options.transport
        self._boot = bootstrap.marked(bootstrap.BOOT, secrets.token_hex(4))
        self._noticed: set[str] = set()
        self.gates = Gates(options.handshakes, options.direct_handshakes)
        self.starter = self._made_starter(options)
        self._resolver = Resolver(options.ssh_config)
        self._dialer = Dialer()
        self._logins: Logins | None = None
        self._loading: asyncio.Task[None] | None = None
        self._cargo = Cargo(options.entry, options.modules, options.more)
        allow_many_files()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close what the links share. Their owners close the links first."""
        if self.starter is not None:
            await self.starter.close()
        if self._logins is not None:
            await self._logins.close()
        await self._dialer.close()
        await self._resolver.close()
        await self._cargo.close()

    def _made_starter(self, options: ConnectorOptions) -> NodeStarter | None:
        name = next((name for name in (options.transport, options.fallback) if name in STARTERS), "")
        # A wrapper, such as a container, may neither pass the environment on nor have the network of the node.
        if not name or options.wrap or (name == "srun" and len(options.placements) <= options.most_apart):
            return None
        return NodeStarter(
            *(name, options.job, options.placements, options.remote_python, options.connect_timeout),
            *(options.limits.start, options.manifest, self.notify),
        )

    async def open(self, host: str) -> Link:
        """Connect to a node, start its side and return the link.

        Every step has a deadline; nodes that hang do not delay others.

        Raises:
            NodeUnreachable: The link could not be opened.
        """
        check_host(host)
        self._cargo.begin()
        name = self._transport
        if name in ("ssh", "openssh") and self.options.host_key_policy == "off":
            self.notify("host keys are not checked: anyone on the path can read and change what the nodes receive")
        try:
            link: Link = await TRANSPORTS[name].open()(self, host)
        except NodeUnreachable as refused:
            other = self.options.fallback
            possible = other != "srun" or host in self.options.placements
            if not other or name == other or refused.kind not in _FALL_BACK or not possible:
                raise
            link = await TRANSPORTS[other].open()(self, host)
            if self._transport != other:
                # The nodes that follow begin with it.
                self._transport = other
                self.notify(f"{other} is used for nodes that {name} does not reach, such as {host}: {refused.text}")
        return link

    def command(self, host: str) -> list[str]:
        words = ["/bin/sh", "-c", bootstrap.command(self.options.remote_python, boot=self._boot)]
        return [*(word.replace("{node}", host) for word in shlex.split(self.options.wrap)), *words]

    def _typed_command(self, host: str) -> str:
        if self.options.wrap:
            return shlex.join(self.command(host))
        return bootstrap.command(self.options.remote_python, boot=self._boot)

    async def log_in(self, host: str) -> Login:
        """Log in to a node by asyncssh without starting anything.

        Raises:
            NodeUnreachable: The login failed.
            ConfigBroken: The ssh configuration does not parse.
            NeedsOpenSSH: The host needs what asyncssh cannot do.
        """
        check_host(host)
        self.load()
        resolved = await self.resolve(host)
        return await (await self._made_logins()).log_in(resolved)

    def load(self) -> asyncio.Task[None]:
        """Start to import asyncssh in a thread: it takes 0.1 s."""
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(load_logins))
        return self._loading

    async def _made_logins(self) -> Logins:
        await asyncio.shield(self.load())
        from fabtui.transport.jump_hosts import Logins

        options = self.options
        if self._logins is None:
            self._logins = Logins(
                self._resolver,
                options.host_key_policy,
                options.connect_timeout,
                self.gates,
                self.notify,
                self._answers,
                self._dialer,
            )
        return self._logins

    def notify(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._notice(text)

    async def resolve(self, host: str) -> SshSettings:
        """Return the ssh configuration of a host.

        Raises:
            ConfigBroken: The configuration does not parse.
        """
        return await self._resolver.resolve(host)

    async def open_ssh(self, host: str) -> Link:
        """Open a link over asyncssh; over OpenSSH if the configuration does not parse or needs more."""
        loading = self.load()
        try:
            resolved = await self.resolve(host)
            # While asyncssh is imported: the server is found, and starts its side.
            if not (
                loading.done() or resolved.jumps or resolved.proxy_command or await self._resolver.why_openssh(resolved)
            ):
                self._dialer.begin(resolved, resolved.connect_timeout or self.options.connect_timeout)
        except ConfigBroken as error:
            self.notify(f"the ssh configuration does not parse, so OpenSSH is used: {error}")
            return await self.open_openssh(host)
        try:
            login = await self.log_in(host)
        except (NeedsOpenSSH, ConfigBroken) as error:
            self.notify(f"OpenSSH is used for hosts that need what asyncssh cannot do: {error}")
            return await self.open_openssh(host)
        from fabtui.transport.connection import ChannelPipe

        options, began = self.options, time.monotonic()
        pipe = await ChannelPipe.run(login, self._typed_command(host), options.connect_timeout)
        link = await self.start(pipe, host, "asyncssh", explain_end, login.client.banner)
        link.login_seconds = None if login.seconds is None else login.seconds + time.monotonic() - began
        return link

    async def open_openssh(self, host: str) -> Link:
        options = self.options
        ssh = self._resolver.ssh
        if ssh is None:
            raise no_ssh()
        within, via = options.connect_timeout, ""
        more: list[str] = []
        policy: Policy = "strict" if options.host_key_policy == "config" else options.host_key_policy
        with contextlib.suppress(ConfigBroken):
            resolved = await self.resolve(host)
            policy = policy_for(options.host_key_policy, resolved)
            within = resolved.connect_timeout or within
            via = ",".join(jump.host for jump in resolved.jumps) or resolved.proxy_command or ""
            if "setenv" in resolved.settings:
                # The first SetEnv is the one that counts, so that those of the configuration do not.
                more.append("SetEnv=FABTUI=1")
        words = ssh_argv(ssh, options.ssh_config, host, self._typed_command(host), policy, within, more)

        async def attempt() -> Link:
            # The progress of ssh is unknown, so its place is released after a moment in any case.
            async with self.gates.login(f"openssh {via}" if via else "", lambda: False):
                began = time.monotonic()
                pipe = await SshPipe.run(words, ssh_environment())
                link = await self.start(pipe, host, "openssh", openssh_explainer(host), "")
                link.login_seconds = time.monotonic() - began
                return link

        return await with_retries(attempt)

    async def open_local(self, host: str) -> Link:
        pythons = (sys.executable, *bootstrap.PYTHONS)
        wrapped, own = self.command(host), bootstrap.command(self.options.remote_python, pythons, self._boot)
        pipe = await ProcessPipe.run(wrapped if self.options.wrap else ["/bin/sh", "-c", own])
        return await self.start(pipe, host, "local", explain_end, "")

    async def open_srun(self, host: str) -> Link:
        """Open a link over a step of the user's Slurm job.

        Raises:
            NodeUnreachable: The node is not one of the job, or no step started there.
        """
        options = self.options
        placement = options.placements.get(host)
        if placement is None:
            job = f"job {options.job}" if options.job else "a job of yours"
            text = f"{one_line(host, 100)} is not a node of {job}, and srun starts steps on nodes of a job only"
            raise NodeUnreachable("config", text, "name the job with --jobid, or use --transport ssh")
        explain = explain_with(SRUN, options.job)
        if self.starter is not None and (called := await self.starter.pipe(host)) is not None:
            return await self.start(called, host, "srun", explain, "")
        words = srun_words(placement, self.command(host), options.connect_timeout)
        # The controller creates steps one after the other; how far it is, is unknown.
        async with self.gates.login("srun", lambda: False):
            pipe = await LauncherPipe.run(words, srun_environment())
            return await self.start(pipe, host, "srun", explain, "")

    async def open_called(self, host: str) -> Link:
        """Open a link that a node side makes, which one call starts with those of other nodes.

        Raises:
            NodeUnreachable: The call failed, or no process called from there.
        """
        pipe = await self.starter.pipe(host) if self.starter is not None else None
        if pipe is None:
            raise NodeUnreachable("config", f"--transport {self.options.transport} is not possible with --wrap")
        return await self.start(pipe, host, self.options.transport, explain_end, "")  # type: ignore[arg-type]

    async def open_via(self, host: str) -> Link:
        """Open a link over the command line of ``--via``.

        Raises:
            NodeUnreachable: The launcher failed, or the node side did not start.
        """
        words = via_words(self.options.via, host)
        async with self.gates.login("via", lambda: False):
            pipe = await LauncherPipe.run([*words, *self.command(host)])
            return await self.start(pipe, host, "via", explain_with(VIA, ""), "")

    async def start(self, pipe: BytePipe, host: str, backend: Backend, explain: Explain, banner: str) -> Link:
        """Start the node side over a byte pipe that runs `payload.command`; the pipe is closed on failure.

        Raises:
            NodeUnreachable: The node side did not start.
        """
        options = self.options
        nonce = secrets.token_hex(16)
        python = options.rank_python or options.remote_python or (sys.executable if backend == "local" else None)
        config: dict[str, object] = {
            "nonce": nonce,
            "node": host,
            "lease": options.lease,
            "python": python,
            "env": dict(options.env),
        }
        try:
            if options.gpus is not None:
                config["gpus"] = await options.gpus(host)
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
    """Raise the soft limit of open files: a node needs a socket or three pipes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, _FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def load_logins() -> None:
    load_asyncssh()
    import fabtui.transport.jump_hosts  # noqa: F401


def load_asyncssh() -> None:
    """Import asyncssh without starting processes and without garbage collection.

    asyncssh searches for two optional libraries. If ``ldconfig`` does not know one, ctypes runs the compiler and the
    linker: seven processes. Its certificates of X.509 need pyOpenSSL, which is looked for after a sixth of the import.
    """
    if "asyncssh" in sys.modules:
        return
    find = ctypes.util.find_library
    known = getattr(ctypes.util, "_findSoname_ldconfig", find)
    collecting = gc.isenabled()
    gc.disable()
    ctypes.util.find_library = known
    sys.modules[_X509] = None  # type: ignore[assignment]
    try:
        import asyncssh  # noqa: F401
    finally:
        ctypes.util.find_library = find
        del sys.modules[_X509]
        # Imported modules are never garbage.
        gc.freeze()
        if collecting:
            gc.enable()
