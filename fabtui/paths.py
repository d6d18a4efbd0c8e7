"""Folders: the data that ships with fabtui, the user's configuration and the state of this machine."""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import itertools
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from platformdirs import PlatformDirs

_PACKAGE = Path(__file__).resolve().parent
#: End of the file names of recordings.
RECORDING = ".jsonl.gz"
#: Pause (s) between two attempts to lock a file.
_LOCK_PAUSE = 0.05


def user_path(text: str | Path) -> Path:
    """Return a path with ``~`` and ``~user`` expanded; as it stands if there is no such user, as a shell leaves it."""
    return Path(os.path.expanduser(text))


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


def _user_folders() -> PlatformDirs:
    from platformdirs import PlatformDirs

    return PlatformDirs("fabtui", appauthor=False)


def config_folder() -> Path:
    """Return the folder of the user's configuration (``~/.config/fabtui`` on Linux); it may not exist."""
    return _user_folders().user_config_path


def user_theme_folder() -> Path:
    """Return the folder of user themes; it may not exist."""
    return config_folder() / "themes"


def user_probe_folder() -> Path:
    """Return the folder of user probes; it may not exist."""
    return config_folder() / "probes"


def state_folder() -> Path:
    """Return the folder for recordings and logs (``~/.local/state/fabtui`` on Linux); it may not exist."""
    return _user_folders().user_state_path


def recordings_folder() -> Path:
    """Return the default folder for new recordings; it may not exist."""
    return state_folder() / "recordings"


def private_folder(path: Path) -> Path:
    """Create a folder of fabtui and its parents, readable by this user only.

    Raises:
        OSError: The folder cannot be created.
    """
    state = state_folder()
    for folder in (state, path) if path.is_relative_to(state) else (path,):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid == os.getuid():
            folder.chmod(0o700)
    return path


def check_folder(path: Path) -> None:
    """Check that files can be created in a folder.

    Raises:
        OSError: They cannot.
    """
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


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
