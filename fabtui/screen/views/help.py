"""Help: keys and legend of the current view, and all keys, which are read from the bindings."""

from __future__ import annotations

import inspect
from typing import ClassVar

from textual.binding import BindingType
from textual.dom import DOMNode
from textual.screen import Screen

from fabtui.model.layers import Layer, key_layers
from fabtui.presentation.cell_levels import CellStyle
from fabtui.presentation.job_board import state_meanings
from fabtui.presentation.legends import layer_title, meanings
from fabtui.presentation.wording import CELL, MUTED, Part, plain
from fabtui.presentation.wrapping import Lines, section, wrapped
from fabtui.screen.keys import bindings_of, current_keys, group_title, shortcut
from fabtui.screen.views.command_line import command_rows
from fabtui.screen.views.detail_base import DetailScreen

#: Maximum width of the column of keys, and width of the column of descriptions on a wide screen.
_WIDEST_KEYS = 20
_TEXT_COLUMN = 52
_ROOMY = 110
#: Ids of the most used keys of the main view, which has a hundred.
_MAIN_KEYS = (
    *("main.pair", "main.next-bad", "main.run", "app.findings", "main.nodes", "main.job", "main.retest", "main.sweep"),
    *("main.watch", "main.filter"),
)
#: Views with cells of the current layer, and those with cells of p2p.
_OF_LAYER, _OF_P2P = frozenset({"GridView", "WorstPairs"}), frozenset({"PairScreen", "NodeScreen"})
_REBINDING = "config.toml can rebind all keys: `fabtui config init` lists their names."
#: Introductions to the views.
_INTRODUCTIONS = {
    "GridView": (
        "A row sends, a column receives. Colour and glyph show the verdict, the number is the value.",
        "A value is compared with its class only: same node, same rail, cross leaf, cross rail.",
        "A block of two nodes has the verdict of its worst pair; 4x: 4 of its pairs failed.",
    ),
    "WorstPairs": (
        "Bad pairs of the layer, worst first. Small terminals show this list instead of the grid.",
        "A click on a heading sorts by it, a second one reverses the order.",
    ),
    "ConnectingView": ("State of each node; of a failed node the reason and the next step.",),
    "PairScreen": (
        "One pair in both directions: values against the usual ones of the class, path, attempts and error messages.",
    ),
    "FindingsScreen": (
        "All findings, most severe first, with evidence and next steps. A digit goes to the first pair of a finding.",
        "Experiments test pairs of a finding alone, with other partners or with other settings; outcomes are evidence.",
    ),
    "NodeScreen": ("One node: GPUs, links, NICs, versions, limits and counter changes.",),
}


def views_of(screen: Screen[object]) -> list[type[DOMNode]]:
    focused = screen.focused
    found: list[type[DOMNode]] = [type(focused)] if focused is not None else []
    found += [
        kind for kind in type(screen).__mro__ if issubclass(kind, DOMNode) and kind.__module__.startswith("fabtui.")
    ]
    return found


def introduction(kind: type[DOMNode]) -> tuple[str, ...]:
    return _INTRODUCTIONS.get(kind.__name__) or ((inspect.getdoc(kind) or "").split("\n")[0],)


