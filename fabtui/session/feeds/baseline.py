"""Reading an earlier session to compare with: a recording, or a snapshot as JSON."""

from __future__ import annotations

import contextlib
import datetime
import json
from pathlib import Path
from typing import Any

from fabtui.errors import InputError
from fabtui.model.baseline import Baseline
from fabtui.model.events import EndpointsAdded, Measured, SessionStart
from fabtui.model.measurement import Measurement
from fabtui.model.recording import apply_recorded, read_events
from fabtui.model.session_model import Model

#: A snapshot larger than this is not one of ours.
MAX_SNAPSHOT = 1 << 30
#: Events that a baseline is made of.
_NEEDED = (SessionStart, EndpointsAdded, Measured)


def read_baseline(path: Path) -> Baseline:
    """Read a baseline from a recording (``.jsonl``, packed or not) or from what ``--json`` wrote.

    Raises:
        InputError: The file cannot be read, is neither of the two, or has no pairs of endpoints.
    """
    value = _snapshot(path)
    if value is not None:
        baseline = _of_snapshot(path, value)
    else:
        model = Model()
        for event in read_events(path):
            if isinstance(event, _NEEDED):
                apply_recorded(model, event, path)
        baseline = Baseline.of(path.name, model.started, model.measurements())
    if not baseline.values:
        raise InputError(f"--baseline: {path} holds no pair of endpoints that was tested")
    return baseline


def _snapshot(path: Path) -> dict[str, Any] | None:
    """Return the snapshot that a file holds, or None when it is something else."""
    try:
        with path.open("rb") as file:
            head = file.read(64).lstrip()
            if not head.startswith(b"{") or head.startswith((b'{"kind"', b'{"seq"')):
                return None
            if path.stat().st_size > MAX_SNAPSHOT:
                raise InputError(f"--baseline: {path} has more than {MAX_SNAPSHOT >> 30} GiB: not a snapshot of fabtui")
            file.seek(0)
            value = json.load(file)
    except OSError as error:
        raise InputError(f"--baseline: cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        # Lines of JSON are not JSON text.
        return None
    return value if isinstance(value, dict) and isinstance(value.get("measurements"), list) else None


def _of_snapshot(path: Path, value: dict[str, Any]) -> Baseline:
    measurements = []
    for entry in value["measurements"]:
        # Collectives of a later fabtui may have layers that this one does not know.
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            measurements.append(Measurement.from_json({**entry, "time": _seconds(entry.get("time"))}))
    return Baseline.of(path.name, _seconds(value.get("started")), measurements)


def _seconds(value: Any) -> float:
    with contextlib.suppress(ValueError, TypeError):
        return datetime.datetime.fromisoformat(value).timestamp()
    return 0.0
