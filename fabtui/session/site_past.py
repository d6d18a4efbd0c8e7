"""The history of the site as a session uses it: read at its start, added to at its end.

Importing this loads SQLite and the rules about earlier sessions, 2 MB that a session without a history does not need.
"""

from __future__ import annotations

from pathlib import Path

from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.history.history_writer import HistoryWriter
from fabtui.history.remembered_findings import remembered
from fabtui.history.session_entry import entry_of
from fabtui.model.session_model import Model
from fabtui.presentation.findings import title


class SitePast:
    """The file of a site's history; reading and writing it block.

    Args:
        path: The file.
        patience: Time (s) to wait for another writer.
    """

    def __init__(self, path: Path, patience: float) -> None:
        self._path = path
        self._patience = patience

    def give(self, model: Model) -> None:
        """Give a model what earlier sessions found.

        Raises:
            InputError: The file cannot be read.
        """
        model.past = remembered(self._path)

    def add(self, found: Diagnosis, recording: Path | None) -> None:
        """Add a session, with the name of its recording.

        Raises:
            InputError: The file cannot be written.
        """
        entry = entry_of(found, "" if recording is None else recording.name, title)
        HistoryWriter(self._path).add([entry], patience=self._patience)
