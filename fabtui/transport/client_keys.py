"""Client keys: the agent's and identity files, read once for all nodes. Never prompts."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.agent import SSHAgentClient

from fabtui.transport.ssh_config import SshSettings, expand_path

_AGENT_DEADLINE = 5.0
_HARDWARE = (b"sk-ssh-ed25519@openssh.com", b"sk-ecdsa-sha2-nistp256@openssh.com")
#: Number of nodes that have to refuse: one alone may be at fault, such as one without its home.
ENOUGH = 2
#: Maximum time (s) that a login waits for the outcome of an earlier one: a node that hangs holds up nobody.
TURN_PATIENCE = 2.0


@dataclass(slots=True)
class Identity:
    """The content of an identity file."""

    path: Path
    key: asyncssh.SSHKey | None = None  #: The private key, or None if it cannot be used.
    #: The public key's wire form, or None; a file may hold only that, for a key of the agent.
    public: bytes | None = None
    certificate: Any = None  #: The certificate beside it, or None.
    problem: str = ""  #: Reason for a missing private key: ``passphrase``, ``hardware`` or a text.


@dataclass(slots=True)
class Offer:
    """The keys to offer to one server, in the order OpenSSH would offer them.

    Identity files that no agent holds are ``locked`` if they need a passphrase, ``hardware`` if they are of security
    keys. The connection to the agent that signs is to be closed after the login.
    """

    keys: list[Any] = field(default_factory=list)
    locked: list[Path] = field(default_factory=list)
    hardware: list[Path] = field(default_factory=list)
    accepted: bool = False  #: Whether the server accepted one of the keys.
    factor: str = ""  #: What it asked for besides, such as ``keyboard-interactive``, or "".
    agent: SSHAgentClient | None = None

    def close(self) -> None:
        if self.agent is not None:
            self.agent.close()


def read_identity(path: Path) -> Identity | None:
    try:
        data = path.read_bytes()[: 1024 * 1024]
    except OSError:
        return None
    identity = Identity(path)
    with contextlib.suppress(OSError, asyncssh.KeyImportError):
        identity.certificate = asyncssh.read_certificate(f"{path}-cert.pub")
    for public in (f"{path}.pub", str(path)):
        with contextlib.suppress(OSError, asyncssh.KeyImportError):
            identity.public = asyncssh.read_public_key(public).public_data
            break
    if _is_hardware(data):
        identity.problem = "hardware"
        return identity
    try:
        identity.key = asyncssh.import_private_key(data)
        identity.public = identity.key.public_data
    except asyncssh.KeyEncryptionError:
        identity.problem = "passphrase"
    except (asyncssh.KeyImportError, ValueError) as error:
        # asyncssh raises one type for a key that needs a passphrase and for an invalid key; the texts differ.
        identity.problem = "passphrase" if "assphrase" in str(error) else str(error)
    return identity


def _is_hardware(data: bytes) -> bool:
    """Return True for a FIDO key: its public part is never encrypted."""
    match = re.search(rb"-----BEGIN OPENSSH PRIVATE KEY-----(.*?)-----END", data, re.DOTALL)
    if match is None:
        return data.startswith(_HARDWARE)
    with contextlib.suppress(ValueError):
        body = base64.b64decode(b"".join(match[1].split()))
        return any(name in body[:600] for name in _HARDWARE)
    return False


def agent_path(resolved: SshSettings) -> str | None:
    named = resolved.identity_agent
    if named == "none":
        return None
    if named in (None, "", "SSH_AUTH_SOCK"):
        return os.environ.get("SSH_AUTH_SOCK") or None
    if named.startswith("$") and not named.startswith("${"):
        return os.environ.get(named[1:]) or None
    path = expand_path(named, resolved)
    return None if path is None else str(path)


class KeyRing:
    """The keys of a session; each file is read once."""

    def __init__(self) -> None:
        self._files: dict[Path, asyncio.Task[Identity | None]] = {}
        self._certificates: dict[Path, Any] = {}

    async def offer(self, resolved: SshSettings) -> Offer:
        """Return the keys for one login: the agent's that have an identity file, its others, then the files'."""
        paths = dict.fromkeys(expand_path(text, resolved) for text in resolved.identities)
        files = [await self._identity(path) for path in paths if path is not None]
        identities = [identity for identity in files if identity is not None]
        certificates = await self._named_certificates(resolved)
        for identity in identities:
            if identity.public in certificates:
                identity.certificate = certificates[identity.public]
        offer = Offer()
        wanted = {identity.public for identity in identities if identity.public}
        held = await self._agent_keys(resolved, offer)
        in_agent = {key.key_public_data for key in held}
        named = [key for key in held if key.key_public_data in wanted]
        others = [] if resolved.identities_only else [key for key in held if key.key_public_data not in wanted]
        with_certificate = {identity.public: identity.certificate for identity in identities if identity.certificate}
        for key in named:
            if (certificate := with_certificate.get(key.key_public_data)) is not None:
                with contextlib.suppress(ValueError):
                    key.set_certificate(certificate)
        offer.keys = [*named, *others]
        for identity in identities:
            if identity.public in in_agent:
                continue
            if identity.key is None:
                if identity.problem == "passphrase":
                    offer.locked.append(identity.path)
                elif identity.problem == "hardware":
                    offer.hardware.append(identity.path)
                continue
            if identity.certificate is not None:
                offer.keys.append((identity.key, identity.certificate))
            offer.keys.append(identity.key)
        return offer

    async def _identity(self, path: Path) -> Identity | None:
        if path not in self._files:
            self._files[path] = asyncio.create_task(asyncio.to_thread(read_identity, path))
        return await asyncio.shield(self._files[path])

    async def _named_certificates(self, resolved: SshSettings) -> dict[bytes | None, Any]:
        certificates: dict[bytes | None, Any] = {}
        for text in resolved.certificates:
            path = expand_path(text, resolved)
            if path is None:
                continue
            if path not in self._certificates:
                try:
                    self._certificates[path] = await asyncio.to_thread(asyncssh.read_certificate, str(path))
                except (OSError, asyncssh.KeyImportError):
                    self._certificates[path] = None
            certificate = self._certificates[path]
            if certificate is not None:
                certificates[certificate.key.public_data] = certificate
        return certificates

    async def _agent_keys(self, resolved: SshSettings, offer: Offer) -> list[Any]:
        path = agent_path(resolved)
        if path is None:
            return []
        # One connection per login: a late answer to a cancelled login must not reach a different one.
        agent = SSHAgentClient(path)
        try:
            async with asyncio.timeout(_AGENT_DEADLINE):
                keys = list(await agent.get_keys())
        except (OSError, ValueError, TimeoutError):
            agent.close()
            return []
        offer.agent = agent
        return keys


class KeyTrial:
    """Lets logins with the same user and keys offer these one after the other, until a node has accepted."""

    def __init__(self) -> None:
        self._accepted = False
        self._refusing: list[str] = []
        self._turn = asyncio.Semaphore(1)

    @property
    def why_not(self) -> str:
        if self._accepted or len(self._refusing) < ENOUGH:
            return ""
        return f"no key is offered: {' and '.join(self._refusing[:ENOUGH])} refused the same"

    async def begin(self) -> bool:
        """Wait for the turn of a login; return True if it has the turn, and has to call `end`."""
        if self._accepted:
            return False
        try:
            async with asyncio.timeout(TURN_PATIENCE):
                await self._turn.acquire()
        except TimeoutError:
            return False
        if self._accepted:
            self._turn.release()
            return False
        return True

    def end(self, node: str, accepted: bool | None, *, has_turn: bool) -> None:
        """Note whether a node has accepted keys (None: neither), and give the turn to the next login."""
        if accepted:
            self._accepted = True
        elif accepted is False and not self._accepted:
            self._refusing.append(node)
        if has_turn:
            self._turn.release()
