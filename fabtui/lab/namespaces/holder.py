"""A process that holds the namespaces of one simulated machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

NAMESPACES = ("--net", "--uts", "--ipc", "--pid", "--mount")
#: What the network and the nodes are made with.
_TOOLS = ("ip", "nft", "tc", "nsenter", "unshare", "setpriv", "ssh", "ssh-keygen", "sshd")
#: Timeout (s) of a command.
_TIMEOUT = 60.0


def missing() -> str | None:
    """Return why namespaces cannot be made here, or None."""
    if os.getuid() != 0:
        return "only root makes network namespaces"
    for tool in _TOOLS:
        if path_of(tool) is None:
            return f"no {tool} on this machine"
    done = subprocess.run(["unshare", *NAMESPACES, "--fork", "true"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"namespaces cannot be made: {done.stderr.strip()[:100]}"


def path_of(tool: str) -> str | None:
    """Return the path of a command, of those of the administrator as well; None if it is not installed."""
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class Holder:
    """A process that holds namespaces, and ends with the thread that made it."""

    def __init__(self, name: str) -> None:
        # The shell, which waits, collects orphans as the first process of a machine does.
        script = f"hostname {name} && mount -t sysfs sysfs /sys && echo up && while :; do sleep 3600; done"
        argv = ["setpriv", "--pdeathsig", "KILL", "unshare", *NAMESPACES, "--mount-proc", "--fork"]
        self._process = subprocess.Popen(
            [*argv, "--kill-child=KILL", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # On its way out it complains of a signal mask.
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = 0  #: The process whose namespaces they are, once `wait` has returned.

    def wait(self) -> None:
        """Wait until the namespaces are there.

        Raises:
            RuntimeError: They could not be made.
        """
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"up\n":
            raise RuntimeError("namespaces could not be made")
        pid = self._process.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self.pid = int(child)

    def enter(self, argv: Iterable[str], *, only_net: bool = False) -> list[str]:
        into = ["--net"] if only_net else NAMESPACES
        return ["nsenter", "--target", str(self.pid), *into, "--", *argv]

    def run(self, *argv: str, text: str = "", only_net: bool = False) -> str:
        """Run a command inside and return what it printed.

        Raises:
            RuntimeError: It failed.
        """
        done = subprocess.run(
            self.enter(argv, only_net=only_net),
            input=text,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def end(self) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait(5)
