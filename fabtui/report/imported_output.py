"""Text of an imported file."""

from __future__ import annotations

from typing import Any

from fabtui.importers.catalogue import formats
from fabtui.importers.examined import errors_in, examined
from fabtui.importers.result import Result
from fabtui.presentation.cell_levels import ASCII, UNICODE
from fabtui.report.explanation import causes_lines
from fabtui.report.summary import problems, summary
from fabtui.report.tables import LONG_UNIT, Layout, cut, wrapped
from fabtui.sanitize import clean, one_line

#: Maximum number of lines of a file of unknown format.
_RAW_LINES = 20
#: Minimum width of the causes in a log.
_NARROWEST = 40


def text_of(result: Result, width: int, plain: bool = False) -> str:
    """Return the text of a result for the width of a terminal, cleaned, ending in a newline; ``plain``: ASCII only."""
    about = result.kind
    if result.known:
        named = result.title.lower().startswith(result.kind.lower())
        about = result.title if named else f"{result.kind}: {result.title}"
    lines = [f"{one_line(result.source.name)}: {about}"]
    if result.kind.startswith("fabtui-"):
        lines += ["", *summary(examined(result), plain).splitlines()]
    elif result.known:
        answered = result.values if isinstance(result.values.get("answer"), list) else {}
        lines += _section("answer", [str(sentence) for sentence in answered.get("answer", [])], width)
        lines += _section("next", [str(command) for command in answered.get("next", [])], width)
        lines += [""] if answered else []
        lines += Layout(result.units, width).lines(shown_values(result))
        long_units = [f"{name}: {unit}" for name, unit in result.units.items() if len(unit) > LONG_UNIT]
        lines += _section("units", long_units, width)
    lines += _section("warnings", result.warnings, width)
    lines += _section("not understood", result.unknown, width)
    if result.known and not result.kind.startswith("fabtui-"):
        diagnosed = [f"  {line}" for line in diagnosis_lines(result, width - 2, plain)]
        lines += ["", *diagnosed] if diagnosed else []
    if not result.known:
        lines += _raw(result.source.text, width)
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return text.encode("ascii", "replace").decode("ascii") if plain else text


def shown_values(result: Result) -> dict[str, Any]:
    """Return the values of a result without those that are shown apart, or that only ``--json`` has."""
    answered = isinstance(result.values.get("answer"), list)
    left_out = (*(formats()[result.kind].hidden if result.known else ()), *(("answer", "next") if answered else ()))
    return {name: value for name, value in result.values.items() if name not in left_out}


def diagnosis_lines(result: Result, width: int, plain: bool = False) -> list[str]:
    """Return the problems that an output shows: as in the summary of a session, and as ``fabtui explain`` of a log."""
    found, errors = examined(result), errors_in(result)
    parts = ["\n".join(part).splitlines() for part in problems(found, ASCII if plain else UNICODE) if part]
    if errors.causes or errors.notices:
        parts.append(causes_lines(errors._replace(unknown=[]), [""], max(width, _NARROWEST)))
    return [cut(line, width) for part in parts for line in ["", *part]][1:]


def _section(title: str, texts: list[str], width: int) -> list[str]:
    lines = [line for text in texts for line in wrapped("    ", one_line(text), width)]
    return ["", f"  {title}", *lines] if texts else []


def raw_lines(text: str) -> list[str]:
    """Return the first lines of a text of unknown format, cleaned."""
    every = clean(text[: 64 * 1024]).splitlines()
    more = [f"and {len(every) - _RAW_LINES} more lines"] if len(every) > _RAW_LINES else []
    return [*every[:_RAW_LINES], *more]


def _raw(text: str, width: int) -> list[str]:
    shown = [f"    {line[: max(width - 4, 40)]}" for line in raw_lines(text)]
    return ["", "  text", *shown] if shown else []
