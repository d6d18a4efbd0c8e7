"""Known host keys: files, read again when they change, and the texts for refused keys."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import os
import secrets
import shlex
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path

from asyncssh import SSHKey, SSHKnownHosts

from fabtui.paths import wait_for_lock
from fabtui.sanitize import one_line
from fabtui.transport.link import NodeUnreachable
from fabtui.transport.ssh_config import SshSettings, home

_FILE_CAP = 256 * 1024 * 1024
_LOCK_PATIENCE = 2.0
_State = tuple[int, int, int] | None


@dataclass(slots=True)
class HostEntries:
    """The entries of one host in the known_hosts files."""

    name: str  #: What the host is looked up by.
    #: Its host keys and the file of each; a mismatch with them is a changed key.
    keys: list[tuple[SSHKey, str]] = field(default_factory=list)
    #: Keys of the same host name without the port: they count as known, but prove no change.
    elsewhere: list[tuple[SSHKey, str]] = field(default_factory=list)
    authorities: list[SSHKey] = field(default_factory=list)  #: Keys that may sign certificates for it.
    revoked: list[SSHKey] = field(default_factory=list)  #: Keys that are never accepted for it.

    def trusted(self) -> list[SSHKey]:
        return [key for key, _ in (*self.keys, *self.elsewhere)]


def lookup_name(resolved: SshSettings) -> str:
    if resolved.host_key_alias:
        return resolved.host_key_alias.lower()
    host = resolved.hostname.lower()
    return host if resolved.port == 22 else f"[{host}]:{resolved.port}"


def state_of(path: str | int) -> _State:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def load_file(path: str) -> SSHKnownHosts | None:
    """Return a parsed known hosts file; lines that are not entries are passed over. None if there is no such file.

    Raises:
        OSError: The file is there and cannot be read.
        ValueError: It is not a known hosts file, but something huge.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(_FILE_CAP + 1)
    except FileNotFoundError:
        return None
    if len(data) > _FILE_CAP:
        raise ValueError("too large")
    text = data.decode("utf-8", "replace")
    # asyncssh has no name for X.509 certificates where pyOpenSSL is missing.
    with contextlib.suppress(ValueError, NameError):
        return SSHKnownHosts(text)
    known = SSHKnownHosts()
    for line in text.splitlines():
        with contextlib.suppress(ValueError, NameError):
            known.load(line)
    return known


class HostKeys:
    """The known hosts of all nodes of a session; ``notice`` takes one line for the user."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        # Matching hashed names costs milliseconds a host and file: neither in the event loop nor in others' pool. One
        # thread to look up, so that only it changes what is kept; another to write, which may wait for a lock.
        self._looking = ThreadPoolExecutor(1, thread_name_prefix="known-hosts")
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="new-host-keys")
        self._files: dict[str, tuple[_State, SSHKnownHosts | None]] = {}
        self._known: dict[tuple[str, str, tuple[str, ...]], HostEntries] = {}

    async def known(self, resolved: SshSettings) -> HostEntries:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._looking, self._look_up, resolved, loop)

    def _look_up(self, resolved: SshSettings, loop: asyncio.AbstractEventLoop) -> HostEntries:
        paths = (*resolved.user_known_hosts, *resolved.global_known_hosts)
        for path in paths:
            # A file is read again when it changed: the user may mend it while we run.
            state = state_of(path)
            if path not in self._files or self._files[path][0] != state:
                self._files[path] = state, self._load(path, loop)
                self._known.clear()
        name, host = lookup_name(resolved), resolved.hostname.lower()
        key = (name, host, paths)
        if key not in self._known:
            files = [(path, content) for path in paths if (content := self._files[path][1]) is not None]
            self._known[key] = match(files, name, "" if resolved.host_key_alias else host)
        return self._known[key]

    def _load(self, path: str, loop: asyncio.AbstractEventLoop) -> SSHKnownHosts | None:
        try:
            return load_file(path)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            text = f"{path} is not read: {one_line(reason or 'error', 100)}"
            loop.call_soon_threadsafe(self._notice, text)
            return None

    async def remember(self, resolved: SshSettings, key: SSHKey) -> None:
        """Write an accepted key to the user's first known hosts file and know it from now on. Never raises."""
        known = await self.known(resolved)
        if key in known.trusted():
            return
        path = next(iter(resolved.user_known_hosts), None)
        known.keys.append((key, path or "memory"))
        if path is None or path == os.devnull:
            return
        line = entry(known.name, key, resolved.hash_known_hosts)
        loop = asyncio.get_running_loop()
        try:
            writing = loop.run_in_executor(self._writing, append, Path(path), line)
            before, after = await asyncio.wait_for(writing, 2 * _LOCK_PATIENCE)
            state, content = self._files.get(path, (None, None))
            if content is not None and state == before:
                # Only this line is new: no need to read a long file again for each new host.
                content.load(line.decode("ascii"))
                self._files[path] = after, content
        except (OSError, TimeoutError) as error:
            reason = one_line(str(error) or "no lock in time", 200)
            self._notice(f"the new host key of {resolved.name} is not written to {path}: {reason}")

    def close(self) -> None:
        for threads in (self._looking, self._writing):
            threads.shutdown(wait=False, cancel_futures=True)


