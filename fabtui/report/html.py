"""Reports as HTML: one file that needs neither network nor script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from itertools import groupby

from fabtui.pictures.drawing import svg
from fabtui.pictures.scene import colors, css, rgb
from fabtui.presentation.cell_levels import BAD
from fabtui.report.document import Block, Document, Entry, Items, Lines, Panel, Paragraph, Picture, Section, Table
from fabtui.sanitize import clean

#: Elements without content and end tag.
_VOID = frozenset({"meta"})
#: Glyph of each state and severity; colour alone is never enough.
_STATES = {"ok": "✓", "bad": "✗", "unknown": "?"}
#: Colours of findings, and sum of the differences of red, green and blue below which two colours are alike.
_TONES, _NEAR = sorted(style.key for style in BAD), 90
_SEVERITIES = {"bad": "✗", "warn": "!", "note": "·"}


class Markup(str):
    """HTML text, which is not escaped again."""

    __slots__ = ()


def text(value: str) -> Markup:
    return value if isinstance(value, Markup) else Markup(escape(clean(value)))


def tag(name: str, /, *content: str, **attributes: str | bool) -> Markup:
    """Return an element; underscores of attributes become hyphens, one at the end is dropped, False drops one."""
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
    body = tag(
        "body", tag("main", _verdict(document), *map(_section, document.sections)), tag("script", Markup(script))
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


@cache
def _file(name: str) -> str:
    return (files("fabtui.report") / name).read_text(encoding="utf-8")


@cache
def _style() -> str:
    """Return the style rules, with rules of pictures and findings for both colour schemes; paper is light."""
    light, dark = (
        f":root{{--paper:{colors(theme)['paper']}}}{css(theme)}{''.join(_tone(colors(theme), name) for name in _TONES)}"
        for theme in ("light", "dark")
    )
    return f"{_file('page.css')}{light}\n@media screen and (prefers-color-scheme: dark) {{ {dark} }}\n"


def _tone(shades: Mapping[str, str], name: str) -> str:
    """Return the rule of the colours of findings; a fill like the paper needs an edge."""
    fill, ink = shades[name], shades[f"{name}-ink"]
    near = sum(abs(a - b) for a, b in zip(rgb(fill), rgb(shades["paper"]), strict=True)) < _NEAR
    return f"article.{name}{{--tone:{fill};--on-tone:{ink};--edge:{ink if near else fill}}}"


def _verdict(document: Document) -> Markup:
    mark = tag("span", _STATES[document.state], class_="mark", aria_hidden="true")
    lines = [tag("p", line) for line in document.summary]
    heading = tag("h1", mark, " ", document.verdict, id="verdict")
    facts = [tag("div", tag("dt", name), tag("dd", value)) for name, value in document.about]
    band = tag("div", heading, *lines, class_=f"verdict {document.state}")
    return tag("section", band, tag("dl", *facts), aria_labelledby="verdict")


def _section(section: Section) -> Markup:
    parts = []
    for kind, found in groupby(section.blocks, type):
        blocks = [_block(block) for block in found]
        group = {Panel: "panels", Entry: "entries"}.get(kind)
        parts += [tag("div", *blocks, class_=group)] if group else blocks
    heading = tag("h2", section.title, id=section.name)
    if section.folded:
        return tag("details", tag("summary", heading), *parts, class_="folded")
    return tag("section", *([heading] if section.title else []), *parts, class_=section.name)


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
            return tag("figure", *_scenes(block), tag("figcaption", block.title), tag("output"))
        case Table():
            return _table(block)
        case Entry():
            return _entry(block)
        case Panel():
            return tag("div", tag("h3", block.title), *map(_block, block.blocks), class_="panel")


def _scenes(picture: Picture) -> list[Markup]:
    if picture.narrow is None:
        return [Markup(svg(picture.scene))]
    scenes = {"wide": picture.scene, "narrow": picture.narrow}
    return [tag("div", Markup(svg(scene)), class_=name) for name, scene in scenes.items()]


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
    parts = [tag("h3", tag("b", f"{_SEVERITIES[entry.severity]} {entry.number}"), " ", entry.title)]
    parts += [tag("p", line) for line in entry.evidence[:1]]
    parts += [tag("pre", command, tabindex="0") for command in entry.next[:1]]
    labels = Markup(" · ".join(tag("span", label) for label in entry.labels))
    more = [tag("p", labels, class_="labels")] if labels else []
    more += [tag("ul", *(tag("li", line) for line in entry.evidence[1:]))] if entry.evidence[1:] else []
    more += [tag("pre", "\n".join(entry.next[1:]), tabindex="0")] if entry.next[1:] else []
    more += [tag("p", line, class_="about") for line in entry.about]
    parts += [_folded("evidence, and what this means", Markup("".join(more)))] if more else []
    return tag("article", *parts, class_=f"{entry.severity} {entry.tone}".strip(), id=f"finding-{entry.number}")
