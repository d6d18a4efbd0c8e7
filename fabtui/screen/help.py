"""What every key does, made from the bindings themselves."""

from __future__ import annotations

from textual.binding import Binding
from textual.dom import DOMNode

from fabtui.screen.commands import bindings_of, keys_of
from fabtui.screen.detail import DetailScreen, Lines, section
from fabtui.screen.levels import FAIR_FROM, GOOD_FROM, Slot
from fabtui.screen.words import LAYERS, MUTED, Part, layer_title


class HelpScreen(DetailScreen):
    """The keys of each screen, the layers, and what the glyphs mean.

    Args:
        kinds: Classes with bindings, each with its title.
    """

    BINDING_GROUP_TITLE = "Help"

    def __init__(self, kinds: list[tuple[str, type[DOMNode]]]) -> None:
        super().__init__()
        self._kinds = kinds

    def title_parts(self) -> list[Part]:
        """Return the title."""
        return [(" help ", "bold"), ("  keys can be rebound by the names on the right", MUTED)]

    def body_lines(self, width: int) -> Lines:
        """Return the keys, the layers and the glyphs."""
        lines: Lines = []
        for title, kind in self._kinds:
            lines += section(title)
            lines += [self._key_line(binding) for binding in bindings_of(kind)]
        lines += section("layers")
        lines += [
            [(f"  {number}  ", "bold $primary"), (f"{layer:<12}", ""), (layer_title(layer), MUTED)]
            for number, layer in enumerate(LAYERS, 1)
        ]
        return lines + section("glyphs") + self._glyph_lines()

    def _key_line(self, binding: Binding) -> list[Part]:
        shown = ", ".join(keys_of(self.fabric_app, binding))
        return [(f"  {shown:<22}", "bold $primary"), (f"{binding.tooltip:<42}", ""), (binding.id or "", MUTED)]

    def _glyph_lines(self) -> Lines:
        glyphs = self.fabric_app.glyphs
        words = [
            (Slot.GOOD, f"ok, {GOOD_FROM:.0%} of the median of its class or better"),
            (Slot.FAIR, f"ok, {FAIR_FROM:.0%} or better"),
            (Slot.LOW, "ok, less than that"),
            (Slot.SLOW, "slow: under the share of the median that the legend names"),
            (Slot.TIMEOUT, "timeout: no answer within the deadline"),
            (Slot.FAILED, "failed: it said what went wrong"),
            (Slot.INCONCLUSIVE, "inconclusive: nothing can be said"),
            (Slot.SKIPPED, "skipped"),
            (Slot.RUNNING, "being tested now"),
            (Slot.UNTESTED, "not tested"),
            (Slot.GONE, "a node of the pair failed or was lost"),
        ]
        return [[(f"  {glyphs.of_slot[slot]}  ", "bold"), (text, "")] for slot, text in words]
