"""Errors of the user, as opposed to errors on a node, and the names of arguments in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar

#: What the tool that is asked, if any, takes by its plain name.
_PLAIN: ContextVar[frozenset[str]] = ContextVar("arguments of the tool", default=frozenset())


class InputError(Exception):
    """Bad usage or input: the text is one line with the problem, its place and what to do."""


def argument(name: str, on_command_line: str = "") -> str:
    """Return how the one who asks names an argument.

    Args:
        name: Its name: ``nodes``.
        on_command_line: Its name there, if it is not ``--nodes``.
    """
    return name if name in _PLAIN.get() else on_command_line or f"--{name}"


@contextlib.contextmanager
def asked_by_tool(names: Iterable[str]) -> Iterator[None]:
    """Name these arguments plainly meanwhile: only they can be given; others are still those of the command line."""
    token = _PLAIN.set(frozenset(names))
    try:
        yield
    finally:
        _PLAIN.reset(token)
