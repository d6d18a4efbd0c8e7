"""Resolve hosts through the user's ssh configuration by running ``ssh -G``.

Only OpenSSH reads its configuration as OpenSSH does, with includes, matches and the site's files. Hosts with settings
that asyncssh does not support are left to OpenSSH.
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
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from fabtui.sanitize import last_line, one_line
from fabtui.transport.byte_pipe import output_of
from fabtui.transport.link import NodeUnreachable

Strict = Literal["yes", "ask", "accept-new", "no"]
PolicyOption = Literal["config", "strict", "accept-new", "off"]
Policy = Literal["strict", "accept-new", "off"]

#: Lists of algorithms, passed to asyncssh only where the configuration changes them.
ALGORITHMS = ("kexalgorithms", "ciphers", "macs", "hostkeyalgorithms")
_HOST = re.compile(r"[A-Za-z0-9_.:%\[\]-]+\Z")
#: Name that ssh takes as it is: no capitals, and no address but the usual form of one (10.4 is 10.0.0.4).
_NAME = re.compile(r"([a-z0-9_-]+\.)*[a-z_-][a-z0-9_-]*|((0|[1-9][0-9]{0,2})\.){3}(0|[1-9][0-9]{0,2})")
#: Line of a configuration in which a host counts by its patterns alone: those of ``Host``, or no host at all.
_LINE = re.compile(
    r"\s*(?:#.*|host[\s=]+([^\"'\\]*)|match\s+(?:final\s+)?all\s*|(?!host[\s=]|match|canonicalizeh)[a-z0-9]+[\s=][^%]*)?",
    re.ASCII | re.IGNORECASE,
)
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
_DEADLINE = 10.0
#: Maximum time (s) that hosts wait for the answer about the first one, whose ``Match exec`` may hang.
_PATIENCE = 3.0
#: Maximum number of concurrent processes.
_PARALLEL = 8
#: Timeout (s) of ``klist``.
_KLIST_DEADLINE = 3.0
#: Settings that asyncssh does not support: keyword, the values that matter (None: any but ``none``), its name.
_UNSUPPORTED: tuple[tuple[str, frozenset[str] | None, str], ...] = (
    ("hostbasedauthentication", frozenset({"yes", "true"}), "HostbasedAuthentication"),
    ("pkcs11provider", None, "PKCS11Provider"),
    ("knownhostscommand", None, "KnownHostsCommand"),
    ("revokedhostkeys", None, "RevokedHostKeys"),
    ("verifyhostkeydns", frozenset({"yes", "true"}), "VerifyHostKeyDNS"),
    ("nohostauthenticationforlocalhost", frozenset({"yes", "true"}), "NoHostAuthenticationForLocalhost"),
    ("proxyusefdpass", frozenset({"yes", "true"}), "ProxyUseFdpass"),
    ("bindinterface", None, "BindInterface"),
    ("pubkeyauthentication", frozenset({"no", "false"}), "PubkeyAuthentication no"),
)


class ConfigBroken(Exception):
    """The ssh configuration does not parse; the text names the line."""


@dataclass(frozen=True, slots=True)
class Jump:
    """One hop of a ProxyJump."""

    host: str
    user: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class SshSettings:
    """A host as the ssh configuration describes it."""

    name: str  #: The name as given by the user.
    hostname: str  #: The host to connect to.
    user: str
    port: int = 22
    jumps: tuple[Jump, ...] = ()  #: ProxyJump, first hop first.
    proxy_command: str | None = None  #: ProxyCommand with its tokens, or None.
    strict: Strict = "ask"
    user_known_hosts: tuple[str, ...] = ()  #: UserKnownHostsFile, expanded; empty for ``none``.
    global_known_hosts: tuple[str, ...] = ()
    host_key_alias: str | None = None  #: The name to look up host keys by instead of the host name and port.
    hash_known_hosts: bool = False  #: Whether names are hashed where they are written.
    identities: tuple[str, ...] = ()  #: Identity files, not expanded.
    certificates: tuple[str, ...] = ()  #: Certificate files, not expanded.
    identity_agent: str | None = None  #: IdentityAgent as written, or None.
    identities_only: bool = False  #: Whether only keys that have an identity file are offered.
    family: str = "any"  #: ``any``, ``inet`` or ``inet6``.
    bind_address: str | None = None
    connect_timeout: float | None = None  #: ConnectTimeout in seconds, or None.
    #: Those of `ALGORITHMS` that differ from what OpenSSH does without configuration.
    algorithms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: All of it, by lower-case keyword (first value of each).
    settings: Mapping[str, str] = field(default_factory=dict)


def policy_for(option: PolicyOption, resolved: SshSettings) -> Policy:
    """Return the policy for the host keys of a host.

    With ``config``, StrictHostKeyChecking ``yes`` and ``ask`` mean strict (nobody can be asked), ``no`` means that new
    keys are taken; a changed key is refused all the same.
    """
    if option != "config":
        return option
    return "strict" if resolved.strict in ("yes", "ask") else "accept-new"


def check_host(host: str) -> None:
    """Check a host name before it reaches a command line.

    Raises:
        NodeUnreachable: ``config``.
    """
    if not _HOST.match(host) or host.startswith("-") or len(host) > 255:
        raise NodeUnreachable("config", f"not a host name: {one_line(host, 80)!r}")


def home() -> str:
    """Return the home folder as OpenSSH does: from the user database, not from ``HOME``."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_dir
    return os.path.expanduser("~")


