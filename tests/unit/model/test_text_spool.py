"""Raw texts and extras in a temporary file without a name."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from fabtui.model import measurement_store
from fabtui.model.measurement_store import CHUNK_TEXTS, NO_TEXT, TextSpool

TEXTS: list[tuple[str | None, dict[str, Any] | None]] = [
    ("one", None),
    ("", {}),
    (None, {"loss": 0.5, "times": {"p99": 1e-3}}),
    ("\ud800\x00\u2028 ä\n", {"whole": 1 << 60}),
    ("x" * 400_000, None),
]


def text_at(number: int) -> tuple[str | None, dict[str, Any] | None]:
    return TEXTS[4] if number % 64 == 63 else TEXTS[number % 4]


def filled(count: int) -> tuple[TextSpool, list[int]]:
    spool = TextSpool()
    places = [spool.add(*TEXTS[number % 4]) for number in range(count)]
    return spool, places


@pytest.mark.parametrize("in_memory", [0, 1 << 30])
def test_texts_come_back_as_they_were(in_memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement_store, "IN_MEMORY", in_memory)
    spool = TextSpool()
    places = [spool.add(*text_at(number)) for number in range(3 * CHUNK_TEXTS + 5)]
    assert [spool.read(place) for place in places] == [text_at(number) for number in range(len(places))]
    assert spool.add(None, None) == NO_TEXT


def test_no_file_remains_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement_store, "IN_MEMORY", 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spool, places = filled(3 * CHUNK_TEXTS)
    assert list(tmp_path.iterdir()) == []
    assert spool.read(places[1]) == TEXTS[1]


def test_texts_stay_in_memory_where_the_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement_store, "IN_MEMORY", 0)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    spool, places = filled(3 * CHUNK_TEXTS)
    assert [spool.read(place) for place in places] == [TEXTS[number % 4] for number in range(len(places))]


def test_room_of_unused_chunks_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement_store, "IN_MEMORY", 0)
    monkeypatch.setattr(measurement_store, "COMPACT_FROM", 1)
    spool, places = filled(10 * CHUNK_TEXTS + 1)
    assert spool._file is not None
    size = os.fstat(spool._file.fileno()).st_size
    for place in places[: 8 * CHUNK_TEXTS]:
        spool.drop(place)
    assert os.fstat(spool._file.fileno()).st_size < 0.5 * size
    for number in range(8 * CHUNK_TEXTS, len(places)):
        assert spool.read(places[number]) == TEXTS[number % 4]
    assert spool.read(places[0]) == (None, None)
    assert spool.read(spool.add("new", None)) == ("new", None)
