"""The reference of a class: which values are clusters of their own, and how widely a cluster spreads."""

import random
from array import array
from math import exp, sqrt
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.model.class_statistics import ClassValues, Reference, reference_of


def of(values: list[float], less_is_better: bool = False) -> Reference:
    return reference_of(array("d", sorted(values)), less_is_better)


def test_two_levels_are_two_clusters_from_a_fifth_on() -> None:
    # The logarithm of a fifth less is -0.22.
    assert of([100.0] * 4 + [100 * exp(-0.21)] * 5).value == pytest.approx(100 * exp(-0.21))
    assert of([100.0] * 4 + [100 * exp(-0.23)] * 5).value == 100


def test_a_cluster_takes_two_values_and_a_tenth_of_all() -> None:
    assert of([100.0] * 90 + [200.0] * 10).value == 200
    assert of([100.0] * 91 + [200.0] * 9).value == 100
    assert of([10.0] * 8 + [30.0] * 2).value == 30
    assert of([10.0] * 8 + [30.0]).value == 10


def test_between_two_clusters_lies_a_gap_unless_the_worse_one_is_one_or_two_values() -> None:
    assert of([45.0] * 10 + [20.0] * 3).gap == pytest.approx(30.0)
    assert of([45.0] * 10 + [20.0] * 2).gap is None
    assert of([1.0] * 10 + [9.0] * 3, less_is_better=True) == pytest.approx((1.0, of([1.0] * 10).spread, 3.0))
    assert of([45.0] * 10).gap is None


def test_of_three_clusters_the_best_counts() -> None:
    found = of([45.0] * 10 + [20.0] * 4 + [5.0] * 4)
    assert found.value == 45.0
    assert found.gap == pytest.approx(30.0)


def test_the_best_cluster_shows_by_its_gap_where_the_values_below_it_are_spread_out() -> None:
    # Two of six nodes are slow, one more than the other and each in one direction more: four levels for three of five
    # pairs, so that no split has two narrow clusters.
    chance = random.Random(1)
    shares = [*[1.0] * 96, *[0.55] * 40, *[0.45] * 40, *[0.33] * 40, *[0.17] * 24]
    found = of([45 * share * exp(chance.gauss(0, 0.06)) for share in shares])
    assert found.value == pytest.approx(45, rel=0.03)
    assert found.spread < 0.1


def test_three_values_are_one_cluster() -> None:
    found = of([1.0] * 8 + [10.0, 20.0, 20.0])
    assert found.value == 20.0
    assert found.gap == pytest.approx(sqrt(10.0))
    assert of([1.0] * 8 + [10.0, 10.0, 20.0, 20.0]).gap == pytest.approx(sqrt(200.0))


def test_equal_values_are_credited_with_some_noise() -> None:
    # At least 0.02 of their own; a noise of 0.06 counts as three more values.
    assert of([45.0] * 9).spread == pytest.approx(sqrt((9 * 0.02**2 + 3 * 0.06**2) / 12))
    assert of([45.0, 45.0]).spread == pytest.approx(sqrt((2 * 0.02**2 + 3 * 0.06**2) / 5))
    assert of([45.0]).spread == 0.06


def test_values_that_have_no_logarithm_have_a_median_alone() -> None:
    assert of([0.0, 1.0, 5.0]) == (1.0, 0.0, None)


WIDE = [100 * exp(0.1 * at) for at in range(-4, 5)]
VERY_WIDE = [100 * exp(0.2 * at) for at in range(-4, 5)]


@pytest.mark.parametrize("less_is_better", [False, True])
def test_a_value_of_a_wide_class_is_slow_from_four_and_a_half_deviations_on(less_is_better: bool) -> None:
    values = ClassValues(WIDE, less_is_better)
    spread = of(WIDE, less_is_better).spread
    sign = 1 if less_is_better else -1
    assert not values.is_slow(100 * exp(sign * 4.4 * spread), 0.7)
    assert values.is_slow(100 * exp(sign * 4.6 * spread), 0.7)


def test_a_fifth_of_the_reference_is_slow_however_widely_a_class_spreads() -> None:
    assert ClassValues(VERY_WIDE).limit(0.7) == pytest.approx(20.0)
    assert ClassValues(VERY_WIDE, less_is_better=True).limit(0.7) == pytest.approx(500.0)


def test_a_narrow_class_is_judged_by_the_share_of_its_reference() -> None:
    assert ClassValues([45.0] * 3).limit(0.7) == pytest.approx(0.7 * 45)
    assert not ClassValues([45.0] * 3).is_slow(ClassValues([45.0] * 3).limit(0.7) or 0.0, 0.7), "the limit itself is ok"
    assert ClassValues([2.0] * 3, less_is_better=True).limit(0.8) == pytest.approx(2.5)


def test_a_few_new_values_among_very_many_wait_until_they_are_a_sixtyfourth_or_settled() -> None:
    values = ClassValues([45.0 + 0.001 * at for at in range(640)])
    before = values.median
    for _ in range(10):
        values.add(44.0)
    assert values.median == before
    values.add(44.0)
    changed = values.median
    assert changed is not None
    assert before is not None
    assert changed < before
    values.remove(44.0)
    values.remove(7.0)
    assert values.median == changed
    values.settle()
    assert values.median is not None
    assert changed < values.median < before


def test_a_class_has_a_lowest_and_a_highest_value() -> None:
    values = ClassValues([2.0, 3.0, 1.0])
    assert (values.lowest, values.median, values.highest, len(values)) == (1.0, 2.0, 3.0, 3)
    assert (ClassValues().lowest, ClassValues().median, ClassValues().highest) == (None, None, None)
    assert ClassValues().limit(0.7) is None


@given(st.lists(st.floats(100, 105), min_size=1, max_size=40))
def test_the_value_is_the_median_of_its_cluster(values: list[float]) -> None:
    assert of(values).value == pytest.approx(median(values))


def test_values_far_from_the_middle_of_a_cluster_are_not_part_of_its_noise() -> None:
    # One low value of three is too few for a cluster, and farther away than noise is.
    noise = of([40.0, 100.0, 100.0]).spread
    assert noise == of([100.0, 100.0, 100.0]).spread


def test_large_classes_have_the_reference_of_their_quantiles() -> None:
    values = [100.0 + at % 7 for at in range(9_000)] + [50.0] * 1_000
    found, exact = of(values), of(values[:: len(values) // 2_000])
    assert found.value == pytest.approx(103.0, abs=1.0)
    assert found.gap is not None
    assert found == pytest.approx(exact, rel=0.05)
