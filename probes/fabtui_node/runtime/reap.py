"""Search and termination of the descendants of a process, and of no other process.

Descendants are found by walking ``/proc`` from one process downwards, never by name and never upwards. A subreaper
keeps also those descendants that daemonise.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from typing import Dict, Iterable, List, Optional, Set, Tuple

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

GRACE = 1.0
BOUND = 5.0


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def become_subreaper() -> bool:
    """Let orphaned descendants be handed to this process instead of init; return True if the kernel agreed."""
    return _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Request SIGKILL for when the parent ends; end this process at once if ``parent`` is no longer its parent."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(4)


def read_stat(pid: int) -> Optional[Tuple[int, str]]:
    """Return (parent's pid, state letter) of a process, None if it does not exist."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The command name is in parentheses and may hold anything, also spaces and parentheses.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 2:
        return None
    return int(fields[1]), fields[0].decode("ascii", "replace")


def environment(pid: int) -> List[bytes]:
    """Return the environment of a process, ``NAME=VALUE`` each; [] if it cannot be read."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def process_table() -> Dict[int, Tuple[int, str]]:
    """Return (parent's pid, state letter) by pid for every visible process."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            row = read_stat(int(name))
            if row is not None:
                table[int(name)] = row
    return table


def _lives(pid: int, state: str) -> bool:
    if state not in "ZX":
        return True
    try:
        # A process whose first thread ended looks like a zombie while its other threads run on.
        return len(os.listdir("/proc/%d/task" % pid)) > 1
    except OSError:
        return False


def descendants(roots: Iterable[int], table: Optional[Dict[int, Tuple[int, str]]] = None) -> Set[int]:
    """Return the pids of all living (not zombie) processes below ``roots``; the roots themselves are left out."""
    if table is None:
        table = process_table()
    children: Dict[int, List[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    below_roots: Set[int] = set()
    below = list(roots)
    while below:
        for pid in children.get(below.pop(), ()):
            if pid not in below_roots:
                below_roots.add(pid)
                below.append(pid)
    return {pid for pid in below_roots if _lives(pid, table[pid][1])}


def send(pids: Iterable[int], number: int) -> None:
    """Signal processes; those that have ended are skipped."""
    for pid in pids:
        # Set-uid helpers belong to another user; they are reported as survivors.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap(stops: bool = False) -> List[Tuple[int, int]]:
    """Collect all ended children, with ``stops`` also those stopped or continued; return (pid, wait status) of each."""
    ended: List[Tuple[int, int]] = []
    options = os.WNOHANG | (os.WUNTRACED | os.WCONTINUED if stops else 0)
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, options)
            if pid == 0:
                break
            ended.append((pid, status))
    return ended


def wait_reason(pid: int) -> str:
    """Return the kernel function a process waits in, and its state letter, for a report on one that does not end."""
    row = read_stat(pid)
    try:
        with open("/proc/%d/wchan" % pid, "rb") as file:
            place = file.read(200).decode("ascii", "replace").strip()
    except OSError:
        place = ""
    return "state %s, waits in %s" % (row[1] if row else "?", place or "?")


def end_descendants(grace: float = GRACE, bound: float = BOUND) -> List[int]:
    """End every descendant of this process: TERM, after ``grace`` seconds KILL until none is left.

    Returns:
        The pids that survived for ``bound`` seconds (they hang in the kernel, or belong to another user).
    """
    # The end of a child cuts a pause short: one that holds GPUs takes 0.2 s, and a user waits for it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        return _end_descendants(grace, bound)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _end_descendants(grace: float, bound: float) -> List[int]:
    begin = time.monotonic()
    termed: Set[int] = set()
    pause = 0.01
    while True:
        reap()
        living = descendants([os.getpid()])
        spent = time.monotonic() - begin
        if not living or spent > bound:
            return sorted(living)
        if spent < grace:
            send(living - termed, signal.SIGTERM)
            termed |= living
        else:
            send(living, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, pause)
        pause = min(pause * 1.5, 0.1)
