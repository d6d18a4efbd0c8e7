from __future__ import annotations

from collections import Counter
from dataclasses import replace

from fabtui.diagnosis.pairs.tally import Survey, layer_counts
from fabtui.model.events import Measured
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from tests.screen.fakefeed import FAILED, sweep_of_two


def counted(model: Model) -> dict[Layer, Counter[Verdict]]:
    *_, found = layer_counts(model, Survey(model).finish().layers)
    assert found is not None
    return found


def test_bad_pairs_are_counted_in_each_layer_by_verdict() -> None:
    model = sweep_of_two().shadow
    before = counted(model)
    assert before[Layer.P2P] == {Verdict.FAILED: 1, Verdict.TIMEOUT: 1, Verdict.SLOW: 1}
    assert Layer.PING not in before
    assert Layer.LATENCY not in before
    lost = Measurement(
        Layer.PING, "n000", "n001", Verdict.TIMEOUT, unit="ms", src_addr="10.1.0.1", dst_addr="10.1.0.2", time=model.now
    )
    late = Measurement(Layer.LATENCY, *FAILED, Verdict.FAILED, unit="us", time=model.now)
    model.apply(Measured([lost, replace(lost, dst_addr="10.2.0.2"), late], time=model.now))
    after = counted(model)
    assert after[Layer.PING] == {Verdict.TIMEOUT: 2}
    assert after[Layer.LATENCY] == {Verdict.FAILED: 1}
    assert after[Layer.P2P] == before[Layer.P2P]
