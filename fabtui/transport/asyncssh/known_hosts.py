"""Host key checks: known_hosts files, read once, and the policy for unknown keys."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import hmac
import os
import secrets
import shlex
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path
from typing import Literal

from asyncssh import SSHKey, SSHKnownHosts

from fabtui.sanitize import one_line
from fabtui.transport.link import NodeUnreachable
from fabtui.transport.ssh_config.resolved import Resolved, home

PolicyOption = Literal["config", "strict", "accept-new", "off"]
Policy = Literal["strict", "accept-new", "off"]

_FILE_CAP = 256 * 1024 * 1024
_LOCK_PATIENCE = 2.0
_HASHED = b"|1|"


def policy_for(option: PolicyOption, resolved: Resolved) -> Policy:
    """Return the policy for a host.

    With ``config``, StrictHostKeyChecking ``yes`` and ``ask`` mean strict (nobody can be asked), ``no`` means that new
    keys are taken; a changed key is refused all the same.
    """
    if option != "config":
        return option
    return "strict" if resolved.strict in ("yes", "ask") else "accept-new"


@dataclass(slots=True)
class Known:
    """The entries of one host in the known_hosts files.

    Attributes:
        name: What the host is looked up by.
        keys: Its host keys and the file of each; a mismatch with them is a changed key.
        elsewhere: Keys of the same host name without the port: they count as known, but prove no change.
        authorities: Keys that may sign certificates for it.
        revoked: Keys that are never accepted for it.
    """

    name: str
    keys: list[tuple[SSHKey, str]] = field(default_factory=list)
    elsewhere: list[tuple[SSHKey, str]] = field(default_factory=list)
    authorities: list[SSHKey] = field(default_factory=list)
    revoked: list[SSHKey] = field(default_factory=list)

    def trusted(self) -> list[SSHKey]:
        """Return the keys that are accepted."""
        return [key for key, _ in (*self.keys, *self.elsewhere)]


def lookup_name(resolved: Resolved) -> str:
    """Return what a host is written as in a known hosts file."""
    if resolved.host_key_alias:
        return resolved.host_key_alias.lower()
    host = resolved.hostname.lower()
    return host if resolved.port == 22 else f"[{host}]:{resolved.port}"


_State = tuple[int, int, int] | None


@dataclass(slots=True)
class Loaded:
    """A known hosts file.

    Attributes:
        content: What is in it.
        hashed: Whether names are hashed there, which are slow to find.
    """

    content: SSHKnownHosts
    hashed: bool


@dataclass(slots=True)
class _File:
    state: _State
    loaded: asyncio.Future[Loaded | None]


def state_of(path: str | int) -> _State:
    """Return what changes with a file, None if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def load_file(path: str) -> Loaded | None:
    """Return a parsed known hosts file; lines that are no entries are passed over. None if there is no such file.

    Raises:
        OSError: The file is there and cannot be read.
        ValueError: It is no known hosts file, but something huge.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(_FILE_CAP + 1)
    except FileNotFoundError:
        return None
    if len(data) > _FILE_CAP:
        raise ValueError("too large")
    text = data.decode("utf-8", "replace")
    hashed = _HASHED in data
    try:
        return Loaded(SSHKnownHosts(text), hashed)
    except ValueError:
        pass
    known = SSHKnownHosts()
    for line in text.splitlines():
        try:
            known.load(line)
        except ValueError:
            continue
    return Loaded(known, hashed)


class HostKeys:
    """The known hosts of all nodes of a session.

    Args:
        notice: Takes one line for the user.
    """

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        # Matching hashed names costs milliseconds a host and file: neither in the event loop nor in others' pool.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="known-hosts")
        self._files: dict[str, _File] = {}
        self._looking: dict[str, asyncio.Future[_State]] = {}
        self._known: dict[tuple[str, str, tuple[str, ...]], Known] = {}

    async def known(self, resolved: Resolved) -> Known:
        """Return what is known of a host."""
        paths = (*resolved.user_known_hosts, *resolved.global_known_hosts)
        name = lookup_name(resolved)
        key = (name, resolved.hostname.lower(), paths)
        loaded = [(path, file) for path in paths if (file := await self._file(path)) is not None]
        if key not in self._known:
            plain = "" if resolved.host_key_alias else resolved.hostname.lower()
            files = [(path, file.content) for path, file in loaded]
            if any(file.hashed for _, file in loaded):
                loop = asyncio.get_running_loop()
                found = await loop.run_in_executor(self._threads, match, files, name, plain)
            else:
                found = match(files, name, plain)
            self._known.setdefault(key, found)
        return self._known[key]

    async def _state(self, path: str) -> _State:
        """Return a file's state. Hosts that are looked up at the same time share one look."""
        looking = self._looking.get(path)
        if looking is None or looking.done():
            looking = asyncio.get_running_loop().run_in_executor(self._threads, state_of, path)
            self._looking[path] = looking
        return await asyncio.shield(looking)

    async def _file(self, path: str) -> Loaded | None:
        """Return a file's content, read again when the file changed: the user may mend it while we run."""
        loop = asyncio.get_running_loop()
        state = await self._state(path)
        known = self._files.get(path)
        if known is None or known.state != state:
            loaded = loop.run_in_executor(self._threads, self._load, path, loop)
            known = self._files[path] = _File(state, loaded)
            self._known.clear()
        return await asyncio.shield(known.loaded)

    def _load(self, path: str, loop: asyncio.AbstractEventLoop) -> Loaded | None:
        try:
            return load_file(path)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            text = f"{path} is not read: {one_line(reason or 'error', 100)}"
            loop.call_soon_threadsafe(self._notice, text)
            return None

    async def remember(self, resolved: Resolved, key: SSHKey) -> None:
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
            writing = loop.run_in_executor(self._threads, append, Path(path), line)
            before, after = await asyncio.wait_for(writing, 2 * _LOCK_PATIENCE)
            # What is seen of it in this moment is not what it is now.
            self._looking.pop(path, None)
            file = self._files.get(path)
            loaded = await file.loaded if file is not None else None
            if file is not None and loaded is not None and file.state == before:
                # Only this line is new: no need to read a long file again for each new host.
                loaded.content.load(line.decode("ascii"))
                loaded.hashed |= resolved.hash_known_hosts
                file.state = after
        except (OSError, TimeoutError) as error:
            reason = one_line(str(error) or "no lock in time", 200)
            self._notice(f"the new host key of {resolved.name} is not written to {path}: {reason}")

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def match(files: list[tuple[str, SSHKnownHosts]], name: str, plain: str) -> Known:
    """Return what files hold of a host.

    Args:
        files: Path and content of each.
        name: What the host is looked up by, with its port in brackets if that is not 22.
        plain: The same without the port, or an empty string.
    """
    known = Known(name)
    for path, file in files:
        keys, authorities, revoked, *_ = file.match(name, "", None)
        known.keys += [(key, path) for key in keys]
        known.authorities += authorities
        known.revoked += revoked
    if plain and plain != name and not (known.keys or known.authorities):
        for path, file in files:
            keys, authorities, revoked, *_ = file.match(plain, "", None)
            known.elsewhere += [(key, path) for key in keys]
            known.authorities += authorities
            known.revoked += revoked
    return known


