"""Settings that asyncssh does not support; OpenSSH is used for these hosts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import stat

from fabtui.transport.ssh_config.resolved import Resolved

_DEADLINE = 3.0

#: Keyword, the values that matter (None: any but ``none``), and what to call it.
_SETTINGS: tuple[tuple[str, frozenset[str] | None, str], ...] = (
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


def unfit_setting(resolved: Resolved) -> str | None:
    """Return the first setting that asyncssh cannot follow, None if there is none."""
    for key, values, name in _SETTINGS:
        value = resolved.settings.get(key, "none").lower()
        if value not in ("none", "") if values is None else value in values:
            return name
    return None


def is_plain(resolved: Resolved) -> bool:
    """Return True if asyncssh surely reaches a host, directly."""
    settings = resolved.settings
    return not (
        resolved.jumps
        or resolved.proxy_command
        or resolved.algorithms
        or unfit_setting(resolved)
        or settings.get("gssapiauthentication") == "yes"
        or settings.get("controlpath", "none") != "none"
    )


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


class Unfit:
    """Finds the hosts that need OpenSSH."""

    _tickets: asyncio.Task[bool] | None = None

    async def reason(self, resolved: Resolved) -> str | None:
        """Return the unsupported setting of a host, None if there is none."""
        setting = unfit_setting(resolved)
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


async def have_tickets() -> bool:
    """Return True if the user has a valid Kerberos ticket."""
    klist = shutil.which("klist")
    if klist is None:
        cache = os.environ.get("KRB5CCNAME", f"/tmp/krb5cc_{os.getuid()}").removeprefix("FILE:")
        return await asyncio.to_thread(os.path.exists, cache)
    try:
        null = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(klist, "-s", stdin=null, stdout=null, stderr=null)
    except OSError:
        return False
    try:
        return await asyncio.wait_for(process.wait(), _DEADLINE) == 0
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return False
