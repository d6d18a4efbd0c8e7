"""What the user's ssh configuration says of a host, as OpenSSH itself reads it: ``ssh -G``.

Only OpenSSH reads its configuration as OpenSSH does, with includes, matches and the site's own files. Where there is no
``ssh`` binary, asyncssh's parser has to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import pwd
import re
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fabtui.sanitize import last_line, one_line
from fabtui.transport.link import NodeUnreachable

if TYPE_CHECKING:
    from fabtui.transport.ssh_config.host_groups import Alike

Strict = Literal["yes", "ask", "accept-new", "no"]

_HOST = re.compile(r"[A-Za-z0-9_.:%\[\]-]+\Z")
_REPEATED = {"identityfile", "certificatefile"}
_STRICT: dict[str, Strict] = {
    "true": "yes",
    "yes": "yes",
    "ask": "ask",
    "accept-new": "accept-new",
    "false": "no",
    "no": "no",
    "off": "no",
}
#: Lists of algorithms, passed on only where a configuration changes them.
ALGORITHMS = ("kexalgorithms", "ciphers", "macs", "hostkeyalgorithms")

_DEADLINE = 10.0


class ConfigBroken(Exception):
    """The ssh configuration does not parse; the text says where."""


@dataclass(frozen=True, slots=True)
class Jump:
    """One hop of a ProxyJump."""

    host: str
    user: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
    """A host as the ssh configuration describes it.

    Attributes:
        name: The name the user gave.
        hostname: Where to connect to.
        user: Whom to log in as.
        port: TCP port.
        jumps: ProxyJump, first hop first.
        proxy_command: ProxyCommand with its tokens, or None.
        strict: StrictHostKeyChecking.
        user_known_hosts: UserKnownHostsFile, expanded; empty for ``none``.
        global_known_hosts: GlobalKnownHostsFile.
        host_key_alias: The name to look up host keys by instead of the host name and port.
        hash_known_hosts: Whether names are hashed where they are written.
        identities: Identity files, not expanded.
        certificates: Certificate files, not expanded.
        identity_agent: IdentityAgent as written, or None.
        identities_only: Whether only keys that have an identity file are offered.
        family: ``any``, ``inet`` or ``inet6``.
        bind_address: The local address to connect from, or None.
        connect_timeout: ConnectTimeout in seconds, or None.
        algorithms: Those of `ALGORITHMS` that differ from what OpenSSH does without configuration.
        settings: All of it, by lower-case keyword (first value of each).
    """

    name: str
    hostname: str
    user: str
    port: int = 22
    jumps: tuple[Jump, ...] = ()
    proxy_command: str | None = None
    strict: Strict = "ask"
    user_known_hosts: tuple[str, ...] = ()
    global_known_hosts: tuple[str, ...] = ()
    host_key_alias: str | None = None
    hash_known_hosts: bool = False
    identities: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()
    identity_agent: str | None = None
    identities_only: bool = False
    family: str = "any"
    bind_address: str | None = None
    connect_timeout: float | None = None
    algorithms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


def check_host(host: str) -> None:
    """Refuse what cannot be a host's name before it reaches a command line.

    Raises:
        NodeUnreachable: ``config``.
    """
    if not _HOST.match(host) or host.startswith("-") or len(host) > 255:
        raise NodeUnreachable("config", f"not a host name: {one_line(host, 80)!r}")


def home() -> str:
    """Return the user's home as OpenSSH sees it: from the user database, whatever ``HOME`` says."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_dir
    return os.path.expanduser("~")


def expand(text: str, resolved: Resolved) -> str:
    """Expand the percent tokens of a configuration value.

    Raises:
        KeyError: A token that is not known here.
    """
    values: dict[str, Callable[[], str]] = {
        "%": lambda: "%",
        "h": lambda: resolved.hostname,
        "n": lambda: resolved.name,
        "p": lambda: str(resolved.port),
        "r": lambda: resolved.user,
        "k": lambda: resolved.host_key_alias or resolved.name,
        "d": home,
        "i": lambda: str(os.getuid()),
        "u": getpass.getuser,
        "l": socket.gethostname,
        "L": lambda: socket.gethostname().partition(".")[0],
    }
    return re.sub("%(.?)", lambda match: values[match[1]](), text)


