"""Help: the most used keys, the legend, the current view, and all keys, which are read from the bindings."""

from __future__ import annotations

import inspect
from typing import ClassVar

from textual.binding import BindingType
from textual.dom import DOMNode
from textual.screen import Screen

from fabtui.model.layers import key_layers
from fabtui.presentation.cell_levels import CellStyle, Glyphs
from fabtui.presentation.job_board import state_meanings
from fabtui.presentation.legends import layer_title
from fabtui.presentation.wording import CELL, MUTED, Part, plain
from fabtui.presentation.wrapping import Lines, section, wrapped
from fabtui.screen.keys import bindings_of, current_keys, group_title, shortcut
from fabtui.screen.views.command_line import command_rows
from fabtui.screen.views.detail_base import DetailScreen

#: Maximum width of the column of keys, and width of the column of descriptions on a wide screen.
_WIDEST_KEYS = 20
_TEXT_COLUMN = 52
_ROOMY = 110
#: Ids of the keys that come first.
_TEN_KEYS = (
    *("main.pair", "main.next-bad", "app.findings", "main.nodes", "main.retest", "main.sweep"),
    *("main.filter", "main.jump", "main.back", "app.quit"),
)
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
    """Ten keys and the legend, then the keys of the current view, layers, commands and the keys of all other views."""

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
        glyphs = self.context.glyphs
        lines = self._matching("ten keys", self._ten_keys()) + self._matching("legend", _legend(glyphs, width))
        if self._about is not None and not self.filter:
            lines += [[], *([(line, "")] for line in introduction(self._about) if line)]
        for owner in self._here:
            lines += self._key_lines(owner, width)
        layers: Lines = [
            [(f"  {layer.spec.key}  ", "bold $primary"), (f"{layer:<12}", ""), (layer_title(layer), MUTED)]
            for layer in key_layers()
        ]
        lines += self._matching("layers", layers)
        ranks: Lines = [[(f"  {sign}  ", "bold"), (text, "")] for sign, text in state_meanings(glyphs)]
        lines += self._matching("ranks of a job", ranks)
        lines += self._matching(
            "commands", [[(f"  {text:<16}  ", "bold $primary"), (effect, "")] for text, effect in command_rows()]
        )
        for owner in self._elsewhere:
            lines += self._key_lines(owner, width)
        if not lines:
            return [[], [("  no line has these words", MUTED)]]
        return lines[1:] if self.filter else [*lines[1:], [], [(_REBINDING, MUTED)]]

    def _ten_keys(self) -> Lines:
        known = {one.id: one for owner in (*self._here, *self._elsewhere) for one in bindings_of(owner)}
        found = [known[name] for name in _TEN_KEYS if name in known]
        return [
            [(f"  {current_keys(self.app, one)[0]:<7}", "bold $primary"), (one.tooltip or one.description, "")]
            for one in found
        ]

    def _matching(self, title: str, lines: Lines) -> Lines:
        found = [line for line in lines if self.matches(f"{title} {plain(line)}")]
        return section(title) + found if found else []

    def _key_lines(self, owner: type[DOMNode], width: int) -> Lines:
        """Return the keys of a class with their descriptions and ids, in columns if there is room."""
        rows = [
            (", ".join(current_keys(self.app, one)), one.tooltip or one.description, one.id or "")
            for one in bindings_of(owner)
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


#: Signs of the cells with their meanings.
_LEGEND = (
    (CellStyle.GOOD, "ok"),
    (CellStyle.SLOW, "slow: far below the usual value"),
    (CellStyle.TIMEOUT, "timed out: no answer in time"),
    (CellStyle.FAILED, "failed with an error"),
    (CellStyle.WRONG, "wrong data arrived"),
    (CellStyle.FLAPPING, "ok now, but it flaps"),
    (CellStyle.RUNNING, "test in progress"),
    (CellStyle.FLASH, "result has just changed"),
    (CellStyle.UNTESTED, "not tested"),
    (CellStyle.GONE, "its node has failed or is lost"),
    (CellStyle.INCONCLUSIVE, "inconclusive"),
    (CellStyle.SKIPPED, "skipped"),
)


def _legend(glyphs: Glyphs, width: int) -> Lines:
    half = min(44, width // 2)
    lines: Lines = []
    for left, right in zip(_LEGEND[::2], _LEGEND[1::2], strict=True):
        line: list[Part] = []
        for slot, text in (left, right):
            line += [("  ", ""), (f" {glyphs.of_style[slot]} ", f"{CELL}{slot.key}"), (f" {text}".ljust(half - 5), "")]
        lines.append(line)
    return lines
