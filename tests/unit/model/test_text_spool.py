"""Raw texts and extras, compressed."""

from __future__ import annotations

from typing import Any

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


def test_texts_come_back_as_they_were() -> None:
    spool = TextSpool()
    places = [spool.add(*text_at(number)) for number in range(3 * CHUNK_TEXTS + 5)]
    assert [spool.read(place) for place in places] == [text_at(number) for number in range(len(places))]
    assert spool.add(None, None) == NO_TEXT


def test_room_of_unused_chunks_is_given_back() -> None:
    spool, places = filled(10 * CHUNK_TEXTS + 1)
    size = sum(map(len, spool._chunks))
    for place in places[: 8 * CHUNK_TEXTS]:
        spool.drop(place)
    assert sum(map(len, spool._chunks)) < 0.5 * size
    for number in range(8 * CHUNK_TEXTS, len(places)):
        assert spool.read(places[number]) == TEXTS[number % 4]
    assert spool.read(places[0]) == (None, None)
    assert spool.read(spool.add("new", None)) == ("new", None)
