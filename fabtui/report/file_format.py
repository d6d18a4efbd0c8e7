"""Format of the file of a report, by the ending of its name."""

from __future__ import annotations

from pathlib import Path

from fabtui.errors import InputError

HTML, MARKDOWN = (".html", ".htm"), (".md", ".markdown")


def check_suffix(path: Path, option: str) -> None:
    """Raise InputError if the ending of a name is of no format of reports."""
    if path.suffix.lower() not in (*HTML, *MARKDOWN):
        raise InputError(f"{option}: {path.name!r} should end in .html for a page, or in .md for Markdown")
