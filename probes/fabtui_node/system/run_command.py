"""Run a command on the node: no shell, a deadline, a limit on its output, and no process left behind.

A command runs in a separate session. When it ends, runs out of time or prints too much, its process group is killed,
with all children that it left in the background.
"""

from __future__ import annotations

import grp
import os
import pwd
import selectors
import shutil
import signal
import stat
import subprocess
import threading
import time
from typing import IO, Dict, List, NamedTuple, Optional, Protocol, Sequence

OUTPUT_LIMIT = 2 * 1000 * 1000

# Grandchildren may keep the pipes open after the command itself has ended; this is how long they are listened to.
_DRAIN = 0.2

#: Maximum number of links to a command, and the first group that may be that of a person.
_MOST_LINKS, _FIRST_OF_USERS = 8, 1000

# The PATH of a command over SSH often lacks the folders where ibstat, ldconfig and friends live.
_FOLDERS = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]

#: Holds True once this process may start no program.
_REFUSED: List[bool] = []


class Sink(Protocol):
    """Taker of the output of a command, like a ``bytearray``; its length counts all output."""

    def extend(self, data: bytes) -> None:
        """Take a piece."""

    def __len__(self) -> int: ...


class CommandResult(NamedTuple):
    """Result of a command."""

    argv: List[str]  #: What was run.
    #: Exit status, minus the signal's number if it was killed by one, None if it never ran or would not end.
    returncode: Optional[int]
    stdout: str  #: What it printed, undecodable bytes replaced.
    stderr: str  #: What it printed as errors, or why it could not be started.
    timed_out: bool = False  #: It was killed at its deadline.
    missing: bool = False  #: There is no such command on this node.
    truncated: bool = False  #: It printed more than the limit and was killed for that.

    @property
    def ok(self) -> bool:
        """True if it finished and exited with 0."""
        return self.returncode == 0 and not self.timed_out and not self.truncated

    def why(self) -> Optional[str]:
        """Return one line on what went wrong, None if nothing did."""
        name = os.path.basename(self.argv[0]) if self.argv else "command"
        if self.missing:
            return "no %s on this node" % name
        if self.timed_out:
            return "%s did not end in time" % name
        if self.truncated:
            return "%s printed too much" % name
        if self.returncode == 0:
            return None
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        last = ": " + lines[-1].strip()[:300] if lines else ""
        if self.returncode is None:
            return "%s could not be run%s" % (name, last)
        if self.returncode < 0:
            return "%s was ended by signal %d%s" % (name, -self.returncode, last)
        return "%s exited with %d%s" % (name, self.returncode, last)


def refuse() -> None:
    """Keep this process from starting programs from now on, as on a node that has none."""
    _REFUSED.append(True)