def entry(name: str, key: SSHKey, hashed: bool) -> bytes:
    """Return the line of a known hosts file for a key."""
    if hashed:
        salt = secrets.token_bytes(20)
        digest = hmac.new(salt, name.encode(), sha1).digest()
        name = "|1|" + base64.b64encode(salt).decode() + "|" + base64.b64encode(digest).decode()
    algorithm, blob = key.export_public_key("openssh").split()[:2]
    return name.encode() + b" " + algorithm + b" " + blob + b"\n"


def append(path: Path, line: bytes) -> tuple[_State, _State]:
    """Append a line to a known hosts file, which is made if it is not there, under a lock.

    Returns:
        The file's state before and after.

    Raises:
        OSError: It cannot be written.
        TimeoutError: Somebody else holds the lock.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        give_up = time.monotonic() + _LOCK_PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise TimeoutError("the file is locked") from None
                time.sleep(0.05)
        before = state_of(descriptor)
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        os.write(descriptor, line)
        return before, state_of(descriptor)
    finally:
        os.close(descriptor)


def refusal(resolved: Resolved, known: Known, key: SSHKey | None, revoked: bool, reason: str = "") -> NodeUnreachable:
    """Return the error for a host key that is not accepted.

    Args:
        resolved: The host.
        known: What is known of it.
        key: The key it showed, or None if that was a certificate.
        revoked: Whether the key is marked as revoked.
        reason: More on a certificate that is not accepted.
    """
    shown = "a certificate" if key is None else f"{key.get_algorithm()} {key.get_fingerprint()}"
    if revoked:
        text = f"the host key of {resolved.name} is REVOKED ({shown})"
        return NodeUnreachable("revoked-host-key", text, "do not connect; ask who runs this host")
    if known.keys and key is not None:
        old = ", ".join(sorted({f"{k.get_algorithm()} {k.get_fingerprint()}" for k, _ in known.keys})[:3])
        paths = list(dict.fromkeys(path for _, path in known.keys))
        text = (
            f"HOST KEY CHANGED: {resolved.name} shows {shown}, {paths[0]} has {old}: "
            "the node was reinstalled, or somebody is in between"
        )
        removals = "\n".join(f"ssh-keygen -R {shlex.quote(known.name)} -f {shlex.quote(path)}" for path in paths)
        return NodeUnreachable("changed-host-key", text, f"if it was reinstalled: {removals}")
    text = f"the host key of {resolved.name} is not known: it shows {shown}"
    if reason:
        text += f" ({reason})"
    if resolved.jumps or resolved.proxy_command:
        return NodeUnreachable(
            "unknown-host-key", text, f"compare the fingerprint, then log in once: ssh {resolved.name}"
        )
    port = "" if resolved.port == 22 else f"-p {resolved.port} "
    path = next(iter(resolved.user_known_hosts), f"{home()}/.ssh/known_hosts")
    hint = (
        f"compare the fingerprint, then: ssh-keyscan {port}{shlex.quote(resolved.hostname)} >> {shlex.quote(path)}"
        " (or, for all nodes: --host-key-policy accept-new)"
    )
    return NodeUnreachable("unknown-host-key", text, hint)
