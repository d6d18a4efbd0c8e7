"""Names of arguments in refusals: options of the command line, unless a tool of assistants was asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar

#: What the tool that is asked, if any, takes by its plain name.
_PLAIN: ContextVar[frozenset[str]] = ContextVar("arguments of the tool", default=frozenset())


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
