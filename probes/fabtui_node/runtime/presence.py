"""The socket by whose name the node side of a session shows itself to other sessions on the node."""

from __future__ import annotations

import os
import re
import socket
from typing import List, Optional

#: End of the code that an interpreter is started with: the mark of a session.
_MARK = re.compile(r"#fabtui ([0-9a-f]{8})\Z")


class Presence:
    """Mark and socket of this process; the processes that it forks inherit the mark."""

    mark: Optional[str] = None
    socket: Optional[socket.socket] = None


def mark_of(words: List[str]) -> Optional[str]:
    """Return the mark in the words of a command line, or None; the shell before it and ssh clients have none."""
    match = _MARK.search(words[3]) if len(words) > 3 and words[1:3] == ["-IS", "-c"] else None
    return match.group(1) if match else None


def read_mark(proc: str = "/proc") -> None:
    try:
        with open(os.path.join(proc, "self", "cmdline"), "rb") as file:
            Presence.mark = mark_of(file.read().decode("utf-8", "replace").split("\0"))
    except OSError:
        Presence.mark = None


def announce() -> None:
    """Show this process to other sessions until it ends, if it has a mark and the kernel allows it."""
    if Presence.mark is None or os.environ.get("FABTUI_LAB_NODE"):
        return
    name = "\0fabtui-%s-%d-%d" % (Presence.mark, os.getuid(), os.getpid())
    try:
        Presence.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # It listens to nobody: connections to it are refused.
        Presence.socket.bind(name)
    except OSError:
        Presence.socket = None
