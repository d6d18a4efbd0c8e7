"""Text that a spreadsheet would take for a formula, made harmless and back again."""

from __future__ import annotations

_STARTS = "=+-@\t\r\uff1d\uff0b\uff0d\uff20"
_MARK = "'"


def escaped(text: str) -> str:
    """Return a text cell that no spreadsheet runs: an apostrophe before what looks like a formula.

    A text that begins with an apostrophe gets another one, so that `unescaped` gives back exactly what was there.
    """
    first = text.lstrip()[:1]
    risky = text[:1] in ("\t", "\r") or (first != "" and first in _STARTS)
    return _MARK + text if risky or text.startswith(_MARK) else text


def unescaped(text: str) -> str:
    """Return the text that `escaped` was given."""
    return text[1:] if text.startswith(_MARK) else text
