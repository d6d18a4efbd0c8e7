"""Reports as HTML: one file that needs neither network nor script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from itertools import groupby

from fabtui.pictures.palette import colors, css
from fabtui.pictures.svg import svg
from fabtui.report.document import Block, Document, Entry, Items, Lines, Panel, Paragraph, Picture, Section, Table
from fabtui.sanitize import clean

#: Elements without content and end tag.
_VOID = frozenset({"meta"})


class Markup(str):
    """HTML text, which is not escaped again."""

    __slots__ = ()


def text(value: str) -> Markup:
    """Return untrusted text as HTML."""
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


#: Glyph and word of each state and severity; colour alone is never enough.
_STATES = {"ok": "✓", "bad": "✗", "unknown": "?"}
_SEVERITIES = {"bad": "✗ bad", "warn": "! warning", "note": "· note"}


def html(document: Document) -> str:
    """Return a report as a page."""
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
    body = tag(
        "body",
        tag("a", "Skip to the content", class_="skip", href="#content"),
        tag(
            "main",
            _verdict(document),
            *_first(document.first),
            tag("nav", tag("ul", *links), aria_label="Sections"),
            *map(_section, document.sections),
            id="content",
        ),
        tag("footer", tag("p", document.title), *(tag("p", line) for line in document.about)),
        tag("script", Markup(script)),
    )
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


def _first(blocks: Sequence[Block]) -> list[Markup]:
    """Return the picture beside the findings in short, each of which leads to its details below."""
    pictures = [_block(block) for block in blocks if isinstance(block, Picture)]
    others = [
        _brief(block) if isinstance(block, Entry) else _block(block)
        for block in blocks
        if not isinstance(block, Picture)
    ]
    return [tag("div", *pictures, tag("div", *others), class_="first")] if pictures or others else []


def _brief(entry: Entry) -> Markup:
    mark = tag("b", _SEVERITIES[entry.severity].split()[0])
    link = tag("a", entry.title, href=f"#finding-{entry.number}")
    command = [tag("pre", entry.next[0], tabindex="0")] if entry.next else []
    return tag("article", tag("p", mark, f" {entry.number} ", link), *command, class_=entry.severity)


def _section(section: Section) -> Markup:
    heading = tag("h2", section.title, id=section.name)
    parts: list[Markup] = []
    for is_panel, found in groupby(section.blocks, lambda block: isinstance(block, Panel)):
        blocks = [_block(block) for block in found]
        parts += [tag("div", *blocks, class_="panels")] if is_panel else blocks
    return tag("section", heading, *parts, aria_labelledby=section.name)


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
    labels = tag("p", *_joined(tag("span", label) for label in entry.labels), class_="labels")
    parts = [tag("h3", tag("b", _SEVERITIES[entry.severity]), " ", str(entry.number), " ", entry.title), labels]
    parts += [tag("ul", *(tag("li", line) for line in entry.evidence))] if entry.evidence else []
    parts += [tag("p", "next:"), tag("pre", "\n".join(entry.next), tabindex="0")] if entry.next else []
    parts += (
        [_folded("what this means", Markup("".join(tag("p", line) for line in entry.about)))] if entry.about else []
    )
    return tag("article", *parts, class_=entry.severity, id=f"finding-{entry.number}")


def _joined(parts: Iterable[Markup]) -> list[Markup]:
    found: list[Markup] = []
    for part in parts:
        found += [Markup(" · "), part] if found else [part]
    return found
