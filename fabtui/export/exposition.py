"""Contents of a file of metrics besides the measurements."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from fabtui.errors import InputError

#: Labels of our own metrics, which a user's label must not replace.
_TAKEN = frozenset(
    (
        *("version", "engine", "layer", "verdict", "class", "bytes", "quantile", "kind", "group", "node", "state"),
        *("severity", "component", "subject", "endpoint", "src", "dst", "job", "instance", "le"),
    )
)
_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]{0,63}")


class Exposition(NamedTuple):
    """Contents of a file of metrics."""

    pairs: bool = False  #: Whether each pair has series of its own; 1,024 endpoints have about a million in each layer.
    labels: tuple[tuple[str, str], ...] = ()  #: Labels that the user adds to every series.

    @classmethod
    def of(cls, pairs: bool, labels: Sequence[str]) -> Exposition:
        """Return the contents that options ask for.

        Raises:
            InputError: A label is not ``NAME=VALUE``, or its name cannot be used.
        """
        found: dict[str, str] = {}
        for text in labels:
            name, equals, value = text.partition("=")
            if not equals or not _NAME.fullmatch(name):
                raise InputError(f"--prom-label: {text!r}: write NAME=VALUE, such as fabric=rack1")
            if name in _TAKEN or name in found:
                raise InputError(f"--prom-label: the label {name} is in use; choose another name")
            found[name] = value
        return cls(pairs, tuple(found.items()))
