"""Changes of verdicts, and bad pairs over time."""

import pytest

from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.verdict_changes import INCIDENT, VerdictChanges

OK, SLOW, FAILED, SKIPPED = Verdict.OK, Verdict.SLOW, Verdict.FAILED, Verdict.SKIPPED


def one(layer: Layer = Layer.P2P, verdict: Verdict = OK, src: str = "a:0") -> Measurement:
    return Measurement(layer, src, "b:0", verdict, None, "GB/s", 4096, 5.0)


@pytest.mark.parametrize(
    ("layer", "before", "after", "is_turn"),
    [
        (Layer.P2P, OK, OK, False),
        (Layer.P2P, None, OK, False),
        (Layer.P2P, None, FAILED, True),
        (Layer.P2P, OK, SLOW, True),
        (Layer.P2P, SLOW, FAILED, True),
        (Layer.P2P, OK, SKIPPED, False),
        (Layer.WORLD, OK, SLOW, False),
        (Layer.WORLD, SLOW, FAILED, True),
    ],
)
def test_a_turn_is_a_change_from_or_to_bad(layer: Layer, before: Verdict | None, after: Verdict, is_turn: bool) -> None:
    log = VerdictChanges()
    assert (log.take(6.0, one(layer), before, after) is not None) == is_turn
    assert log.total == len(log.latest) == is_turn


def test_bad_pairs_over_time() -> None:
    log = VerdictChanges()
    assert log.bad_over_time(10.0, 5) == []
    log.watch(0.0, [("a:0", "b:0")])
    log.take(1.0, one(src="a:1"), OK, FAILED)
    log.take(5.0, one(src="a:1"), FAILED, OK)
    log.take(9.0, one(src="a:0"), FAILED, OK)
    assert log.bad_over_time(10.0, 5) == [2, 2, 2, 1, 0]
    log.watch(10.0, [("a:0", "b:0")])
    assert log.bad_over_time(10.0, 1) == [0], "watching again continues"


def test_an_incident_ends_when_its_last_pair_is_good_and_the_next_one_begins_with_its_own() -> None:
    changes = VerdictChanges()
    changes.follow(1.0, ("a", "b"), bad=True)
    assert (changes.healed, changes.hurt) == (None, set()), "nothing is followed before the session watches"
    changes.watch(2.0, [])
    for time, pair, bad in ((3.0, "ab", True), (4.0, "ac", True), (5.0, "ab", False)):
        changes.follow(time, pair, bad=bad)
    assert (changes.healed, changes.hurt) == (None, {"ab", "ac"})
    changes.follow(6.0, "ac", bad=False)
    assert (changes.healed, changes.hurt) == (6.0, {"ab", "ac"})
    changes.follow(7.0, "ac", bad=True)
    changes.follow(8.0, "ac", bad=False)
    assert (changes.healed, changes.hurt) == (8.0, {"ab", "ac"}), "the same incident"
    changes.follow(9.0 + INCIDENT, "ad", bad=True)
    assert (changes.healed, changes.hurt) == (None, {"ad"})
