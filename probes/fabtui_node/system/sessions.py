"""Node sides of other sessions of fabtui on this node, by the names of their sockets.

The kernel lists the names of all Unix sockets in one file. Command lines of processes have the same mark, but each of
them is a separate file that takes longer to read. `hidepid` hides the processes of other users. The command line of a
process that is stuck in the kernel may never be read to its end.
"""

from __future__ import annotations

import os
import pwd
import re
from typing import Any, Dict, List, Optional

#: A socket in the list of the kernel: mark of the session, user and process. ``@`` stands for an abstract name.
_SOCKET = re.compile(rb" @fabtui-([0-9a-f]{8})-([0-9]{1,10})-([0-9]{1,10})\n")
#: Maximum size of the list (bytes), some 100,000 sockets.
_LONGEST_LIST = 1 << 24


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
    found: Dict[str, Dict[str, Any]] = {}
    shown = ((mark.decode(), int(uid), int(pid)) for mark, uid, pid in _SOCKET.findall(listed))
    for mark, uid, pid in sorted(shown, key=lambda one: one[2]):
        if mark != own and mark not in found:
            found[mark] = {"user": _user(uid), "pid": pid}
    return list(found.values())


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)
