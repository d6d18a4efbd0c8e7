"""Table of the storage check: rates of each node alone and with all nodes at once."""

from __future__ import annotations

from fabtui.model.facts.node_view import number, text
from fabtui.model.session_model import Model
from fabtui.presentation.text_table import aligned
from fabtui.report.tables import MOST_LINES
from fabtui.sanitize import one_line


def storage_table(model: Model) -> list[str]:
    """Return the table, empty where the probe ``storage`` did not run."""
    rows, files = [], []
    for record in model.nodes.values():
        value = record.probe_results.get("storage")
        if value is None:
            continue
        files.append(text(value.get("path")) or "")
        rates = [number(value.get(name)) for name in ("alone", "together")]
        how = [text(value.get(name)) or "" for name in ("how", "filesystem", "problem", "error")]
        cells = ["-" if rate is None else f"{rate:.0f}" for rate in rates]
        rows.append([record.name, *cells, one_line(", ".join(word for word in how if word), 160)])
    if not rows:
        return []
    where = next((one_line(file, 200) for file in files if file), "")
    head = ["", "alone", "all at once", "read by"]
    lines = [f"storage, MB/s: sequential read of {where}" if where else "storage", *aligned([head, *rows], (0, 3))]
    sums = [total for name in ("together",) if (total := _sum(model, name)) is not None]
    lines += [f"  all nodes at once: {total:.0f} MB/s" for total in sums]
    left = len(lines) - MOST_LINES
    return lines if left <= 0 else [*lines[: MOST_LINES - 1], f"  and {left + 1} more lines; --json has them all"]


def _sum(model: Model, name: str) -> float | None:
    values = [number(record.probe_results.get("storage", {}).get(name)) for record in model.nodes.values()]
    known = [value for value in values if value is not None]
    return sum(known) if known else None
