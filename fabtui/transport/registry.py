"""The transports: ways to start the node side on a node. Importing this module imports none of them."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any, NamedTuple


class TransportSpec(NamedTuple):
    """One transport."""

    name: str
    title: str
    opener: str  #: ``module:function``; the coroutine function takes the `Connector` and a host and returns a `Link`.
    #: Command line that runs something on a node by hand, with ``{node}`` and ``{command}``.
    hint: str = "ssh {node} {command}"
    configurable: bool = True  #: Whether the settings file may name it.
    remote: bool = True

    def open(self) -> Any:
        """Return the opener, importing its module."""
        return resolve_name(self.opener)


_CONNECTOR = "fabtui.transport.connector:Connector"
#: The transports by name, the default first.
TRANSPORTS: dict[str, TransportSpec] = {
    spec.name: spec
    for spec in (
        TransportSpec("ssh", "asyncssh; OpenSSH for what asyncssh cannot do", f"{_CONNECTOR}.open_ssh"),
        TransportSpec("openssh", "one process of your ssh per node", f"{_CONNECTOR}.open_openssh"),
        TransportSpec(
            "local",
            "this host only, without ssh",
            f"{_CONNECTOR}.open_local",
            hint="{command}",
            # It ignores which nodes are named, so it has to be requested each time.
            configurable=False,
            remote=False,
        ),
    )
}


def transport_rows() -> list[tuple[str, str, str]]:
    """Return name, title and hint of every transport, for the documentation."""
    return [(spec.name, spec.title, spec.hint) for spec in TRANSPORTS.values()]