def environment(extra: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    """Return the environment of a command: ours, in the C locale, with the system folders on PATH."""
    env = dict(os.environ)
    for name in ("LANG", "LANGUAGE"):
        env.pop(name, None)
    env["LC_ALL"] = "C"
    folders = [folder for folder in env.get("PATH", "").split(os.pathsep) if folder]
    folders.extend(folder for folder in _FOLDERS if folder not in folders)
    env["PATH"] = os.pathsep.join(folders)
    env.update(extra or {})
    return env


def find(name: str, *, safe: Optional[bool] = None) -> Optional[str]:
    """Return the path of a command, None if the node has none.

    With ``safe``, which is the default for root, only one that nobody but root and this user can change: what root runs
    from a place where others may write gives them root's rights.
    """
    if _REFUSED:
        return None
    path = environment()["PATH"]
    if not (os.geteuid() == 0 if safe is None else safe):
        return shutil.which(name, path=path)
    paths = (shutil.which(name, path=folder) for folder in ([""] if "/" in name else path.split(os.pathsep)))
    return next((path for path in paths if path is not None and is_safe(path)), None)


def is_safe(path: str) -> bool:
    """Return True if nobody but root and this user can change a file, a link to it, or a folder above them."""
    path = os.path.abspath(path)
    try:
        for _ in range(_MOST_LINKS):
            place = path
            while _is_own(os.lstat(place)) and _is_own(os.stat(place)) and not _others_write(os.stat(place)):
                if place == "/":
                    break
                place = os.path.dirname(place)
            else:
                return False
            folder = os.path.realpath(os.path.dirname(path))
            if folder != os.path.dirname(path):
                # Its folder is behind a link.
                path = os.path.join(folder, os.path.basename(path))
            elif os.path.islink(path):
                path = os.path.abspath(os.path.join(folder, os.readlink(path)))
            else:
                return True
    except OSError:
        pass
    return False


def _is_own(about: os.stat_result) -> bool:
    return about.st_uid in (0, os.geteuid())


def _others_write(about: os.stat_result) -> bool:
    if stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX:
        # What this user and root have in a folder like /tmp cannot be replaced by others.
        return False
    return bool(about.st_mode & stat.S_IWOTH) or bool(
        about.st_mode & stat.S_IWGRP and not _is_group_of_one(about.st_gid)
    )


def _is_group_of_one(number: int) -> bool:
    """Return True for the group of this user alone, and for one of the system without members (``staff`` of Debian)."""
    try:
        name, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(number)
    except KeyError:
        return False
    return set(group.gr_mem) <= {name, "root"} and (group.gr_name == name or 0 < number < _FIRST_OF_USERS)


def run(
    argv: Sequence[str],
    deadline: float,
    limit: int = OUTPUT_LIMIT,
    env: Optional[Dict[str, str]] = None,
    cwd: Optional[str] = None,
    stop: Optional[threading.Event] = None,
    *,
    alone: bool = False,
) -> CommandResult:
    """Run a command to its end, its deadline (seconds from now) or its output limit (bytes); ``stop`` ends it soon.

    ``env`` are variables besides those of this process, or, if ``alone``, all that the command gets.
    """
    out, err = bytearray(), bytearray()
    variables = dict(env or {}) if alone else environment(env)
    result = run_into([out, err], argv, deadline, limit, variables, cwd, stop)
    text = [bytes(part[:limit]).decode("utf-8", "replace") for part in (out, err)]
    return result._replace(stdout=text[0], stderr=result.stderr + text[1])


def run_into(
    sinks: Sequence[Sink],
    argv: Sequence[str],
    deadline: float,
    limit: int,
    env: Dict[str, str],
    cwd: Optional[str] = None,
    stop: Optional[threading.Event] = None,
) -> CommandResult:
    """Run a command like `run`, with exactly the environment ``env``, and pass on its output as it comes.

    ``sinks``: one for all of its output, or one each for standard output and error.
    """
    words = list(argv)
    if deadline <= 0:
        return CommandResult(words, None, "", "no time left to start it", timed_out=True)
    program = find(words[0]) if _REFUSED or (os.geteuid() == 0 and "/" not in words[0]) else words[0]
    if program is None:
        return CommandResult(words, None, "", "no such command: %s" % words[0], missing=True)
    try:
        process = subprocess.Popen(
            words,
            executable=program,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if len(sinks) > 1 else subprocess.STDOUT,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        return CommandResult(words, None, "", str(error), missing=True)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return CommandResult(words, None, "", str(error))
    return _follow(process, words, time.monotonic() + deadline, limit, stop or threading.Event(), sinks)


def _follow(
    process: subprocess.Popen[bytes],
    words: List[str],
    end: float,
    limit: int,
    stop: threading.Event,
    sinks: Sequence[Sink],
) -> CommandResult:
    timed_out = truncated = False
    try:
        with selectors.DefaultSelector() as selector:
            for stream, sink in ((process.stdout, sinks[0]), (process.stderr, sinks[-1])):
                if stream is not None:
                    os.set_blocking(stream.fileno(), False)
                    selector.register(stream, selectors.EVENT_READ, sink)
            gone_at: Optional[float] = None
            while selector.get_map():
                now = time.monotonic()
                if now >= end or stop.is_set():
                    timed_out = gone_at is None
                    break
                if gone_at is None and _exited(process):
                    gone_at = now
                if gone_at is not None and now - gone_at >= _DRAIN:
                    break
                for key, _ in selector.select(min(end - now, 0.1)):
                    if not _read(key.fileobj, key.data):  # type: ignore[arg-type]
                        selector.unregister(key.fileobj)
                if sum(map(len, sinks)) > limit:
                    truncated = True
                    break
        # A command may close its output and continue.
        while not (timed_out or truncated or _exited(process)):
            if time.monotonic() >= end or stop.is_set():
                timed_out = True
            else:
                time.sleep(0.005)
    finally:
        returncode = _end(process)
    return CommandResult(words, returncode, "", "", timed_out, False, truncated)


def _read(stream: IO[bytes], sink: Sink) -> bool:
    """Take what is there; return False at the end of the stream."""
    try:
        data = os.read(stream.fileno(), 65536)
    except BlockingIOError:
        return True
    except OSError:
        return False
    sink.extend(data)
    return bool(data)


def _exited(process: subprocess.Popen[bytes]) -> bool:
    # WNOWAIT leaves the zombie in place: while it is there, its process group's number is not given to others, and
    # killing the group cannot hit a stranger.
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _end(process: subprocess.Popen[bytes]) -> Optional[int]:
    """Kill what is left of the command's group, reap it, and return its exit status."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    try:
        return process.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        # Stuck in the kernel, as commands that ask a broken driver are.
        return None
