import pytest

from fabtui.model.class_statistics import ATTEMPTS, flapping, turns
from fabtui.model.events import Measured, PhaseStart
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.pair_results import MOST_ATTEMPTS
from tests.conftest import session_of

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
        ("oxo" + 7 * "o", 2, 2),
        ("oxo" + 8 * "o", 2, 0),
    ],
)
def test_a_pair_flaps_that_turns_at_least_twice(attempts: str, turned: int, flaps: int) -> None:
    verdicts = [_LETTERS[letter] for letter in attempts]
    assert turns(verdicts) == turned
    assert flapping(verdicts) == flaps


def test_it_stops_to_flap_when_it_was_steady_for_long() -> None:
    verdicts = [_LETTERS[letter] for letter in "oxo" + "o" * ATTEMPTS]
    assert flapping(verdicts) == 0


def test_a_session_that_watches_for_days_keeps_what_counts_and_no_more() -> None:
    model = session_of("ab")
    sizes = [8, 1 << 20, *[1 << 28] * 500]
    for at, size in enumerate(sizes):
        one = Measurement(Layer.P2P, "a:0", "b:0", Verdict.OK, 40.0, "GB/s", size, 2.0 + at, attempts=at, raw="x" * 99)
        model.apply(Measured(measurements=[one], time=2.0 + at))
    history = model.history(Layer.P2P, "a:0", "b:0")
    assert len(history) == MOST_ATTEMPTS + 2
    assert [m.asked_bytes for m in history[:3]] == [8, 1 << 20, 1 << 28]
    assert all(m.raw is not None for m in history)
    assert history[-1].raw is not None
    assert history[-1].attempts == 501
    assert model.latest(Layer.P2P, "a:0", "b:0") == history[-1]
    assert sorted(m.bytes or 0 for m in model.measurements()) == [8, 1 << 20, 1 << 28]
    assert model.median(Layer.P2P, model.table.class_between("a:0", "b:0")) == 40.0


def test_what_turned_around_a_limit_that_proved_wrong_does_not_flap() -> None:
    model = session_of("ab", 3)

    def add(src: int, dst: int, *values: float) -> None:
        for value in values:
            one = Measurement(
                Layer.P2P, str(model.endpoints[src]), str(model.endpoints[dst]), Verdict.OK, value, "GB/s", 1 << 28
            )
            model.apply(Measured(measurements=[one], time=2.0))

    pairs = [(a, b) for a in range(3) for b in range(3, 6)]
    for pair in pairs:
        add(*pair, 40.0)
    add(*pairs[0], 20.0, 20.0, 40.0, 20.0, 20.0, 40.0)
    assert model.results.flapping
    for pair in pairs:
        add(*pair, 20.5)
    model.apply(PhaseStart(name="done", time=3.0))
    assert not model.results.flapping
