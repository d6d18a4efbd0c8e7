"""Raw texts that are squeezed together come back as they were, in less room than compressing them takes."""

from __future__ import annotations

import json
import random
import zlib

import pytest

from fabtui.model.rawtexts import squeezed, unsqueezed

LINE = "[n{0:03d}:{1}]\nChannel 00 : {2}[{1}] -> {3}[4] [send] via NET/IB/{1}\nseconds: init 0.{4:03d}, data 0.{5:03d}"


def _reports(count: int) -> list[str | None]:
    """What so many ranks say of a transfer, much alike."""
    chance = random.Random(3)
    most = (32, 8, 256, 256, 200, 400)
    return [LINE.format(*map(chance.randrange, most)) for _ in range(count)]


@pytest.mark.parametrize(
    "texts",
    [
        ["one", None, "two", ""],
        ["1", "22", "", "333", "007", "0", "00"],
        ["7 of 9", "8 of 10", "9 of 11", "0 of 0", "1 of 9", None, "x", "7 of 9 or 3"],
        ["0x1f 0", "0x2e 0", "0x3d 0", "0x4c 0", "0x5b 0"],
        ["\u0663 \u00b2 5", "\u0663 \u00b2 6", "\u0663 \u00b2 7", "\u0663 \u00b2 8"],
        ["\ud800\x00\u2028 1\n", "\ud800\x00\u2028 2\n", "\ud800\x00\u2028 3\n", "\ud800\x00\u2028 4\n"],
        ["9" * 5000, "8" * 5000, "7" * 4999, "1"],
        [None, *_reports(100), None],
    ],
)
def test_texts_come_back_as_they_were(texts: list[str | None]) -> None:
    packed = squeezed(texts)
    assert packed is not None
    assert unsqueezed(packed) == texts


def test_no_texts_take_no_room() -> None:
    assert squeezed([]) is None
    assert squeezed([None, None]) is None


def test_texts_that_are_alike_take_half_of_what_compressing_them_takes() -> None:
    texts = _reports(256)
    assert len(squeezed(texts) or b"") < 0.6 * len(zlib.compress(json.dumps(texts).encode(), 9))
