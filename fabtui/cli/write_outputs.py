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
from fabtui.model.session_model import Model


def write_outputs(model: Model, request: Request) -> Iterator[str]:
    """Write the files of a request; see `write_each`."""
    wanted: tuple[tuple[Path | None, Callable[[Model, Path], int | None]], ...]
    wanted = ((request.csv, write_csv), (request.json, write_json), (request.table, write_table))
    return write_each((path, partial(write, model)) for path, write in wanted if path is not None)
