"""Start of child processes that cannot outlive their parent or read its protocol."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Callable, Dict, List, Optional, Sequence

from fabtui_node.runtime import bootloader, reap

# Set in the environment of a child and so of all its descendants: identifies the owner of an orphan.
TOKEN = "FABTUI_CHILD"  # noqa: S105 - the name of a variable

IGNORED = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE)


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
        reap.die_with_parent(parent)
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
