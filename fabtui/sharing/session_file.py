"""Recordings and snapshots as JSON values, read one by one and written in the same form."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from fabtui.errors import InputError
from fabtui.export.csv import COLUMNS
from fabtui.importers.sources import sources
from fabtui.model.events import event_from_json
from fabtui.model.recording import EventReader, read_events
from fabtui.sanitize import escaped

_GZIP = b"\x1f\x8b"
_SQLITE = "SQLite format 3"
_HISTORY = "{}: the history of a site names all of its hardware and is never shared; share a recording instead"


class SessionFile:
    """A recording, a JSON snapshot or a CSV snapshot.

    Attributes:
        kind: What it is, for users.
        damage: What is left out of a recording that does not continue as one, or None.

    Raises:
        InputError: The file cannot be read, or has another format.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.damage: str | None = None
        self._text = ""
        try:
            next(read_events(path))
            self.kind = "recording"
        except InputError as no_recording:
            self._text = self._snapshot(no_recording)
            self.kind = "JSON snapshot" if self._text.lstrip().startswith("{") else "CSV snapshot"
        with path.open("rb") as file:
            self._packed = file.read(2) == _GZIP

    def _snapshot(self, no_recording: InputError) -> str:
        # Reports in one line what cannot be read.
        source = next(sources([str(self._path)]))
        if source.name != str(self._path):
            raise InputError(f"{self._path}: a folder or an archive; share takes one file, unpack it first")
        if source.cut:
            raise InputError(f"{self._path}: {source.cut}")
        text = source.text.lstrip("\ufeff")
        if text.startswith(_SQLITE):
            raise InputError(_HISTORY.format(self._path)) from None
        if text.splitlines()[:1] == [",".join(COLUMNS)]:
            return text
        if text.lstrip().startswith("{"):
            value = self._json(text)
            if isinstance(value, dict) and str(value.get("software", "")).startswith("fabtui"):
                return text
            if isinstance(value, dict) and value.get("kind") == "fabtui history":
                raise InputError(_HISTORY.format(self._path)) from None
        raise InputError(f"{no_recording}; expected a recording, or a CSV or JSON snapshot of fabtui") from None

    def _json(self, text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None

    def values(self) -> Iterator[Any]:
        """Yield the events of a recording, the object of a JSON snapshot, or the rows of a CSV snapshot."""
        if self.kind == "JSON snapshot":
            yield self._json(self._text)
        elif self.kind == "CSV snapshot":
            yield from csv.DictReader(io.StringIO(self._text), restkey="more", restval="")
        else:
            for number, line in enumerate(EventReader(self._path).lines(), 1):
                try:
                    value = json.loads(line)
                    event_from_json(value)
                except (ValueError, RecursionError):
                    self.damage = f"line {number} of the recording is not an event; it and the rest are left out"
                    return
                yield value

    def write(self, change: Callable[[Any], Any], file: BinaryIO) -> None:
        """Write the file with every value changed; a packed file is packed again."""
        if not self._packed:
            self._write(change, file)
            return
        # Neither name nor time of the original.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            self._write(change, packed)

    def _write(self, change: Callable[[Any], Any], file: BinaryIO | gzip.GzipFile) -> None:
        if self.kind == "CSV snapshot":
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(change(row).values() for row in self.values())
            file.write(text.getvalue().encode())
            return
        for value in self.values():
            one_line = self.kind == "recording"
            layout: Any = {"separators": (",", ":")} if one_line else {"indent": 1}
            line = escaped(json.dumps(change(value), ensure_ascii=not one_line, **layout))
            file.write((line + "\n").encode("utf-8", "backslashreplace"))
