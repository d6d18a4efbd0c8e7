"""What was read from a file, as text for people."""

from __future__ import annotations

from fabtui.diagnosis.knowledge.error_catalogue import meaning_of
from fabtui.importers.result import Result
from fabtui.importers.to_model.dispatch import convertible, model
from fabtui.report.problems import trouble
from fabtui.report.summary import ASCII, UNICODE, summary
from fabtui.report.tables import LONG_UNIT, Layout, cut, wrapped
from fabtui.sanitize import clean, one_line

#: How much of a text that nobody knows is shown.
_RAW_LINES = 20
#: Kinds that hold errors of NCCL; so many of their warnings are looked at, and so many meanings are told.
_LOGS = ("nccl-log", "torch-log", "nccl-tests", "megatron-log", "all_reduce_bench")
_MOST_WARNINGS = 200
_MOST_MEANINGS = 4
#: What --json holds and people do not want to see: a chosen part or a matrix stands for it.
_TOO_MUCH = {"ping-csv": ("rows",), "p2p-test": ("pairs",)}


def text_of(result: Result, width: int, plain: bool = False) -> str:
    """Return what was read, ending in a newline; what came from the file is cleaned.

    Args:
        result: What was read.
        width: The width of the terminal.
        plain: ASCII only.
    """
    lines = [f"{one_line(result.source.name)}: {_about(result)}"]
    if result.kind.startswith("fabtui-"):
        lines += ["", *summary(model([result]), plain).splitlines()]
    elif result.known:
        told = {name: value for name, value in result.values.items() if name not in _TOO_MUCH.get(result.kind, ())}
        lines += Layout(result.units, width).lines(told)
        lines += _section(
            "units", [f"{name}: {unit}" for name, unit in result.units.items() if len(unit) > LONG_UNIT], width
        )
        lines += _trouble(result, width, plain)
    lines += _section("warnings", result.warnings, width)
    lines += _section("what that means", _meanings(result), width)
    lines += _section("not understood", result.unknown, width)
    if not result.known:
        lines += _raw(result.source.text, width)
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return text.encode("ascii", "replace").decode("ascii") if plain else text


def _about(result: Result) -> str:
    if not result.known:
        return result.kind
    return result.title if result.title.lower().startswith(result.kind.lower()) else f"{result.kind}: {result.title}"


def _trouble(result: Result, width: int, plain: bool) -> list[str]:
    """Say what is wrong with the pairs of a file, as a summary does of a session."""
    if not convertible(result.kind):
        return []
    found = model([result])
    parts = [part for part in trouble(found, ASCII if plain else UNICODE) if part]
    return [
        line for part in parts for line in ("", *(f"  {cut(one, width - 2)}" for one in "\n".join(part).splitlines()))
    ]


def _meanings(result: Result) -> list[str]:
    """Return what the errors of a log of NCCL or of what uses it mean, each once, with what to type on the node."""
    if result.kind not in _LOGS:
        return []
    first = result.values.get("first_cause")
    texts = [*([first] if isinstance(first, str) else []), *result.warnings]
    found = dict.fromkeys(meaning for text in texts[:_MOST_WARNINGS] if (meaning := meaning_of(text)) is not None)
    told = []
    for meaning in list(found)[:_MOST_MEANINGS]:
        typed = dict.fromkeys(command for _, command in meaning.commands if "{" not in command)
        told.append(meaning.text + (f"; next: {', '.join(typed)}" if typed else ""))
    return told


def _section(title: str, texts: list[str], width: int) -> list[str]:
    lines = [line for text in texts for line in wrapped("    ", one_line(text), width)]
    return ["", f"  {title}", *lines] if texts else []


def _raw(text: str, width: int) -> list[str]:
    every = clean(text[: 64 * 1024]).splitlines()
    shown = [f"    {line[: max(width - 4, 40)]}" for line in every[:_RAW_LINES]]
    more = [f"    and {len(every) - _RAW_LINES} more lines"] if len(every) > _RAW_LINES else []
    return ["", "  text", *shown, *more] if shown else []
