from dataclasses import replace
from typing import Any

import pytest

from fabtui.model.baseline import Baseline, change
from fabtui.model.events import Measured, PhaseStart, Watching
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from tests.conftest import session_of

OK, SLOW, FAILED, TIMEOUT = Verdict.OK, Verdict.SLOW, Verdict.FAILED, Verdict.TIMEOUT


def one(verdict: Verdict, value: float | None, **more: Any) -> Measurement:
    given: dict[str, Any] = {"unit": "GB/s", "bytes": 1 << 28, **more}
    return Measurement(Layer.P2P, "a:0", "b:0", verdict, value, **given)


@pytest.mark.parametrize(
    ("then", "now", "verdict", "ratio", "text"),
    [
        (one(OK, 50.0), one(OK, 50.0), OK, 1.0, "50 GB/s then, 50 GB/s now"),
        (one(OK, 50.0), one(OK, 60.0), OK, 1.2, "50 GB/s then, 60 GB/s now"),
        (one(OK, 50.0), one(OK, 34.0), SLOW, 0.68, "50 GB/s then, 34 GB/s now"),
        (one(OK, 50.0), one(OK, 36.0), OK, 0.72, "50 GB/s then, 36 GB/s now"),
        (one(OK, 0.0), one(OK, 36.0), Verdict.INCONCLUSIVE, None, "0 GB/s then, 36 GB/s now"),
        (one(SLOW, 10.0), one(SLOW, 10.0), OK, 1.0, "10 GB/s then, 10 GB/s now"),
        (one(OK, 50.0), one(FAILED, None), FAILED, None, "50 GB/s then, failed now"),
        (one(TIMEOUT, None), one(OK, 50.0), OK, None, "timed out then, 50 GB/s now"),
        (one(TIMEOUT, None), one(FAILED, None), Verdict.SKIPPED, None, "timed out then, failed now"),
        (None, one(OK, 50.0), Verdict.SKIPPED, None, "not tested then"),
        (one(OK, 50.0), None, Verdict.UNTESTED, None, "not tested yet"),
    ],
)
def test_a_change_is_a_ratio_or_the_reason_for_none(
    then: Measurement | None, now: Measurement | None, verdict: Verdict, ratio: float | None, text: str
) -> None:
    found = change(then, now, Verdict.UNTESTED if now is None else now.verdict)
    assert (found.verdict, found.text) == (verdict, text)
    assert found.ratio == (None if ratio is None else pytest.approx(ratio))


def test_other_message_sizes_cannot_be_compared() -> None:
    found = change(one(OK, 50.0), one(OK, 20.0, bytes=1 << 20), OK)
    assert (found.verdict, found.ratio) == (Verdict.INCONCLUSIVE, None)
    assert "256 MiB then, 1 MiB now" in found.text


def test_of_several_sizes_and_attempts_the_latest_of_the_largest_counts_and_arms_do_not() -> None:
    found = Baseline.of(
        "x", 0.0, [one(OK, 1.0), one(OK, 2.0), one(OK, 9.0, bytes=8), one(OK, 7.0, arm="A=1", bytes=1 << 30)]
    )
    assert found.layer is Layer.P2P
    assert found.values["a:0", "b:0"].value == 2.0


def test_the_layer_of_the_model_reads_it() -> None:
    model = session_of("ab", time=0.0)
    model.apply(Measured(measurements=[one(OK, 25.0)], time=1.0))
    assert model.change(0, 1) is None
    assert model.cell(Layer.CHANGE, 0, 1).verdict is OK, "without a baseline it is what p2p is"
    model.baseline = Baseline.of("x", 0.0, [one(OK, 50.0)])
    cell = model.cell(Layer.CHANGE, 0, 1)
    assert (cell.verdict, cell.value, cell.unit) == (SLOW, 0.5, "")
    assert model.cell(Layer.CHANGE, 1, 0).verdict is Verdict.UNTESTED


