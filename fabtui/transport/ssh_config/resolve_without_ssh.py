"""The ssh configuration as asyncssh reads it, for machines that have no ``ssh`` binary."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Any

from fabtui.transport.ssh_config.resolved import ConfigBroken, Jump, Resolved, expand_path, home, parse_jumps

_DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ed25519")


def resolve_without_ssh(ssh_config: Path | None, host: str, user: str | None, port: int | None) -> Resolved:
    """Return what asyncssh's own parser finds of a host.

    It knows no StrictHostKeyChecking: unknown host keys are refused.

    Raises:
        ConfigBroken: The file does not parse, or cannot be read.
    """
    from asyncssh.config import ConfigParseError, SSHClientConfig

    default = Path(home(), ".ssh", "config")
    paths = [ssh_config] if ssh_config is not None else [default] if os.access(default, os.R_OK) else []
    try:
        config: Any = SSHClientConfig.load(
            None, list(paths), False, False, False, getpass.getuser(), user or (), host, port or ()
        )
    except (ConfigParseError, OSError, ValueError) as error:
        raise ConfigBroken(str(error)) from None
    settings = Resolved(host, str(config.get("Hostname", host)), str(user or config.get("User", getpass.getuser())))
    user_files = config.get("UserKnownHostsFile", ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"])
    global_files = config.get("GlobalKnownHostsFile", ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"])
    jump = config.get("ProxyJump")
    try:
        jumps: tuple[Jump, ...] = parse_jumps(str(jump)) if jump else ()
    except ValueError as error:
        raise ConfigBroken(str(error)) from None
    proxy = config.get("ProxyCommand")
    timeout = config.get("ConnectTimeout")
    return Resolved(
        name=host,
        hostname=settings.hostname,
        user=settings.user,
        port=int(port or config.get("Port", 22)),
        jumps=jumps,
        proxy_command=None if proxy in (None, "", "none") else str(proxy),
        user_known_hosts=_files(user_files, settings),
        global_known_hosts=_files(global_files, settings),
        host_key_alias=config.get("HostKeyAlias"),
        identities=tuple(str(file) for file in config.get("IdentityFile", ()) or _default_keys()),
        certificates=tuple(str(file) for file in config.get("CertificateFile", ()) or ()),
        identity_agent=config.get("IdentityAgent") or None,
        identities_only=bool(config.get("IdentitiesOnly")),
        connect_timeout=float(timeout) if timeout else None,
    )


def _default_keys() -> list[str]:
    return [f"{home()}/.ssh/{name}" for name in _DEFAULT_KEYS]


def _files(names: Any, settings: Resolved) -> tuple[str, ...]:
    paths = (expand_path(str(name), settings) for name in names)
    return tuple(str(path) for path in paths if path is not None)
