"""Changes in the course of a component."""

import random

from fabtui.history.file import DAY
from fabtui.history.rules import Fall, HourlyRate, Point, fall_of, rise_of


def fall(values: list[float], noise: float) -> Fall | None:
    return fall_of([Point(at * DAY, value) for at, value in enumerate(values)], noise, max(0.05, 4 * noise))


def rise(counts: list[int]) -> float | None:
    found = rise_of([HourlyRate(at * DAY, at * DAY, count, 24.0, 1) for at, count in enumerate(counts)])
    return None if found is None else found[0].since


def test_a_fall_has_its_date() -> None:
    rng = random.Random(1)
    flat = [1 + rng.gauss(0, 0.02) for _ in range(40)]
    assert fall(flat, 0.02) is None
    step = fall([*flat[:25], *(one * 0.8 for one in flat[25:])], 0.02)
    assert step is not None
    assert step.since == 25 * DAY
    line = fall([*flat[:20], *(one - 0.015 * at for at, one in enumerate(flat[20:]))], 0.02)
    assert line is not None
    assert abs(line.since / DAY - 20) <= 4


def test_a_fall_that_has_ended_is_as_old_as_it_is() -> None:
    rng = random.Random(2)
    values = [max(0.6, 1 - 0.02 * max(0, at - 20)) + rng.gauss(0, 0.01) for at in range(70)]
    found = fall(values, 0.01)
    assert found is not None
    assert abs(found.since / DAY - 21) <= 2


def test_two_days_and_what_has_passed_are_no_fall() -> None:
    flat = [1.0] * 20
    assert fall([*flat, 0.5, 0.5], 0.01) is None
    assert fall([*flat, *[0.5] * 6, *flat[:6]], 0.01) is None


def test_a_counter_rises_from_its_own_rate_and_not_by_a_burst() -> None:
    assert rise([0, 1, 0, 0, 1, 0, 0, 4, 9, 15, 22]) == 7 * DAY
    assert rise([3, 5, 2, 4, 6, 3, 5, 4, 3, 6]) is None
    assert rise([0, 0, 0, 0, 0, 80, 0, 0, 0, 0]) is None
    assert rise([0, 0, 0, 0, 0, 0, 40, 40]) is None
