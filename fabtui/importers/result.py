"""Result of reading one text: its kind, its values with their units, and lines not understood.

Lines may have prefixes, which are removed if the text then has a likelier format, or more values in the same one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fabtui.importers.catalogue import LEAST, UNKNOWN, Guess, chosen, recognise
from fabtui.importers.line_prefixes import Variant, variants
from fabtui.importers.sources import Source
from fabtui.sanitize import clean
from fabtui_node.parsers.base import UNKNOWN_LINES, Format, Reading

#: Characters at the beginning and at the end of a long text by which is decided what to remove.
_PART = 256 * 1024
#: A variant with at least this part of the values of the best one is no worse.
_ENOUGH = 0.8
#: Labels of processes that are shown.
_SHOWN = 4
#: Depth to which values are counted.
_DEEP = 40


class Recognised(NamedTuple):
    """A format, and the reading of a text in it.

    Attributes:
        guess: The format, how likely it is, and others.
        reading: What was read; None if the format is not known.
    """

    guess: Guess
    reading: Reading | None


class _Candidate(NamedTuple):
    """Format and reading of a variant of a text."""

    variant: Variant
    guess: Guess
    reading: Reading | None

    @property
    def known(self) -> int:
        """The number of its known values."""
        return 0 if self.reading is None else _count(self.reading.values)

    @property
    def missed(self) -> int:
        """The number of lines that it does not understand."""
        return 0 if self.reading is None else len(self.reading.unknown)


def recognised(text: str, named: Format | None = None) -> Recognised:
    """Return the format of a text, or the one that was named, and its reading.

    Prefixes are removed if the text then has a likelier format, or more values in the same one.
    """
    part = text if len(text) <= 2 * _PART else text[:_PART] + "\n" + text[-_PART:]
    plain = Variant()
    shown = plain.of(part)
    best = _candidate(shown, plain, named)
    seen = {shown}
    for variant in variants(part):
        shown = variant.of(part)
        if shown not in seen:
            seen.add(shown)
            other = _candidate(shown, variant, named)
            best = other if _better(other, best) else best
    form, reading = best.guess.format, best.reading
    if form is None or reading is None:
        return Recognised(best.guess, None)
    if part is not text:
        reading = form.parse(best.variant.of(text))
    # One capital, and the case of letters counts. The keys of JSON have none.
    if part.islower() and not part.lstrip().startswith(("{", "[")) and form.likely(f"{part}\nA") < LEAST:
        warning = f"the text has no capitals, which output of {form.name} has: what was lost with them is not read"
        reading = reading._replace(warnings=[warning, *reading.warnings][:UNKNOWN_LINES])
    if labels := best.variant.labels(part):
        more = f" and {len(labels) - _SHOWN} others" if len(labels) > _SHOWN else ""
        warning = f"outputs of {', '.join(labels[:_SHOWN])}{more} are read one after another, without these names"
        reading = reading._replace(warnings=[warning, *reading.warnings][:UNKNOWN_LINES])
    return Recognised(best.guess, reading)


def _candidate(text: str, variant: Variant, named: Format | None) -> _Candidate:
    guess = recognise(text) if named is None else Guess(named, 1.0, [])
    return _Candidate(variant, guess, None if guess.format is None else guess.format.parse(text))


def _better(other: _Candidate, best: _Candidate) -> bool:
    form = other.guess.format
    by_who = other.variant.by_who
    if form is None or (by_who and form.log):
        # Lines of a log stay in the order in which they happened.
        return False
    if best.guess.format is not form:
        return other.guess.sure > best.guess.sure or best.guess.format is None
    if other.guess.sure != best.guess.sure:
        return other.guess.sure > best.guess.sure
    if any(layer.weak for layer in other.variant.layers):
        return False
    if form.log:
        return other.known > best.known
    # A prefix is no part of a table: what more is read with it are mostly lines taken for something else. Outputs of
    # several processes, interleaved, may give as many values as one after another, and wrong ones.
    return other.missed < best.missed or (other.missed == best.missed and other.known >= _ENOUGH * best.known)


def _count(value: Any, depth: int = 0) -> int:
    """Return the number of values that are known, at any depth."""
    if depth > _DEEP:
        return 0
    if isinstance(value, dict):
        return sum(_count(item, depth + 1) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_count(item, depth + 1) for item in value)
    return value is not None


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
