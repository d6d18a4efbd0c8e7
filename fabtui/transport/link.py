"""Interface of a link to a node, and the errors when it cannot be opened or is lost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

from fabtui.sanitize import clean, one_line

Message = dict[str, Any]

Backend = Literal["asyncssh", "openssh", "local", "srun", "via", "flux", "mpirun", "kubernetes"]

#: Why a node could not be reached.
UnreachableKind = Literal[
    "dns",  # unknown host name
    "refused",  # no listener, or a jump host refuses to forward
    "timeout",  # no answer, or a step exceeded its timeout
    "no-route",  # no network route
    "unknown-host-key",
    "changed-host-key",
    "revoked-host-key",
    "auth",  # the login was refused
    "banner",  # a server accepts connections but sends no SSH banner
    "busy",  # the server closes the connection before the key exchange repeatedly: too many logins (MaxStartups)
    "no-python",
    "closed",  # the connection or the login shell ended before the node side started
    "protocol",  # the node side violates the protocol
    "config",  # the ssh configuration or the host's name is not valid, or the node is not one of the job
    "job",  # the job has ended, or was cancelled
    "local",  # this machine is at fault: no ssh binary, no file descriptors
]

#: Why a link ended.
LostKind = Literal[
    "lost",  # the connection broke
    "exit",  # the node side ended
    "frozen",  # the transport lives, the node side is silent
    "stalled",  # the node side does not take what is sent to it
    "protocol",  # the node side sent something that is not a message, or too much
    "lease",  # the node side ended itself because it heard no heartbeat for too long
    "closed",  # this side closed the link
]

_TEXT_LIMIT = 500


class LinkLost(Exception):
    """The link ended; the text is one clear line, free of control characters."""

    def __init__(self, kind: LostKind, text: str) -> None:
        self.kind: LostKind = kind
        self.text = one_line(text, _TEXT_LIMIT)
        super().__init__(f"{kind}: {self.text}")


class NodeUnreachable(Exception):
    """The link to a node could not be opened."""

    def __init__(self, kind: UnreachableKind, text: str, hint: str | None = None, detail: str = "") -> None:
        self.kind: UnreachableKind = kind
        self.text = one_line(text, _TEXT_LIMIT)  #: One clear line, free of control characters.
        self.hint = None if hint is None else clean(hint, 2 * _TEXT_LIMIT)  #: The next step for the user, or None.
        #: What was printed on the way (banner and errors), cleaned; may have many lines or be empty.
        self.detail = clean(detail, 16 * 1024)
        super().__init__(f"{kind}: {self.text}")


class Link(ABC):
    """A node's supervisor, running, with messages to and from it.

    The link keeps itself alive: it sends heartbeats while nothing else is sent; their answers are not handed out.
    """

    node: str  #: The name the user calls the node by.
    backend: Backend
    banner: str  #: What the login printed before the node side started: cleaned, its middle cut out when it is long.
    hello: Message
    #: Time (s) from the login to the running node side; None if unknown, or if the user had to answer a question.
    login_seconds: float | None = None
    round_trip: float | None  #: Seconds from the last answered heartbeat to its answer, or None before the first.

    #: Called when the node side is heard after a long silence: with its length, and for how long of it the node side
    #: itself did not run (s).
    on_silence: Callable[[float, float], None] = staticmethod(lambda seconds, stood: None)

    @property
    def silence(self) -> float:
        """Seconds since the node side was heard, which answers each heartbeat; 0 where nothing listens for it."""
        return 0.0

    @abstractmethod
    def stderr_tail(self) -> str:
        """Return the last of what the node side wrote to its standard error, cleaned."""

    @abstractmethod
    async def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            LinkLost: The link is gone, or the node side did not take the message within the deadline (``stalled``).
            ValueError: The message is not valid JSON or larger than a frame.
        """

    def put(self, message: Message) -> bool:
        """Send a message of the rank host if that takes no waiting; return False if it needs `send`."""
        return False

    def beat(self) -> None:
        """Ask the node side for a sign of life before the next heartbeat."""
        return

    async def arrival(self) -> None:
        """Return when `receive` need not wait."""
        return

    @abstractmethod
    async def receive(self) -> Message:
        """Return the next message; waits without end, for the link itself notices when none can come.

        Raises:
            LinkLost: The link is gone and everything that came before was received.
        """

    @abstractmethod
    async def close(self) -> None:
        """Stop the node side, wait for it with a timeout, then close the connection. Never raises."""
