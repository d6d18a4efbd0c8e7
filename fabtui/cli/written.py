"""Writing the files that were asked for when a session is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabtui.fabric.errors import InputError

if TYPE_CHECKING:
    from fabtui.cli.request import Request
    from fabtui.fabric.model import Model


def write_outputs(model: Model, request: Request) -> list[str]:
    """Write the CSV and the JSON of a request; returns a line for each.

    Raises:
        InputError: One of them cannot be written any more (disk full); the other is.
    """
    lines = []
    problems = []
    try:
        if request.csv is not None:
            from fabtui.export.csv import write_csv

            rows = write_csv(model, request.csv)
            lines.append(f"wrote {request.csv} ({rows} rows)")
    except OSError as error:
        problems.append(f"cannot write {request.csv}: {error.strerror}")
    try:
        if request.json is not None:
            from fabtui.export.json import write_json

            write_json(model, request.json)
            lines.append(f"wrote {request.json}")
    except OSError as error:
        problems.append(f"cannot write {request.json}: {error.strerror}")
    if problems:
        raise InputError("; ".join(problems))
    return lines
