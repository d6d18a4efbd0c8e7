"""Text of an imported file."""

from __future__ import annotations

from typing import Any

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.knowledge.error_catalogue import meaning_of
from fabtui.importers.catalogue import formats
from fabtui.importers.result import Result
from fabtui.importers.to_model.dispatch import convertible, model
from fabtui.report.summary import ASCII, UNICODE, problems, summary
from fabtui.report.tables import LONG_UNIT, Layout, cut, wrapped
from fabtui.sanitize import clean, one_line

#: Maximum number of lines of a file of unknown format.
_RAW_LINES = 20
#: Maximum numbers of warnings examined and meanings shown.
_MOST_WARNINGS = 200
_MOST_MEANINGS = 4


def text_of(result: Result, width: int, plain: bool = False) -> str:
    """Return the text of a result for the width of a terminal, cleaned, ending in a newline; ``plain``: ASCII only."""
    about = result.kind
    if result.known:
        named = result.title.lower().startswith(result.kind.lower())
        about = result.title if named else f"{result.kind}: {result.title}"
    lines = [f"{one_line(result.source.name)}: {about}"]
    if result.kind.startswith("fabtui-"):
        lines += ["", *summary(diagnose(model([result])), plain).splitlines()]
    elif result.known:
        answered = result.values if isinstance(result.values.get("answer"), list) else {}
        lines += _section("answer", [str(sentence) for sentence in answered.get("answer", [])], width)
        lines += _section("next", [str(command) for command in answered.get("next", [])], width)
        lines += [""] if answered else []
        lines += Layout(result.units, width).lines(shown_values(result))
        long_units = [f"{name}: {unit}" for name, unit in result.units.items() if len(unit) > LONG_UNIT]
        lines += _section("units", long_units, width)
        lines += _problems(result, width, plain)
    lines += _section("warnings", result.warnings, width)
    lines += _section("meaning", meanings(result), width)
    lines += _section("not understood", result.unknown, width)
    if not result.known:
        lines += _raw(result.source.text, width)
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return text.encode("ascii", "replace").decode("ascii") if plain else text


def shown_values(result: Result) -> dict[str, Any]:
    """Return the values of a result without those that are shown apart, or that only ``--json`` has."""
    answered = isinstance(result.values.get("answer"), list)
    left_out = (*(formats()[result.kind].hidden if result.known else ()), *(("answer", "next") if answered else ()))
    return {name: value for name, value in result.values.items() if name not in left_out}


def _problems(result: Result, width: int, plain: bool) -> list[str]:
    """Return the problems of the pairs of a file, as in the summary of a session."""
    if not convertible(result.kind):
        return []
    lines = []
    for part in problems(diagnose(model([result])), ASCII if plain else UNICODE):
        if part:
            lines += ["", *(f"  {cut(line, width - 2)}" for line in "\n".join(part).splitlines())]
    return lines


def meanings(result: Result) -> list[str]:
    """Return the meanings of the NCCL errors of a log, each once, with the next commands."""
    if not (result.known and formats()[result.kind].errors):
        return []
    first = result.values.get("first_cause")
    texts = [*([first] if isinstance(first, str) else []), *result.warnings]
    found = dict.fromkeys(meaning for text in texts[:_MOST_WARNINGS] if (meaning := meaning_of(text)) is not None)
    lines = []
    for meaning in list(found)[:_MOST_MEANINGS]:
        typed = dict.fromkeys(command for _, command in meaning.commands if "{" not in command)
        lines.append(f"{meaning.code}: {meaning.text}" + (f"; next: {', '.join(typed)}" if typed else ""))
    return lines


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
