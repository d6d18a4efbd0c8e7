"""Content of a report, independent of its format. Texts are raw; each format cleans and escapes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from fabtui.errors import InputError

if TYPE_CHECKING:
    from fabtui.model.layers import Layer
    from fabtui.pictures.scene import Scene

#: Width of grids in a pipe or a file.
USUAL_WIDTH = 240
#: Endings of the names of reports.
HTML, MARKDOWN = (".html", ".htm"), (".md", ".markdown")


class Shown(NamedTuple):
    """The grids of a summary (None: all with values; empty: p2p, and world if it differs), and its maximum width.

    Text is wrapped to ``text_width``; None: it is not wrapped.
    """

    layers: tuple[Layer, ...] | None = ()
    width: int = USUAL_WIDTH
    text_width: int | None = None


class Paragraph(NamedTuple):
    """A sentence; ``head``: what follows belongs to it, so that texts have no blank line in between."""

    text: str
    head: bool = False


class Items(NamedTuple):
    """A list below a heading, which may be empty; ``whole``: lines are copied, so that texts do not wrap them."""

    title: str
    items: Sequence[str]
    whole: bool = False


class Table(NamedTuple):
    """A table."""

    title: str  #: Caption.
    #: Cells by row, the heading first, which may be blank; the first cell of a row names it. A heading may have three
    #: lines: group of columns, name and unit.
    rows: Sequence[Sequence[str]]
    left: Collection[int] = (0,)  #: Columns of text; the others are aligned to the right.
    notes: Sequence[str] = ()  #: Sentences below.
    folded: bool = False  #: Whether a reader has to open it.
    grid: bool = False  #: Whether it is a matrix, with narrow cells.


class Lines(NamedTuple):
    """Text of fixed width: a grid, commands, or lines of a log; ``folded`` as in `Table`."""

    title: str
    lines: Sequence[str]
    folded: bool = False


class Picture(NamedTuple):
    """A picture."""

    title: str
    scene: Scene
    narrow: Scene | None = None  #: The same for narrow screens.
    lines: Sequence[str] = ()  #: The same as text of fixed width; formats without pictures show this.


class Entry(NamedTuple):
    """A finding."""

    number: int  #: Its number in all views and texts of the session.
    rule: str  #: Id of its rule.
    severity: str  #: ``bad``, ``warn`` or ``note``.
    title: str  #: What was found.
    labels: Sequence[str]  #: Rule, nodes, confidence.
    evidence: Sequence[str]  #: Sentences.
    next: Sequence[str]  #: Commands to run next.
    about: Sequence[str]  #: Meaning of the rule.
    tone: str = ""  #: Name of the colour of its pairs, `fabtui.presentation.cell_levels.CellStyle`; "" without any.


class Panel(NamedTuple):
    """Part of a section, which a page may show as a tab; ``whole``: texts show all of its lines."""

    title: str
    blocks: Sequence[Block]
    whole: bool = False


Block = Paragraph | Items | Table | Lines | Picture | Entry | Panel


class Section(NamedTuple):
    """A section with its heading; ``name`` is its anchor.

    ``folded``: a reader of a page has to open it, and a text for a ticket leaves it out.
    """

    name: str
    title: str
    blocks: Sequence[Block]
    folded: bool = False


class Document(NamedTuple):
    """A report."""

    title: str  #: What was tested.
    about: Sequence[tuple[str, str]]  #: Labels and values: site, date, hardware, software, sources.
    verdict: str  #: Verdict in one sentence.
    state: str  #: ``ok``, ``bad`` or ``unknown``.
    summary: Sequence[str]  #: Further sentences of the verdict.
    sections: Sequence[Section]  #: The sections.
    code: int  #: Exit code of the session; 3 if the format of a file was not recognised.


def check_suffix(path: Path, option: str) -> None:
    """Raise InputError if the ending of a name is of no format of reports."""
    if path.suffix.lower() not in (*HTML, *MARKDOWN):
        raise InputError(f"{option}: {path.name!r} should end in .html for a page, or in .md for Markdown")


def takes_unicode(out: TextIO) -> bool:
    return (out.encoding or "").lower().replace("-", "") in ("utf8", "utf16", "utf32")
