"""Folders: the data that ships with fabtui, the user's configuration and the state of this machine."""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import grp
import itertools
import os
import pwd
import re
import shlex
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from platformdirs import PlatformDirs

from fabtui.errors import InputError

_PACKAGE = Path(__file__).resolve().parent
#: End of the file names of recordings.
RECORDING = ".jsonl.gz"
#: Pause (s) between two attempts to lock a file.
_LOCK_PAUSE = 0.05


def user_path(text: str | Path) -> Path:
    """Return a path with ``~`` and ``~user`` expanded; as it stands if there is no such user, as a shell leaves it."""
    return Path(os.path.expanduser(text))


def is_file_or_folder(word: str) -> bool:
    """Return True for the name of one, or for ``-``: standard input."""
    try:
        return word == "-" or user_path(word).exists()
    except (OSError, ValueError):
        # Too long for a file name: a text.
        return False


def data_folder(name: str) -> Path:
    """Return a folder of shipped data (``themes``, ``recordings``).

    In a checkout, an editable install or an unpacked sdist it lies beside the package; a wheel carries it inside, as
    ``fabtui/_themes``. The checkout is preferred, so that edits take effect.

    Args:
        name: Name of the folder in the repository.

    Returns:
        The folder; it may not exist if the installation is broken.
    """
    root = _PACKAGE.parent
    beside = root / name
    if (root / "pyproject.toml").is_file() and beside.is_dir():
        return beside
    return _PACKAGE / f"_{name}"


def theme_folder() -> Path:
    """Return the folder of the colour ramps and themes that ship with fabtui."""
    return data_folder("themes")


def shipped_recordings_folder() -> Path:
    """Return the folder of the recordings of real sessions that ship with fabtui."""
    return data_folder("recordings")


def _user_folder(kind: Callable[[PlatformDirs], Path]) -> Path:
    try:
        folder = kind(PlatformDirs("fabtui", appauthor=False))
    except RuntimeError:
        folder = Path()
    if not folder.is_absolute():
        # As in a container with a user id of its own: neither the environment nor the user database has a home.
        raise InputError(f"user {os.getuid()} has no home folder: set HOME, or XDG_CONFIG_HOME and XDG_STATE_HOME")
    return folder


def config_folder() -> Path:
    """Return the folder of the user's configuration (``~/.config/fabtui`` on Linux); it may not exist."""
    return _user_folder(lambda user: user.user_config_path)


def user_theme_folder() -> Path:
    """Return the folder of user themes; it may not exist."""
    return config_folder() / "themes"


def user_probe_folder() -> Path:
    """Return the folder of user probes; it may not exist."""
    return config_folder() / "probes"


def state_folder() -> Path:
    """Return the folder for recordings and logs (``~/.local/state/fabtui`` on Linux); it may not exist."""
    return _user_folder(lambda user: user.user_state_path)


def recordings_folder() -> Path:
    """Return the default folder for new recordings; it may not exist."""
    return state_folder() / "recordings"


def site_name() -> str:
    """Return the name of this site: the login host without its number, so that login1 and login2 are one site."""
    host = re.sub(r"[^A-Za-z.-]+", "", os.uname().nodename.lower()) or "site"
    return f"host-{host[:100]}"


def history_file(lab: bool = False) -> Path:
    """Return the file of this site; all labs are one site, as their nodes have the names of others' nodes."""
    return state_folder() / "history" / ("lab.sqlite" if lab else f"{site_name()}.sqlite")


def private_folder(path: Path) -> Path:
    """Create a folder of fabtui and its parents, readable by this user only.

    Raises:
        UnsafeFileError: It is in the state folder, which somebody else can change.
        OSError: The folder cannot be created.
    """
    state = state_folder()
    if not path.is_relative_to(state):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_private(path)
        return path
    for folder in (state, path):
        # One by one: `parents` gives the upper ones the mode of the umask.
        for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        _check_owner(folder, folder.lstat())
        _make_private(folder)
    _check_folders(path / "file")
    return path


