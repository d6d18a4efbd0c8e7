"""Files that only the user and root can change, by the rules of OpenSSH's option ``StrictModes``."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fabtui.paths import open_unblocked

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UnsafeFileError(OSError):
    """Somebody else can change the file; the message is one line."""


def open_strictly(path: Path) -> int:
    """Return a descriptor of a regular file that nobody but the user and root can change.

    Links are followed. The file and all folders above it, up to the home folder or the root, must belong to the user or
    to root. No group and no others may write to them. Folders with the sticky bit, like ``/tmp``, may be
    writable: what the user has there cannot be replaced by others.

    Raises:
        UnsafeFileError: Somebody else can change it, or it is no regular file.
        OSError: It cannot be opened.
    """
    descriptor = open_unblocked(path)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UnsafeFileError("is not a regular file")
        _check(Path(os.path.realpath(path)), found)
        home = Path(os.path.realpath(Path.home()))
        # The folders of the name as given and of its target: either can be made to name another file.
        for named in (Path(os.path.abspath(path)), Path(os.path.realpath(path))):
            for folder in named.parents:
                _check(folder, folder.stat())
                if folder == home:
                    break
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise UnsafeFileError(f"{path} belongs to another user (uid {found.st_uid})")
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_mode & _OTHERS_WRITE and not sticky:
        raise UnsafeFileError(f"others may write to {path} (chmod go-w)")
