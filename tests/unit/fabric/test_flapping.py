from __future__ import annotations

import pytest

from fabtui.fabric.flapping import ATTEMPTS, flapping, turns
from fabtui.fabric.measurement import Verdict

_LETTERS = {
    "o": Verdict.OK,
    "s": Verdict.SLOW,
    "x": Verdict.FAILED,
    "t": Verdict.TIMEOUT,
    "?": Verdict.INCONCLUSIVE,
    "-": Verdict.SKIPPED,
}


@pytest.mark.parametrize(
    ("attempts", "turned", "flaps"),
    [
        ("", 0, 0),
        ("o", 0, 0),
        ("oooooo", 0, 0),
        ("ox", 1, 0),
        ("xo", 1, 0),
        ("xxxoooo", 1, 0),
        ("xts", 0, 0),
        ("oxo", 2, 2),
        ("oso", 2, 2),
        ("xox", 2, 2),
        ("o?x?o", 2, 2),
        ("o?-o", 0, 0),
        ("oxoxo", 4, 4),
    ],
)
def test_a_pair_flaps_that_turns_at_least_twice(attempts: str, turned: int, flaps: int) -> None:
    verdicts = [_LETTERS[letter] for letter in attempts]
    assert turns(verdicts) == turned
    assert flapping(verdicts) == flaps


def test_it_stops_to_flap_when_it_was_steady_for_long() -> None:
    verdicts = [_LETTERS[letter] for letter in "oxo" + "o" * ATTEMPTS]
    assert flapping(verdicts) == 0
