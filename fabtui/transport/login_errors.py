"""Login errors of OpenSSH and asyncssh in one vocabulary."""

from __future__ import annotations

import re

import asyncssh

from fabtui.sanitize import clean, one_line
from fabtui.transport.asyncssh.client_keys import Offer
from fabtui.transport.asyncssh.dial import unreachable
from fabtui.transport.asyncssh.known_hosts import HostEntries, refusal
from fabtui.transport.byte_pipe import Ending, Explain, explain_end
from fabtui.transport.link import NodeUnreachable, UnreachableKind
from fabtui.transport.ssh_config import SshSettings

DROPPED = "closed the connection before its SSH greeting: too many logins at once (MaxStartups), or a deny rule?"

# The first match anywhere in the output of ssh counts.
_OPENSSH: list[tuple[str, UnreachableKind, str | None]] = [
    (r"REVOKED HOST KEY|marked as revoked|Host key .*revoked", "revoked-host-key", "do not connect; ask who runs it"),
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED|DIFFERENT|HOST KEY CHANGED", "changed-host-key", None),
    (r"No \S+ host key is known|Host key verification failed", "unknown-host-key", None),
    (r"[Hh]ostname contains invalid characters|[Bb]ad configuration option|terminating, \d+ bad", "config", None),
    (r"Can't open user config file|[Bb]ad owner or permissions on|extra arguments at end of line", "config", None),
    (r"keyword \S+ .*argument|line \d+: .*(argument|[Mm]issing|[Uu]nsupported|[Bb]ad|quote)", "config", None),
    (r"Could not resolve hostname|Name or service not known", "dns", None),
    (r"Connection timed out during banner exchange", "banner", None),
    (r"Permission denied|Too many authentication failures|No more authentication methods", "auth", None),
    (r"[Kk]ex_exchange_identification|Exceeded MaxStartups|ssh_exchange_identification", "busy", None),
    (r"banner line contains invalid|Protocol major versions differ|no matching .* found", "protocol", None),
    (r"Connection refused", "refused", "is sshd running there, on this port?"),
    (r"No route to host|Network is unreachable|Cannot assign requested address", "no-route", None),
    (r"administratively prohibited|open failed", "refused", None),
    (r"Connection timed out|Operation timed out|Timeout, server", "timeout", None),
    (r"Connection reset by|Connection closed by|Broken pipe", "closed", None),
]


class NoCommonAlgorithmError(NodeUnreachable):
    """The server wants algorithms that asyncssh does not have; OpenSSH may have them."""


class KeyExchangeBroken(NodeUnreachable):
    """The connection ended in the key exchange; the next try may show why."""


def classify_openssh(node: str, output: str) -> NodeUnreachable | None:
    """Return the error for the output of an ``ssh`` that ended before the command ran; None if unknown."""
    text = clean(output)
    for pattern, kind, hint in _OPENSSH:
        match = re.search(pattern, text)
        if match is None:
            continue
        line = next((line for line in text.splitlines() if re.search(pattern, line)), match[0])
        line = line.strip("@ \t") or match[0]
        if kind == "changed-host-key":
            offending = re.search(r"Offending \S+ key in (\S+)", text)
            where = f" ({offending[1]})" if offending else ""
            line = (
                f"HOST KEY CHANGED: {node} does not present the known key{where}: it was reinstalled, or someone"
                " is intercepting the connection"
            )
            removal = re.search(r"ssh-keygen -f .*", text)
            hint = f"if it was reinstalled: {removal[0].strip()}" if removal else f"ssh-keygen -R {node}"
        elif kind == "unknown-host-key":
            line = f"the host key of {node} is not known: {line}"
            hint = "compare the fingerprint, then add it (ssh-keyscan), or: --host-key-policy accept-new"
        elif kind == "auth":
            hint = f"ssh -v {node} true"
        elif kind == "busy":
            line = f"{node} {DROPPED} ({line})"
        return NodeUnreachable(kind, line, hint, text)
    return None


def openssh_explainer(node: str) -> Explain:
    """Return the function that converts an early end of ssh to an error."""

    def explain(ending: Ending, banner: str, stderr: str) -> NodeUnreachable:
        if ending.lost and (known := classify_openssh(node, stderr)) is not None:
            return known
        return explain_end(ending, banner, stderr)

    return explain


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
        return NodeUnreachable(
            "auth", text, f"ssh {resolved.name} true; the app asks for what the server wants to know"
        )
    text = f"{resolved.hostname} does not let {resolved.user} in"
    if offer.locked:
        text += f": {offer.locked[0]} needs a passphrase and no agent holds it"
        return NodeUnreachable("auth", text, f"ssh-add {offer.locked[0]}")
    if not offer.keys:
        return NodeUnreachable("auth", f"{text}: no agent and no identity file has a key to offer", "ssh-add -l")
    text += f" with {len(offer.keys)} key{'s' if len(offer.keys) > 1 else ''}"
    return NodeUnreachable("auth", text, f"ssh -v {resolved.name} true")
