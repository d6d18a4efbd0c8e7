"""A host as the ssh configuration describes it, and the expansion of its values."""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fabtui.sanitize import one_line
from fabtui.transport.link import NodeUnreachable

Strict = Literal["yes", "ask", "accept-new", "no"]
PolicyOption = Literal["config", "strict", "accept-new", "off"]
Policy = Literal["strict", "accept-new", "off"]

#: Lists of algorithms, passed to asyncssh only where the configuration changes them.
ALGORITHMS = ("kexalgorithms", "ciphers", "macs", "hostkeyalgorithms")
_HOST = re.compile(r"[A-Za-z0-9_.:%\[\]-]+\Z")


class ConfigBroken(Exception):
    """The ssh configuration does not parse; the text names the line."""


@dataclass(frozen=True, slots=True)
class Jump:
    """One hop of a ProxyJump."""

    host: str
    user: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
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


def policy_for(option: PolicyOption, resolved: Resolved) -> Policy:
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
