"""``python -m fabtui`` without its start: a process that has imported all of it is forked for each command.

To start Python and to import takes a second of processor time, most of what a short session takes. The fork has its own
environment, arguments and standard files, and nothing of pytest; it ends as the real one does.
"""

import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: Commands that are imported, and a session whose replay imports and prepares what they use as they run.
COMMANDS = ("explain", "hang", "preflight", "replay", "run")
SESSION = Path(__file__).with_name("samples") / "sessions" / "h200x8-lab-2x4-faults.jsonl.gz"
_LONGEST, _NUMBER = 1 << 20, 64
_CLONE_NEWNET = 0x40000000


class _Server:
    """The process that is forked, and the socket to it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # In a session of its own: a ^C in the terminal is for pytest.
            subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tests.forked", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=Path(__file__).parents[1],
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )

    def run(self, order: Mapping[str, Any], files: Sequence[int], timeout: float) -> int:
        """Have a fork run a command, and return its exit code."""
        reply, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with reply:
            with theirs:
                socket.send_fds(self._link, [json.dumps(order).encode()], [theirs.fileno(), *files])
            reply.settimeout(timeout)
            pid = int(reply.recv(_NUMBER))
            try:
                return int(reply.recv(_NUMBER))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(order["words"], timeout) from None


_servers: list[_Server] = []


def _server() -> _Server:
    """Return the server of this process, which may be a fork of one that has its own."""
    if not _servers or _servers[-1].owner != os.getpid():
        _servers.append(_Server())
    return _servers[-1]


def fabtui(
    *words: str, env: Mapping[str, str] | None = None, net: int | None = None, timeout: float = 150.0
) -> subprocess.CompletedProcess[str]:
    """Run a command of fabtui to its end; return its exit code and what it printed.

    Args:
        words: Its arguments.
        env: Its environment; by default that of this process.
        net: A process whose network namespace it runs in.
        timeout: Time (s) after which it is killed.
    """
    order = {"words": words, "env": dict(os.environ if env is None else env), "cwd": os.getcwd()}
    with contextlib.ExitStack() as stack:
        printed = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)]
        files = [file.fileno() for file in printed]
        if net is not None:
            files.append(stack.enter_context(open(f"/proc/{net}/ns/net", "rb")).fileno())
        code = _server().run(order, files, timeout)
        for file in printed:
            file.seek(0)
        return subprocess.CompletedProcess(words, code, *(file.read() for file in printed))


def _next_order(link: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return an order with its files, in the process that has to run it. The others end within."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, files, *_ = socket.recv_fds(link, _LONGEST, 4)
        if not data:
            os._exit(0)
        if os.fork():
            for file in files:
                os.close(file)
            continue
        # The parent of the process that runs the order waits for it alone.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        link.close()
        reply = socket.socket(fileno=files.pop(0))
        if pid := os.fork():
            reply.send(str(pid).encode())
            reply.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
            os._exit(0)
        reply.close()
        return json.loads(data), files


def _prepare(order: dict[str, Any], files: list[int]) -> None:
    if len(files) > 2 and ctypes.CDLL(None, use_errno=True).setns(files[2], _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
    os.dup2(files[0], 1)
    os.dup2(files[1], 2)
    for file in files:
        os.close(file)
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, errors="backslashreplace", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.argv[1:] = order["words"]


def _warm_up() -> None:
    importlib.import_module("fabtui.transport.connector").load_logins()
    for name in COMMANDS:
        importlib.import_module(f"fabtui.cli.commands.{name}")
    main = importlib.import_module("fabtui.cli.main").main
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        main(["replay", str(SESSION), "--text", "--json", f"{folder}/s.json"])
    gc.collect()
    gc.freeze()


def _main() -> None:
    _warm_up()
    _prepare(*_next_order(socket.socket(fileno=int(sys.argv[1]))))
    runpy.run_module("fabtui", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
