"""Planted faults: the first finding names them; healthy fabrics have none. bench/diagnosis.py plants more of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

from diagnosis import HEALTHY, KINDS, Kind, healthy_fabric, planted_fabric, run, serious

from fabtui.model.exit_codes import exit_code

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.replace(" ", "-"))
def test_the_first_finding_names_the_planted_fault(kind: Kind, seed: int) -> None:
    fabric, truth = planted_fabric(kind, seed)
    _, found = run(fabric)
    shown = serious(found)
    assert shown, truth
    assert truth.named_by(shown[0], rivals=True), (truth, [one["title"] for one in shown])
    assert len(shown) <= 3


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_fabric_has_no_findings_but_notes(name: str, seed: int) -> None:
    model, found = run(healthy_fabric(name, seed))
    assert [one["title"] for one in found if one["severity"] != "note"] == []
    assert exit_code(model) == 0
