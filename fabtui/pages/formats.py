"""Reports as files, in the format of the ending of its name."""

from __future__ import annotations

from pathlib import Path

from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.export.atomic_write import write_atomically
from fabtui.pages.contents import document
from fabtui.pages.document import Document
from fabtui.pages.html import html
from fabtui.pages.markdown import markdown
from fabtui.pages.suffixes import MARKDOWN


def write_document(found: Document, path: Path) -> None:
    """Write a report, whole or not at all (OSError)."""
    text = markdown(found) if path.suffix.lower() in MARKDOWN else html(found)
    write_atomically(path, lambda file: file.write(text.encode("utf-8", "backslashreplace")))


def write_report(found: Diagnosis, path: Path) -> None:
    """Write the report of a session, whole or not at all (OSError)."""
    write_document(document(found, ()), path)