def expand_path(text: str, resolved: Resolved) -> Path | None:
    """Return the path of a value with ``~``, tokens and ``${VARIABLES}`` expanded, None if it cannot be."""
    if text == "~" or text.startswith("~/"):
        text = home() + text[1:]
    try:
        text = re.sub(r"\$\{(\w+)\}", lambda match: os.environ[match[1]], text)
        return Path(expand(os.path.expanduser(text), resolved))
    except KeyError:
        return None


def parse_jumps(text: str) -> tuple[Jump, ...]:
    """Return the hops of a ProxyJump value.

    Raises:
        ValueError: A hop that is no ``[user@]host[:port]`` or ssh URI.
    """
    jumps = []
    for spec in text.split(","):
        rest = spec.strip().removeprefix("ssh://").rstrip("/")
        user, _, rest = rest.rpartition("@")
        match = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?|([^:]+)(?::(\d+))?|([^\[\]]*:[^\[\]]*:[^\[\]]*)", rest)
        host = match and (match[1] or match[3] or match[5])
        if match is None or not host or not _HOST.match(host) or host.startswith("-"):
            raise ValueError(f"not a jump host: {one_line(spec, 80)!r}")
        port = match[2] or match[4]
        jumps.append(Jump(host, user or None, int(port) if port else None))
    return tuple(jumps)


def split_files(text: str) -> tuple[str, ...]:
    """Return the files of a known hosts setting; they come unquoted, so a name with blanks is tried whole."""
    if text in ("", "none"):
        return ()
    if " " in text and os.path.exists(text):
        return (text,)
    return tuple(part for part in text.split() if part != "none")


def parse(name: str, output: str, baseline: Mapping[str, str] | None = None) -> Resolved:
    """Return what a ``ssh -G`` output says.

    Args:
        name: The host as the user names it.
        output: The output.
        baseline: The settings without any configuration, to tell chosen algorithms from default ones.

    Raises:
        ConfigBroken: A value makes no sense.
    """
    settings: dict[str, str] = {}
    lists: dict[str, list[str]] = {key: [] for key in _REPEATED}
    for line in output.splitlines():
        key, _, value = line.strip().partition(" ")
        key = key.lower()
        if key in lists and value != "none":
            lists[key].append(value)
        settings.setdefault(key, value.strip())
    # How much ssh would say is nothing to us, and another value where it was asked with -v.
    settings.pop("loglevel", None)
    get = settings.get

    def given(key: str) -> str | None:
        value = get(key)
        return None if value in (None, "", "none") else value

    timeout = given("connecttimeout")
    jumps = given("proxyjump")
    algorithms = {}
    if baseline:
        for key in ALGORITHMS:
            if key in settings and key in baseline and settings[key] != baseline[key]:
                algorithms[key] = tuple(settings[key].split(","))
    try:
        return Resolved(
            name=name,
            hostname=get("hostname") or name,
            user=get("user") or getpass.getuser(),
            port=int(get("port") or 22),
            jumps=parse_jumps(jumps) if jumps else (),
            proxy_command=given("proxycommand"),
            strict=_STRICT.get(get("stricthostkeychecking", "ask"), "ask"),
            user_known_hosts=split_files(get("userknownhostsfile", "")),
            global_known_hosts=split_files(get("globalknownhostsfile", "")),
            host_key_alias=given("hostkeyalias"),
            hash_known_hosts=get("hashknownhosts") == "yes",
            identities=tuple(lists["identityfile"]),
            certificates=tuple(lists["certificatefile"]),
            identity_agent=get("identityagent"),
            identities_only=get("identitiesonly") == "yes",
            family=get("addressfamily") or "any",
            bind_address=given("bindaddress"),
            connect_timeout=float(timeout) if timeout else None,
            algorithms=algorithms,
            settings=settings,
        )
    except ValueError as error:
        raise ConfigBroken(str(error)) from None


