"""Reports as Markdown for ticket systems: no raw HTML, tables that are readable as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from fabtui.presentation.wrapping import aligned, padded
from fabtui.report.document import MARKDOWN, Block, Document, Entry, Items, Lines, Panel, Paragraph, Picture, Table
from fabtui.report.html import html
from fabtui.sanitize import clean, one_line

#: Inline Markdown characters, matched only where they would act as markup.
_SPECIAL = re.compile(
    r"[\\`*|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=//)|<(?=[A-Za-z/!?])|&(?=#?\w+;)|\[(?=.*\][(\[:])"
)
_ENTITIES = {"<": "&lt;", "&": "&amp;"}
#: Beginnings of lines that would be a heading, a list, a quotation or a rule.
_START = re.compile(r"(?=#{1,6}(?:\s|$)|[+-](?:\s|$)|>|=+$|-+$)|^\d{1,9}(?=[.)](?:\s|$))")


def markdown(document: Document) -> str:
    lines = [f"# {_inline(document.verdict)}", "", *(f"- {_inline(line)}" for line in document.summary), ""]
    lines += [*(f"- {_inline(f'{name}: {value}')}" for name, value in document.about), ""]
    for section in document.sections:
        if not section.folded:
            lines += [f"## {_inline(section.title)}", ""] if section.title else []
            lines += [line for block in section.blocks for line in _block(block)]
    if folded := [section.title for section in document.sections if section.folded]:
        lines += [_inline(f"A page has more (fabtui report -o report.html): {', '.join(folded)}."), ""]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _inline(value: str) -> str:
    cell = _cell(value)
    start = _START.match(cell)
    return cell if start is None else f"{start[0]}\\{cell[start.end() :]}"


def _cell(value: str) -> str:
    return _SPECIAL.sub(lambda match: _ENTITIES.get(match[0], "\\" + match[0]), one_line(value))


def _block(block: Block) -> Iterator[str]:
    match block:
        case Paragraph():
            yield from (_inline(block.text), "")
        case Items():
            yield from _title(block.title)[:1]
            yield from (*(f"- {_inline(item)}" for item in block.items), "")
        case Lines():
            yield from _title(block.title)[:1]
            yield from _fenced(block.lines)
        case Table():
            yield from _table(block)
        case Entry():
            yield from _entry(block)
        case Panel():
            yield from (f"### {_inline(block.title)}", "", *(line for one in block.blocks for line in _block(one)))
        case Picture():
            if block.lines:
                yield from _title(block.title)[:1]
                yield from _fenced(block.lines)


def _title(title: str) -> list[str]:
    return [f"**{_inline(title)}**", ""] if title else []


def _fenced(lines: Sequence[str]) -> list[str]:
    shown = [line for text in lines for line in clean(text).split("\n")]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", *shown, fence, ""]


def _table(table: Table) -> Iterator[str]:
    yield from _title(table.title)
    if table.grid:
        # A matrix as it is in a terminal: a table of Markdown would be three times as wide.
        yield from _fenced(aligned([[*map(one_line, row)] for row in table.rows], table.left, gap=" ", indent=""))
    else:
        cells = padded([[*map(_cell, row)] for row in table.rows], table.left)
        head, *rest = [f"| {' | '.join(row)} |" for row in cells]
        rule = "".join("|:---" if at in table.left else "|----:" for at in range(len(table.rows[0])))
        yield from (head, f"{rule}|", *rest, "")
    for note in table.notes:
        yield from (_inline(note), "")


def _entry(entry: Entry) -> Iterator[str]:
    yield f"### {entry.number} {_inline(entry.title)}"
    yield from (f"- {_inline(line)}" for line in (f"{entry.severity}, {'; '.join(entry.labels)}", *entry.evidence))
    yield from ("", *(_fenced(entry.next) if entry.next else ()))


def document_text(document: Document, path: Path) -> str:
    return markdown(document) if path.suffix.lower() in MARKDOWN else html(document)
