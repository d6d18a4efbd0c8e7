"""Probe ``storage``: the rate of a sequential read of a file that the user names. Nothing is ever written.

Reads go past the page cache (O_DIRECT). Where a file system refuses that, the kernel is asked to drop its pages of the
file first. The result reports how the file was read.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import time
from typing import Any, Dict, List, Optional, Tuple

from fabtui_node.probes.judgement import judgement
from fabtui_node.registry import Judgement, ProbeSpec

#: Bytes per read; a multiple of every block size, as O_DIRECT requires.
BLOCK = 4 * 1024 * 1024
#: Files below this size (bytes) fit caches of storage servers easily.
SMALL = 1 << 30
#: Time (s) of the deadline that is left for the answer.
RESERVE = 1.0
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISCHR, "a character device"),
)


def open_file(path: str, flags: int = 0) -> int:
    """Return a descriptor of a regular file; raise ValueError for anything else, without opening it."""
    before = os.stat(path)
    if not stat.S_ISREG(before.st_mode):
        kind = next((name for matches, name in _KINDS if matches(before.st_mode)), "no file")
        raise ValueError("%s is %s; only regular files are read" % (path, kind))
    flags |= os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        # Only its owner may read a file without changing its access time.
        fd = os.open(path, flags | os.O_NOATIME)
    except PermissionError:
        fd = os.open(path, flags)
    after = os.fstat(fd)
    if (before.st_dev, before.st_ino) != (after.st_dev, after.st_ino) or not stat.S_ISREG(after.st_mode):
        os.close(fd)
        raise ValueError("%s was replaced while it was opened" % path)
    return fd


def filesystem_of(path: str, mounts: str) -> Optional[str]:
    """Return type and source of the file system of a path, of the content of /proc/self/mountinfo."""
    best: Optional[Tuple[int, str]] = None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 2:
            continue
        point = fields[4].replace("\\040", " ").rstrip("/")
        if (path == point or path.startswith(point + "/")) and (best is None or len(point) >= best[0]):
            best = len(point), "%s %s" % (kind[0], kind[1])
    return best[1][:200] if best is not None else None


def read(fd: int, buffer: mmap.mmap, size: int, start: int, most: int, until: float) -> int:
    """Read a file once from an offset on, after its end from its beginning; return the number of bytes."""
    done, at = 0, start
    most = min(most, size)
    while done < most and time.monotonic() < until:
        got = os.preadv(fd, [buffer], at)
        done, at = done + got, at + got
        if at >= size:
            at = 0
        elif got < BLOCK:
            # Shorter than it was, or a short read, behind which a direct read has no boundary of a block.
            break
    return done


def run(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Read ``path`` for at most ``bytes`` and ``seconds``, from the block at ``share`` (0 to 1) of its size on.

    Returns:
        ``path``, ``filesystem``, ``file_bytes``, ``bytes``, ``seconds``, ``mb_s`` (10^6 bytes per second), ``how``.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not a regular file, or is empty.
    """
    path, most = str(args["path"]), int(args["bytes"])
    seconds = min(float(args["seconds"]), deadline - RESERVE)
    how = "O_DIRECT"
    try:
        fd = open_file(path, os.O_DIRECT)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        how, fd = "", open_file(path)
    try:
        size = os.fstat(fd).st_size
        if not size:
            raise ValueError("%s is empty" % path)
        start = int(float(args.get("share") or 0.0) * size) // BLOCK * BLOCK
        with mmap.mmap(-1, BLOCK) as buffer:
            if how:
                try:
                    os.preadv(fd, [buffer], start)
                except OSError as error:
                    if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                        raise
                    how = ""
                    os.close(fd)
                    fd = open_file(path)
            if not how:
                how = "page cache: no O_DIRECT here"
                with contextlib.suppress(OSError):
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            began = time.monotonic()
            done = read(fd, buffer, size, start, most, began + seconds)
            took = time.monotonic() - began
    finally:
        os.close(fd)
    mounts = ""
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        mounts = file.read()
    return {
        "path": path,
        "filesystem": filesystem_of(os.path.realpath(path), mounts),
        "file_bytes": size,
        "bytes": done,
        "seconds": took,
        "mb_s": done / took / 1e6 if took > 0 else None,
        "how": how,
    }


def judge(value: Dict[str, Any]) -> List[Judgement]:
    size = value.get("file_bytes")
    if not isinstance(size, int) or size >= SMALL:
        return []
    text = "%s has %.0f MB only, which caches on the way may hold" % (str(value.get("path"))[:200], size / 1e6)
    return [judgement("storage", "note", text)]


PROBE = ProbeSpec(
    name="storage",
    title="sequential read of the file of --storage-path: each node alone, then all nodes at once",
    phase="request",
    needs="a regular file that is readable on the node; it is never written",
    gives="file system, MB/s alone and with all nodes at once, and whether reads went past the page cache",
    run=run,
    judge=judge,
    units={"file_bytes": "B", "alone": "MB/s", "together": "MB/s"},
    compare={"alone": "near-all", "together": "near-all", "filesystem": "all", "how": "all"},
    view=(
        ("file", "path"),
        ("file system", "filesystem"),
        ("size", "file_bytes"),
        ("alone", "alone"),
        ("all nodes at once", "together"),
        ("read by", "how"),
    ),
    next="ssh {node} findmnt",
)
