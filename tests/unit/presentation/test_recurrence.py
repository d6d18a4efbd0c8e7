"""Earlier sessions in the text and the JSON of a finding: the same sentence behind each door."""

from typing import Any

import pytest

from fabtui.model.records import Recurrence
from fabtui.presentation.findings import ordinal, recurrence_text

_DAY = 86400.0
_FIRST = 1_793_000_000.0


def _past(**changes: Any) -> Recurrence:
    usual: dict[str, Any] = {"first": _FIRST, "last": _FIRST + _DAY, "sessions_ago": 3, "times": 2, "days": 14.2}
    return Recurrence(**{**usual, "running": 1, **changes})


@pytest.mark.parametrize(
    ("past", "expected"),
    [
        (_past(), "first seen 3 sessions ago (2026-10-26)"),
        (_past(sessions_ago=1), "first seen 1 session ago (2026-10-26)"),
        (_past(times=3), "first seen 3 sessions ago (2026-10-26), third time in 14 days"),
        (_past(times=3, days=0.2), "first seen 3 sessions ago (2026-10-26), third time in 5 hours"),
        (
            _past(moved="gpu", moved_from="n012:3"),
            "first seen 3 sessions ago (2026-10-26), moved with the GPU from n012:3",
        ),
    ],
)
def test_recurrence_in_a_sentence(past: Recurrence, expected: str) -> None:
    assert recurrence_text(past) == expected


def test_names_of_a_history_cannot_reach_the_terminal() -> None:
    assert "\x1b" not in recurrence_text(_past(moved="gpu", moved_from="n012\x1b[2J\n:3"))


def test_ordinals() -> None:
    assert [ordinal(number) for number in (2, 10, 11, 21, 112)] == ["second", "tenth", "11th", "21st", "112th"]
