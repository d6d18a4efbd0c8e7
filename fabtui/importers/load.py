"""Files as DataFrames: ``fabtui.load``."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from fabtui.errors import InputError
from fabtui.export.frames import Frames
from fabtui.importers.catalogue import is_ours
from fabtui.importers.result import Result, read
from fabtui.importers.session import is_recording, replayed
from fabtui.importers.sources import sources
from fabtui.importers.to_model.dispatch import check_comparable, convertible
from fabtui.importers.to_model.dispatch import model as model_of
from fabtui.model.session_model import Model
from fabtui.paths import user_path

#: Name of the session that outputs of tools make together.
OUTPUTS = "outputs"


def load(paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> Frames:
    """Return what files hold as DataFrames.

    Each recording, JSON or CSV of fabtui is a session, with the name of its file; outputs of other tools that hold
    pairs or collectives are one session together, ``outputs``. All frames have the column ``session``.

    Args:
        paths: A file or folder, or several: anything that ``fabtui read`` understands, packed files too.

    Raises:
        InputError: A file cannot be read or is too large, or its format is not recognised.

    Warns:
        UserWarning: A recording is damaged; the part before that is loaded.
    """
    names = [str(paths)] if isinstance(paths, (str, PathLike)) else [str(path) for path in paths]
    if not names:
        raise InputError("no file given")
    sessions: dict[str, Model] = {}
    outputs: list[Result] = []
    readings: list[dict[str, Any]] = []
    for name in names:
        path = user_path(name)
        if path.is_file() and is_recording(path):
            sessions[_free(path, sessions)], damage = replayed(path)
            if damage is not None:
                warnings.warn(f"{damage}; the part before it is loaded", stacklevel=2)
            continue
        for source in sources([name]):
            if source.cut:
                raise InputError(f"{source.name}: {source.cut}")
            result = read(source)
            if not result.known:
                raise InputError(f"{source.name}: {result.warnings[-1]}")
            if is_ours(result.kind):
                sessions[_free(Path(source.name), sessions)] = model_of([result])
            elif convertible(result.kind):
                outputs.append(result)
            else:
                readings.append(result.as_json())
    check_comparable(outputs, "; load them separately")
    if outputs:
        sessions[_free(Path(OUTPUTS), sessions)] = model_of(outputs)
    return Frames(sessions, readings)


def _free(path: Path, taken: dict[str, Model]) -> str:
    """Return a name for a session: that of its file, or its path if there are several of that name."""
    return path.name if path.name not in taken else str(path)
