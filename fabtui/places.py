"""Where fabtui keeps its own files on this machine."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path


def state_folder() -> Path:
    """Return the folder for recordings and logs (``~/.local/state/fabtui`` on Linux); it may not exist yet."""
    import platformdirs

    return Path(platformdirs.user_state_dir("fabtui", appauthor=False))


def recordings_folder() -> Path:
    """Return the folder where recordings go by default; it may not exist yet."""
    return state_folder() / "recordings"


def private_folder(path: Path) -> Path:
    """Make a folder of ours, its parents included, that only this user may look into.

    Raises:
        OSError: It cannot be made.
    """
    state = state_folder()
    for folder in (state, path) if path.is_relative_to(state) else (path,):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid == os.getuid():
            folder.chmod(0o700)
    return path


def check_folder(path: Path) -> None:
    """Make sure that files can be made in a folder.

    Raises:
        OSError: They cannot.
    """
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def recording_name(nodes: Sequence[str], now: float) -> str:
    """Return the file name of a new recording: the time in UTC, and what it is of."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    shown = "-".join(nodes[:2]) + (f"-and-{len(nodes) - 2}-more" if len(nodes) > 2 else "")
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", shown)[:80]
    return f"{stamp}-{safe}.jsonl.gz"


def free_path(path: Path) -> Path:
    """Return the path, or one with a number in it when something is already there."""
    if not path.exists():
        return path
    stem = path.name.removesuffix(".jsonl.gz")
    number = 2
    while (other := path.with_name(f"{stem}-{number}.jsonl.gz")).exists():
        number += 1
    return other
