"""The preflight on the screen: what is wrong with nodes, and in what they differ."""

from __future__ import annotations

import time
from typing import ClassVar

from textual.binding import Binding, BindingType

from fabtui.diagnosis.preflight.rules import Preflight, latest_preflight
from fabtui.model.facts.node_view import dicts
from fabtui.model.session_model import Model, NodeRecord
from fabtui.presentation.preflight_lines import (
    ASCII,
    UNICODE,
    Glyphs,
    Line,
    chosen_facts,
    cut,
    finding_lines,
    head_line,
    kind_lines,
    short_lines,
    table_lines,
)
from fabtui.presentation.wording import MUTED, Part
from fabtui.sanitize import one_line
from fabtui.screen.views.detail_base import DetailScreen, Lines, pairs, section

_STYLES = {
    "bad": "bold $error",
    "warn": "$warning",
    "note": "$secondary",
    "name": "bold",
    "head": "bold $accent",
    "dim": MUTED,
}
#: So many findings are told in short while nodes are connecting.
_SHORT = 4
#: A preflight of many nodes takes time; it is made anew after this many times what it took.
_REST = 10.0
LEAST_REST = 0.2


class LatestPreflight:
    """The preflight of a model, made anew when nodes were looked at, and not too often."""

    def __init__(self) -> None:
        self._of: tuple[Model, int] | None = None
        self._found: Preflight | None = None
        self._again = 0.0

    def of(self, model: Model) -> tuple[Preflight, bool]:
        """Return the preflight of a model, and whether it is up to date."""
        now = time.monotonic()
        wanted = (model, model.looked)
        same = self._of is not None and self._of[0] is model
        if self._found is not None and same and (self._of == wanted or now < self._again):
            return self._found, self._of == wanted
        self._found, self._of = latest_preflight(model), wanted
        self._again = time.monotonic() + max(LEAST_REST, _REST * (time.monotonic() - now))
        return self._found, True


def styled(lines: list[Line]) -> Lines:
    """Return lines with the styles of the screen."""
    return [[(text, _STYLES.get(role, "")) for text, role in line] for line in lines]


def short(found: Preflight, width: int, plain: bool) -> Lines:
    """Return the findings that count in a few lines, none when there are none."""
    lines = styled(short_lines(found, width, _SHORT, ASCII if plain else UNICODE))
    return [*lines, [(" P: preflight", MUTED)], []] if lines else []


def own_lines(record: NodeRecord) -> Lines:
    """Return what the user's own probes gave on a node."""
    lines: Lines = []
    for probe, look in record.looks.items():
        if look.get("own") is not True:
            continue
        lines += section(f"your probe {one_line(probe, 40)}", one_line(str(look.get("title") or ""), 100))
        if look.get("problem"):
            lines.append([("  did not work: ", MUTED), (one_line(str(look["problem"]), 300), "$warning")])
        units, value = look.get("units"), look.get("value")
        named = units if isinstance(units, dict) else {}
        values = value.items() if isinstance(value, dict) else []
        rows = [(one_line(str(name), 30), one_line(f"{one} {named.get(name, '')}", 300)) for name, one in values]
        lines += pairs(rows, max([12, *(len(name) for name, _ in rows)]))
        for one in dicts(look.get("judged")):
            verdict = str(one.get("verdict"))
            mark = f"  {UNICODE.of(verdict)} " if verdict != "note" else "  "
            lines.append(
                [(mark, _STYLES.get(verdict, "")), (one_line(str(one.get("text")), 300), _STYLES.get(verdict, ""))]
            )
    return lines


class PreflightScreen(DetailScreen):
    """Findings, the worst first, each with what says so and the next command; then the facts, by groups of nodes."""

    BINDING_GROUP_TITLE = "Preflight"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "all", "all facts", id="preflight.all", tooltip="all facts, or those that matter"),
        Binding("y", "copy", "copy", id="preflight.copy", tooltip="copy the preflight as text"),
    ]

    def __init__(self, latest: LatestPreflight) -> None:
        super().__init__()
        self._latest = latest
        self._everything = False

    @property
    def _glyphs(self) -> Glyphs:
        return ASCII if self.fabric_app.glyphs.plain else UNICODE

    def _found(self) -> Preflight:
        found, current = self._latest.of(self.fabric_app.model)
        if not current:
            self.fabric_app.draw_again(LEAST_REST)
        return found

    def title_parts(self) -> list[Part]:
        """Return how many nodes were looked at and what came of it."""
        (head, _), (text, _) = head_line(self._found())
        return [(f" {head.rstrip(': ')} ", "bold"), (f" {text}", MUTED)]

    def body_lines(self, width: int) -> Lines:
        """Return the findings and the facts."""
        found, glyphs = self._found(), self._glyphs
        lines: Lines = styled(kind_lines(found.table, width, glyphs))
        for finding in found.findings:
            lines += [[], *styled(finding_lines(finding, width, glyphs))]
        if found.missing:
            lines += section("not inspected")
            lines += [[(f"  {cut(line, width - 2, glyphs)}", "$warning")] for line in found.missing]
        facts = chosen_facts(found.table, self._everything)
        if table := table_lines(found.table, facts, width, glyphs):
            left = len(found.table.facts) - len(facts)
            lines += section("facts", f"{left} more that agree (a)" if left else "")
            lines += styled(table)
        return lines

    def action_all(self) -> None:
        """Show all facts, or those that differ and the main ones."""
        self._everything = not self._everything
        self.draw()

    def action_copy(self) -> None:
        """Copy the preflight, as plain text."""
        lines = ["".join(text for text, _ in line).rstrip() for line in [self.title_parts(), *self.body_lines(120)]]
        self.fabric_app.copy("\n".join(lines))
