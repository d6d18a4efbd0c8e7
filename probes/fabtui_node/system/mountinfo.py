"""Lines of ``/proc/self/mountinfo`` (proc(5))."""

from __future__ import annotations

from typing import Iterator, NamedTuple


class MountLine(NamedTuple):
    """A mount. ``root`` and ``point`` are as the kernel writes them, with escaped blanks; see `plain`."""

    root: str
    point: str
    options: str  #: Options of the mount.
    kind: str  #: Type of the file system.
    source: str
    more: str  #: Options of the file system.


def mount_lines(text: str) -> Iterator[MountLine]:
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split(" ")  # a source may be empty
        if len(fields) >= 6 and len(kind) >= 3:
            yield MountLine(fields[3], fields[4], fields[5], kind[0], kind[1], kind[2])


def plain(path: str) -> str:
    """Return a path of a line with its blanks."""
    return path.replace("\\040", " ")
