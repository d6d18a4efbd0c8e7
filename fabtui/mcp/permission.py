"""Permissions of assistants: nodes, tests and node seconds, by the person who starts the server, and files."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fabtui.errors import InputError
from fabtui.nodeset import fold
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
        """Raise `InputError` if some nodes are not allowed; ``what`` names them, in quotes: any words may be names."""
        if strangers := [name for name in nodes if not self.is_within([name])]:
            named, own = one_line(fold(strangers), 200), one_line(fold(self.nodes), 200)
            raise InputError(f"{what}: {named!r} not allowed; this server was started for {own} (--nodes)")

    @contextlib.contextmanager
    def spend(self, nodes: Sequence[str], seconds: float) -> Iterator[float]:
        """Take node seconds out of the budget, yield the time (s) of a test, and give back what it did not take."""
        # Two tests of one node at once would measure each other.
        if common := self._tested.intersection(nodes):
            names = one_line(fold(sorted(common)), 200)
            raise InputError(f"nodes: another call tests {names} now; wait for its answer, or leave these nodes out")
        seconds, least = min(seconds, self.left / max(1, len(nodes))), f"{_LEAST * len(nodes):.0f}"
        if seconds < _LEAST:
            held = ", the rest is held by tests that still run" if self._tested else ""
            left = f"{self.left:.0f} node seconds are left (--budget){held}, and this test takes {least} at least"
            raise InputError(f"the budget of tests is spent: {left}")
        self.left -= len(nodes) * seconds
        self._tested.update(nodes)
        began = time.monotonic()
        try:
            yield seconds
        finally:
            self._tested.difference_update(nodes)
            self.left += len(nodes) * max(0.0, seconds - (time.monotonic() - began))


def checked_file(text: str, where: str, recordings: Path | None = None) -> Path:
    """Return the path of a regular file of the user, with links followed; ``where`` is the argument that has it."""
    name = one_line(text, 200)
    try:
        path = Path(os.path.realpath(user_path(text)))
        status = path.stat()
    except (OSError, ValueError) as error:
        raise InputError(f"{where}: cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    own = recordings and Path(os.path.realpath(recordings))
    # The folder of the recordings may be in a hidden one.
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
        _check_shown(Path(*(part for part in Path(text).parts if part not in (".", ".."))), text, where)
        with contextlib.suppress(OSError, ValueError):
            _check_shown(Path(os.path.realpath(user_path(text))), text, where)


def _check_shown(path: Path, name: str, where: str) -> None:
    """Raise `InputError` if a file without links is of the kernel, or hidden: those hold keys, tokens, histories."""
    if any(part.startswith(".") for part in path.parts):
        raise InputError(f"{where}: {one_line(name, 200)} is hidden, or in a hidden folder: not read for assistants")
    if path.parts[:2] in (("/", "proc"), ("/", "sys"), ("/", "dev")):
        raise InputError(f"{where}: {one_line(name, 200)} is not a regular file; name files one by one")
