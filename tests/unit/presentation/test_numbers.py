from __future__ import annotations

import pytest

from fabtui.model.measurement import Reduced
from fabtui.presentation.numbers import reduced_text, share_text, spoken


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0.0196, "GB/s", (19.6, "MB/s")),
        (0.0994, "GB/s", (99.4, "MB/s")),
        (0.971, "GB/s", (0.971, "GB/s")),
        (0.0, "GB/s", (0.0, "GB/s")),
        (0.02, "us", (0.02, "us")),
    ],
)
def test_small_rates_are_in_megabytes(value: float, unit: str, expected: tuple[float, str]) -> None:
    number, name = spoken(value, unit)
    assert number == pytest.approx(expected[0])
    assert name == expected[1]


def test_both_values_of_a_comparison_have_their_own_unit() -> None:
    assert share_text(0.0196, 0.971, "GB/s") == "19.6 MB/s, 2.0 % of the usual 0.97 GB/s"
    assert share_text(0.0196, 0.05, "GB/s") == "19.6 MB/s, 39 % of the usual 50.0 MB/s"
    assert share_text(27.0, 30.0, "us") == "27.0 us, 90 % of the usual 30.0 us"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.305, "0.3 s"), (43.0, "43 s"), (99.6, "1.7 min"), (110.0, "1.8 min"), (6700.0, "1.9 h"), (90.0 * 3600, "90 h")],
)
def test_a_smaller_message_has_the_time_of_the_requested_one(seconds: float, text: str) -> None:
    assert reduced_text(Reduced(1 << 20, 256 << 20, seconds)) == f"1 MiB; 256 MiB would take {text}"
