"""Start of child processes that cannot outlive their parent or read its protocol; end of all descendants of a process.

Descendants are found by walking ``/proc`` from one process downwards, never by name and never upwards. A subreaper
keeps also those descendants that daemonise.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from typing import Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple

from fabtui_node.runtime import bootloader

# Set in the environment of a child and so of all its descendants: identifies the owner of an orphan.
TOKEN = "FABTUI_CHILD"  # noqa: S105 - the name of a variable

IGNORED = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE)

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
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def choose_python(configured: Optional[str], environment: Dict[str, str]) -> str:
    """Return the interpreter for the rank host: the configured one, the lab's, or the one that runs this."""
    return configured or environment.get("FABTUI_LAB_PYTHON") or sys.executable or "python3"


def rank_command(argv: Optional[Sequence[str]], python: str) -> List[str]:
    """Return the command line of the rank host; ``argv`` is a command that ends in an interpreter.

    Neither -I nor -S: what the engine needs may be in the user's own site or on PYTHONPATH.
    """
    return [*(argv or [python]), "-u", "-c", bootloader.BOOT]


def start(work: Callable[[], None]) -> int:
    """Run a function in a fork with its own session, which gets SIGKILL when this process ends; return its pid."""
    parent = os.getpid()
    if pid := os.fork():
        return pid
    status = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (*IGNORED, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        die_with_parent(parent)
        work()
        status = 0
    except BaseException:
        bootloader.print_traceback()
    finally:
        os._exit(status)


def run_command(argv: Sequence[str], environment: Dict[str, str], stdin: int, output: int, keep: Sequence[int]) -> None:
    """Replace this process by another program (looked up on PATH), or end with status 127 and the reason on ``output``.

    The descriptor ``stdin`` becomes fd 0, and ``output`` fd 1 and 2; those to ``keep`` stay open under their numbers.
    """
    try:
        os.dup2(stdin, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for fd in keep:
            os.set_inheritable(fd, True)
        os.execvpe(argv[0], list(argv), environment)  # noqa: S606 - an argument list
    except BaseException as error:
        os.write(2, ("cannot run %s: %s\n" % (argv[0], error)).encode("utf-8", "backslashreplace"))
    finally:
        os._exit(127)


def close_others(keep: Sequence[int]) -> None:
    """Close every descriptor but 0, 1, 2 and ``keep``: one leaked from a login shell would keep its session open."""
    kept = {0, 1, 2}.union(keep)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