class HelpScreen(DetailScreen):
    """Keys and legend of the current view, then layers, commands and the keys of all other views."""

    BINDING_GROUP_TITLE = "Help"
    FILTER_PROMPT = "search", "words that a line must have: a key, an action or a name"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("slash,f", "filter", "help.search", "show only lines with some words", "search"),
    ]

    def __init__(self, owners: list[type[DOMNode]], views: list[type[DOMNode]]) -> None:
        super().__init__()
        self._here = [view for view in views if view in owners]
        self._elsewhere = [owner for owner in owners if owner not in self._here]
        self._about = views[0] if views else None

    def title_parts(self) -> list[Part]:
        return [(f" help: {group_title(self._here[0]).lower() if self._here else 'this view'} ", "bold")]

    def filtered_lines(self, width: int) -> Lines:
        """Return the lines that match, with the titles of their sections, which count as part of them."""
        return self.body_lines(width)

    def body_lines(self, width: int) -> Lines:
        lines: Lines = []
        main = self._about is not None and self._about.__name__ in _OF_LAYER
        if main:
            lines += self._matching("keys of this view", self._main_keys())
        elif self._here:
            lines += [line for owner in self._here for line in self._key_lines(owner, width)]
        lines += self._matching("legend", _legend(self._signs(), width))
        if self._about is not None and not self.filter:
            lines += [[], *([(line, "")] for line in introduction(self._about) if line)]
        if main:
            lines += [line for owner in self._here for line in self._key_lines(owner, width)]
        layers: Lines = [
            [(f"  {layer.spec.key}  ", "bold $primary"), (f"{layer:<12}", ""), (layer_title(layer), MUTED)]
            for layer in key_layers()
        ]
        lines += self._matching("layers", layers)
        lines += self._matching(
            "commands", [[(f"  {text:<16}  ", "bold $primary"), (effect, "")] for text, effect in command_rows()]
        )
        for owner in self._elsewhere:
            lines += self._key_lines(owner, width)
        if not lines:
            return [[], [("  no line has these words", MUTED)]]
        return lines[1:] if self.filter else [*lines[1:], [], [(_REBINDING, MUTED)]]

    def _main_keys(self) -> Lines:
        known = {one.id: one for owner in (*self._here, *self._elsewhere) for one in bindings_of(owner)}
        found = [(current_keys(self.app, known[name])[0], known[name]) for name in _MAIN_KEYS if name in known]
        rows = [(key, one.tooltip or one.description) for key, one in found]
        rows.append(("1-9", "show a layer by its number, which the tabs have"))
        return [[(f"  {key:<7}", "bold $primary"), (text, "")] for key, text in rows]

    def _signs(self) -> list[tuple[str, str, str]]:
        name, glyphs, layer = (
            "" if self._about is None else self._about.__name__,
            self.context.glyphs,
            self.context.layer,
        )
        if name == "JobScreen" or (name in _OF_LAYER and layer is Layer.JOB):
            return [("bold", sign, text) for sign, text in state_meanings(glyphs)]
        if name not in _OF_LAYER | _OF_P2P:
            return []
        rows = [*meanings(layer if name in _OF_LAYER else Layer.P2P), *_LATER]
        return [(f"{CELL}{style.key}", glyphs.of_style[style], text) for style, text in rows]

    def _matching(self, title: str, lines: Lines) -> Lines:
        found = [line for line in lines if self.matches(f"{title} {plain(line)}")]
        return section(title) + found if found else []

    def _key_lines(self, owner: type[DOMNode], width: int) -> Lines:
        rows = [
            (", ".join(current_keys(self.app, one)), one.tooltip or one.description, one.id or "")
            for one in bindings_of(owner)
        ]
        rows = [row for row in rows if row[0] not in "23456789" or not row[1].endswith(f" {row[0]}")]
        rows = [
            ("1-9", f"{text[:-1]}1 to 9", f"{name[:-1]}1 to 9") if text.endswith(f" {key}") else (key, text, name)
            for key, text, name in rows
        ]
        shown = 3 if width >= _ROOMY else 2
        found = [row for row in rows if self.matches(" ".join((group_title(owner), *row[:shown])))]
        if not found:
            return []
        keys = min(_WIDEST_KEYS, max(len(row[0]) for row in rows)) + 4
        # A wide screen has the same columns in all sections.
        keys = max(keys, _WIDEST_KEYS + 2) if width >= _ROOMY else keys
        names = max(len(row[2]) for row in rows) if width >= _ROOMY else 0
        texts = max(max(len(row[1]) for row in rows), _TEXT_COLUMN if width >= _ROOMY else 0) + 2
        texts = min(texts, max(10, width - keys - names))
        lines = section(group_title(owner))
        for key, text, name in found:
            head = f"  {key}".ljust(keys - 1) + " "
            line: list[Part] = [(head, "bold $primary"), (text.ljust(texts) if names else text, "")]
            lines += wrapped([*line, (name, MUTED)] if names else line, width, keys)
        return lines


#: Signs that the legend of a layer has no room for.
_LATER = ((CellStyle.FLASH, "result has just changed"), (CellStyle.UNTESTED, "not tested"))


def _legend(signs: list[tuple[str, str, str]], width: int) -> Lines:
    half = max(1, min(44, width // 2))
    lines: Lines = []
    for at in range(0, len(signs), 2):
        line: list[Part] = []
        for style, sign, text in signs[at : at + 2]:
            line += [("  ", ""), (f" {sign} ", style), (f" {text}".ljust(half - 5), "")]
        lines.append(line)
    return lines
