"""A snapshot as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from fabtui.export.atomic_write import write_atomically
from fabtui.export.formula import escaped
from fabtui.export.snapshot_rows import COLUMNS, INTEGERS, NUMBERS, rows
from fabtui.model.session_model import Model


def write_csv(model: Model, path: Path) -> int:
    """Write a model's measurements, one a row, whole or not at all.

    Numbers are written as numbers with every digit; what is not known is an empty cell. Text that a spreadsheet would
    run as a formula begins with an apostrophe, which `fabtui.load_snapshot` takes away again.

    Args:
        model: All that is known.
        path: The file; an older one is replaced.

    Returns:
        How many rows it has.

    Raises:
        OSError: It cannot be written.
    """
    import pandas as pd

    found = rows(model)
    frame = pd.DataFrame(found, columns=list(COLUMNS))
    for name in COLUMNS:
        if name in INTEGERS:
            frame[name] = frame[name].astype("Int64")
        elif name in NUMBERS:
            frame[name] = frame[name].astype("float64")
        else:
            frame[name] = [escaped(text) if isinstance(text, str) else None for text in (row[name] for row in found)]

    def write(file: BinaryIO) -> None:
        frame.to_csv(file, index=False, lineterminator="\n", encoding="utf-8")

    write_atomically(path, write)
    return len(found)
