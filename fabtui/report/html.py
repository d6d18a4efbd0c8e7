"""Reports as HTML: one file that needs neither network nor script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from itertools import groupby, takewhile

from fabtui.pictures.drawing import svg
from fabtui.pictures.scene import colors, css
from fabtui.report.document import Block, Document, Entry, Items, Lines, Panel, Paragraph, Picture, Section, Table
from fabtui.sanitize import clean

#: Elements without content and end tag.
_VOID = frozenset({"meta"})
#: Glyph and word of each state and severity; colour alone is never enough.
_STATES = {"ok": "✓", "bad": "✗", "unknown": "?"}
_SEVERITIES = {"bad": "✗ bad", "warn": "! warning", "note": "· note"}


class Markup(str):
    """HTML text, which is not escaped again."""

    __slots__ = ()


def text(value: str) -> Markup:
    return value if isinstance(value, Markup) else Markup(escape(clean(value)))


def tag(name: str, /, *content: str, **attributes: str | bool) -> Markup:
    """Return an element; content that is not `Markup` is escaped.

    Underscores of attribute names become hyphens, and one at the end is dropped; False leaves an attribute out.
    """
    parts = [name]
    for key, value in attributes.items():
        label = key.removesuffix("_").replace("_", "-")
        if value is True:
            parts.append(label)
        elif value is not False:
            parts.append(f'{label}="{text(value)}"')
    inner = "".join(map(text, content))
    return Markup(f"<{' '.join(parts)}>" + ("" if name in _VOID else f"{inner}</{name}>"))


def html(document: Document) -> str:
    style, script = _style(), _file("page.js")
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", document.title),
        tag("style", Markup(style)),
    )
    links = [tag("li", tag("a", one.title, href=f"#{one.name}")) for one in document.sections]
    sections = [*map(_section, document.sections)]
    # The first screenful answers what is wrong and what to type.
    at = int(bool(document.sections) and document.sections[0].leads)
    nav = tag("nav", tag("ul", *links), aria_label="Sections")
    skip = tag("a", "Skip to the content", class_="skip", href="#content")
    main = tag("main", _verdict(document), *sections[:at], nav, *sections[at:], id="content")
    footer = tag("footer", tag("p", document.title), *(tag("p", line) for line in document.about))
    body = tag("body", skip, main, footer, tag("script", Markup(script)))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


@cache
def _file(name: str) -> str:
    return (files("fabtui.report") / name).read_text(encoding="utf-8")


@cache
def _style() -> str:
    """Return the style rules, with rules of pictures for both colour schemes; paper is light."""
    light, dark = (f":root{{--paper:{colors(theme)['paper']}}}{css(theme)}" for theme in ("light", "dark"))
    return f"{_file('page.css')}{light}\n@media screen and (prefers-color-scheme: dark) {{ {dark} }}\n"


def _verdict(document: Document) -> Markup:
    mark = tag("span", _STATES[document.state], class_="mark", aria_hidden="true")
    lines = [tag("p", line) for line in document.summary]
    heading = tag("h1", mark, " ", document.verdict, id="verdict")
    return tag("section", heading, *lines, class_=f"verdict {document.state}", aria_labelledby="verdict")


def _section(section: Section) -> Markup:
    parts = [tag("h2", section.title, id=section.name)]
    pictures = [*takewhile(lambda block: section.leads and isinstance(block, Picture), section.blocks)]
    for is_panel, found in groupby(section.blocks[len(pictures) :], lambda block: isinstance(block, Panel)):
        blocks = [_block(block) for block in found]
        parts += [tag("div", *blocks, class_="panels")] if is_panel else blocks
    if pictures:
        # The picture is beside what it shows.
        parts = [tag("div", *map(_block, pictures), tag("div", *parts), class_="first")]
    return tag("section", *parts, aria_labelledby=section.name)


def _block(block: Block) -> Markup:
    match block:
        case Paragraph():
            return tag("p", block.text)
        case Items():
            return _titled(block.title, tag("ul", *(tag("li", item) for item in block.items)))
        case Lines():
            lines = tag("pre", "\n".join(block.lines), tabindex="0")
            return _folded(block.title, lines) if block.folded else _titled(block.title, lines)
        case Picture():
            return tag("figure", Markup(svg(block.scene)), tag("figcaption", block.title), tag("output"))
        case Table():
            return _table(block)
        case Entry():
            return _entry(block)
        case Panel():
            return tag("div", tag("h3", block.title), *map(_block, block.blocks), class_="panel")


def _titled(title: str, content: Markup) -> Markup:
    return Markup(tag("h3", title) + content) if title else content


def _folded(title: str, content: Markup) -> Markup:
    return tag("details", tag("summary", title), content)


def _table(table: Table) -> Markup:
    """Return a table; end tags of cells and rows are optional in HTML, and matrices have thousands of them."""
    head, *rows = table.rows
    label = [tag("caption", table.title)] if table.title and not table.folded else []
    cells = "".join(f"<th scope=col{_side(table, at)}>{text(cell)}" for at, cell in enumerate(head))
    lines = (_row(table, row) for row in rows)
    inner = Markup(f"<thead><tr>{cells}<tbody>{''.join(lines)}")
    whole = tag("table", *label, inner, class_="grid") if table.grid else tag("table", *label, inner)
    # A wide table scrolls alone, also by keys.
    box = tag("div", whole, *(tag("p", note) for note in table.notes), class_="scroll", tabindex="0")
    return _folded(table.title, box) if table.folded else box


def _row(table: Table, row: Sequence[str]) -> str:
    first, *rest = row
    cells = (f"<td{_side(table, at)}>{text(cell)}" for at, cell in enumerate(rest, 1))
    return f"<tr><th scope=row{_side(table, 0)}>{text(first)}{''.join(cells)}\n"


def _side(table: Table, column: int) -> str:
    return " class=l" if column in table.left else ""


def _entry(entry: Entry) -> Markup:
    """Return a finding: what was found, its conclusion and its first command; the rest is folded."""
    parts = [tag("h3", tag("b", _SEVERITIES[entry.severity]), " ", str(entry.number), " ", entry.title)]
    parts += [tag("p", line) for line in entry.evidence[:1]]
    parts += [tag("pre", command, tabindex="0") for command in entry.next[:1]]
    labels = Markup(" · ".join(tag("span", label) for label in entry.labels))
    more = [tag("p", labels, class_="labels")] if labels else []
    more += [tag("ul", *(tag("li", line) for line in entry.evidence[1:]))] if entry.evidence[1:] else []
    more += [tag("pre", "\n".join(entry.next[1:]), tabindex="0")] if entry.next[1:] else []
    more += [tag("p", line) for line in entry.about]
    parts += [_folded("evidence, and what this means", Markup("".join(more)))] if more else []
    return tag("article", *parts, class_=entry.severity, id=f"finding-{entry.number}")
