"""Labs from outside: the lab of a session, and standing labs, which are made, asked and taken down by commands."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from fabtui.errors import InputError
from fabtui.lab.faults import Fault, LabSpec
from fabtui.paths import private_folder, state_folder
from fabtui.sanitize import one_line

#: The socket in the folder of a lab that takes requests.
SOCKET = "control"
#: Time (s) in which a lab has to be made, to answer, to end by itself, and to end when it is killed.
_MADE, _ANSWER, _ENDED, _KILLED = 90.0, 30.0, 20.0, 10.0
_PAUSE = 0.05
_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Order:
    """Order for a lab."""

    spec: LabSpec  #: Its shape.
    folder: str = ""  #: Where its files lie; for the lab of a session "", as its process makes one.
    faults: tuple[str, ...] = ()  #: What is planted from the start.


def _start(order: Order, lock: int | None = None) -> subprocess.Popen[str]:
    # -P: files in the working directory must not shadow the standard library. A ^C in the terminal goes to this
    # process, which ends the lab of a session in order.
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "fabtui.lab.lab_daemon"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[] if lock is None else [lock],
        start_new_session=True,
        text=True,
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(msgspec.json.encode(order).decode() + "\n")
        process.stdin.flush()
    return process


def _report(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for what the process of a lab reports, and return it; an ``error`` if it reports nothing."""
    assert process.stdout is not None
    assert process.stderr is not None
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    if not poll.poll(1000 * _MADE):
        process.kill()
        return {"error": f"it was not ready within {_MADE:.0f} s"}
    try:
        report: dict[str, Any] = json.loads(process.stdout.readline())
    except ValueError:
        process.kill()
        report = {"error": (process.stderr.read().strip().splitlines() or ["it printed nothing"])[-1]}
    return report


