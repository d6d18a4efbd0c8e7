"""SSH files for the nodes of a lab: a key, known hosts, and a configuration."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh


@dataclass(frozen=True, slots=True)
class Place:
    """Address of a node's SSH server, and its public host key (as in known_hosts)."""

    name: str
    address: str
    port: int
    host_key: str


def user_name() -> str:
    """Return the login name; the lab's servers accept any, so there is a default for users without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "fabtui"


def _quoted(path: Path) -> str:
    # The only characters that a temporary folder's name could hold and an ssh_config could misread.
    return '"' + str(path).replace("%", "%%") + '"'


def write_files(folder: Path, key: asyncssh.SSHKey, places: Sequence[Place]) -> Path:
    """Write client key, known_hosts and ssh_config into a private folder; returns the path of the ssh_config."""
    key_file, known_hosts, config = folder / "client_key", folder / "known_hosts", folder / "ssh_config"
    key_file.touch(mode=0o600)
    key_file.write_bytes(key.export_private_key())
    known_hosts.write_text("".join(f"[{p.address}]:{p.port} {p.host_key}\n" for p in places))
    config.write_text("\n".join(_host(place, key_file, known_hosts) for place in places))
    return config


def _host(place: Place, key_file: Path, known_hosts: Path) -> str:
    lines = [
        f"HostName {place.address}",
        f"Port {place.port}",
        f"User {user_name()}",
        f"IdentityFile {_quoted(key_file)}",
        "IdentitiesOnly yes",
        "IdentityAgent none",
        f"UserKnownHostsFile {_quoted(known_hosts)}",
        "GlobalKnownHostsFile /dev/null",
        "StrictHostKeyChecking yes",
        "BatchMode yes",
        "ControlPath none",
        "LogLevel ERROR",
    ]
    return f"Host {place.name}\n" + "".join(f"    {line}\n" for line in lines)
