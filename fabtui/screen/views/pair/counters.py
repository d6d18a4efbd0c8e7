"""Counter changes on both nodes of a pair during its test, errors first."""

from __future__ import annotations

from fabtui.model.counter_log import Deltas, Path, flatten, paths_of
from fabtui.model.measurement import Measurement
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import bytes_text
from fabtui.presentation.wording import MUTED, time_text
from fabtui.presentation.wrapping import Lines
from fabtui.sanitize import one_line
from fabtui.screen.views.detail_base import section, table

#: Maximum number of error counters and of traffic counters per node.
_MAX_ERRORS = 40
_MAX_TRAFFIC = 16
_FULL = " or more: the counter is at its limit"
#: Endings of the names of byte counters.
_BYTES = ("_bytes", "port_xmit_data", "port_rcv_data")


def counter_lines(model: Model, measurement: Measurement | None) -> Lines:
    """Return the counter changes on both nodes of a measurement; nothing if there are none."""
    found = model.counters_for(measurement) if measurement is not None else {}
    if measurement is None or not found:
        return []
    note = f"per node, during {measurement.layer} at {time_text(measurement.time)}; may include other tests"
    rows: list[list[str]] = []
    styles: dict[tuple[int, int], str] = {}
    left = 0
    for node, deltas in found.items():
        shown, more = _rows(one_line(node, 64), deltas)
        left += more
        for row, is_error in shown:
            if is_error:
                styles[len(rows), 2] = styles[len(rows), 3] = "bold $warning"
            rows.append(row)
    lines = section("counters", note) + table(["node", "where", "counter", "change"], rows, styles)
    if left:
        lines.append([(f"  and {left} more in the recording", MUTED)])
    return lines


def _rows(node: str, deltas: Deltas) -> tuple[list[tuple[list[str], bool]], int]:
    """Return the rows of a node, each with True for an error counter, and the number of rows left out."""
    counts = flatten(deltas)
    errors = paths_of(deltas.get("errors"))
    failures = sorted((path for path in counts if path in errors), key=lambda path: (-counts[path], path))
    reset = sorted(paths_of(deltas.get("reset")))
    traffic = sorted(
        (path for path in counts if path not in errors), key=lambda path: (not _is_bytes(path), -counts[path], path)
    )
    full = paths_of(deltas.get("full"))
    rows = [
        ([node, _place(path), path[-1], f"{counts[path]:,}{_FULL if path in full else ''}"], True)
        for path in failures[:_MAX_ERRORS]
    ]
    rows += [([node, _place(path), path[-1], "was reset"], False) for path in reset[:_MAX_ERRORS]]
    rows += [([node, _place(path), path[-1], _amount(path, counts[path])], False) for path in traffic[:_MAX_TRAFFIC]]
    return rows, len(failures) + len(reset) + len(traffic) - len(rows)


def _is_bytes(path: Path) -> bool:
    return path[-1].endswith(_BYTES)


def _amount(path: Path, count: int) -> str:
    if not _is_bytes(path):
        return f"{count:,}"
    # Four digits suffice.
    number, _, unit = bytes_text(count).partition(" ")
    return f"{float(number):.4g} {unit}" if float(number) < 1000 else f"{float(number):.0f} {unit}"


def _place(path: Path) -> str:
    if path[0] != "nvlink":
        return path[1]
    return f"GPU {path[1]}, all NVLinks" if path[2] == "all" else f"GPU {path[1]}, NVLink {path[2]}"
