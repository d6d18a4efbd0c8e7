"""Hardware in reports: parts at fault with their serial numbers, and the head."""

from typing import Any

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding, Kind, Route, Subject
from fabtui.diagnosis.pairs.pair_rules import NodeLost
from fabtui.model.session_model import Model
from fabtui.report.hardware import HardwareList, all_parts, head_rows, parts_at_fault
from tests.unit.report.test_documents import ROOT, session


def hardware(make_model: Any) -> Model:
    """Return two nodes that show everything to root, and a third that shows nothing."""
    maker = make_model().start(["n0", "n1", "n2"]).endpoints({"n0": 2, "n1": 2})
    gpus = [{"index": 0, "name": "H200", "serial": "165"}, {"index": 1, "name": "H200", "serial": "[N/A]"}]
    nic = {"name": "ib0", "rdma": "mlx5_0", "mac": "a0:88", "addresses": []}
    seen = {"interface": "ib0", "driver": "mlx5_core", "serial": "MT1", "module": {"vendor": "ACME", "serial": "C1"}}
    for node in ("n0", "n1"):
        maker.add("inventory", node=node, value={"gpus": gpus, "nics": [nic], "data_addresses": [{"nic": "ib0"}]})
        identity = {"product": "X1", "serial": "S1HN", "machine_id": f"id-{node}", "container": None}
        maker.add("look", node=node, probe="host", value={"identity": identity}, judgements=[])
        maker.add("look", node=node, probe="rdma", value={"nics": [seen], "ports": []}, judgements=[])
    model: Model = maker.model()
    return model


def test_each_blamed_part_has_its_serial_number_or_states_that_none_was_read(make_model: Any) -> None:
    parts = HardwareList(hardware(make_model))
    found = Finding(NodeLost(), NodeLost.severity, "")
    cases: list[tuple[Subject, dict[str, Any], list[list[str]]]] = [
        (Subject(Kind.NODE, "n0"), {}, [["node n0", "S1HN", "id-n0", "X1"]]),
        (Subject(Kind.NODE, "n2"), {}, [["node n2", "serial not read", "", ""]]),
        (
            Subject(Kind.NIC, "n0 mlx5_0"),
            {},
            [["NIC n0 mlx5_0", "MT1", "a0:88", "mlx5_core"], ["cable n0 mlx5_0", "C1", "", "ACME"]],
        ),
        (Subject(Kind.RAIL, "0"), {}, []),
        (Subject(Kind.PAIR, "n0:0 > n1:0"), {"pair": Route("n0:0", "n1:0", False)}, []),
    ]
    for subject, facts, rows in cases:
        assert [part.row for part in parts.of(found.replace(blames=subject, facts=facts))] == rows
    names = [part.name for part in parts.all()]
    assert names[:2] == ["node n0", "NIC n0 mlx5_0"]


def test_a_recording_of_gpus_names_them_by_the_numbers_of_the_kernel_log() -> None:
    one = diagnose(session(ROOT / "recordings" / "h200x4-lab-2x2-faults.jsonl.gz"))
    table, everything, head = parts_at_fault(one), all_parts(one.model), dict(head_rows(one, "cluster-a"))
    assert table is not None
    assert everything is not None
    ends = ("n001:1", "n001:0", "n000:0", "n000:1")
    assert [row[0] for row in table.rows[1:]] == [f"one of 2: GPU {end}" for end in ends]
    assert all(row[1].isdecimal() for row in table.rows[1:])
    assert table.notes == ["findings without a single part to blame: 2-3"]
    assert (head["site"], head["hardware"]) == ("cluster-a", "4 x NVIDIA H200 in 2 nodes, n[000-001]")
    assert head["serial numbers"] == "read of 0 of 2 nodes, 4 of 4 GPUs"
