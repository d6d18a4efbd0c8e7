"""Files that an assistant may have read: regular files of the user, none that are hidden."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from fabtui.errors import InputError
from fabtui.paths import user_path
from fabtui.sanitize import one_line

#: Maximum size (bytes) of a file, and of all logs and outputs of a call: those are read in about its time limit, and
#: the thread that reads them cannot be interrupted.
MOST_BYTES, MOST_TOGETHER = 256 << 20, 64 << 20
#: Maximum number of files of a call.
MOST_FILES = 64
#: Folders of the kernel, whose files are none.
_KERNEL = ("/proc", "/sys", "/dev")


def checked_file(text: str, where: str, recordings: Path | None = None) -> Path:
    """Return the path of a file, with links followed.

    Hidden files and folders hold keys, tokens and histories of shells, which no assistant is to see. The folder of the
    recordings may be in a hidden one.

    Args:
        text: The path.
        where: The argument that has it.
        recordings: Folder of the user's recordings.

    Raises:
        InputError: It is not to be read.
    """
    try:
        path = Path(os.path.realpath(user_path(text)))
        found = path.stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{where}: cannot read {_named(text)}: {reason}") from None
    _check_place(path, text, where, recordings)
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{where}: {_named(text)} is not a regular file; name files one by one")
    if found.st_size > MOST_BYTES:
        raise InputError(
            f"{where}: {_named(text)} has {found.st_size >> 20} MiB; the maximum is {MOST_BYTES >> 20} MiB"
        )
    return path


def checked_files(texts: list[str], where: str) -> list[str]:
    """Return the paths of some logs and outputs, see `checked_file`."""
    if len(texts) > MOST_FILES:
        raise InputError(f"{where}: {len(texts)} files; the maximum is {MOST_FILES}")
    found = [checked_file(one, where) for one in texts]
    if (size := sum(path.stat().st_size for path in found)) > MOST_TOGETHER:
        raise InputError(f"{where}: {size >> 20} MiB; the maximum is {MOST_TOGETHER >> 20} MiB together")
    return [str(path) for path in found]


def checked_logs(patterns: list[str], where: str) -> list[str]:
    """Return patterns of log files, such as ``../log/{job}/*.out``; what they match is checked when it is opened.

    Raises:
        InputError: They name hidden files, or those of the kernel.
    """
    for text in patterns:
        for part in Path(text).parts:
            if part.startswith(".") and part not in (".", ".."):
                raise InputError(f"{where}: {_named(text)} is hidden, or in a hidden folder: not read for assistants")
        with contextlib.suppress(OSError, ValueError):
            _check_place(Path(os.path.realpath(user_path(text))), text, where, None)
    return patterns


def _check_place(path: Path, text: str, where: str, recordings: Path | None) -> None:
    """Raise `InputError` if a file without links is hidden, or one of the kernel."""
    own = None if recordings is None else Path(os.path.realpath(recordings))
    parts = path.relative_to(own).parts if own is not None and path.is_relative_to(own) else path.parts
    if any(part.startswith(".") for part in parts):
        raise InputError(f"{where}: {_named(text)} is hidden, or in a hidden folder: not read for assistants")
    if any(path.is_relative_to(folder) for folder in _KERNEL):
        raise InputError(f"{where}: {_named(text)} is not a regular file; name files one by one")


def _named(text: str) -> str:
    return one_line(text, 200)
