"""Logins and commands by asyncssh. Every value is explicit, so asyncssh reads none of the user's files."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import asyncssh
from asyncssh.encryption import get_default_encryption_algs, get_encryption_algs
from asyncssh.kex import get_kex_algs
from asyncssh.mac import get_mac_algs
from asyncssh.public_key import (
    get_certificate_algs,
    get_default_certificate_algs,
    get_default_public_key_algs,
    get_public_key_algs,
)
from cryptography.utils import CryptographyDeprecationWarning

from fabtui.sanitize import clean, one_line
from fabtui.transport.byte_pipe import BytePipe, Ending
from fabtui.transport.client_keys import KeyTrial, Offer
from fabtui.transport.dial import Proxy, proxy_words, unreachable
from fabtui.transport.known_hosts import HostEntries, refusal
from fabtui.transport.launcher import DROPPED, classify_openssh
from fabtui.transport.link import NodeUnreachable
from fabtui.transport.login_answers import LoginTurn
from fabtui.transport.ssh_config import Policy, SshSettings

KEEPALIVE = 5
KEEPALIVE_COUNT = 3

# Without a handler, its warnings would be printed over the screen.
logging.getLogger("asyncssh").addHandler(logging.NullHandler())
# The same holds for deprecation warnings about a server's old algorithms.
warnings.filterwarnings("ignore", category=CryptographyDeprecationWarning)

# Where nothing is chosen: the payload costs a fifth of the time with what processors have instructions for.
_FAST_CIPHERS = [b"aes128-gcm@openssh.com", b"aes256-gcm@openssh.com"]
_KINDS = {"kexalgorithms": get_kex_algs, "ciphers": get_encryption_algs, "macs": get_mac_algs}


#: What a login runs over: a connected socket, a proxy command, or the connection to the jump host.
Road = socket.socket | Proxy | asyncssh.SSHClientConnection


class NoCommonAlgorithmError(NodeUnreachable):
    """The server wants algorithms that asyncssh does not have; OpenSSH may have them."""


class KeyExchangeBroken(NodeUnreachable):
    """The connection ended in the key exchange; the next try may show why."""


class Client(asyncssh.SSHClient):
    """The state of one login, with the host's known keys and how unknown ones are treated."""

    def __init__(self, known: HostEntries, policy: Policy, turn: LoginTurn, trial: KeyTrial) -> None:
        self.turn = turn
        self.trial = trial
        self.keys: list[Any] = []  #: The keys to offer, once.
        self.tried = False  #: Whether keys were offered.
        self.signed = False  #: Whether the server accepted one: it was asked to prove that it is there.
        self.factor = ""  #: The method that the server asked for after that, or "".
        self.has_turn = False
        self.over = False  #: Whether the login has ended.
        self._keyboard = False
        self.known = known
        self.policy = policy
        self.connection: asyncssh.SSHClientConnection | None = None
        self.shown: asyncssh.SSHKey | None = None
        self.accepted: asyncssh.SSHKey | None = None
        self.lost: Exception | None = None
        self.banner = ""

    @property
    def greeted(self) -> bool:
        return self.connection is not None and bool(self.connection.get_extra_info("server_version"))

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.connection = conn

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc

    def auth_banner_received(self, msg: str, lang: str) -> None:
        self.banner = (self.banner + clean(msg, 4096))[:8192]

    async def public_key_auth_requested(self) -> list[Any] | None:
        """Return the keys to offer, unless other nodes have refused them."""
        keys, self.keys = self.keys, []
        if not keys:
            return None
        has_turn = await self.trial.begin()
        if self.over:
            # The connection was closed meanwhile.
            self.trial.end("", None, has_turn=has_turn)
            return None
        self.has_turn = has_turn
        if self.trial.why_not:
            return None
        self.tried = True
        pairs = list(asyncssh.load_keypairs(keys))
        for pair in pairs:
            for name in ("sign", "sign_async"):
                if (sign := getattr(pair, name, None)) is not None:
                    setattr(pair, name, functools.partial(self._sign, sign))
        return pairs

    def _sign(self, sign: Callable[[bytes], Any], data: bytes) -> Any:
        self.signed = True
        return sign(data)

    def kbdint_auth_requested(self) -> str | None:
        """Return that any kind of question is fit, or None if nobody can answer."""
        self.factor = "keyboard-interactive" if self.signed else ""
        return "" if self.turn.may_answer else None

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        self._keyboard = True
        return await self.turn.answer("\n".join(filter(None, (name, instructions))), prompts)

    async def password_auth_requested(self) -> str | None:
        """Return a password, unless the server has asked for it by its own questions."""
        if self.signed and not self.factor:
            self.factor = "password"
        if self._keyboard or not self.turn.may_answer:
            return None
        answers = await self.turn.answer("", [("Password:", False)])
        return answers[0] if answers else None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Return True to accept a key. asyncssh compares keys, and asks here about unknown and changed ones."""
        self.shown = key
        if self.policy == "accept-new" and not self.known.keys:
            self.accepted = key
            return True
        return False


@dataclass(slots=True)
class Login:
    """A connection that is logged in; its path, jump hosts and this host, distinguishes it from others."""

    resolved: SshSettings
    connection: asyncssh.SSHClientConnection
    client: Client
    proxy: Proxy | None = None
    path: tuple[str, ...] = ()
    seconds: float | None = None  #: Duration; None if the server asked a question.

    def abort(self) -> None:
        self.connection.abort()
        if self.proxy is not None:
            self.proxy.abort()

    async def wait_closed(self) -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(2.0):
                await self.connection.wait_closed()
        if self.proxy is not None:
            await self.proxy.wait_closed()


def host_key_algorithms(resolved: SshSettings, known: HostEntries, policy: Policy) -> list[str]:
    """Return the host key algorithms in the order OpenSSH would ask for them: algorithms of known keys first.

    The others come after them, so that a server without a known key presents a different one and is recognised as
    changed. Certificates are asked for only where an authority is known to check them by.
    """
    plain = [alg.decode() for alg in get_default_public_key_algs()]
    certificates = [alg.decode() for alg in get_default_certificate_algs()]
    chosen = resolved.algorithms.get("hostkeyalgorithms")
    if chosen is not None:
        plain = [alg for alg in chosen if alg.encode() in get_public_key_algs()]
        certificates = [alg for alg in chosen if alg.encode() in get_certificate_algs()]
    if policy == "off":
        return plain
    first = [alg.decode() for key in known.trusted() for alg in key.sig_algorithms]
    order = [alg for alg in plain if alg in first] + [alg for alg in plain if alg not in first]
    return (certificates if known.authorities else []) + order


def common_algorithms(resolved: SshSettings) -> dict[str, list[str]] | None:
    """Return the algorithms a configuration chooses as far as asyncssh has them, None if it has none of one kind."""
    common = {}
    for kind, able in _KINDS.items():
        if kind not in resolved.algorithms:
            continue
        names = {alg.decode() for alg in able()}
        common[kind] = [alg for alg in resolved.algorithms[kind] if alg in names]
        if not common[kind]:
            return None
    return common


async def log_in(resolved: SshSettings, road: Road, client: Client, offer: Offer, within: float) -> Login:
    """Log in to a host within some seconds, with the keys of an offer; a socket is closed on failure.

    Raises:
        NodeUnreachable: The login failed; ``busy`` if a retry makes sense.
    """
    proxy = road if isinstance(road, Proxy) else None
    over: dict[str, Any] = {"tunnel": road}
    if isinstance(road, socket.socket | Proxy):
        over = {"tunnel": None, "sock": road.sock if isinstance(road, Proxy) else road}
    try:
        client.keys = list(offer.keys)
        async with asyncio.timeout(within) as limit:
            loop = asyncio.get_running_loop()
            # The user takes longer than a server.
            client.turn.waits = lambda waiting: limit.reschedule(None if waiting else loop.time() + within)
            connection = await asyncssh.connect(
                resolved.hostname, resolved.port, **over, **_options(resolved, client, offer, within)
            )
        return Login(resolved, connection, client, proxy)
    except TimeoutError as error:
        _drop(over, client)
        if client.connection is None:
            text = f"no connection to {resolved.hostname} port {resolved.port} through its jump host in {within:g} s"
            raise NodeUnreachable("timeout", text) from None
        if proxy is not None and not client.greeted:
            text = f"the ProxyCommand for {resolved.hostname} delivered no SSH banner within {within:g} s"
            raise NodeUnreachable("timeout", text + proxy_words(await proxy.errors())) from None
        if not client.greeted:
            what = f"{resolved.hostname} port {resolved.port}"
            text = f"{what} accepts connections, but sent no SSH banner within {within:g} s"
            hint = "sshd there hangs, or the node is out of memory: look at its console"
            raise NodeUnreachable("banner", text, hint) from None
        if str(error):
            raise _explained(error, resolved, client, offer) from None
        text = f"the login to {resolved.hostname} did not end within {within:g} s (name service, home or agent slow?)"
        raise NodeUnreachable("timeout", text) from None
    except asyncssh.ChannelOpenError as error:
        raise explain_tunnel(error, f"{resolved.hostname} port {resolved.port}", "the jump host") from None
    except Exception as error:
        _drop(over, client)
        if proxy is not None and not client.greeted:
            raise await _proxy_failure(resolved, proxy) from None
        raise _explained(error, resolved, client, offer) from None
    except BaseException:
        _drop(over, client)
        raise


def _explained(error: Exception, resolved: SshSettings, client: Client, offer: Offer) -> NodeUnreachable:
    offer.accepted, offer.factor = client.signed, client.factor
    return explain_login(error, resolved, client.known, offer, client.shown, client.greeted)


def _drop(over: dict[str, Any], client: Client) -> None:
    if client.connection is not None:
        client.connection.abort()
    elif "sock" in over:
        over["sock"].close()


async def _proxy_failure(resolved: SshSettings, proxy: Proxy) -> NodeUnreachable:
    errors = await proxy.errors()
    known = classify_openssh(resolved.name, errors)
    text = f"the ProxyCommand for {resolved.hostname} ended before an SSH banner came{proxy_words(errors)}"
    return NodeUnreachable(known.kind if known else "closed", text, known.hint if known else None, errors)


def _options(resolved: SshSettings, client: Client, offer: Offer, within: float) -> dict[str, Any]:
    known = client.known
    common = common_algorithms(resolved) or {}
    ciphers = dict.fromkeys(c.decode() for c in (*_FAST_CIPHERS, *get_default_encryption_algs()))
    trusted: Any = None
    if client.policy != "off":
        trusted = (known.trusted(), known.authorities, known.revoked, [], [], [], [])
    return {
        "config": None,
        "client_factory": lambda: client,
        "username": resolved.user,
        "known_hosts": trusted,
        "host_key_alias": resolved.host_key_alias,
        "server_host_key_algs": host_key_algorithms(resolved, known, client.policy),
        "x509_trusted_certs": None,
        "x509_trusted_cert_paths": [],
        # Only the keys that `Client` chose; asyncssh must not add its own.
        "client_keys": None,
        "agent_path": None,
        "agent_forwarding": False,
        "pkcs11_provider": None,
        "gss_host": None,
        "host_based_auth": False,
        # `Client` declines where nobody can answer; that it is asked shows what the server wants.
        "kbdint_auth": True,
        "password_auth": True,
        "preferred_auth": ["publickey", "keyboard-interactive", "password"],
        "x11_forwarding": False,
        "compression_algs": ["none"],
        "kex_algs": common.get("kexalgorithms", ()),
        "encryption_algs": common.get("ciphers") or list(ciphers),
        "mac_algs": common.get("macs", ()),
        "keepalive_interval": KEEPALIVE,
        "keepalive_count_max": KEEPALIVE_COUNT,
        "connect_timeout": None,
        # `log_in` has its own.
        "login_timeout": 0,
        "utf8_decode_errors": "backslashreplace",
    }


def explain_tunnel(error: asyncssh.ChannelOpenError, what: str, via: str) -> NodeUnreachable:
    reason = one_line(error.reason, 200)
    text = f"{via} cannot reach {what}: {reason}"
    if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
        return NodeUnreachable("refused", text, f"{via} forbids it (AllowTcpForwarding, PermitOpen, DisableForwarding)")
    known = classify_openssh(what, reason)
    return NodeUnreachable(known.kind if known else "closed", text)


def explain_login(
    error: Exception,
    resolved: SshSettings,
    known: HostEntries,
    offer: Offer,
    shown: asyncssh.SSHKey | None,
    greeted: bool,
) -> NodeUnreachable:
    """Return the error for a failed login of asyncssh.

    ``shown`` is the host key that was not trusted, if any; ``greeted``: the server sent its SSH banner.
    """
    what = f"{resolved.hostname} port {resolved.port}"
    reason = one_line(str(error), 200) or type(error).__name__
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        detail = "" if shown is not None else reason
        return refusal(resolved, known, shown, "revoked" in reason, detail)
    if isinstance(error, asyncssh.PermissionDenied) or "authentication failures" in reason:
        return _refused_login(resolved, offer)
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return NoCommonAlgorithmError("protocol", f"{what}: {reason}")
    if isinstance(error, asyncssh.ProtocolError | asyncssh.ProtocolNotSupported):
        return NodeUnreachable("protocol", f"{what}: {reason}")
    if isinstance(error, asyncssh.ConnectionLost | ConnectionResetError | BrokenPipeError):
        if not greeted:
            return NodeUnreachable("busy", f"{what} {DROPPED}", "try again, or raise MaxStartups of that sshd")
        return NodeUnreachable("closed", f"{what} closed the connection during the login: {reason}")
    if isinstance(error, OSError):
        return unreachable(error, what)
    if isinstance(error, asyncssh.DisconnectError):
        return NodeUnreachable("closed", f"{what} ended the login: {reason}")
    return NodeUnreachable("protocol", f"{what}: {type(error).__name__}: {reason}")


def _refused_login(resolved: SshSettings, offer: Offer) -> NodeUnreachable:
    if offer.accepted:
        method = f" ({offer.factor})" if offer.factor else ""
        text = f"{resolved.hostname} accepted the key of {resolved.user} and asks for a second factor{method}"
        return NodeUnreachable("auth", text, f"ssh {resolved.name} true")
    text = f"{resolved.hostname} does not let {resolved.user} in"
    if offer.locked:
        text += f": {offer.locked[0]} needs a passphrase and no agent holds it"
        return NodeUnreachable("auth", text, f"ssh-add {offer.locked[0]}")
    if not offer.keys:
        return NodeUnreachable("auth", f"{text}: no agent and no identity file has a key to offer", "ssh-add -l")
    text += f" with {len(offer.keys)} key{'s' if len(offer.keys) > 1 else ''}"
    return NodeUnreachable("auth", text, f"ssh -v {resolved.name} true")


class ChannelPipe(BytePipe):
    """Standard input, output and error of a command in a channel, and the connection that is there for it alone."""

    def __init__(self, login: Login, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._login = login
        self._process = process

    @classmethod
    async def run(cls, login: Login, command: str, within: float) -> ChannelPipe:
        """Start a command; the connection is closed if that does not work.

        Raises:
            NodeUnreachable: ``busy``, ``timeout`` or ``closed``.
        """
        name = login.resolved.name
        try:
            async with asyncio.timeout(within):
                process = await login.connection.create_process(
                    command, encoding=None, request_pty=False, env=None, send_env=None
                )
            return cls(login, process)
        except BaseException as error:
            login.abort()
            await login.wait_closed()
            if isinstance(error, TimeoutError):
                text = f"{name} accepted the login, but opened no session within {within:g} s"
                raise NodeUnreachable("timeout", text) from None
            if isinstance(error, asyncssh.ChannelOpenError):
                raise NodeUnreachable("busy", f"{name} opens no session: {error.reason} (MaxSessions?)") from None
            if isinstance(error, asyncssh.Error | OSError):
                raise NodeUnreachable("closed", f"{name} closed the connection after the login: {error}") from None
            raise

    @property
    def unsent(self) -> int:
        return int(self._process.stdin.channel.get_write_buffer_size())

    def write_eof(self) -> None:
        with contextlib.suppress(OSError, asyncssh.Error):
            self._process.stdin.write_eof()

    async def ending(self) -> Ending:
        """Wait for the channel's end; asyncssh does not raise when the connection was lost, it knows no status then."""
        await self._process.wait_closed()
        if self._process.exit_signal:
            return Ending(signal=clean(self._process.exit_signal[0], 20))
        if self._process.exit_status is not None:
            return Ending(status=self._process.exit_status)
        # The channel ends shortly before the connection reports the reason.
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._login.connection.wait_closed(), 1.0)
        return Ending(reason=str(self._login.client.lost or "the connection was lost"))

    def abort(self) -> None:
        self._login.abort()

    async def wait_closed(self) -> None:
        await self._login.wait_closed()
