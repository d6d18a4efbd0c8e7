"""Rule FT043: classes that are evenly far below the limit of their links."""

import itertools
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding, Kind
from fabtui.export.json import as_json
from fabtui.model.events import InventoryUpdate, Measured
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from fabtui.report.summary import summary
from tests.unit.model.test_link_limits import MIB, both, model_of, pair, several, swept

NVLINK, RDMA = (360.0, "P2P/CUMEM"), (46.0, "NET/IB/mlx5_0")


def below(model: Model) -> list[Finding]:
    return [one for one in diagnose(model).findings if one.rule.name == "below-link-limit"]


def test_usual_values_of_h200_and_infiniband_are_no_finding() -> None:
    assert below(swept(model_of(), NVLINK, RDMA)) == []


def test_one_finding_for_each_relation_with_class_share_and_limit() -> None:
    inside, between = below(swept(model_of(generation=5), (120.0, "P2P/CUMEM"), (20.0, "NET/IB/mlx5_0")))
    assert title(inside) == "pairs within nodes usually reach 25 % of the NVLink limit"
    assert evidence(inside)[0] == "same-node over P2P/CUMEM: usually 120 of 478 GB/s, for example b:0 > b:1"
    assert title(between) == "pairs between nodes usually reach 40 % of the RDMA port limit"
    assert {str(inside.severity), str(between.severity)} == {"bad"}


@pytest.mark.parametrize(
    ("inside", "facts", "severities"),
    [
        ((11.0, "P2P/IPC"), {"word": "PHB"}, []),
        ((9.0, "P2P/IPC"), {"word": "PHB"}, ["bad"]),
        ((7.0, "SHM/direct"), {}, []),
        ((6.0, "SHM/direct"), {}, ["note"]),
        ((100.0, "P2P/IPC"), {"links": 12, "word": "NV4"}, []),
    ],
)
def test_shares_depend_on_the_transport(inside: tuple[float, str], facts: Any, severities: list[str]) -> None:
    assert [str(one.severity) for one in below(swept(model_of(**facts), inside, RDMA))] == severities


@pytest.mark.parametrize(("value", "severities"), [(0.7, []), (0.5, ["note"])])
def test_sockets_give_notes(value: float, severities: list[str]) -> None:
    model = swept(model_of(), NVLINK, (value, "NET/Socket/eth0"))
    assert [str(one.severity) for one in below(model)] == severities


@pytest.mark.parametrize(("alike", "severities"), [(46.0, ["note"]), (20.0, ["bad"])])
def test_pairs_of_two_gpu_models_may_be_slower_by_design(alike: float, severities: list[str]) -> None:
    model = swept(model_of(nodes="abcd", others="cd", generation=5), NVLINK, (20.0, RDMA[1]))
    rows = [
        pair(RDMA[1], str(a), str(b), alike)
        for a, b in itertools.permutations(model.endpoints, 2)
        if a.node != b.node and a.name == b.name
    ]
    model.apply(Measured(measurements=rows, time=3.0))
    assert [str(one.severity) for one in below(model)] == severities


def test_a_gpu_in_use_explains_it() -> None:
    model = swept(model_of(), (120.0, "P2P/CUMEM"), RDMA)
    known = model.nodes["b"].inventory or {}
    busy = {"name": "python3", "pid": 4711}
    gpus = [{**gpu, "processes": [busy] if gpu["index"] == 1 else []} for gpu in known["gpus"]]
    model.apply(InventoryUpdate(node="b", value={**known, "gpus": gpus}, time=3.0))
    (one,) = below(model)
    assert evidence(one)[0] == "b:1 is in use by python3 (pid 4711)"
    assert (one.subject.kind, one.subject.name) == (Kind.GPU, "b:1")


def test_of_two_pairs_the_worse_one_counts() -> None:
    """Two pairs have no usual value that one of them could be far below."""
    model = model_of(nodes="a")
    values = {"a:0": 143.0, "a:1": 356.0}
    rows = [pair("P2P/CUMEM", src, dst, values[src]) for src, dst in itertools.permutations(values)]
    model.apply(Measured(measurements=rows, time=2.0))
    known = model.nodes["a"].inventory or {}
    gpus = [{**gpu, "processes": [{"name": "python3", "pid": 7}] * (gpu["index"] == 0)} for gpu in known["gpus"]]
    model.apply(InventoryUpdate(node="a", value={**known, "gpus": gpus}, time=3.0))
    (one,) = below(model)
    assert title(one) == "pairs within nodes at worst reach 30 % of the NVLink limit"
    assert (str(one.severity), one.subject.name) == ("bad", "a:0")
    model.apply(Measured(measurements=[pair("P2P/CUMEM", "a:0", "a:1", 350.0)], time=4.0))
    assert below(model) == []


def test_small_messages_cpu_ranks_and_unknown_topology_are_not_judged() -> None:
    slow = (120.0, "P2P/CUMEM"), (20.0, "NET/IB/mlx5_0")
    assert below(swept(model_of(), *slow, size=8 * MIB)) == []
    assert below(swept(model_of(kind="cpu"), *slow)) == []
    assert below(swept(model_of(word="?"), (120.0, "P2P/CUMEM"), RDMA)) == []


def test_labs_get_notes() -> None:
    found = below(swept(model_of(lab="2x2"), (120.0, "P2P/CUMEM"), (2.0, "NET/Socket/eth0")))
    assert [str(one.severity) for one in found] == ["note"]


@pytest.mark.parametrize(("share", "count"), [(0.2, 0), (0.3, 1), (0.9, 2), (0.0, 0), (10**9, 2), ("x", 1)])
def test_the_share_can_be_set(share: Any, count: int) -> None:
    model = model_of(options={"limit_share": share}, generation=5)
    assert len(below(swept(model, (120.0, "P2P/CUMEM"), (40.0, "NET/IB/mlx5_0")))) == count


def test_the_summary_shows_the_limit_of_bad_pairs() -> None:
    model = swept(model_of(generation=5), NVLINK, RDMA)
    model.apply(Measured(measurements=[pair("NET/IB/mlx5_0", "a:0", "b:0", 5.0)], time=3.0))
    text = summary(diagnose(model), plain=True)
    assert "5.00 GB/s, 11 % of the usual 46.0 GB/s" in text
    assert "10 % of the RDMA port limit 50.0" in text


def test_json_has_the_limit_of_each_measurement() -> None:
    rows = as_json(diagnose(swept(model_of(generation=5), NVLINK, RDMA)))["measurements"]
    found = {(row["src"], row["dst"]): row["limit"] for row in rows}
    assert found["a:0", "a:1"] == {"value": 478.116, "what": "NVLink", "exact": True}
    assert found["a:0", "b:0"] == {"value": 50.0, "what": "RDMA port", "exact": True}


def test_a_plugin_with_several_nics_far_below_their_sum_is_a_note() -> None:
    model = both(model_of(generation=5), several)
    assert below(swept(model, NVLINK, (40.0, "NET/Libfabric/0/GDRDMA"))) == []
    (one,) = below(swept(both(model_of(generation=5), several), NVLINK, (12.0, "NET/Libfabric/0/GDRDMA")))
    assert str(one.severity) == "note"
    assert title(one) == "pairs between nodes usually reach 24 % of the RDMA port limit"
