"""Result of reading one text: its kind, its values with their units, and lines not understood."""

from __future__ import annotations

from typing import Any, NamedTuple

from fabtui.importers.catalogue import UNKNOWN, chosen
from fabtui.importers.recognition import recognised
from fabtui.importers.sources import Source
from fabtui.sanitize import clean

#: Maximum characters kept of a text that is not recognised.
MOST_RAW = 256 * 1024


class Result(NamedTuple):
    """Result of reading a text.

    Attributes:
        source: The text and where it is from.
        kind: The name of its format, or ``unknown``.
        title: The title of the format.
        values: What was understood; empty where the kind is unknown.
        units: The unit of each value in ``values`` that has one, by its name.
        warnings: What the text complains of, and what makes it doubtful.
        unknown: Lines that were not understood.
        others: Other formats it may have, the most likely first.
    """

    source: Source
    kind: str
    title: str
    values: dict[str, Any]
    units: dict[str, str]
    warnings: list[str]
    unknown: list[str]
    others: list[str]

    @property
    def known(self) -> bool:
        """True if the kind is known."""
        return self.kind != UNKNOWN

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object; the text itself is in it where its kind is unknown."""
        found: dict[str, Any] = {
            "file": clean(self.source.name),
            "kind": self.kind,
            "title": self.title,
            "values": self.values,
            "units": self.units,
            "warnings": self.warnings,
            "unknown": self.unknown,
        }
        if not self.known:
            found["maybe"] = self.others
            found["raw"] = self.source.text[:MOST_RAW]
        return _cleaned(found)  # type: ignore[no-any-return]


def read(source: Source, kind: str | None = None) -> Result:
    """Parse a text.

    Args:
        source: The text.
        kind: The name of its format; None: the likeliest.

    Raises:
        InputError: There is no format of that name.
    """
    guess, reading = recognised(source.text, None if kind is None else chosen(kind))
    form, others = guess.format, guess.others
    cut = [source.cut] if source.cut else []
    json = source.text.lstrip()[:1] in ("{", "[") and source.text.endswith(("}", "]"))
    if source.text.strip() and not json and not source.text.endswith(("\n", "\r")):
        cut.append("the text does not end in a line end: its last line may be cut off")
    if form is None or reading is None:
        why = "nothing in it" if not source.text.strip() else "format not recognised"
        if others:
            why = f"may be {' or '.join(others[:4])}; name it with --as"
        return Result(source, UNKNOWN, "not recognised", {}, {}, [*cut, why], [], others)
    names = _names(reading.values)
    units = {name: unit for name, unit in form.units.items() if name in names}
    return Result(
        source, form.name, form.title, reading.values, units, [*cut, *reading.warnings], reading.unknown, others
    )


def _names(value: Any, depth: int = 0) -> set[str]:
    """Return the names in a value, at any depth."""
    if depth > 40:
        return set()
    if isinstance(value, dict):
        found = {str(name) for name in value}
        return found.union(*(_names(item, depth + 1) for item in value.values()))
    if isinstance(value, (list, tuple)):
        # Rows of a list are alike; the first ones suffice.
        return set().union(*(_names(item, depth + 1) for item in value[:50]))
    return set()


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(name)): _cleaned(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(item) for item in value]
    return value
