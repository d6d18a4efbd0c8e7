"""List of the worst pairs, which small terminals show instead of the grid."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content
from textual.widgets import OptionList

from fabtui.presentation.cell_levels import Glyphs, Slot
from fabtui.presentation.numbers import percent_text
from fabtui.presentation.wording import MUTED, Part, failure_text, value_text
from fabtui.screen.grid.axis import Axis
from fabtui.screen.grid.cells import BadCell
from fabtui.screen.keys import shortcut
from fabtui.screen.widgets.pair_text import pair_name

#: Maximum number of listed pairs.
MAX_PAIRS = 200


# Without the bindings of OptionList, which have no ids: Enter belongs to the main screen.
class WorstPairs(OptionList, inherit_bindings=False):
    """Bad pairs, worst first."""

    DEFAULT_CSS = """
    WorstPairs {
        width: 1fr; height: 1fr; border: none; padding: 0; background: transparent; background-tint: transparent;
        text-wrap: nowrap; text-overflow: ellipsis; scrollbar-size-vertical: 1;
    }
    WorstPairs:focus { border: none; background-tint: transparent; }
    WorstPairs > .option-list--option { padding: 0; }
    WorstPairs > .option-list--option-highlighted { text-style: reverse; }
    """
    BINDING_GROUP_TITLE = "Worst pairs"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("up,k", "move(-1)", "worst.up", "previous pair"),
        shortcut("down,j", "move(1)", "worst.down", "next pair"),
        shortcut("home,g", "first", "worst.first", "worst pair"),
        shortcut("end,G", "last", "worst.last", "last pair of the list"),
        shortcut("pageup,ctrl+u", "page_up", "worst.page-up", "one screen up"),
        shortcut("pagedown,ctrl+d", "page_down", "worst.page-down", "one screen down"),
    ]

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, markup=False)
        self._glyphs = glyphs
        self._bad: list[BadCell] = []
        self._drawn: tuple[object, ...] = ()

    def put(self, axis: Axis, bad: list[BadCell], none_text: str) -> None:
        """Show bad pairs, or ``none_text`` if there are none."""
        drawn = (id(axis), none_text, tuple((one.row, one.column, one.slot, one.share) for one in bad))
        if drawn == self._drawn:
            return
        self._drawn, self._bad = drawn, bad
        at = self.highlighted or 0
        with self.prevent(OptionList.OptionHighlighted):
            self.set_options(Content.assemble(*bad_pair_parts(axis, one, self._glyphs)) for one in bad)
            if bad:
                self.highlighted = min(at, len(bad) - 1)
            else:
                self.add_option(Content.styled(none_text, MUTED))

    @property
    def chosen(self) -> BadCell | None:
        """The highlighted pair, or None if there is none."""
        return self._bad[self.highlighted or 0] if self._bad else None

    def select_pair(self, row: int, column: int) -> None:
        for at, bad in enumerate(self._bad):
            if (bad.row, bad.column) == (row, column):
                self.highlighted = at

    def action_move(self, by: int) -> None:
        if self._bad:
            self.highlighted = max(0, min((self.highlighted or 0) + by, len(self._bad) - 1))


def bad_pair_parts(axis: Axis, bad: BadCell, glyphs: Glyphs) -> list[Part]:
    """Return a bad pair on one line."""
    style = "$warning" if bad.slot is Slot.SLOW else "$error"
    name = pair_name(axis.seats[bad.row], axis.seats[bad.column])
    parts: list[Part] = [(f"{glyphs.of_slot[bad.slot]} ", f"bold {style}"), (f"{name:<18} ", "")]
    parts.append((f"{bad.slot.key:<8}", style))
    if bad.share is not None:
        value = f" {value_text(bad.cell.measurement)}, " if bad.cell.measurement is not None else " "
        parts.append((f"{value}{percent_text(bad.share)} of usual", MUTED))
    elif bad.cell.measurement is not None:
        parts.append((f" {failure_text(bad.cell.measurement, 60)}", MUTED))
    return parts