def _make_private(folder: Path) -> None:
    if folder.stat().st_uid == os.getuid():
        folder.chmod(0o700)


def recording_name(nodes: Sequence[str], now: float) -> str:
    """Return the file name of a new recording: the time in UTC and the first nodes."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    shown = "-".join(nodes[:2]) + (f"-and-{len(nodes) - 2}-more" if len(nodes) > 2 else "")
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", shown)[:80]
    return f"{stamp}-{safe}{RECORDING}"


def free_path(path: Path) -> Path:
    """Create an empty file for a recording, numbered if one of that name exists, and return its path.

    So two sessions that start in the same second have two. It is removed at the end if nothing was written.
    """
    stem = path.name.removesuffix(RECORDING)
    for number in itertools.count(2):
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            path = path.with_name(f"{stem}-{number}{RECORDING}")
        except OSError:
            # The recording itself reports why.
            break
        else:
            atexit.register(_remove_empty, path)
            break
    return path


def _remove_empty(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.lstat().st_size == 0:
            path.unlink()


def open_unblocked(path: Path) -> int:
    """Return a descriptor to read a file; a named pipe without a writer does not block.

    Raises:
        OSError: It cannot be opened.
    """
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


class UnsafeFileError(PermissionError):
    """Somebody else can change a file; the text is one line that ends with the command that mends it."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EPERM, reason)

    def __str__(self) -> str:
        return str(self.strerror)


def open_strictly(path: Path) -> int:
    """Return a descriptor of a regular file that nobody but the user and root can change.

    Links are followed. The file, a link to it and the folders above it must belong to the user or to root. The home
    folder is the last that is looked at. No others may write to them, and no group but one of the user alone. Folders
    with the sticky bit, like ``/tmp``, may be writable: what the user has there cannot be replaced by others.

    Raises:
        UnsafeFileError: Somebody else can change it, or it is not a regular file.
        OSError: It cannot be opened.
    """
    descriptor = open_unblocked(path)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnsafeFileError("is not a regular file")
        _check_owner(path, path.lstat())
        _check(Path(os.path.realpath(path)), status)
        _check_folders(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_folders(path: Path) -> None:
    """Check the folders above a file, of its name as given and of its target: either can be made to name another."""
    home = user_path("~")
    homes = (Path(os.path.abspath(home)), Path(os.path.realpath(home)))
    for named in (Path(os.path.abspath(path)), Path(os.path.realpath(path))):
        for folder in named.parents:
            _check_owner(folder, folder.lstat())
            _check(folder, folder.stat())
            if folder in homes:
                break


def _check(path: Path, status: os.stat_result) -> None:
    _check_owner(path, status)
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    others = status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_group_of_one(status.st_gid))
    if others and not sticky:
        raise UnsafeFileError(f"others may write to {path}; chmod go-w {shlex.quote(str(path))}")


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        command = "rm" if stat.S_ISLNK(status.st_mode) else f"chown {os.geteuid()}"
        raise UnsafeFileError(
            f"{path} belongs to another user (uid {status.st_uid}); {command} {shlex.quote(str(path))}"
        )


def _is_group_of_one(number: int) -> bool:
    """Return True if a group is the one that many systems make for each user, with the user's name.

    With it goes a umask that lets the group write. The group of root does not count: it has members on some systems.
    """
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return 0 != number == user.pw_gid and group.gr_name == user.pw_name and {*group.gr_mem} <= {user.pw_name}


def wait_for_lock(descriptor: int, patience: float) -> None:
    """Lock an open file against other processes; blocks for up to ``patience`` (s).

    Raises:
        TimeoutError: Another process still holds the lock.
    """
    give_up = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise TimeoutError("the file is locked") from None
            time.sleep(_LOCK_PAUSE)