def match(files: list[tuple[str, SSHKnownHosts]], name: str, plain: str) -> HostEntries:
    """Return what files (path and content) hold of a host; ``plain`` is its name without the port, or empty."""
    known = HostEntries(name)
    for wanted, found in ((name, known.keys), (plain, known.elsewhere)):
        if found is known.elsewhere and (plain in ("", name) or known.keys or known.authorities):
            break
        for path, file in files:
            keys, authorities, revoked, *_ = file.match(wanted, "", None)
            found += [(key, path) for key in keys]
            known.authorities += authorities
            known.revoked += revoked
    return known


def entry(name: str, key: SSHKey, hashed: bool) -> bytes:
    if hashed:
        salt = secrets.token_bytes(20)
        digest = hmac.new(salt, name.encode(), sha1).digest()
        name = "|1|" + base64.b64encode(salt).decode() + "|" + base64.b64encode(digest).decode()
    algorithm, blob = key.export_public_key("openssh").split()[:2]
    return name.encode() + b" " + algorithm + b" " + blob + b"\n"


def append(path: Path, line: bytes) -> tuple[_State, _State]:
    """Append a line to a known hosts file, made if it is not there, under a lock; return its state before and after.

    Raises:
        OSError: It cannot be written.
        TimeoutError: Somebody else holds the lock.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        wait_for_lock(descriptor, _LOCK_PATIENCE)
        before = state_of(descriptor)
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        os.write(descriptor, line)
        return before, state_of(descriptor)
    finally:
        os.close(descriptor)


def refusal(
    resolved: SshSettings, known: HostEntries, key: SSHKey | None, revoked: bool, reason: str = ""
) -> NodeUnreachable:
    """Return the error for a host key that is not accepted, or for a certificate (no key), with the reason."""
    shown = "a certificate" if key is None else f"{key.get_algorithm()} {key.get_fingerprint()}"
    if revoked:
        text = f"the host key of {resolved.name} is REVOKED ({shown})"
        return NodeUnreachable("revoked-host-key", text, "do not connect; ask who runs this host")
    if known.keys and key is not None:
        old = ", ".join(sorted({f"{k.get_algorithm()} {k.get_fingerprint()}" for k, _ in known.keys})[:3])
        paths = list(dict.fromkeys(path for _, path in known.keys))
        text = (
            f"HOST KEY CHANGED: {resolved.name} shows {shown}, {paths[0]} has {old}: "
            "the node was reinstalled, or someone is intercepting the connection"
        )
        removals = "\n".join(f"ssh-keygen -R {shlex.quote(known.name)} -f {shlex.quote(path)}" for path in paths)
        return NodeUnreachable("changed-host-key", text, f"if it was reinstalled: {removals}")
    alias = resolved.host_key_alias
    under = f" as {alias} (HostKeyAlias)" if alias else ""
    text = f"the host key of {resolved.name} is not known{under}: it shows {shown}"
    if reason:
        text += f" ({reason})"
    if resolved.jumps or resolved.proxy_command:
        return NodeUnreachable(
            "unknown-host-key", text, f"compare the fingerprint, then log in once: ssh {resolved.name}"
        )
    port = "" if resolved.port == 22 else f"-p {resolved.port} "
    path = next(iter(resolved.user_known_hosts), f"{home()}/.ssh/known_hosts")
    # ssh-keyscan prints the keys with the name that it was given.
    renamed = f" | sed {shlex.quote(f's/^[^ #]*/{known.name}/')}" if alias else ""
    scan = f"ssh-keyscan {port}{shlex.quote(resolved.hostname)}{renamed} >> {shlex.quote(path)}"
    hint = f"compare the fingerprint, then: {scan} (or, for all nodes: --host-key-policy accept-new)"
    return NodeUnreachable("unknown-host-key", text, hint)
