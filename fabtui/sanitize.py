"""Remove control and invisible characters from text of nodes and files.

Output of a node (banners, errors, device names) may contain escape sequences, direction overrides and other characters
that disguise text. They are removed here, once, before the text is shown or written.
"""

from __future__ import annotations

import re

ELLIPSIS = "\u2026"

# C0 and C1 controls and DEL but for tab and newline (carriage returns are handled apart, U+0085 is a control here);
# then what is invisible or turns the direction of writing: soft hyphen, Arabic letter mark, Mongolian vowel separator,
# zero-width and direction marks, embeddings and overrides, word joiner and invisible operators, isolates and deprecated
# format characters, byte order mark, annotation anchors, tag characters.
_UNFIT_SET = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_UNFIT = re.compile(_UNFIT_SET)
# The control sequences that fabtui itself prints: colours, and the begin and rest of a line.
_UNFIT_BUT_OURS = re.compile(rf"(\x1b\[[0-9;]{{0,20}}m|\r(?:\x1b\[K)?)|{_UNFIT_SET}|[\u2028\u2029]")
_UNFIT_OR_END = re.compile(rf"{_UNFIT_SET}|[\u2028\u2029]")
_LINE_ENDS = re.compile("\r\n?|\u2028|\u2029")
_SURROGATES = re.compile("[\ud800-\udfff]")
_SPACES = re.compile(r"\s+")


def clean(text: str | bytes, limit: int | None = None) -> str:
    """Return a text without control and invisible characters.

    Newlines and tabs stay; carriage returns and Unicode line separators become newlines; lone surrogates, which cannot
    be encoded, become U+FFFD.

    Args:
        text: Untrusted text; bytes are decoded as UTF-8, undecodable ones shown as hexadecimal escapes.
        limit: Maximum number of characters; a longer text is cut and ends in an ellipsis.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    if not (text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()):
        text = _LINE_ENDS.sub("\n", text)
        text = _UNFIT.sub("", text)
        text = _SURROGATES.sub("\ufffd", text)
    return _cut(text, limit)


def drawable(text: str) -> str:
    """Return a piece of a line without control and invisible characters, which take no room on the screen.

    Called once more for all that is drawn, where texts have been cleaned before; printable ones cost next to nothing.
    """
    return text if text.isprintable() else _UNFIT_OR_END.sub("", text)


def escaped(text: str) -> str:
    """Return JSON text in which control and invisible characters are escapes, so that a terminal may show the file."""
    return text if text.isprintable() else _UNFIT_OR_END.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def printable(text: str) -> str:
    """Return text for a terminal without control and invisible characters but for line ends, tabs and colours."""
    return _UNFIT_BUT_OURS.sub(lambda found: found[1] or "", text)


def one_line(text: str | bytes, limit: int | None = None) -> str:
    """Return a cleaned text on one line: every run of white space is one space, none at the ends."""
    if isinstance(text, str) and text.isascii() and text.isprintable() and "  " not in text and text == text.strip():
        return _cut(text, limit)
    return _cut(_SPACES.sub(" ", clean(text)).strip(), limit)


def last_line(text: str | bytes, limit: int | None = None) -> str:
    """Return the last line of a text that is not blank, cleaned, or an empty string."""
    for line in reversed(clean(text).splitlines()):
        if line.strip():
            return one_line(line, limit)
    return ""


def _cut(text: str, limit: int | None) -> str:
    if limit is None or len(text) <= limit:
        return text
    return text[: max(limit - 1, 0)] + ELLIPSIS[: max(limit, 0)]
