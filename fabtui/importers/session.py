"""Model of a session from any file that holds one."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

from fabtui.errors import InputError
from fabtui.history.query import past_of
from fabtui.importers.result import read
from fabtui.importers.sources import sources
from fabtui.importers.to_model.dispatch import convertible
from fabtui.importers.to_model.dispatch import model as model_of
from fabtui.model.recording import DamagedRecording, EventReader, apply_recorded, check_recording
from fabtui.model.session_model import Model
from fabtui.paths import user_path


def read_session(name: str, progress: Callable[[float], object] = lambda share: None) -> Model:
    """Return the model of a recording, of a snapshot, or of the output of a tool that tests pairs; see `replayed`.

    Raises:
        InputError: The file cannot be read, is damaged, or holds no pairs.
    """
    path = user_path(name)
    if is_recording(path):
        model, damage = replayed(path, progress)
        if damage is not None:
            raise damage
        return model
    results = [read(source) for source in sources([name])]
    if not any(convertible(result.kind) for result in results):
        known = "expected a recording, CSV or JSON of fabtui, or output with pairs (fabtui read --list)"
        raise InputError(f"{name}: {known}")
    return model_of(results)


def is_recording(path: Path) -> bool:
    """Return True if a file is a recording, of any size, damaged or not."""
    try:
        check_recording(path)
    except InputError as error:
        return isinstance(error, DamagedRecording)
    return True


def replayed(
    path: Path, progress: Callable[[float], object] = lambda share: None
) -> tuple[Model, DamagedRecording | None]:
    """Return the model that a recording ends with, or that of the part before its damage, and the damage.

    ``progress`` is called with the share of the file that was read, with 1 at the end.

    Raises:
        InputError: It is not a recording.
    """
    model = Model()
    collecting = gc.isenabled()
    # Events have no cycles; looking for cycles in all that is kept takes a fifth of the time.
    gc.disable()
    try:
        # Event by event: a recording may be larger than any other file.
        reader = EventReader(path)
        size = max(1, path.stat().st_size) if path.exists() else 1
        for event in reader:
            apply_recorded(model, event, path)
            progress(min(0.99, reader.offset / size))
    except DamagedRecording as damage:
        return model, damage
    finally:
        # Sessions before it, if this machine knows any.
        model.past = past_of(model)
        progress(1.0)
        if collecting:
            gc.enable()
    return model, None
