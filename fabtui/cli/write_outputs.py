"""Write the files of a request at the end of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from fabtui.cli.options_from_args import Request
from fabtui.cli.write_texts import write_each
from fabtui.export.collectives_table import write_table
from fabtui.export.csv import write_csv
from fabtui.export.json import write_json
from fabtui.export.junit import write_junit
from fabtui.export.openmetrics import write_openmetrics
from fabtui.export.planner import write_planner
from fabtui.model.session_model import Model
from fabtui.pages.formats import write_report

Writer = Callable[[Model, Path], int | None]
#: Writer of each output option, which returns the number of rows of a table.
WRITERS: dict[str, Writer] = {
    "csv": write_csv,
    "json": write_json,
    "table": write_table,
    "junit": write_junit,
    "planner": write_planner,
    "report": write_report,
}


def output_files(model: Model, request: Request) -> list[tuple[Path, Callable[[Path], int | None]]]:
    """Return the files of a request, with what writes them."""
    writers: dict[str, Writer] = {**WRITERS, "prom": partial(write_openmetrics, contents=request.exposition)}
    return [(path, partial(writers[name], model)) for name, path in request.outputs.items()]


def write_outputs(model: Model, request: Request) -> Iterator[str]:
    """Write the files of a request; see `write_each`."""
    return write_each(output_files(model, request))
