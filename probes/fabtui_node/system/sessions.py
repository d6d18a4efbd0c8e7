"""Node sides of other sessions of fabtui on this node, by the mark in their command lines."""

from __future__ import annotations

import os
import pwd
import re
from typing import Any, Dict, List, Optional

from fabtui_node.system import sysfs

#: End of the code that an interpreter is started with: the mark of a session.
_MARK = re.compile(r"#fabtui ([0-9a-f]{8})\Z")
#: Length of the code is bounded; other command lines are longer.
_LONGEST = 1 << 14
_MOST_PROCESSES = 50000


def mark_of(words: List[str]) -> Optional[str]:
    """Return the mark in the words of a command line, or None; the shell before it and ssh clients have none."""
    found = _MARK.search(words[3]) if len(words) > 3 and words[1:3] == ["-IS", "-c"] else None
    return found.group(1) if found else None


def others(proc: str = "/proc") -> List[Dict[str, Any]]:
    """Return ``user`` and ``pid`` of one process of each other session; those that cannot be seen are left out."""
    if os.environ.get("FABTUI_LAB_NODE"):
        # Other labs on this machine are other machines.
        return []
    own = mark_of(_words(proc, "self"))
    found: Dict[str, Dict[str, Any]] = {}
    pids = sorted(int(name) for name in sysfs.names(proc) if name.isascii() and name.isdigit())
    for pid in pids[:_MOST_PROCESSES]:
        mark = mark_of(_words(proc, str(pid)))
        if mark is not None and mark != own and mark not in found:
            found[mark] = {"user": _user(os.path.join(proc, str(pid))), "pid": pid}
    return list(found.values())


def _words(proc: str, pid: str) -> List[str]:
    return (sysfs.text(proc, pid, "cmdline", limit=_LONGEST) or "").split("\0")


def _user(folder: str) -> Optional[str]:
    try:
        uid = os.stat(folder).st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