class Resolver:
    """Asks ``ssh -G``: once for a host at most, and not for each of many that the configuration does not tell apart.

    Args:
        ssh_config: The configuration file instead of the user's and the site's, or None.
        parallel: How many may run at once.
    """

    def __init__(self, ssh_config: Path | None, parallel: int = 8) -> None:
        self._options = [] if ssh_config is None else ["-F", str(ssh_config)]
        self._ssh_config = ssh_config
        self._slots = asyncio.Semaphore(parallel)
        self._cache: dict[tuple[str, str | None, int | None], asyncio.Task[Resolved]] = {}
        self._baseline: asyncio.Task[dict[str, str]] | None = None
        self._alike: Alike | None = None
        self.ssh = shutil.which("ssh")

    async def resolve(self, host: str, user: str | None = None, port: int | None = None) -> Resolved:
        """Return what the configuration says of a host.

        Args:
            host: The host's name.
            user: The login that counts over the configuration's, or None.
            port: The port that counts over the configuration's, or None.

        Raises:
            NodeUnreachable: ``config``: OpenSSH does not take the name, or the configuration cannot be read.
            ConfigBroken: The configuration does not parse.
        """
        check_host(host)
        key = (host, user, port)
        task = self._cache.get(key)
        if task is None or task.cancelled():
            task = self._cache[key] = asyncio.create_task(self._ask(host, user, port))
        # Shielded: the answer is for all who ask, one that gives up must not take it from the others.
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Stop what still runs."""
        tasks: list[asyncio.Task[object]] = [*self._cache.values()]
        if self._baseline is not None:
            tasks.append(self._baseline)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, host: str, user: str | None, port: int | None) -> Resolved:
        if self.ssh is None:
            from fabtui.transport.ssh_config.resolve_without_ssh import resolve_without_ssh

            return await asyncio.to_thread(resolve_without_ssh, self._ssh_config, host, user, port)
        if self._alike is None:
            from fabtui.transport.ssh_config.host_groups import Alike

            self._alike = Alike()
        options = [*self._options, *(["-l", user] if user else []), *(["-p", str(port)] if port else [])]
        return await self._alike.resolve(host, user, port, lambda more: self._ask_ssh(host, [*more, *options]))

    async def _ask_ssh(self, host: str, options: list[str]) -> tuple[Resolved, str]:
        """Return what ssh finds of a host, and what it wrote to standard error."""
        if self._baseline is None:
            self._baseline = asyncio.create_task(self._ask_baseline())
        status, output, errors = await self._run(options, host)
        if status != 0:
            # With -v, most of it is no error.
            told = "\n".join(line for line in errors.splitlines() if not line.startswith(("debug1: ", "OpenSSH_")))
            # The word of OpenSSH on a name it does not take; all else is about the configuration.
            said = last_line(told, 300)
            if "hostname contains invalid characters" in told:
                raise NodeUnreachable("config", f"not a host name: {host!r} ({said})")
            if "Can't open user config file" in told:
                raise NodeUnreachable("config", said)
            lines = [line for line in told.splitlines() if "line " in line]
            raise ConfigBroken(one_line(lines[0], 300) if lines else said or f"ssh -G ended with status {status}")
        return parse(host, output, await asyncio.shield(self._baseline)), errors

    async def _ask_baseline(self) -> dict[str, str]:
        status, output, _ = await self._run(["-F", "none"], "localhost")
        pairs = (line.partition(" ") for line in output.splitlines()) if status == 0 else ()
        return {key: value for key, _, value in pairs}

    async def _run(self, options: list[str], host: str) -> tuple[int | None, str, str]:
        assert self.ssh is not None
        async with self._slots:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(self.ssh, "-G", "-T", *options, "--", host),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )
            except OSError as error:
                raise NodeUnreachable("local", f"cannot run {self.ssh}: {error.strerror or error}") from None
            try:
                output, errors = await asyncio.wait_for(process.communicate(), _DEADLINE)
            except TimeoutError:
                text = f"ssh -G did not answer within {_DEADLINE:g} s (Match exec or CanonicalizeHostname?)"
                raise NodeUnreachable("config", text) from None
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError, TimeoutError):
                        process.kill()
                        await asyncio.wait_for(process.wait(), 1.0)
        return process.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")
