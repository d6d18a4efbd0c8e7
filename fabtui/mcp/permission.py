"""Permissions of assistants: nodes, tests and node seconds, by the person who starts the server, and files."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fabtui.errors import InputError
from fabtui.nodeset import count, fold
from fabtui.paths import user_path
from fabtui.sanitize import one_line

#: Least time (s) in which a test is worth its start.
_LEAST = 5.0
#: Maximum size (bytes) of a file, and of all logs and outputs of a call: those are read in about its time limit, and
#: the thread that reads them cannot be interrupted.
MOST_BYTES, MOST_TOGETHER = 256 << 20, 64 << 20


class Permission:
    """Nodes and tests that are allowed."""

    def __init__(self, nodes: Sequence[str] = (), *, tests: bool = False, budget: float = 0.0) -> None:
        self.nodes = tuple(nodes)  #: The only nodes that they may name, in order; empty for any.
        self.tests = tests  #: Whether they may test GPUs and links.
        self.left = budget  #: Node seconds that are left for all tests together.
        self._allowed = frozenset(nodes)
        self._tested: set[str] = set()

    def is_within(self, nodes: Iterable[str]) -> bool:
        return not self._allowed or self._allowed.issuperset(nodes)

    def check(self, nodes: Iterable[str], what: str = "nodes") -> None:
        """Raise `InputError` if some nodes are not allowed; ``what`` names them.

        They are quoted: a recording or a job may have any words for names.
        """
        if strangers := [name for name in nodes if not self.is_within([name])]:
            raise InputError(
                f"{what}: {one_line(fold(strangers), 200)!r} not allowed; "
                f"this server was started for {one_line(fold(self.nodes), 200)} (--nodes)"
            )

    def check_tests(self) -> None:
        if not self.tests:
            raise InputError("tests are not allowed: this server was started without --allow-tests")

    @contextlib.contextmanager
    def spend(self, nodes: Sequence[str], seconds: float) -> Iterator[float]:
        """Take node seconds out of the budget, yield the time (s) of a test, and give back what it did not take."""
        # Two tests of one node at once would measure each other.
        if common := self._tested.intersection(nodes):
            names = one_line(fold(sorted(common)), 200)
            raise InputError(f"nodes: another call tests {names} now; wait for its answer, or leave these nodes out")
        seconds = min(seconds, self.left / max(1, len(nodes)))
        if seconds < _LEAST:
            held = ", the rest is held by tests that still run" if self._tested else ""
            raise InputError(
                f"the budget of tests is spent: {self.left:.0f} node seconds are left (--budget){held}, "
                f"and a test of {count(len(nodes), 'node')} takes {_LEAST * len(nodes):.0f} at least"
            )
        self.left -= len(nodes) * seconds
        self._tested.update(nodes)
        began = time.monotonic()
        try:
            yield seconds
        finally:
            self._tested.difference_update(nodes)
            self.left += len(nodes) * max(0.0, seconds - (time.monotonic() - began))


def checked_file(text: str, where: str, recordings: Path | None = None) -> Path:
    """Return the path of a regular file of the user, with links followed; raise `InputError` for any other.

    Hidden files and folders hold keys, tokens and histories of shells, which no assistant is to see. The folder of the
    recordings may be in a hidden one. ``where`` is the argument that has the path.
    """
    name = one_line(text, 200)
    try:
        path = Path(os.path.realpath(user_path(text)))
        status = path.stat()
    except (OSError, ValueError) as error:
        raise InputError(f"{where}: cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    own = recordings and Path(os.path.realpath(recordings))
    _check_shown(path.relative_to(own) if own and path.is_relative_to(own) else path, name, where)
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{where}: {name} is not a regular file; name files one by one")
    if status.st_size > MOST_BYTES:
        raise InputError(f"{where}: {name} has {status.st_size >> 20} MiB; the maximum is {MOST_BYTES >> 20} MiB")
    return path


def checked_files(texts: Iterable[str], where: str) -> list[str]:
    """Return the paths of some logs and outputs, see `checked_file`."""
    paths = [checked_file(text, where) for text in texts]
    if (size := sum(path.stat().st_size for path in paths)) > MOST_TOGETHER:
        raise InputError(f"{where}: {size >> 20} MiB; the maximum is {MOST_TOGETHER >> 20} MiB together")
    return [str(path) for path in paths]


def check_logs(patterns: Iterable[str], where: str) -> None:
    """Raise `InputError` for patterns of logs that name hidden files; what they match is checked when it is opened."""
    for text in patterns:
        name = one_line(text, 200)
        _check_shown(Path(*(part for part in Path(text).parts if part not in (".", ".."))), name, where)
        with contextlib.suppress(OSError, ValueError):
            _check_shown(Path(os.path.realpath(user_path(text))), name, where)


def _check_shown(path: Path, name: str, where: str) -> None:
    """Raise `InputError` if a file without links is hidden, or one of the kernel, whose files are none."""
    if any(part.startswith(".") for part in path.parts):
        raise InputError(f"{where}: {name} is hidden, or in a hidden folder: not read for assistants")
    if path.parts[:2] in (("/", "proc"), ("/", "sys"), ("/", "dev")):
        raise InputError(f"{where}: {name} is not a regular file; name files one by one")
