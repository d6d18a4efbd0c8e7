"""Planted faults: the first finding names them; healthy fabrics have none.

Each kind is planted once, into the smaller fabric of two seeds; ``python bench/diagnosis.py`` has 20 seeds of each.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

import random

from diagnosis import HEALTHY, KINDS, Kind, healthy_fabric, planted_fabric, rack_truth, run, serious
from racks import FAULTS, racks_of

from fabtui.model.exit_codes import exit_code

pytestmark = pytest.mark.slow


#: Seeds of which the smaller fabric is used.
SEEDS = (0, 1)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.replace(" ", "-"))
def test_the_first_finding_names_the_planted_fault(kind: Kind) -> None:
    fabric, truth = min((planted_fabric(kind, seed) for seed in SEEDS), key=lambda one: len(one[0].ends))
    _, found = run(fabric)
    shown = serious(found)
    assert shown, truth
    assert truth.named_by(shown[0], rivals=True), (truth, [one["title"] for one in shown])
    assert len(shown) <= 3


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_fabric_has_no_findings_but_notes(name: str) -> None:
    model, found = run(min((healthy_fabric(name, seed) for seed in SEEDS), key=lambda one: len(one.ends)))
    assert [one["title"] for one in found if one["severity"] != "note"] == []
    assert exit_code(model) == 0


@pytest.mark.parametrize("name", [None, *FAULTS], ids=lambda name: (name or "healthy").replace(" ", "-"))
def test_the_first_finding_names_what_is_planted_into_nvlink_racks(name: str | None) -> None:
    racks = racks_of((2, 4), 1)
    truths = [] if name is None else [rack_truth(FAULTS[name](racks, random.Random(1), racks.names))]
    _, found = run(racks)
    shown = [one for one in found if one["severity"] != "note"]
    assert [truth.named_by(one, rivals=False) for truth, one in zip(truths, shown[:1], strict=True)] == [True] * len(
        truths
    )
