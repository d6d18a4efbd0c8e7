"""Checkpoints of a replay: copies of the model, so that a seek does not begin at the start of the recording."""

from __future__ import annotations

import pickle
import tempfile
import zlib
from typing import IO, NamedTuple

from fabtui.model.recording import START, EventReader, RecordingPlace
from fabtui.model.session_model import Model

#: Bytes of recorded text between two checkpoints, at first: about half a second of work.
SPACING = 4 << 20
#: Maximum number of checkpoints; every second one is dropped when there are more.
MOST = 24


class _Checkpoint(NamedTuple):
    """A copy of the model at a place of the recording; ``start`` and ``length`` are where it is in the file."""

    time: float
    place: RecordingPlace
    start: int
    length: int


class Checkpoints:
    """Copies of the model of a replay, compressed in an unlinked temporary file, so that they take no memory."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._kept: list[_Checkpoint] = []
        self._spacing = SPACING
        self._since = 0

    def note(self, reader: EventReader, model: Model) -> None:
        """Take a checkpoint if enough was read since the latest one, and this part of the recording has none."""
        if reader.size - self._since < self._spacing:
            return
        self._since = reader.size
        if not self._kept or model.now > self._kept[-1].time:
            self._take(reader.place, model)

    def _take(self, place: RecordingPlace, model: Model) -> None:
        # The baseline belongs to the screen, not to the recording.
        baseline, model.baseline = model.baseline, None
        try:
            data = zlib.compress(pickle.dumps(model, pickle.HIGHEST_PROTOCOL), 1)
        finally:
            model.baseline = baseline
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="fabtui-")  # noqa: SIM115 - lives as long as the replay
            start = self._file.seek(0, 2)
            self._file.write(data)
            self._file.flush()
        except OSError:
            # Without room on the disk, a seek takes longer.
            return
        self._kept.append(_Checkpoint(model.now, place, start, len(data)))
        if len(self._kept) > MOST:
            self._kept = self._kept[1::2]
            self._spacing *= 2

    def latest(self, target: float) -> float:
        """Return the time of the latest checkpoint that is not later than a time, or 0."""
        return max((one.time for one in self._kept if one.time <= target), default=0.0)

    def load(self, target: float) -> tuple[RecordingPlace, Model]:
        """Return the latest checkpoint that is not later than a time, or the start of the recording."""
        self._since = 0
        found = next((one for one in reversed(self._kept) if one.time <= target), None)
        if found is None or self._file is None:
            return START, Model()
        self._file.seek(found.start)
        # Written by this process to a file without a name.
        model: Model = pickle.loads(zlib.decompress(self._file.read(found.length)))  # noqa: S301  # nosec B301
        return found.place, model
