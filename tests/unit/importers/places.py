"""Folders of the outputs that tests of `fabtui read` use, and access to its results."""

import csv
import functools
import json
from pathlib import Path
from typing import Any

from fabtui.importers.result import Result, read
from fabtui.importers.sources import Source

from ..probes.places import REAL, SAMPLES

__all__ = ["REAL", "SAMPLES", "at", "cases", "index", "of_text", "output_of", "read_file", "start_of"]

#: Maximum number of characters of an output that is read many times: eight GPUs print the same lines eight times.
_LONGEST = 16_000


def index() -> list[dict[str, str]]:
    """Return the rows of the list of real samples; empty where they are not."""
    if not (REAL / "INDEX.csv").is_file():
        return []
    with (REAL / "INDEX.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def start_of(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: text.rindex("\n", 0, _LONGEST) + 1]


def read_file(name: str, kind: str | None = None) -> Result:
    return read(Source(name, (REAL / name).read_text(errors="replace")), kind)


def of_text(text: str, kind: str | None = None) -> Result:
    return read(Source("text", text), kind)


def at(value: Any, path: str) -> Any:
    """Return the value at a path such as ``tables.-1.rows.0.bytes``; ``#`` at its end counts what is there."""
    for name in path.split("."):
        if name == "#":
            return len(value)
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


@functools.cache
def cases() -> dict[str, dict[str, Any]]:
    """Return the cases by name: ``kind``, the output or the sample that has it, and ``facts`` of it by path."""
    files = sorted((Path(__file__).parent / "cases").glob("*.json"))
    return {path.stem: json.loads(path.read_text()) for path in files}


def output_of(name: str) -> str:
    """Return the output of a case: a text, or lines that end with a newline each."""
    case = cases()[name]
    if "sample" in case:
        return (SAMPLES / str(case["sample"])).read_text()
    output: str | list[str] = case["output"]
    return output if isinstance(output, str) else "".join(f"{line}\n" for line in output)
