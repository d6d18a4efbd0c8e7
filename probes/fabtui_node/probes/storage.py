"""Probe ``storage``: how fast a file is read, or small files of a folder, that the user names. Nothing is ever written.

Reads go past the page cache (O_DIRECT). Where a file system refuses that, the kernel is asked to drop its pages of the
file first. The result reports how the file was read.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import random
import stat
import time
from typing import Any, Dict, List, Optional, Tuple

from fabtui_node.probes.judgement import judgement
from fabtui_node.registry import Judgement, ProbeSpec
from fabtui_node.system import mountinfo, sysfs

#: Bytes per read; a multiple of every block size, as O_DIRECT requires.
BLOCK = 4 * 1024 * 1024
#: Files below this size (bytes) fit caches of storage servers easily.
SMALL = 1 << 30
#: Time (s) of the deadline that is left for the answer.
RESERVE = 1.0
#: Largest small file (bytes), how many of a folder are known at most, and how many there are at least for a test.
SMALL_FILE, MOST_FILES, FEWEST_FILES = 1 << 20, 20_000, 16
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
    for line in mountinfo.mount_lines(mounts):
        point = mountinfo.plain(line.point).rstrip("/")
        if (path == point or path.startswith(point + "/")) and (best is None or len(point) >= best[0]):
            best = len(point), "%s %s" % (line.kind, line.source)
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


def small_files(folder: str, until: float) -> List[str]:
    """Return small files in a folder and in those below it, as many as are found in time."""
    found: List[str] = []
    folders = [folder]
    while folders and len(found) < MOST_FILES and time.monotonic() < until:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif (
                    entry.is_file(follow_symlinks=False) and 0 < entry.stat(follow_symlinks=False).st_size <= SMALL_FILE
                ):
                    found.append(entry.path)
    return found


def read_small(path: str, most: int, seconds: float, seed: str) -> Dict[str, Any]:
    """Open, read and close small files of a folder in a random order; an operation is all three of a file."""
    began = time.monotonic()
    files = small_files(path, began + seconds / 2)
    if len(files) < FEWEST_FILES:
        raise ValueError("%s has %d small files; %d are needed" % (path, len(files), FEWEST_FILES))
    draw = random.Random(seed)  # nosec B311
    done = count = failed = 0
    slowest, began = 0.0, time.monotonic()
    while time.monotonic() - began < seconds and done < most:
        start = time.monotonic()
        try:
            fd = open_file(draw.choice(files))
        except (OSError, ValueError):
            # It is gone, or may not be read.
            failed += 1
            if failed > FEWEST_FILES and not count:
                raise
            continue
        try:
            # What an earlier reader left in memory is not the storage.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            done += len(os.read(fd, SMALL_FILE))
        finally:
            os.close(fd)
        count, slowest = count + 1, max(slowest, time.monotonic() - start)
    took = max(time.monotonic() - began, 1e-9)
    rates = {"ops_s": count / took, "mb_s": done / took / 1e6, "slowest": slowest}
    return {"bytes": done, "seconds": took, "files": len(files), "how": "small files at random", **rates}


def run(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Read ``path`` for at most ``bytes`` and ``seconds``, from the block at ``share`` (0 to 1) of its size on.

    Of a folder small files are read at random, in an order that ``share`` determines.

    Returns:
        ``path``, ``filesystem``, ``file_bytes``, ``bytes``, ``seconds``, ``mb_s`` (10^6 bytes per second), ``how``; of
        a folder ``files``, ``ops_s`` and ``slowest`` (s) in place of ``file_bytes``.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not a regular file, or is empty.
    """
    path, most = str(args["path"]), int(args["bytes"])
    seconds = min(float(args["seconds"]), deadline - RESERVE)
    if os.path.isdir(path):
        value = read_small(path, most, seconds, str(args.get("share")))
        return {"path": path, "filesystem": filesystem_of(os.path.realpath(path), _mounts()), **value}
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
    return {
        "path": path,
        "filesystem": filesystem_of(os.path.realpath(path), _mounts()),
        "file_bytes": size,
        "bytes": done,
        "seconds": took,
        "mb_s": done / took / 1e6 if took > 0 else None,
        "how": how,
    }


def _mounts() -> str:
    return sysfs.text("/proc/self/mountinfo", limit=1 << 22) or ""


def judge(value: Dict[str, Any]) -> List[Judgement]:
    size = value.get("file_bytes")
    if not isinstance(size, int) or size >= SMALL:
        return []
    text = "%s has %.0f MB only, which caches on the way may hold" % (str(value.get("path"))[:200], size / 1e6)
    return [judgement("storage", "note", text)]


PROBE = ProbeSpec(
    name="storage",
    title="read of --storage-path: a file in a row, or small files of a folder at random, by 1, 2, 4 ... all nodes",
    phase="request",
    needs="a regular file, or a folder of small files, readable on the node; nothing is ever written",
    gives="file system, MB/s and files/s alone and with all nodes at once, and how it was read",
    run=run,
    judge=judge,
    units={
        "file_bytes": "B",
        "alone": "MB/s",
        "together": "MB/s",
        "ops_alone": "/s",
        "ops_together": "/s",
        "slowest": "s",
    },
    compare={"alone": "near-all", "together": "near-all", "filesystem": "all", "how": "all"},
    view=(
        ("file", "path"),
        ("file system", "filesystem"),
        ("size", "file_bytes"),
        ("alone", "alone"),
        ("all nodes at once", "together"),
        ("files/s alone", "ops_alone"),
        ("files/s, all nodes at once", "ops_together"),
        ("slowest file", "slowest"),
        ("read by", "how"),
    ),
    next="ssh {node} findmnt",
)
