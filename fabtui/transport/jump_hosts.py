"""Logins by asyncssh for a session: keys and known hosts are read once, jump hosts connected once."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from fabtui.transport.client_keys import KeyRing, KeyTrial, Offer
from fabtui.transport.connection import (
    Client,
    KeyExchangeBroken,
    Login,
    NoCommonAlgorithmError,
    Road,
    common_algorithms,
    log_in,
)
from fabtui.transport.dial import Dialer, Gates, Proxy, with_retries
from fabtui.transport.known_hosts import HostKeys
from fabtui.transport.link import NodeUnreachable
from fabtui.transport.login_answers import LoginAnswers, LoginTurn
from fabtui.transport.ssh_config import (
    Jump,
    NeedsOpenSSH,
    PolicyOption,
    Resolver,
    SshSettings,
    policy_for,
)

_MAX_HOPS = 8
#: Time (s) before an unreachable jump host is tried again.
_FAILURE_KEPT = 15.0


@dataclass(slots=True)
class _Jump:
    task: asyncio.Task[Login]
    ended: float = 0.0

    def note_end(self, _: asyncio.Task[Login]) -> None:
        self.ended = time.monotonic()


class Logins:
    """Makes connections. ``within`` (s) is the timeout of the connection and again of the login."""

    def __init__(
        self,
        resolver: Resolver,
        policy: PolicyOption,
        within: float,
        gates: Gates,
        notice: Callable[[str], None],
        answers: LoginAnswers,
        dialer: Dialer,
    ) -> None:
        self._resolver = resolver
        self._policy = policy
        self._within = within
        self._gates = gates
        self._host_keys = HostKeys(notice)
        self._keys = KeyRing()
        self._answers = answers
        #: By the user and the keys of logins.
        self._trials: dict[tuple[str, tuple[str, ...], str | None], KeyTrial] = {}
        self._dialer = dialer
        self._jumps: dict[tuple[str, ...], _Jump] = {}

    async def close(self) -> None:
        """Close the connections to jump hosts. Those to nodes belong to their links."""
        tasks = [jump.task for jump in self._jumps.values()]
        for task in tasks:
            if not task.done():
                task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Login):
                result.abort()
                await result.wait_closed()
        self._host_keys.close()

    async def log_in(self, resolved: SshSettings) -> Login:
        """Return a connection to a host, through its jump hosts.

        Raises:
            NeedsOpenSSH: Its configuration wants what asyncssh cannot do.
            NodeUnreachable: It did not work.
        """
        via = await self._via(resolved, 0)
        return await with_retries(lambda: self._attempt(resolved, via))

    async def _check_fit(self, resolved: SshSettings) -> None:
        reason = await self._resolver.why_openssh(resolved)
        if reason is None and common_algorithms(resolved) is None:
            reason = "the algorithms it chooses"
        if reason is not None:
            raise NeedsOpenSSH(reason)

    async def _via(self, resolved: SshSettings, depth: int) -> Login | None:
        """Return the connection to a host's last jump host, None if it has none."""
        await self._check_fit(resolved)
        if depth + len(resolved.jumps) > _MAX_HOPS:
            raise NodeUnreachable("config", f"over {_MAX_HOPS} jump hosts on the way to {resolved.name}")
        via: Login | None = None
        for number, jump in enumerate(resolved.jumps):
            hop = await self._resolver.resolve(jump.host, jump.user, jump.port)
            if number == 0:
                # As with OpenSSH: only the first hop's own jump hosts count.
                via = await self._via(hop, depth + len(resolved.jumps))
            else:
                await self._check_fit(hop)
            via = await self._jump(hop, via, jump, resolved)
        return via

    async def _jump(self, hop: SshSettings, via: Login | None, jump: Jump, resolved: SshSettings) -> Login:
        key = _path(hop, via)
        known = self._jumps.get(key)
        if known is not None and known.task.done():
            failed = known.task.cancelled() or known.task.exception() is not None
            stale = (
                time.monotonic() - known.ended > _FAILURE_KEPT if failed else known.task.result().connection.is_closed()
            )
            if stale:
                known = None
        if known is None:
            known = self._jumps[key] = _Jump(asyncio.create_task(with_retries(lambda: self._attempt(hop, via))))
            known.task.add_done_callback(known.note_end)
        try:
            # Shielded: the connection is for all nodes behind it, one that gives up must not take it from the others.
            return await asyncio.shield(known.task)
        except NodeUnreachable as error:
            text = f"jump host {jump.host}: {error.text}"
            raise NodeUnreachable(error.kind, text, error.hint, error.detail) from None

    async def _attempt(self, resolved: SshSettings, via: Login | None) -> Login:
        """Log in; once more if only answers that served elsewhere were given, which may serve once.

        Once more, too, if the connection ended in the key exchange: a server without a common algorithm may reset it
        before its own list was read.

        Raises:
            NeedsOpenSSH: It ended there both times.
        """
        answers = self._answers if resolved.settings.get("batchmode") != "yes" else LoginAnswers(None)
        for again in (False, True):
            turn = answers.login(resolved.name, resolved.user)
            try:
                return await self._log_in(resolved, via, turn)
            except KeyExchangeBroken:
                if again:
                    break
            except NodeUnreachable as error:
                if again or error.kind != "auth" or not turn.reuse_failed:
                    raise
        # OpenSSH reports what is wrong if it is something else.
        raise NeedsOpenSSH("the key exchange of its server, which ends the connection")

    async def _log_in(self, resolved: SshSettings, via: Login | None, turn: LoginTurn) -> Login:
        accepted: bool | None = None
        trial = self._trials.setdefault((resolved.user, resolved.identities, resolved.identity_agent), KeyTrial())
        client = Client(await self._host_keys.known(resolved), policy_for(self._policy, resolved), turn, trial)
        try:
            login = await self._over_road(resolved, via, client)
            accepted = True
        except NodeUnreachable as error:
            accepted = False if error.kind == "auth" else None
            if error.kind == "auth" and (why := turn.refusal() or (trial.why_not if not client.tried else "")):
                raise NodeUnreachable("auth", f"{error.text}; {why}", error.hint) from None
            raise
        finally:
            client.over = True
            turn.end(accepted)
            trial.end(resolved.name, (accepted or client.signed) if client.tried else None, has_turn=client.has_turn)
        return login

    async def _over_road(self, resolved: SshSettings, via: Login | None, client: Client) -> Login:
        within = resolved.connect_timeout or self._within
        road: Road | None = None if via is None else via.connection
        if via is None and resolved.proxy_command is None:
            # Outside the gate: a host that does not answer holds up nobody.
            road = await self._dialer.dial(resolved, within)
        try:
            hops = ",".join(f"{jump.user or ''}@{jump.host}:{jump.port or ''}" for jump in resolved.jumps)
            async with self._gates.login(hops or resolved.proxy_command or "", lambda: client.greeted):
                began = time.monotonic()
                road = road or await self._dialer.start_proxy(resolved)
                login = await self._over(resolved, road, client)
                login.seconds = None if client.turn.asked else time.monotonic() - began
        except BaseException:
            if isinstance(road, socket.socket) and client.connection is None:
                road.close()
            raise
        login.path = _path(resolved, via)
        return login

    async def _over(self, resolved: SshSettings, road: Road, client: Client) -> Login:
        offer = Offer()
        try:
            offer = await self._keys.offer(resolved)
            if offer.hardware and not offer.keys:
                raise NeedsOpenSSH("a security key (FIDO)")
            within = max(self._within, resolved.connect_timeout or 0)
            login = await log_in(resolved, road, client, offer, within)
        except BaseException as error:
            if isinstance(road, Proxy):
                road.abort()
                await road.wait_closed()
            if isinstance(error, NodeUnreachable) and error.kind == "auth" and client.accepted is not None:
                # The server proved that it has this key before it refused us.
                await self._host_keys.remember(resolved, client.accepted)
            if isinstance(error, NoCommonAlgorithmError):
                raise NeedsOpenSSH("the algorithms of its server") from None
            asked = client.tried or client.has_turn
            if isinstance(error, NodeUnreachable) and error.kind == "closed" and client.greeted and not asked:
                raise KeyExchangeBroken(error.kind, error.text, error.hint, error.detail) from None
            raise
        finally:
            offer.close()
        if client.accepted is not None:
            try:
                await self._host_keys.remember(resolved, client.accepted)
            except BaseException:
                login.abort()
                raise
        return login


def _path(resolved: SshSettings, via: Login | None) -> tuple[str, ...]:
    before = via.path if via is not None else ()
    return (*before, f"{resolved.user}@{resolved.hostname}:{resolved.port}")
