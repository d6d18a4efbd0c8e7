"""Node sides of sessions of fabtui on this node, by the names of the sockets with which they show themselves.

The kernel lists the names of all Unix sockets in one file. Command lines of processes have the same mark, but each of
them is a separate file that takes longer to read. `hidepid` hides the processes of other users. The command line of a
process that is stuck in the kernel may never be read to its end.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
from typing import Any, Dict, List, Optional

#: End of the code that an interpreter is started with: the mark of a session.
_MARK = re.compile(r"#fabtui ([0-9a-f]{8})\Z")
#: A socket in the list of the kernel: mark of the session, user and process. ``@`` stands for an abstract name.
_SOCKET = re.compile(rb" @fabtui-([0-9a-f]{8})-([0-9]{1,10})-([0-9]{1,10})\n")
#: Maximum size of the list (bytes), some 100,000 sockets.
_LONGEST_LIST = 1 << 24


class Presence:
    """Mark and socket of this process; the processes that it forks inherit the mark."""

    mark: Optional[str] = None
    socket: Optional[socket.socket] = None


def mark_of(words: List[str]) -> Optional[str]:
    """Return the mark in the words of a command line, or None; the shell before it and ssh clients have none."""
    match = _MARK.search(words[3]) if len(words) > 3 and words[1:3] == ["-IS", "-c"] else None
    return match.group(1) if match else None


def read_mark(proc: str = "/proc") -> None:
    """Take the mark of the session from the own command line."""
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


def others(own: Optional[str], proc: str = "/proc") -> List[Dict[str, Any]]:
    """Return ``user`` and ``pid`` of one process of each session in this network namespace but the ``own`` mark's."""
    if os.environ.get("FABTUI_LAB_NODE"):
        # Other labs on this machine are other machines.
        return []
    try:
        with open(os.path.join(proc, "net", "unix"), "rb") as file:
            listed = file.read(_LONGEST_LIST)
    except OSError:
        return []
    sessions: Dict[str, Dict[str, Any]] = {}
    shown = ((mark.decode(), int(uid), int(pid)) for mark, uid, pid in _SOCKET.findall(listed))
    for mark, uid, pid in sorted(shown, key=lambda one: one[2]):
        if mark != own and mark not in sessions:
            sessions[mark] = {"user": user_name(uid), "pid": pid}
    return list(sessions.values())


def user_name(uid: int) -> str:
    """Return the name of a user, or the number of one without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)
