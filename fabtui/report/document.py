"""Content of a report, independent of its format. Texts are raw; each format cleans and escapes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from fabtui.errors import InputError


class Paragraph(NamedTuple):
    """A sentence."""

    text: str


class Items(NamedTuple):
    """A list below a heading, which may be empty; ``whole``: lines are copied, so that texts do not wrap them."""

    title: str
    items: Sequence[str]
    whole: bool = False


class Table(NamedTuple):
    """A table.

    Attributes:
        title: Caption.
        rows: Cells by row, the heading first, which may be blank; the first cell of a row names it. A heading may have
            three lines: group of columns, name and unit.
        left: Columns of text; the others are aligned to the right.
        notes: Sentences below.
        folded: Whether a reader has to open it.
        grid: Whether it is a matrix, with narrow cells.
    """

    title: str
    rows: Sequence[Sequence[str]]
    left: Collection[int] = (0,)
    notes: Sequence[str] = ()
    folded: bool = False
    grid: bool = False


class Lines(NamedTuple):
    """Text of fixed width: a grid, commands, or lines of a log; ``folded`` as in `Table`."""

    title: str
    lines: Sequence[str]
    folded: bool = False


class Picture(NamedTuple):
    """An ``<svg>`` element made by `fabtui.pictures`; formats without pictures leave it out."""

    title: str
    svg: str


class Entry(NamedTuple):
    """A finding.

    Attributes:
        number: Its number in all views and texts of the session.
        rule: Id of its rule.
        severity: ``bad``, ``warn`` or ``note``.
        title: What was found.
        labels: Rule, nodes, confidence.
        evidence: Sentences.
        next: Commands to run next.
        about: Meaning of the rule.
    """

    number: int
    rule: str
    severity: str
    title: str
    labels: Sequence[str]
    evidence: Sequence[str]
    next: Sequence[str]
    about: Sequence[str]


class Panel(NamedTuple):
    """Part of a section, which a page may show as a tab."""

    title: str
    blocks: Sequence[Block]


Block = Paragraph | Items | Table | Lines | Picture | Entry | Panel


class Section(NamedTuple):
    """A section with its heading; ``name`` is its anchor."""

    name: str
    title: str
    blocks: Sequence[Block]


class Document(NamedTuple):
    """A report.

    Attributes:
        title: What was tested.
        about: Sources, time and versions, one line each.
        verdict: Verdict in one sentence.
        state: ``ok``, ``bad`` or ``unknown``.
        summary: Further sentences of the verdict.
        sections: The sections.
        code: Exit code of the session; 3 if the format of a file was not recognised.
    """

    title: str
    about: Sequence[str]
    verdict: str
    state: str
    summary: Sequence[str]
    sections: Sequence[Section]
    code: int


HTML, MARKDOWN = (".html", ".htm"), (".md", ".markdown")


def check_suffix(path: Path, option: str) -> None:
    """Raise InputError if the ending of a name is of no format of reports."""
    if path.suffix.lower() not in (*HTML, *MARKDOWN):
        raise InputError(f"{option}: {path.name!r} should end in .html for a page, or in .md for Markdown")