def sweep(model: Model, phase: str, start: float, *measured: Measurement) -> None:
    model.apply(PhaseStart(name=phase, time=start))
    for at, measurement in enumerate(measured):
        model.apply(Measured(measurements=[replace(measurement, time=start + at)], time=start + at))


def test_without_a_baseline_the_previous_sweep_counts() -> None:
    model = session_of("ab", time=0.0)
    # A retest and watching are not sweeps.
    sweep(model, "p2p", 10.0, one(OK, 60.0), one(OK, 50.0))
    sweep(model, "re-test", 20.0, one(OK, 40.0))
    assert not model.comparable
    assert model.change(0, 1) is None
    sweep(model, "p2p", 30.0)
    assert not model.comparable, "a sweep over other pairs, of nodes that came late"
    sweep(model, "p2p", 40.0, one(OK, 25.0), one(OK, 20.0))
    assert model.comparable
    cell = model.cell(Layer.CHANGE, 0, 1)
    assert (cell.verdict, cell.value, cell.text) == (SLOW, 0.5, "40 GB/s then, 20 GB/s now")
    sweep(model, "p2p", 50.0, replace(one(OK, 20.0), src="b:0", dst="a:0"))
    assert model.sweep_since == 40.0, "the other direction had no earlier value"
    sweep(model, "p2p", 60.0, replace(one(OK, 20.0), src="b:0", dst="a:0"))
    assert model.cell(Layer.CHANGE, 0, 1).text == "not tested yet"
    assert model.cell(Layer.CHANGE, 1, 0).value == 1.0
    model.baseline = Baseline.of("x", 0.0, [one(OK, 10.0)])
    assert model.cell(Layer.CHANGE, 0, 1).value == 2.0, "a baseline comes first"


def test_while_watching_the_sweep_before_it_counts() -> None:
    model = session_of("ab", time=0.0)
    model.apply(Watching(on=True, time=5.0))
    sweep(model, "p2p", 10.0, one(OK, 40.0))
    assert not model.comparable, "asked for during the first sweep, it begins after it"
    for at in range(21, 421):
        sweep(model, "watch" if at % 5 else "re-test", float(at), one(OK, 20.0))
    assert model.comparable
    assert model.cell(Layer.CHANGE, 0, 1).text == "40 GB/s then, 20 GB/s now"
    assert not model.sweep_since, "results of experiments still hold"
    sweep(model, "p2p", 500.0, one(OK, 10.0))
    sweep(model, "watch", 510.0, one(OK, 5.0))
    assert model.cell(Layer.CHANGE, 0, 1).text == "20 GB/s then, 5 GB/s now", "the sweep was later than watching"
    model.apply(Watching(on=False, time=520.0))
    model.apply(Watching(on=True, time=530.0))
    sweep(model, "watch", 540.0, one(OK, 4.0))
    assert model.cell(Layer.CHANGE, 0, 1).text == "5 GB/s then, 4 GB/s now"


def test_a_sweep_of_several_sizes_compares_the_largest_with_the_same() -> None:
    model = session_of("ab", time=0.0)
    sizes = [one(OK, 1.0, bytes=8), one(OK, 50.0)]
    sweep(model, "p2p", 10.0, *sizes)
    sweep(model, "p2p", 20.0, *sizes)
    assert model.cell(Layer.CHANGE, 0, 1).value == 1.0
    sweep(model, "p2p", 30.0, one(FAILED, None, bytes=None))
    assert model.cell(Layer.CHANGE, 0, 1).text == "50 GB/s then, failed now"
    sweep(model, "p2p", 40.0, *sizes)
    assert model.cell(Layer.CHANGE, 0, 1).text == "failed then, 50 GB/s now"


def test_where_only_world_is_tested_world_is_compared() -> None:
    model = session_of("ab", time=0.0)
    for start, value in ((10.0, 50.0), (20.0, 100.0)):
        sweep(model, "world", start, replace(one(OK, value), layer=Layer.WORLD))
    assert model.compared_layer is Layer.WORLD
    assert model.cell(Layer.CHANGE, 0, 1).value == 2.0
