"""New parts of growing log files, within a budget of bytes. Nothing is remembered here: the caller knows the offsets.

A part ends at the end of a line. What follows the last line end is ``unfinished`` and is read again the next time. A
file that has become shorter, or has another inode, was truncated or rotated and starts again; the rest of a file that
was renamed to ``NAME.1`` is read first.
"""

from __future__ import annotations

import errno
import fnmatch
import glob
import itertools
import os
import stat
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

#: Bytes from the start of a file that come with its first part.
HEAD = 64 * 1024
#: A file this many times ahead of what may be read at once is not read in full: its latest part counts.
_FAR = 16
#: Smallest part (bytes) of a file, and maximum number of files of one reading.
_LEAST = 4096
MOST_FILES = 8192
#: Maximum number of names of folders that one search looks at.
MOST_NAMES = 100_000
#: Folders of the kernel, whose files are not logs.
_KERNEL = ("/proc/", "/sys/", "/dev/")
#: Maximum length (bytes) of the unfinished line at the end of a file.
_UNFINISHED = 16 * 1024


class Known(NamedTuple):
    """Known part of a file: its inode, and the offset of the first byte that is not known."""

    inode: int
    offset: int


class Budget(NamedTuple):
    """Bytes of one reading: of a file that is not known yet, and of all files together."""

    first: int
    total: int


class Access(NamedTuple):
    """Condition for reading a file; it is checked on the open file, as a name may lead elsewhere a moment later."""

    owner: Optional[int] = None  #: User (uid) that it has to belong to, -1 for one that is not known; None for any.
    visible: bool = False  #: Whether hidden files, which hold keys and tokens, are left out.

    def refusal(self, file: int, about: os.stat_result) -> Optional[str]:
        """Return why an open file is not to be read, or None."""
        place = os.readlink("/proc/self/fd/%d" % file)
        if place.startswith(_KERNEL if self.visible else _KERNEL[:1]):
            return "a file of the kernel is not a log"
        if self.visible and any(part.startswith(".") for part in place.split("/")):
            return "it is hidden, or in a hidden folder: not read for assistants"
        if self.owner is not None and about.st_uid != self.owner:
            return "it is not read: it belongs to uid %d, and the job that names it to another user" % about.st_uid
        return None


class Search:
    """Search for files by shell patterns; it ends after a number of names, a time (s), or when ``ended`` is True."""

    def __init__(self, seconds: float, ended: Callable[[], bool] = lambda: False) -> None:
        self._until = time.monotonic() + seconds
        self._ended = ended
        self._names = MOST_NAMES
        self.problem: Optional[str] = None  #: Why it is not complete, or None.

    def find(self, patterns: Sequence[str]) -> List[str]:
        """Return the paths that match patterns, or are named literally, in order and without repetitions."""
        paths: Dict[str, None] = {}
        for pattern in patterns:
            matches = [pattern] if os.path.lexists(pattern) else self._matches("", pattern.split("/"))
            paths.update(dict.fromkeys(sorted(itertools.islice(matches, MOST_FILES - len(paths)))))
        return list(paths)

    def _matches(self, folder: str, parts: List[str]) -> Iterator[str]:
        part, rest = parts[0], parts[1:]
        if not part or not glob.has_magic(part):
            path = folder + part
            if rest:
                yield from self._matches(path + "/", rest)
            elif os.path.lexists(path):
                yield path
            return
        for name, is_folder in self._entries(folder or "."):
            if fnmatch.fnmatch(name, part) and (part.startswith(".") or not name.startswith(".")):
                if not rest:
                    yield folder + name
                elif is_folder:
                    yield from self._matches(folder + name + "/", rest)

    def _entries(self, folder: str) -> Iterator[Tuple[str, bool]]:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._names -= 1
                    if self._names < 0 or time.monotonic() > self._until or self._ended():
                        self.problem = "the search for logs ended early: the patterns match too many folders"
                        return
                    yield entry.name, entry.is_dir()
        except (OSError, ValueError):
            return


#: Access to files that the user names.
ANY = Access()


def read(
    paths: Sequence[str], known: Mapping[str, Known], budget: Budget, access: Access = ANY
) -> Tuple[List[Dict[str, Any]], List[str]]:
    """Return the new parts of files, and what could not be read, one line each.

    A part has ``path``, ``inode``, ``size``, ``start``, ``end`` (the offset to know), ``text`` and ``unfinished``. It
    has ``modified``, in s since the epoch by the clock of the file server, and ``again`` if the file has started again.
    The first part of a file that is not read from its start has ``head``. Files that have not changed have no text.
    """
    share = max(_LEAST, budget.total // max(len(paths), 1))
    parts: List[Dict[str, Any]] = []
    problems: List[str] = []
    for path in paths:
        try:
            parts.extend(_parts(path, known.get(path), min(budget.first, share), share, access))
        except (OSError, ValueError) as error:
            problems.append("%s: %s" % (path, getattr(error, "strerror", None) or error))
    return parts, problems


def _parts(path: str, known: Optional[Known], first: int, share: int, access: Access) -> List[Dict[str, Any]]:
    # A FIFO would wait for a writer.
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(end)
        if not stat.S_ISREG(about.st_mode):
            return []
        if (refusal := access.refusal(end, about)) is not None:
            raise PermissionError(errno.EACCES, refusal)
        parts = []
        again = False
        if known is not None and (known.inode != about.st_ino or known.offset > about.st_size):
            parts = _rest_of_renamed(path, known, share, access) if known.inode != about.st_ino else []
            again, known = True, Known(about.st_ino, 0)
        parts.append(_part(end, path, about, known, first, share, again))
        return parts
    finally:
        os.close(end)


def _rest_of_renamed(path: str, known: Known, share: int, access: Access) -> List[Dict[str, Any]]:
    """Return what was written to a file before it was renamed to ``NAME.1``, if it was."""
    try:
        end = os.open(path + ".1", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        about = os.fstat(end)
        if (
            access.refusal(end, about)
            or about.st_ino != known.inode
            or not stat.S_ISREG(about.st_mode)
            or about.st_size <= known.offset
        ):
            return []
        return [_part(end, path, about, known, share, share, False)]
    finally:
        os.close(end)


def _part(
    end: int, path: str, about: os.stat_result, known: Optional[Known], first: int, share: int, again: bool
) -> Dict[str, Any]:
    size = about.st_size
    start = known.offset if known is not None else max(0, size - first)
    if known is not None and size - start > _FAR * share:
        start = size - share
    jumped = start > (known.offset if known is not None else 0)
    data = os.pread(end, min(share, size - start), start)
    if jumped:
        # The first line is probably cut; the line after it is not.
        skipped = data.find(b"\n") + 1
        start, data = start + skipped, data[skipped:]
    cut = data.rfind(b"\n") + 1
    if not cut and len(data) >= min(share, _UNFINISHED):
        # A line without an end: a progress bar, or no text at all.
        cut = len(data)
    part = {"path": path, "inode": about.st_ino, "size": size, "modified": about.st_mtime}
    part.update(start=start, end=start + cut, text=data[:cut].decode("utf-8", "replace"), again=again)
    part["unfinished"] = data[cut:].decode("utf-8", "replace") if start + len(data) >= size else ""
    if known is None and jumped:
        part["head"] = os.pread(end, min(HEAD, start), 0).decode("utf-8", "replace")
    return part