def expand(text: str, resolved: SshSettings) -> str:
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


def expand_path(text: str, resolved: SshSettings) -> Path | None:
    """Return the path of a value with ``~``, tokens and ``${VARIABLES}`` expanded, None if it cannot be."""
    if text == "~" or text.startswith("~/"):
        text = home() + text[1:]
    try:
        text = re.sub(r"\$\{(\w+)\}", lambda match: os.environ[match[1]], text)
        return Path(expand(os.path.expanduser(text), resolved))
    except (KeyError, ValueError):
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


def parse(name: str, output: str, baseline: Mapping[str, str] | None = None) -> SshSettings:
    """Parse the output of ``ssh -G``; algorithms that differ from the baseline are chosen ones.

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
        return SshSettings(
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
    """Runs ``ssh -G``, with a configuration file instead of the user's and the site's if there is one."""

    def __init__(self, ssh_config: Path | None) -> None:
        self._options = [] if ssh_config is None else ["-F", str(ssh_config)]
        self._slots = asyncio.Semaphore(_PARALLEL)
        self._cache: dict[tuple[str, str | None, int | None], asyncio.Task[SshSettings]] = {}
        self._baseline: asyncio.Task[dict[str, str]] | None = None
        self._patterns: asyncio.Task[tuple[str, list[str]] | None] | None = None
        #: The host that is asked about, by the patterns that its like match, user and port.
        self._asked: dict[object, str] = {}
        self._tickets: asyncio.Task[bool] | None = None
        self.ssh = shutil.which("ssh")

    async def resolve(self, host: str, user: str | None = None, port: int | None = None) -> SshSettings:
        """Return the configuration of a host; user and port override the configuration.

        Raises:
            NodeUnreachable: ``config``: OpenSSH rejects the name, or the configuration cannot be read.
            ConfigBroken: The configuration does not parse.
        """
        check_host(host)
        key = (host, user, port)
        task = self._cache.get(key)
        if task is None or task.cancelled():
            task = self._cache[key] = asyncio.create_task(self._find(host, user, port))
        # Shielded: a caller that gives up must not cancel the result for the others.
        return await asyncio.shield(task)

    async def why_openssh(self, resolved: SshSettings) -> str | None:
        """Return the setting of a host for which it needs OpenSSH, None if there is none."""
        setting = unsupported_setting(resolved)
        if setting is not None:
            return setting
        # Many distributions switch it on for everybody: it counts where there is a ticket to log in with.
        if resolved.settings.get("gssapiauthentication") == "yes":
            if self._tickets is None:
                self._tickets = asyncio.create_task(have_tickets())
            if await asyncio.shield(self._tickets):
                return "GSSAPIAuthentication (Kerberos)"
        path = resolved.settings.get("controlpath", "none")
        if path != "none" and await asyncio.to_thread(live_master, path):
            return "a shared connection (ControlMaster)"
        return None

    async def close(self) -> None:
        others = (self._baseline, self._patterns, self._tickets)
        tasks: list[asyncio.Task[Any]] = [*self._cache.values(), *filter(None, others)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _find(self, host: str, user: str | None, port: int | None) -> SshSettings:
        if self.ssh is None:
            raise no_ssh()
        options = [*self._options, *(["-l", user] if user else []), *(["-p", str(port)] if port else [])]
        if self._baseline is None or self._patterns is None:
            self._baseline = asyncio.create_task(self._ask_baseline())
            # The first answer names the files; what it is asked with changes the level of logs.
            first = asyncio.create_task(self._run([*options, "-v"], host))
            self._patterns = asyncio.create_task(patterns_after(first))
            status, output, errors = await first
            output, errors = (re.sub(r"(?m)^(debug\d: |loglevel ).*\n", "", text) for text in (output, errors))
        else:
            done, _ = await asyncio.wait({self._patterns}, timeout=_PATIENCE)
            asked, known = host, self._patterns.result() if done else None
            if known is not None and host not in known[0] and _NAME.fullmatch(host):
                matched = tuple(fnmatchcase(host, pattern) for pattern in known[1])
                asked = self._asked.setdefault((matched, user, port), host)
            if asked != host:
                same = await self.resolve(asked, user, port)
                address = host if same.hostname == asked else same.hostname
                settings = {**same.settings, "host": host, "hostname": address}
                return replace(same, name=host, hostname=address, settings=settings)
            status, output, errors = await self._run(options, host)
        if status != 0:
            last = last_line(errors, 300)
            if "hostname contains invalid characters" in errors:
                raise NodeUnreachable("config", f"not a host name: {host!r} ({last})")
            if "Can't open user config file" in errors:
                raise NodeUnreachable("config", last)
            lines = [line for line in errors.splitlines() if "line " in line]
            raise ConfigBroken(one_line(lines[0], 300) if lines else last or f"ssh -G ended with status {status}")
        return parse(host, output, await asyncio.shield(self._baseline))

    async def _ask_baseline(self) -> dict[str, str]:
        status, output, _ = await self._run(["-F", "none"], "localhost")
        pairs = (line.partition(" ") for line in output.splitlines()) if status == 0 else ()
        return {key: value for key, _, value in pairs}

    async def _run(self, options: list[str], host: str) -> tuple[int | None, str, str]:
        assert self.ssh is not None
        async with self._slots:
            try:
                words = (self.ssh, "-G", "-T", *options, "--", host)
                status, output, errors = await output_of(words, _DEADLINE)
            except TimeoutError:
                text = f"ssh -G did not answer within {_DEADLINE:g} s (Match exec or CanonicalizeHostname?)"
                raise NodeUnreachable("config", text) from None
            except OSError as error:
                raise NodeUnreachable("local", f"cannot run {self.ssh}: {error.strerror or error}") from None
        return status, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")


async def patterns_after(first: asyncio.Task[tuple[int | None, str, str]]) -> tuple[str, list[str]] | None:
    """Return the text of the files that ``ssh -v`` names as it reads them, and the patterns of hosts there.

    Names that match the same patterns, and are nowhere in the text, have the same settings. None if a name may count in
    another way: by criteria, tokens or canonical names, or in a line that is written unusually.
    """
    with contextlib.suppress(NodeUnreachable, OSError):
        _, _, debug = await asyncio.shield(first)
        paths = re.findall(r"^debug1: Reading configuration data (.+?)\r?$", debug, re.MULTILINE)
        # A pipe would be read for ever.
        if not paths or not all(map(os.path.isfile, paths)):
            return None
        text = await asyncio.to_thread(lambda: "\n".join(Path(path).read_text("utf-8", "replace") for path in paths))
        lines = [_LINE.fullmatch(line) for line in text.split("\n")]
        if None not in lines:
            hosts = " ".join(line[1] or "" for line in lines if line)
            # Nothing but * and ? is special.
            return text, hosts.replace("!", "").replace("[", "[[]").split()
    return None


def no_ssh() -> NodeUnreachable:
    hint = "install openssh-client, or pass --via or --transport srun"
    return NodeUnreachable("local", "there is no ssh program on this machine to read the ssh configuration", hint)


def unsupported_setting(resolved: SshSettings) -> str | None:
    """Return the first setting that asyncssh cannot follow, None if there is none."""
    for key, values, name in _UNSUPPORTED:
        value = resolved.settings.get(key, "none").lower()
        if value not in ("none", "") if values is None else value in values:
            return name
    return None


def live_master(path: str) -> bool:
    """Return True if a shared OpenSSH connection listens on a socket."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            probe.connect(path)
    except OSError:
        return False
    return True


class NeedsOpenSSH(Exception):
    """asyncssh cannot reach this host; the text is the reason."""


async def have_tickets() -> bool:
    klist = shutil.which("klist")
    if klist is None:
        cache = os.environ.get("KRB5CCNAME", f"/tmp/krb5cc_{os.getuid()}").removeprefix("FILE:")
        return await asyncio.to_thread(os.path.exists, cache)
    try:
        status, _, _ = await output_of((klist, "-s"), _KLIST_DEADLINE)
    except OSError:
        return False
    return status == 0
