"""What a view shows and what every key does, made from the bindings themselves."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from textual.dom import DOMNode

from fabtui.model.layers import key_layers
from fabtui.presentation.cell_levels import FAIR_FROM, GOOD_FROM, Slot
from fabtui.presentation.legends import layer_title
from fabtui.presentation.wording import MUTED, Part
from fabtui.presentation.wrapping import wrapped
from fabtui.screen.command_palette import bindings_of, keys_of
from fabtui.screen.views.detail_base import DetailScreen, Lines, section

if TYPE_CHECKING:
    from fabtui.screen.app import FabricApp

#: Characters of the keys' column, and of that of what they do, where there is room.
_WIDEST_KEYS = 20
_WORDS_COLUMN = 52
_ROOMY = 110
#: What each view shows, for those who see it for the first time.
_WORDS = {
    "GridView": (
        "A row sends, a column receives. Colour and glyph are the verdict, the number is the value.",
        "Values are compared within their class only: same node, same rail, across rails.",
        "Where a cell is a block of two nodes, it is as bad as its worst pair; 4x: 4 pairs failed, the rest not.",
    ),
    "WorstList": ("The bad pairs of the layer, the worst first. Small terminals get this in place of the grid.",),
    "ConnectingView": ("The nodes and how far each is; of one that failed, why, and what to try.",),
    "PairScreen": (
        "One pair, both ways: values against the median of their class, the path, attempts, the error as it was said.",
    ),
    "NodeScreen": ("One node: its GPUs, links, NICs, versions and limits, and what its counters grew by.",),
}


def views_of(app: FabricApp) -> list[type[DOMNode]]:
    """Return the classes of what is looked at: the widget that has the keys, then its screen."""
    screen = app.screen
    focused = screen.focused
    found: list[type[DOMNode]] = [type(focused)] if focused is not None else []
    found += [
        kind for kind in type(screen).__mro__ if issubclass(kind, DOMNode) and kind.__module__.startswith("fabtui.")
    ]
    return found


def words_of(kind: type[DOMNode]) -> tuple[str, ...]:
    """Return what a view shows, in a line or two."""
    own = kind.__dict__.get("HELP") or _WORDS.get(kind.__name__)
    if own:
        return (own,) if isinstance(own, str) else tuple(own)
    return ((inspect.getdoc(kind) or "").split("\n")[0],)


class HelpScreen(DetailScreen):
    """What the view below it shows and its keys; then the keys of all others, the layers, and what the glyphs mean.

    Args:
        kinds: Classes with bindings, each with its title.
        views: The classes of what is looked at, the one that has the keys first.
    """

    BINDING_GROUP_TITLE = "Help"

    def __init__(self, kinds: list[tuple[str, type[DOMNode]]], views: list[type[DOMNode]]) -> None:
        super().__init__()
        self._here = [(title, kind) for view in views for title, kind in kinds if kind is view]
        self._elsewhere = [(title, kind) for title, kind in kinds if (title, kind) not in self._here]
        self._about = views[0] if views else None

    def title_parts(self) -> list[Part]:
        """Return the title."""
        name = self._here[0][0] if self._here else "this view"
        return [(f" help: {name} ", "bold"), ("  keys can be rebound by the names on the right, in config.toml", MUTED)]

    def body_lines(self, width: int) -> Lines:
        """Return what the view shows, the keys, the layers and the glyphs."""
        lines: Lines = []
        if self._about is not None:
            lines += [[(words, "")] for words in words_of(self._about) if words]
        for title, kind in self._here:
            lines += self._key_lines(title, kind, width)
        lines += section("layers")
        lines += [
            [(f"  {layer.spec.key}  ", "bold $primary"), (f"{layer:<12}", ""), (layer_title(layer), MUTED)]
            for layer in key_layers()
        ]
        lines += section("glyphs") + self._glyph_lines()
        for title, kind in self._elsewhere:
            lines += self._key_lines(title, kind, width)
        return lines

    def _key_lines(self, title: str, kind: type[DOMNode], width: int) -> Lines:
        """Return the keys of a class with what they do and their names, in columns where there is room for them."""
        rows = [
            (", ".join(keys_of(self.fabric_app, one)), one.tooltip or one.description, one.id or "")
            for one in bindings_of(kind)
        ]
        keys = min(_WIDEST_KEYS, max(len(row[0]) for row in rows)) + 4
        # The same column throughout, so that it can be read down; further left where the screen is narrow.
        keys = max(keys, _WIDEST_KEYS + 2) if width >= _ROOMY else keys
        names = max(len(row[2]) for row in rows)
        words = max(max(len(row[1]) for row in rows), _WORDS_COLUMN if width >= _ROOMY else 0) + 2
        words = min(words, max(10, width - keys - names))
        lines = section(title)
        for key, text, name in rows:
            line: list[Part] = [(f"  {key}".ljust(keys), "bold $primary"), (text.ljust(words), ""), (name, MUTED)]
            lines += wrapped(line, width, keys)
        return lines

    def _glyph_lines(self) -> Lines:
        glyphs = self.fabric_app.glyphs
        words = [
            (Slot.GOOD, f"ok, {GOOD_FROM:.0%} of the median of its class or better"),
            (Slot.FAIR, f"ok, {FAIR_FROM:.0%} or better"),
            (Slot.LOW, "ok, less than that"),
            (Slot.SLOW, "slow: under the share of the median that the legend names"),
            (Slot.TIMEOUT, "timeout: no answer within the deadline"),
            (Slot.FAILED, "failed: it said what went wrong"),
            (Slot.FLAPPING, "ok just now, but flapping: it turned at least twice within its latest ten attempts"),
            (Slot.FLASH, "another result than before, just now"),
            (Slot.INCONCLUSIVE, "inconclusive: nothing can be said"),
            (Slot.SKIPPED, "skipped"),
            (Slot.RUNNING, "being tested now"),
            (Slot.UNTESTED, "not tested"),
            (Slot.GONE, "a node of the pair failed or was lost"),
        ]
        return [[(f"  {glyphs.of_slot[slot]}  ", "bold"), (text, "")] for slot, text in words]
