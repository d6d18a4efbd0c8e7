from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.model.class_statistics import ClassValues


def _of(values: list[float]) -> ClassValues:
    found = ClassValues()
    for value in values:
        found.add(value)
    return found


@given(st.lists(st.floats(90.0, 110.0), min_size=1))
def test_the_reference_of_one_cluster_is_its_median(values: list[float]) -> None:
    assert _of(values).median == pytest.approx(median(values))


@pytest.mark.parametrize("slow", [2, 6, 12, 24])
def test_the_reference_of_two_clusters_is_the_better_one(slow: int) -> None:
    """One slow node of four or fewer makes most pairs slow; the median hid it."""
    values = _of([45.0 + 0.1 * n for n in range(6)] + [22.0 + 0.1 * n for n in range(slow)])
    assert values.median == pytest.approx(45.25)
    assert values.is_slow(24.4, 0.7)
    assert not values.is_slow(45.0, 0.7)


def test_a_single_high_value_is_no_reference() -> None:
    values = _of([10.0, 10.1, 9.9, 10.0, 10.2, 30.0])
    assert values.median == 10.0
    assert not values.is_slow(9.9, 0.7)


def test_a_worse_cluster_is_slow_however_near_it_is() -> None:
    values = _of([45.0 + 0.1 * n for n in range(9)] + [34.0 + 0.1 * n for n in range(9)])
    assert values.is_slow(34.8, 0.7)


def test_where_less_is_better_the_lower_cluster_is_the_reference() -> None:
    values = ClassValues([1.0, 1.1, 1.05, 3.0, 3.1, 3.2], less_is_better=True)
    assert values.median == 1.05
    assert values.is_slow(3.0, 0.7)
    assert not values.is_slow(1.1, 0.7)


def test_a_tight_class_is_judged_by_the_share_of_its_median() -> None:
    values = _of([358.0, 360.0, 355.0, 361.0, 357.0, 359.0])
    assert values.limit(0.7) == pytest.approx(0.7 * 358.5)
    assert values.is_slow(212.0, 0.7)
    assert not values.is_slow(316.0, 0.7)


def test_a_class_that_spreads_by_itself_is_judged_more_gently_but_never_blindly() -> None:
    # Pairs over TCP sockets of one host, whose cores they share.
    values = _of([2.58, 3.08, 2.77, 3.67, 4.01, 4.02, 4.30, 3.45, 3.13, 3.09, 3.45, 3.15, 4.37, 3.97])
    assert not values.is_slow(2.08, 0.7)
    assert values.is_slow(0.5, 0.7)


def test_slow_paths_cannot_hide_themselves_in_the_spread() -> None:
    # One bad node of four: half of the pairs between nodes are slow.
    values = _of([45.0, 45.2, 45.1, 44.9, 45.3, 45.0, 45.1, 20.0, 20.1, 19.9, 20.2, 20.0, 20.1])
    assert values.is_slow(20.0, 0.7)


def test_too_few_values_say_nothing() -> None:
    assert _of([1.0, 100.0]).limit(0.7) is None
