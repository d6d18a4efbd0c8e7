"""Atomic writing of files."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from fabtui.errors import InputError
from fabtui.paths import user_path

#: Longest chain of symbolic links that is followed.
_LINKS = 40


def _target(path: Path) -> Path:
    """Return the file that a path leads to, so that a link of the user's remains one.

    Raises:
        OSError: Somebody else made a link on the way, to have the file that it leads to overwritten.
    """
    path = user_path(path)
    for _ in range(_LINKS):
        try:
            status = path.lstat()
        except FileNotFoundError:
            return path
        if not stat.S_ISLNK(status.st_mode):
            return path
        if status.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EPERM, "a symbolic link of another user is not followed", str(path))
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _open_beside(path: Path) -> tuple[Path, int, Path]:
    """Create a temporary file; return its target, its descriptor and its path.

    It is readable by the user alone, as it may hold addresses and names of processes. An existing file keeps its mode.
    """
    target = _target(path)
    beside = target.with_name(f".{target.name[:200]}.{os.urandom(6).hex()}.fabtui-tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(FileNotFoundError):
        os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode) & 0o777)
    return target, descriptor, beside


def check_writable(path: Path, option: str) -> None:
    """Check early that a file can be written later; raise InputError if not."""
    if not path.name:
        raise InputError(f"{option}: a file name is needed, not {str(path)!r}")
    try:
        known = user_path(path)
        mode = known.stat().st_mode if known.exists() else None
        if mode is not None and not stat.S_ISREG(mode):
            what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise InputError(f"{option}: {path} is {what}; give the name of a file")
        _, descriptor, beside = _open_beside(path)
        os.close(descriptor)
        beside.unlink()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{option}: cannot write {path}: {reason}") from None


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file so that readers find the old or the complete new content, even after a power cut.

    On OSError, the old file is unchanged, and no temporary file is left.
    """
    target, descriptor, beside = _open_beside(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_bytes(path: Path, data: bytes) -> None:
    write_atomically(path, lambda file: file.write(data))


def write_text(path: Path, text: str, mode: int | None = None) -> None:
    """Write a text, whole or not at all (OSError); ``mode``: also for a file that is new."""

    def write(file: BinaryIO) -> None:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(text.encode("utf-8", "backslashreplace"))

    write_atomically(path, write)
