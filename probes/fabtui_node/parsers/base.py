"""Types shared by all parsers: formats, readings and notes."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

#: Maximum number and width of the lines kept that were not understood.
UNKNOWN_LINES = 50
UNKNOWN_WIDTH = 300


class Reading(NamedTuple):
    """Result of parsing a text."""

    #: JSON-able values. Missing values are None or absent, unknown states are ``unknown``: never a guess, and never 0
    #: for an unknown number.
    values: Dict[str, Any]
    warnings: List[str]  #: Complaints in the text, and signs that it is cut off or contradicts itself.
    #: Lines that should have been understood and were not, cut to a length, at most `UNKNOWN_LINES`.
    unknown: List[str]


class Format(NamedTuple):
    """Format of the output of a command."""

    name: str  #: Name for users (``fabtui read --as NAME``).
    title: str  #: One line for users.
    likely: Callable[[str], float]  #: Likelihood from 0 to 1 that the first or last 64 KiB of a text are its output.
    parse: Callable[[str], Reading]  #: Parses a text; never raises.
    #: The unit of each value that has one, by the name it has in ``values``, at any depth.
    units: Dict[str, str] = {}  # noqa: RUF012 - never changed
    log: bool = False  #: True if it may have dates and tags before its lines, of which several processes wrote some.
    aliases: str = ""  #: Regular expression of its other names: tools of a suite, and synonyms.
    #: Adds its measurements to a draft of a session, given the values and a name for an unknown node; None if it has
    #: none.
    convert: Optional[Callable[[Any, Dict[str, Any], str], None]] = None
    #: True if what it measures between pairs must not be compared with pairs of another format.
    incomparable: bool = False
    #: Returns the values of probes that the output has, by the node ("" if the output does not name it) and the name of
    #: the probe; None if no probe has them.
    facts: Optional[Callable[[Dict[str, Any]], Dict[str, Dict[str, Dict[str, Any]]]]] = None
    #: Source of evidence about a running job (``flight``, ``ras``) that it is; its values have ``answer``, ``hangs``,
    #: ``behind`` and ``next``.
    job: str = ""
    errors: bool = False  #: True if it may have the errors of libraries that the catalogue of errors explains.
    #: Names of values for ``--json`` only: a matrix or a selection represents them in text.
    hidden: Tuple[str, ...] = ()
    sweeps: bool = False  #: True if text shows its measurements as tables of bandwidths by the number of endpoints.


class Likely:
    """A ``Format.likely`` with the patterns one of which matches in each text that it likes, so that few are asked."""

    def __init__(self, function: Callable[[str], float], *needs: str) -> None:
        self._function = function
        self.needs = needs

    def __call__(self, text: str) -> float:
        return self._function(text)


def first_of(*patterns: Tuple[float, str]) -> Likely:
    """Return a ``Format.likely``: the first pattern found in a text decides; ``^`` and ``$`` match at lines."""
    # "\n" is looked for 10 times as fast as "^". Where there are alternatives, "^" may belong to the first alone.
    lines = [(found, "\n" + p[1:] if p[0] == "^" and "|" not in p else p) for found, p in patterns]

    def likely(text: str) -> float:
        after_line_end = "\n" + text
        for found, pattern in lines:
            if re.search(pattern, after_line_end if pattern[0] == "\n" else text, re.MULTILINE):
                return found
        return 0.0

    return Likely(likely, *(pattern for _, pattern in patterns))


class Notes:
    """Collects warnings and lines that were not understood, within bounds."""

    def __init__(self) -> None:
        self.warnings: List[str] = []
        self.unknown: List[str] = []

    def warn(self, text: str) -> None:
        """Keep a warning, once."""
        text = text.strip()[:UNKNOWN_WIDTH]
        if len(self.warnings) < UNKNOWN_LINES and text not in self.warnings:
            self.warnings.append(text)

    def puzzled(self, line: str) -> None:
        if line.strip() and len(self.unknown) < UNKNOWN_LINES:
            self.unknown.append(line.strip("\r\n")[:UNKNOWN_WIDTH])

    def reading(self, values: Dict[str, Any]) -> Reading:
        return Reading(values, self.warnings, self.unknown)
