"""Raw texts, squeezed some hundreds together: most are alike but for the numbers in them.

What texts have in common is kept once, as a form; their numbers lie in columns, as those at one place of all texts are
alike. That takes half of what the texts take when they are compressed as they are.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Sequence

_NUMBER = re.compile(r"([0-9]+)")
#: Stands for each number in a form.
_HERE = "0"
#: A form of fewer texts than this saves nothing.
_FEWEST = 4
#: A column of numbers as text: how many characters each has, or one of these, and the text.
_Column = tuple[int, str]
_SAME, _SPACED = -1, 0


def squeezed(texts: Sequence[str | None]) -> bytes | None:
    """Return texts packed, or None where there is none; `unsqueezed` gives them back as they were."""
    rows: dict[str, list[list[str]]] = {}
    kinds: list[str | None] = []
    for text in texts:
        kind = None
        if text is not None:
            parts = _NUMBER.split(text)
            kind = _HERE.join(parts[::2])
            rows.setdefault(kind, []).append(parts[1::2])
        kinds.append(kind)
    if not rows:
        return None
    forms = [form for form, numbers in rows.items() if len(numbers) >= _FEWEST]
    places = {form: place for place, form in enumerate(forms)}
    #: The place of the form of each text; a text without a form as it is.
    which = [text if kind is None else places.get(kind, text) for kind, text in zip(kinds, texts, strict=True)]
    columns = [[_column(column) for column in zip(*rows[form], strict=True)] for form in forms]
    whole = json.dumps([which, forms, columns], separators=(",", ":"), ensure_ascii=False)
    return zlib.compress(whole.encode("utf-8", "surrogatepass"), 6)


def unsqueezed(data: bytes) -> list[str | None]:
    """Return the texts that `squeezed` packed."""
    which, forms, columns = json.loads(zlib.decompress(data).decode("utf-8", "surrogatepass"))
    filled = [_filled(form, columns[place], which.count(place)) for place, form in enumerate(forms)]
    return [next(filled[one]) if isinstance(one, int) else one for one in which]


def _column(numbers: Sequence[str]) -> _Column:
    """Return the numbers at one place of all texts of a form."""
    if numbers.count(numbers[0]) == len(numbers):
        return _SAME, numbers[0]
    widths = {len(number) for number in numbers}
    return (widths.pop(), "".join(numbers)) if len(widths) == 1 else (_SPACED, " ".join(numbers))


def _numbers(width: int, text: str, count: int) -> list[str]:
    if width == _SAME:
        return [text] * count
    return text.split(" ") if width == _SPACED else [text[at : at + width] for at in range(0, len(text), width)]


def _filled(form: str, columns: list[_Column], count: int) -> Iterator[str]:
    """Yield the texts of a form, in their order."""
    first, *rest = form.split(_HERE)
    told = [_numbers(width, text, count) for width, text in columns]
    for at in range(count):
        yield first + "".join([column[at] + after for column, after in zip(told, rest, strict=True)])
