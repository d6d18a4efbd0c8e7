"""Published bandwidths: each row is found for its hardware, and no other hardware finds it."""

import itertools
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.knowledge.published_ranges import PublishedRange, published, published_ranges
from fabtui.export.collectives_table import published_text
from fabtui.export.formats import schema
from fabtui.export.json import as_json
from fabtui.importers.session import read_session
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EndpointsAdded, InventoryUpdate, Measured, SessionStart
from fabtui.model.layers import COLLECTIVES
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.report.collectives import collective_tables

ROOT = Path(__file__).parents[3]
PRODUCTS = {
    "A100": "NVIDIA A100-SXM4-80GB",
    "H100 HBM3": "NVIDIA H100 80GB HBM3",
    "MI300X": "AMD Instinct MI300X",
    "RTX 5090": "NVIDIA GeForce RTX 5090",
}


def machine(row: PublishedRange, value: float, size: int, gpu: str = "", algorithm: str = "") -> Model:
    """A session on the hardware of a row, with its collective."""
    names = [f"n{at}" for at in range(row.nodes[0])]
    model = Model()
    model.apply(SessionStart(nodes=names, time=1.0, options={}))
    for name in names:
        port = {"ca": "mlx5_0", "port": 1, "state": "Active", "rate": row.nics[1]} if row.nics else {}
        model.apply(InventoryUpdate(node=name, value={"ib": [port]}, time=1.0))
    product = gpu or PRODUCTS.get(row.gpu, f"NVIDIA {row.gpu}")
    nics = row.nics[0] if row.nics else 1
    ends = [
        Endpoint(at, name, index, name=product, uuid=f"GPU-{at}", nic=f"mlx5_{index % nics}")
        for at, (name, index) in enumerate(itertools.product(names, range(row.gpus)))
    ]
    model.apply(EndpointsAdded(endpoints=ends, time=1.0))
    if not row.nics and len(names) > 1:
        model.table.domains.update({end.number: "domain" for end in ends})
    group = (names[0], names[-1]) if len(names) < 3 else ("all", "all")
    extra = {"ranks": len(ends), "algorithm": algorithm or f"{row.algorithm or 'ring'}/SIMPLE".upper()}
    one = Measurement(COLLECTIVES[row.test], *group, Verdict.OK, value, "GB/s", size, 2.0, extra=extra)
    model.apply(Measured(measurements=[one], time=2.0))
    return model


@pytest.mark.parametrize("row", published_ranges(), ids=lambda row: f"{row.gpu}-{row.nodes[0]}x{row.gpus}-{row.test}")
def test_each_row_is_whole_and_is_found_on_its_hardware(row: PublishedRange) -> None:
    assert 0 < row.busbw[0] <= row.busbw[1] < 2000
    assert row.bytes == 0 or row.bytes >= 1 << 20
    assert len(row.nics) in (0, 2)
    assert row.algorithm in ("", "nvls", "ring")
    assert row.source
    assert row.date[:2] == "20"
    size = row.bytes or 1 << 30
    model = machine(row, row.busbw[0], size)
    (found,) = published(model, row.test)
    assert row in found.rows
    text = published_text(found)
    assert row.source in text
    assert "these are from" not in text or any(other.bytes > size for other in found.rows)
    assert ("at an unknown size" in text) is any(other.bytes == 0 for other in found.rows)
    assert published(machine(row, row.busbw[0], size, "NVIDIA L40S"), row.test) == []


def test_a_low_value_is_answered_with_the_algorithm_and_is_no_verdict() -> None:
    row = next(one for one in published_ranges() if (one.gpu, one.algorithm) == ("H100 HBM3", "nvls"))
    assert row.bytes == 1 << 32
    model = machine(row, 412.0, row.bytes, algorithm="RING/SIMPLE")
    (found,) = published(model, "all_reduce")
    text = published_text(found)
    assert text.startswith(
        "412 GB/s over n0: published for 8 x H100 HBM3: 476 to 480 GB/s with NVLS, 369 to 370 GB/s without NVLS at an "
        "unknown size; NVLS was not used ("
    )
    (table,) = collective_tables(model)
    assert text in table.notes
    value = as_json(diagnose(model))
    (listed,) = value["published"]
    assert (listed["text"], listed["busbw"], listed["ranges"][0]["low"]) == (text, 412.0, 476.0)
    assert [one["bytes"] for one in listed["ranges"]] == [1 << 32, None]
    Draft202012Validator(schema("session")).validate(value)
    assert "from 4 GiB on, this is 256 MiB" in published_text(published(machine(row, 1.0, 1 << 28), "all_reduce")[0])


def test_a_board_with_a_bridge_is_no_other_board() -> None:
    row = next(one for one in published_ranges() if one.gpu == "H200")
    assert published(machine(row, 100.0, 1 << 30, "NVIDIA H200 NVL"), row.test) == []


@pytest.mark.parametrize(
    ("path", "notes"),
    [
        ("tests/samples/sessions/h200x4-lab-2x2.jsonl.gz", []),
        ("tests/samples/sessions/h200x8-lab-2x4.jsonl.gz", ["338 GB/s over n001: published for 4 x H200: 363 GB/s"]),
    ],
)
def test_own_recordings_have_a_note_where_their_hardware_was_published(path: str, notes: list[str]) -> None:
    found = published(read_session(str(ROOT / path)), "all_reduce")
    assert [published_text(one)[: len(note)] for one, note in zip(found, notes, strict=True)] == notes
