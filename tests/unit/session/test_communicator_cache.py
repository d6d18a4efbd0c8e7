"""The cache of communicators: bound, order of release, lost ends."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.session.measure.communicator_cache import (
    BOUND,
    ESTIMATES,
    LEAST,
    NODE_CTAS,
    CommunicatorKey,
    CommunicatorPool,
    Released,
    bound,
)
from fabtui.session.options import MIB

PROCESSES = dict.fromkeys(range(32), 1)


def pool(largest: int = 256 * MIB) -> CommunicatorPool:
    made = CommunicatorPool(itertools.count().__next__)
    made.resize(largest)
    return made


def test_the_bound() -> None:
    assert bound(256 * MIB) == BOUND == 2 << 30
    assert bound(1024 * MIB) == 4 << 30


def test_a_kept_communicator_needs_no_room() -> None:
    made = pool()
    keys = [CommunicatorKey(0, peer, 0) for peer in range(1, 4)]
    assert made.fits(keys[0])
    made.begin(keys[0], PROCESSES)
    assert made.fits(keys[0])
    assert not made.fits(keys[1]), "if it fails, it takes twice as much"
    made.measured(keys[0], 0, 40 * MIB)
    made.measured(keys[0], 1, 0)
    assert (made.held(0), made.held(1)) == (40 * MIB, LEAST)
    assert made.fits(keys[1])


def test_broken_ones_and_groups_go_and_lost_ends_are_forgotten() -> None:
    made = pool()
    made.begin_group(1, {0: 1100 * MIB, 1: 1100 * MIB}, PROCESSES)
    key = CommunicatorKey(0, 1, NODE_CTAS)
    assert not made.fits(key)
    assert made.make_room(made.needs_of([key]), PROCESSES, {key}) == Released([], True)
    made.begin(key, PROCESSES)
    made.failed(key)
    assert made.held(0) == ESTIMATES[NODE_CTAS], "until the ranks release it"
    assert made.make_room({}, PROCESSES) == Released([(key, True)], False)
    assert made.held(0) == len(made) == 0
    made.begin(key, PROCESSES)
    assert made.make_room({}, {**PROCESSES, 1: 2}) == Released([(key, True)], False)
    assert (made.held(0), made.held(1), len(made)) == (0, 0, 0)
    made.begin(key, PROCESSES)
    assert made.make_room({}, {}) is None
    assert (made.held(0), made.held(1), len(made)) == (0, 0, 0)


@pytest.mark.parametrize("largest", [64 * MIB, 256 * MIB, 512 * MIB, 1024 * MIB])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 5), st.integers(0, 5), st.sampled_from([0, NODE_CTAS]), st.booleans(), st.integers(1, 1200)
        ),
        max_size=60,
    )
)
def test_no_more_is_held_than_the_bound(largest: int, tests: list[tuple[int, int, int, bool, int]]) -> None:
    """Any tests in any order, also such that fail in both directions."""
    made = pool(largest)
    for a, b, ctas, fails, size in tests:
        if a == b:
            continue
        key = CommunicatorKey(min(a, b), max(a, b), ctas)
        made.make_room(made.needs_of([key]), PROCESSES, {key})
        assert made.fits(key)
        # If a direction fails, there is a second one; beside one that was kept, it is all that the test takes.
        most = ESTIMATES[ctas] * (2 if fails and not made.has(key) else 1)
        made.begin(key, PROCESSES)
        for end in key[:2]:
            made.measured(key, end, min(size * MIB, most))
            # One communicator with NCCL's default and messages of 512 MiB: 8 MiB are missing for a second one.
            assert made.held(end) <= max(bound(largest) - 2 * largest, 2 * ESTIMATES[0])
        if fails:
            made.failed(key)
    made.clear()
    assert not any(made.held(end) for end in range(6))
