"""What every parser of a command's output gives, whatever the command."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Tuple

#: How much of what was not understood is kept.
UNKNOWN_LINES = 50
UNKNOWN_WIDTH = 300


class Reading(NamedTuple):
    """What a parser made of a text.

    Attributes:
        values: What was understood, JSON-able. What the text does not say is None or missing, a state ``unknown``:
            never a guess, and never 0 for what is not known.
        warnings: What the text itself complains of, or what makes it doubtful (cut off, contradicting itself).
        unknown: Lines that should have been understood and were not, cut to a length, at most `UNKNOWN_LINES`.
    """

    values: Dict[str, Any]
    warnings: List[str]
    unknown: List[str]


class Format(NamedTuple):
    """The output of a command.

    Attributes:
        name: What users call it (``fabtui read --as NAME``).
        title: One line for users.
        argv: The command that prints it as a probe runs it, empty when no probe of ours does.
        units: The unit of each value that has one, by the name it has in ``values``, at whatever depth.
        likely: How sure one can be, from 0 to 1, that a text (its first 64 kB) is of this command.
        parse: Makes a reading of a text; never raises, whatever the text.
    """

    name: str
    title: str
    argv: Tuple[str, ...]
    units: Dict[str, str]
    likely: Callable[[str], float]
    parse: Callable[[str], Reading]


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
        """Keep a line that was not understood."""
        if line.strip() and len(self.unknown) < UNKNOWN_LINES:
            self.unknown.append(line.strip("\r\n")[:UNKNOWN_WIDTH])

    def reading(self, values: Dict[str, Any]) -> Reading:
        """Return the reading with these values."""
        return Reading(values, self.warnings, self.unknown)
