"""Atomic writing of files."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from fabtui.errors import InputError


def _open_beside(path: Path) -> tuple[Path, int, Path]:
    """Create a temporary file, with the default permissions; return its target, resolved so that a link remains one."""
    target = Path(os.path.realpath(path.expanduser()))
    beside = target.with_name(f".{target.name[:200]}.{os.urandom(6).hex()}.fabtui-tmp")
    return target, os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), beside


def check_writable(path: Path, option: str) -> None:
    """Check early that a file can be written later; raise InputError if not."""
    if not path.name:
        raise InputError(f"{option}: a file name is needed, not {str(path)!r}")
    try:
        known = path.expanduser()
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
