"""Elements of HTML. All text is cleaned and escaped here, once."""

from __future__ import annotations

from html import escape

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
