"""Bad pairs count after the sweep has tested them again."""

from pathlib import Path

import pytest

from fabtui.diagnosis.diagnosis import diagnose, search
from fabtui.diagnosis.pairs.tally import Survey, Tally
from fabtui.model.events import Measured, PhaseStart
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from tests.conftest import session_of

RECORDINGS = Path(__file__).parents[3] / "tests" / "samples" / "sessions"
H200 = RECORDINGS / "h200x8-lab-2x4-faults.jsonl.gz"


def tally(model: Model) -> Tally:
    return Survey(model, interim=True).finish()


def session(phase: str = "p2p") -> Model:
    model = session_of("ab", 2, options={"probes": ["p2p"], "layers": ["world", "p2p"]}, kind="cpu")
    model.apply(PhaseStart(name=phase, total=12, time=2.0))
    return model


def measured(model: Model, src: str, dst: str, verdict: Verdict, when: float, attempts: int = 1) -> None:
    layer = Layer(model.phase.name)
    value = 1.0 if verdict is Verdict.OK else None
    one = Measurement(layer, src, dst, verdict, value, "GB/s", time=when, attempts=attempts)
    model.apply(Measured(time=when, measurements=[one]))


def test_a_pair_that_failed_once_is_tested_again_before_it_counts() -> None:
    model = session()
    measured(model, "a:0", "b:0", Verdict.FAILED, 3.0)
    measured(model, "a:1", "b:1", Verdict.OK, 3.0)
    found = tally(model)
    assert (found.rechecked, dict(found.counts), found.bad) == (1, {Verdict.OK: 1}, {})
    measured(model, "a:0", "b:0", Verdict.FAILED, 4.0, attempts=2)
    found = tally(model)
    assert (found.rechecked, found.counts[Verdict.FAILED]) == (0, 1)


def test_what_failed_in_world_is_tested_alone() -> None:
    model = session("world")
    measured(model, "a:0", "b:0", Verdict.FAILED, 3.0)
    assert tally(model).rechecked == 1
    model.apply(PhaseStart(name="p2p", total=12, time=4.0))
    assert tally(model).rechecked == 1
    measured(model, "a:0", "b:0", Verdict.OK, 5.0)
    assert (tally(model).rechecked, dict(tally(model).counts)) == (0, {Verdict.OK: 1})


def test_a_pair_that_was_bad_before_a_second_sweep_stays_bad() -> None:
    model = session()
    measured(model, "a:0", "b:0", Verdict.FAILED, 3.0)
    model.apply(PhaseStart(name="p2p", total=12, time=9.0))
    measured(model, "a:0", "b:0", Verdict.FAILED, 10.0, attempts=2)
    assert (tally(model).rechecked, tally(model).counts[Verdict.FAILED]) == (0, 1)


@pytest.mark.parametrize("over", ["phase", "broken off"])
def test_nothing_waits_for_a_test_that_nobody_runs(over: str) -> None:
    model = session()
    measured(model, "a:0", "b:0", Verdict.FAILED, 3.0)
    if over == "phase":
        model.apply(PhaseStart(name="all_reduce", total=3, time=9.0))
    else:
        model.broken_off = True
    assert (tally(model).rechecked, tally(model).counts[Verdict.FAILED]) == (0, 1)
    assert Survey(model).finish().counts[Verdict.FAILED] == 1


def test_no_finding_about_pairs_vanishes_while_a_recording_is_played() -> None:
    model, shown = Model(), set()
    for number, event in enumerate(read_events(H200)):
        model.apply(event)
        if isinstance(event, Measured) and number % 5 == 0:
            *_, found = search(model, tally(model), settled=True)
            assert found is not None
            shown |= {cell for one in found.listed for cell in one.cells}
    assert shown <= {cell for one in diagnose(model).findings for cell in one.cells}
    assert shown
