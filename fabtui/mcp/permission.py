"""Permissions of assistants, from the person who starts the server: nodes, tests, and node seconds of tests."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence

from fabtui.errors import InputError
from fabtui.nodeset import count, fold
from fabtui.sanitize import one_line

#: Least time (s) in which a test is worth its start.
_LEAST = 5.0


class Permission:
    """Nodes and tests that are allowed.

    Args:
        nodes: The only nodes that they may name, in order; empty for any.
        tests: Whether they may test GPUs and links.
        budget: Node seconds of all tests together.
    """

    def __init__(self, nodes: Sequence[str] = (), *, tests: bool = False, budget: float = 0.0) -> None:
        self.nodes = tuple(nodes)
        self.tests = tests
        self.left = budget  #: Node seconds that are left for tests.
        self._allowed = frozenset(nodes)
        #: Nodes that are being tested.
        self._tested: set[str] = set()

    def check(self, nodes: Iterable[str], what: str = "nodes") -> None:
        """Raise `InputError` if some nodes are not allowed; ``what`` names them.

        They are quoted: a recording or a job may have any words for names.
        """
        strangers = [name for name in nodes if self._allowed and name not in self._allowed]
        if strangers:
            raise InputError(
                f"{what}: {one_line(fold(strangers), 200)!r} not allowed; "
                f"this server was started for {one_line(fold(self.nodes), 200)} (--nodes)"
            )

    def is_within(self, nodes: Iterable[str]) -> bool:
        return not self._allowed or self._allowed.issuperset(nodes)

    def check_tests(self) -> None:
        """Raise `InputError` if tests are not allowed."""
        if not self.tests:
            raise InputError("tests are not allowed: this server was started without --allow-tests")

    @contextlib.contextmanager
    def spend(self, nodes: Sequence[str], seconds: float) -> Iterator[float]:
        """Take node seconds out of the budget, yield the time (s) that a test may take, and give back what it did not.

        Two tests of one node at once would measure each other.

        Raises:
            InputError: Another call tests some of the nodes, or too little of the budget is left.
        """
        if common := self._tested.intersection(nodes):
            raise InputError(
                f"nodes: another call tests {one_line(fold(sorted(common)), 200)} now; "
                "wait for its answer, or leave these nodes out"
            )
        time_given = min(seconds, self.left / max(1, len(nodes)))
        if time_given < _LEAST:
            held = ", the rest is held by tests that still run" if self._tested else ""
            raise InputError(
                f"the budget of tests is spent: {self.left:.0f} node seconds are left (--budget){held}, "
                f"and a test of {count(len(nodes), 'node')} takes {_LEAST * len(nodes):.0f} at least"
            )
        self.left -= len(nodes) * time_given
        self._tested.update(nodes)
        began = time.monotonic()
        try:
            yield time_given
        finally:
            self._tested.difference_update(nodes)
            self.left += len(nodes) * max(0.0, time_given - (time.monotonic() - began))
