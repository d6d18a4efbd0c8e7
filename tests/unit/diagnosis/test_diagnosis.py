"""One diagnosis per command, and evidence of all kinds."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabtui.cli import main as entry
from fabtui.diagnosis import diagnosis
from fabtui.diagnosis.diagnosis import Evidence, diagnose
from fabtui.diagnosis.finding import Severity
from fabtui.diagnosis.knowledge.log_causes import LogReader
from fabtui.diagnosis.pairs.tally import Survey, layer_counts
from fabtui.model import pair_table
from fabtui.model.events import Measured
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from tests.screen.fakefeed import FAILED, sweep_of_two

FAULTS = Path(__file__).parents[3] / "tests" / "samples" / "sessions" / "h200x8-lab-2x4-faults.jsonl.gz"
OUTPUTS = {"csv": "csv", "json": "json", "junit": "xml", "prom": "prom", "report": "html"}


def test_all_outputs_of_a_recording_share_one_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = {"search": 0, "in_steps": 0}

    def counted(module: Any, name: str) -> None:
        real = getattr(module, name)

        def call(*args: Any, **more: Any) -> Any:
            calls[name] += 1
            return real(*args, **more)

        monkeypatch.setattr(module, name, call)

    counted(diagnosis, "search")
    counted(pair_table, "in_steps")
    files = [word for name, end in OUTPUTS.items() for word in (f"--{name}", str(tmp_path / f"a.{end}"))]
    assert entry.main(["replay", str(FAULTS), "--text", *files]) == 1
    assert all((tmp_path / f"a.{end}").stat().st_size for end in OUTPUTS.values())
    assert calls["search"] == 1
    assert calls["in_steps"] <= 4


def test_lines_of_logs_are_evidence() -> None:
    reader = LogReader()
    reader.add("n0:1:1 [0] NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory errno 12\n")
    found = diagnose(Evidence(errors=reader.result()))
    (one,) = found.findings
    assert (one.rule.id, one.rule.name, one.code, one.severity) == ("E13", "memlock", "E13", Severity.BAD)
    assert "ibv_create_cq failed" in title(one)
    assert any("memlock limit" in line for line in evidence(one))
    assert one.next


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
