"""List of the recordings in a folder, newest first."""

from __future__ import annotations

import contextlib
import shlex
import time
from pathlib import Path

from fabtui.diagnosis.pairs.tally import Tally, gathered
from fabtui.errors import InputError
from fabtui.model.events import SessionStart
from fabtui.model.recording import apply_recorded, last_time, read_events
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.presentation.wording import clock_text
from fabtui.presentation.wrapping import aligned
from fabtui.report.text import cut
from fabtui.sanitize import one_line

#: Maximum number of recordings in the list.
MOST = 40
#: Maximum number of bytes that are read to count bad pairs: of one recording, and of all.
WHOLE, WHOLE_IN_ALL = 256 << 10, 1 << 20
_HEAD = ("started", "duration", "bad pairs", "nodes", "file")


def recordings_in(folder: Path) -> list[Path]:
    """Return the files of a folder that have the name of a recording, newest first."""
    with contextlib.suppress(OSError):
        names = [one for one in folder.iterdir() if one.name.endswith((".jsonl", ".jsonl.gz"))]
        return [one for _, one in sorted(((one.stat().st_mtime, one) for one in names), reverse=True)]
    return []


def recordings_text(folder: Path) -> str:
    """Return the recordings of a folder as text, newest first; InputError without one."""
    paths = recordings_in(folder)
    rows: list[tuple[str, ...]] = []
    newest = None
    left = WHOLE_IN_ALL
    for path in paths[:MOST]:
        with contextlib.suppress(InputError, OSError):
            size = path.stat().st_size
            whole = size <= min(WHOLE, left)
            rows.append(recording_row(path, whole=whole))
            left -= size if whole else 0
            newest = newest or path
    if newest is None:
        raise InputError(
            f"there is no recording in {folder}; every session makes one there, unless --no-record is given; "
            "to play one that ships with fabtui: fabtui replay --demo"
        )
    more = [f"  and {len(paths) - MOST} older ones"] if len(paths) > MOST else []
    lines = [f"recordings in {folder}", *aligned([_HEAD, *rows], left=(0, 3, 4)), *more]
    return "\n".join([*lines, "", f"newest: fabtui replay {shlex.quote(str(newest))}", ""])


def recording_row(path: Path, *, whole: bool) -> tuple[str, ...]:
    """Return a recording as a row; bad pairs are counted if the ``whole`` of it may be read."""
    first = next(iter(read_events(path)))
    assert isinstance(first, SessionStart)
    end = last_time(path)
    return (
        time.strftime("%d %b %Y %H:%M", time.localtime(first.time)),
        "-" if end is None else clock_text(end - first.time),
        _bad_pairs(path) if whole else "-",
        cut(one_line(f"lab {first.lab}" if first.lab else fold(first.nodes), 200), 40),
        one_line(path.name, 200),
    )


def _bad_pairs(path: Path) -> str:
    model = Model()
    with contextlib.suppress(InputError):
        for event in read_events(path):
            apply_recorded(model, event, path)
    *_, tally = gathered(model)
    assert isinstance(tally, Tally)
    return f"{len(tally.bad)} of {tally.counts.total()}" if tally.counts else "none tested"