def _asked(lab: Path, request: dict[str, Any]) -> dict[str, Any]:
    folder = os.open(lab, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(_ANSWER)
            link.connect(f"/proc/self/fd/{folder}/{SOCKET}")
            link.sendall(json.dumps(request).encode() + b"\n")
            with link.makefile("rb") as file:
                reply: dict[str, Any] = json.loads(file.readline())
                return reply
    finally:
        os.close(folder)


class Lab:
    """The lab of a session: simulated nodes in a process of their own, used like any other set of nodes.

    Faults of nodes are created here; the rank hosts create faults of pairs.

    Raises:
        InputError: On entering: the lab could not be started.
    """

    def __init__(self, spec: LabSpec, faults: Sequence[Fault] = ()) -> None:
        self.order = Order(spec, faults=tuple(fault.text for fault in faults))
        self._process: subprocess.Popen[str] | None = None
        self._folder: Path | None = None
        self.ssh_config = Path()  #: SSH configuration of the nodes.
        self.nodes: list[str] = []
        self.note: str | None = None  #: A note for the user, or None.
        #: Each node's name, address, port, endpoints and gpus, as reported by the lab process.
        self.places: list[dict[str, Any]] = []

    async def __aenter__(self) -> Lab:
        try:
            self._process = _start(self.order)
            report = await asyncio.to_thread(_report, self._process)
            if "error" in report:
                raise InputError(f"--lab: the lab did not start: {one_line(str(report['error']), 500)}")
        except BaseException:
            await self._stop()
            raise
        self._folder = Path(report["folder"])
        self.ssh_config = Path(report["ssh_config"])
        # A lab with a network has no places.
        self.places = report.get("nodes", [])
        self.nodes = [*self.order.spec.names]
        self.note = report.get("note")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def ask(self, do: str, *words: str) -> None:
        """Have it plant faults or heal them.

        Raises:
            InputError: It does not answer, or refuses.
        """
        assert self._folder is not None
        try:
            reply = await asyncio.to_thread(_asked, self._folder, {"do": do, "words": words})
        except (OSError, ValueError) as error:
            raise InputError(f"the lab does not answer: {error}") from None
        if "error" in reply:
            raise InputError(str(reply["error"]))

    async def _stop(self) -> None:
        if self._process is not None:
            await asyncio.to_thread(self._end, self._process)

    def _end(self, process: subprocess.Popen[str]) -> None:
        try:
            process.communicate(timeout=_ENDED)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        if self._folder is not None:
            # The process removes the folder itself, unless it was killed.
            shutil.rmtree(self._folder, ignore_errors=True)


def labs_folder() -> Path:
    return state_folder() / "labs"


def standing() -> list[StandingLab]:
    """Return the labs that are up, or have left something behind."""
    return [StandingLab(path.stem) for path in sorted(labs_folder().glob(f"*{_LOCK}"))]


class StandingLab:
    """A lab with a name, whether it is up or not.

    Raises:
        InputError: The name is not a name of a lab.
    """

    def __init__(self, name: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", name, re.ASCII):
            raise InputError(f"--name: {one_line(name, 60)!r} is not a name; expected letters, digits, - and _")
        self.name = name
        self.folder = labs_folder() / name
        self.ssh_config = self.folder / "ssh_config"
        self._lock = labs_folder() / f"{name}{_LOCK}"

    @property
    def stands(self) -> bool:
        if not self._lock.exists():
            return False
        lock = self._taken()
        if lock is not None:
            os.close(lock)
        return lock is None

    def _taken(self) -> int | None:
        """Take the lock and return its descriptor; None if a process has it."""
        while True:
            lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Another process may have removed it in the meantime.
                if os.path.exists(self._lock) and os.path.samestat(os.fstat(lock), os.stat(self._lock)):
                    return lock
            except BlockingIOError:
                os.close(lock)
                return None
            os.close(lock)

    def up(self, nodes: int, rails: int, endpoints: int, gpus: int = 0) -> None:
        """Make it; it is up when this returns, and outlives this process.

        Raises:
            InputError: It is up already, or cannot be made.
        """
        try:
            private_folder(labs_folder())
        except OSError as error:
            raise InputError(f"cannot use {labs_folder()} for labs: {error.strerror}") from None
        lock = self._taken()
        if lock is None:
            raise InputError(
                f"a lab named {self.name} is up already; fabtui lab down ends it, --name NAME makes a second one"
            )
        try:
            # Leftovers of a lab that was killed.
            shutil.rmtree(self.folder, ignore_errors=True)
            private_folder(self.folder)
            report = self._start(Order(LabSpec((endpoints,) * nodes, rails, True, gpus=gpus), str(self.folder)), lock)
        except BaseException:
            self._remove()
            raise
        finally:
            # The process that holds the lab has it as well.
            os.close(lock)
        if "ssh_config" not in report:
            self._remove()
            raise InputError(f"the lab could not be made: {one_line(str(report.get('error')), 500)}")

    def _start(self, order: Order, lock: int) -> dict[str, Any]:
        process = _start(order, lock)
        try:
            os.pwrite(lock, f"{process.pid:<12}".encode(), 0)
            return _report(process)
        except BaseException:
            process.kill()
            process.wait()
            raise

    def ask(self, do: str, words: Sequence[str] = ()) -> dict[str, Any]:
        """Have it plant faults or heal them, and return what it is like.

        Raises:
            InputError: It is not up, does not answer, or refuses.
        """
        if not self.stands:
            raise InputError(f"there is no lab named {self.name}; fabtui lab up makes it")
        try:
            reply = _asked(self.folder, {"do": do, "words": list(words)})
        except (OSError, ValueError) as error:
            raise InputError(f"the lab {self.name} does not answer: {error}; fabtui lab down ends it") from None
        if "error" in reply:
            raise InputError(str(reply["error"]))
        return reply

    def down(self) -> bool:
        """Take it down, or remove what is left of it; return False if there is nothing of it.

        Raises:
            InputError: It does not end.
        """
        if not self._lock.exists():
            return False
        for number, patience in ((signal.SIGTERM, _ENDED), (signal.SIGKILL, _KILLED)):
            if self._ended(number, patience):
                return True
        raise InputError(f"the lab {self.name} does not end, although its process was killed")

    def _ended(self, number: signal.Signals, patience: float) -> bool:
        end = time.monotonic() + patience
        sent = False
        while time.monotonic() < end:
            lock = self._taken()
            if lock is not None:
                self._remove()
                os.close(lock)
                return True
            if not sent:
                # It holds the lock, so the number is still that of its process.
                with contextlib.suppress(OSError, ValueError):
                    os.kill(int(self._lock.read_text()), number)
                    sent = True
            time.sleep(_PAUSE)
        return False

    def _remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.unlink(missing_ok=True)
