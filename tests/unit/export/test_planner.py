"""Bandwidths for planners, read as the published programs index them, and host files of an order."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from fabtui.atomic_write import write_text
from fabtui.cli import main as entry
from fabtui.diagnosis.node_bandwidth import node_bandwidth
from fabtui.export.csv import write_csv
from fabtui.export.formats import schema
from fabtui.export.planner import as_json, planner_text
from fabtui.model.events import Measured
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.nodeset import read_hosts
from tests.unit.diagnosis.test_pair_rules import fabric

Out = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[3]
GOOD = ROOT / "tests/samples/sessions/h200x8-lab-2x4.jsonl.gz"


def with_groups(model: Model, values: dict[str, float]) -> Model:
    rows = [
        Measurement(Layer.BUSBW, pair[0], pair[1], Verdict.OK, value, "GB/s", 1 << 28, how="a test")
        for pair, value in values.items()
    ]
    model.apply(Measured(measurements=rows, time=3.0))
    return model


def planned(model: Model) -> dict[str, Any]:
    found = as_json(model)
    Draft202012Validator(schema("planner")).validate(json.loads(json.dumps(found)))
    return found


def uneven() -> Model:
    """Four nodes of two rails: from a to b rail 1 is slow, between c and d nothing passes."""

    def judge(src: str, dst: str) -> Verdict | float:
        if {src[0], dst[0]} == {"c", "d"}:
            return Verdict.FAILED
        return 0.5 if (src, dst) == ("a:1", "b:1") else 1.0

    return fabric("abcd", 2, judge)


def load(path: Path, program: str) -> dict[int, list[Any]]:
    (code,) = re.findall(r"```python\n(import json.*?)```", (ROOT / "docs/planner.md").read_text(), re.S)
    code = code.replace('"planner.json"', repr(str(path))).replace('["fasop"]', f"[{program!r}]", 1)
    names: dict[str, Any] = {}
    exec(code, names)
    table: dict[int, list[Any]] = names["cluster_info"]
    return table


@pytest.mark.slow
@pytest.mark.parametrize(("program", "bits"), [("fasop", 1), ("amp", 32)])
def test_the_loader_gives_what_the_programs_index(program: str, bits: int, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = fabric("abc", 2, lambda s, d: 0.5 if {s[0], d[0]} == {"a", "b"} else 1.0)
    write_text(tmp_path / "p.json", planner_text(model))
    info = load(tmp_path / "p.json", program)
    plan = json.loads((tmp_path / "p.json").read_text())
    assert list(info) == [0, 1, 2]
    assert plan["gpus_per_node"] == 2
    number = {node: at for at, node in enumerate(plan["order"])}
    # As in both programs: node of a rank by its number, the smaller value between nodes, tensors of one element.
    rank_node_map = {rank: rank // plan["gpus_per_node"] for rank in range(6)}
    between = min(info[rank_node_map[0]][0], info[rank_node_map[2]][0])
    assert between.shape == info[0][1].shape == (1,)
    assert between.dtype == torch.float32
    assert (torch.tensor([1e9]) * 16 / between).shape == (1,)
    # Two NICs with 45 GB/s each, half of it between a and b.
    for node, expected in (("a", 45.0), ("b", 45.0), ("c", 90.0)):
        assert info[number[node]][0].item() * bits == pytest.approx(expected * 8e9)
    assert info[0][1].item() * bits == pytest.approx(node_bandwidth(model).intra[0] * 8e9)


def test_the_matrix_has_both_directions_and_unknown_is_null() -> None:
    plan = planned(uneven())
    number = {node: at for at, node in enumerate(plan["order"])}
    matrix = plan["fasop"]["inter_matrix"]
    assert matrix[number["a"]][number["b"]] == 2 * 0.5 * 45 * 8e9, "the slowest rail counts, for both NICs"
    assert matrix[number["b"]][number["a"]] == 2 * 45 * 8e9
    assert matrix[number["c"]][number["d"]] is None
    assert sorted(plan["failed"]) == [["c", "d"], ["d", "c"]]
    assert "not measured at once" in plan["source"]
    assert plan["nics"] == [2, 2, 2, 2]
    for program in ("fasop", "amp"):
        values = [value for row in plan[program]["inter_matrix"] for value in row]
        assert values.count(None) == 4 + 2
        assert 0 not in values
    both = {tuple(pair) for pair in zip(plan["order"], [*plan["order"][1:], plan["order"][0]], strict=True)}
    assert not both & {("c", "d"), ("d", "c")}, "neighbours without a path"


def test_a_rail_that_fails_lowers_the_sum() -> None:
    found = node_bandwidth(
        fabric("ab", 4, lambda s, d: Verdict.FAILED if s[2] == d[2] == "3" and s[0] != d[0] else 1.0)
    )
    assert found.inter[0, 1] == pytest.approx(3 * 45)
    assert not found.failed.any()


def test_all_nics_at_once_count_where_all_reduce_is_known_for_all_nodes() -> None:
    pairs = {"ab": 60.0, "ac": 80.0, "bc": 70.0}
    model = fabric("abc", 2, lambda s, d: 1.0)
    one_rail = node_bandwidth(with_groups(model, {"ab": 60.0}))
    assert not one_rail.at_once
    assert one_rail.inter[0, 2] == pytest.approx(90)
    plan = planned(with_groups(model, pairs))
    assert plan["order"] == ["a", "b", "c"]
    assert plan["fasop"]["inter"] == [60 * 8e9, 60 * 8e9, 70 * 8e9]
    assert "all_reduce of two nodes, bus bandwidth with all NICs at once, 256 MiB (a test)" in plan["source"]


def test_a_node_of_one_gpu_or_alone_is_not_in_cluster_info() -> None:
    single = planned(fabric("ab", 1, lambda s, d: 1.0))
    assert single["fasop"]["cluster_info"] == {}
    assert single["fasop"]["intra"] == [None, None]
    assert single["fasop"]["inter"] == [45 * 8e9, 45 * 8e9]
    alone = planned(fabric("a", 4, lambda s, d: 1.0))
    assert (alone["order"], alone["amp"]["inter"], alone["amp"]["cluster_info"]) == (["a"], [None], {})
    assert alone["source"].startswith("between nodes: unknown; within nodes: p2p, median")
    empty = planned(Model())
    assert (empty["order"], empty["gpus_per_node"], empty["fasop"]["inter_matrix"]) == ([], None, [])


def test_a_node_without_a_path_is_left_out() -> None:
    plan = planned(fabric("abc", 2, lambda s, d: Verdict.FAILED if "c" in (s[0], d[0]) and s[0] != d[0] else 1.0))
    assert (sorted(plan["order"]), plan["left_out"]) == (["a", "b"], ["c"])
    assert len(plan["amp"]["inter_matrix"]) == 2


def test_replay_writes_the_same_file_again(tmp_path: Path) -> None:
    texts = []
    for name in ("a.json", "b.json"):
        assert entry.main(["replay", str(GOOD), "--text", "--planner", str(tmp_path / name)]) == 0
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    plan = json.loads(texts[0])
    assert (plan["kind"], plan["lab"], plan["gpu"]) == ("fabtui planner", "2x4", ["NVIDIA H200"] * 2)
    gigabytes = np.array(plan["fasop"]["cluster_info"]["0"]) / 8e9
    assert gigabytes == pytest.approx(np.array(plan["amp"]["cluster_info"]["0"]) * 4 / 1e9)
    assert gigabytes == pytest.approx([6.2552, 359.707], rel=1e-4)


def test_order_writes_host_files_in_its_order(tmp_path: Path, capsys: Out) -> None:
    csv, hosts, ranks = tmp_path / "pairs.csv", tmp_path / "hosts", tmp_path / "ranks"
    write_csv(fabric("abcd", 2, lambda s, d: 0.4 if {s[0], d[0]} == {"a", "b"} else 1.0), csv)
    assert entry.main(["nodes", "--order", str(csv), "--hostfile", str(hosts), "--slurm-hostfile", str(ranks)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("slowest neighbour 18.0 -> 45.0 GB/s (a - b before, ")
    order = read_hosts(str(hosts), "--hostfile")
    assert hosts.read_text().splitlines() == [f"{node} slots=2" for node in order]
    assert ranks.read_text().splitlines() == [node for node in order for _ in range(2)]
    assert abs(order.index("a") - order.index("b")) == 2
    assert entry.main(["nodes", "--order", str(csv), "--json", "--for", "pipeline"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ring"], found["before"]["value"], found["after"]["value"]) == (False, 18.0, 45.0)
    assert found["slurm_hostfile"][:2] == [found["order"][0]] * 2


def test_bad_input_of_order_is_one_line(tmp_path: Path, capsys: Out) -> None:
    csv = tmp_path / "pairs.csv"
    write_csv(fabric("a", 2, lambda s, d: 1.0), csv)
    for words, expected in (
        ([str(csv)], "no test between two nodes passed"),
        ([str(tmp_path / "none")], "cannot read"),
        ([str(GOOD), "--hostfile", str(csv), "--slurm-hostfile", str(csv)], "name the same file"),
    ):
        assert entry.main(["nodes", "--order", *words]) == 2
        error = capsys.readouterr().err
        assert expected in error
        assert error.count("\n") == 1


def test_the_schema_refuses_zero_and_what_it_does_not_know() -> None:
    plan = planned(uneven())
    for change in ({"inter": [0]}, {"inter_matrix": [[0]]}, {"cluster_info": {"0": [1, None]}}, {"unit": "GB/s"}):
        with pytest.raises(ValidationError):
            Draft202012Validator(schema("planner")).validate({**plan, "amp": {**plan["amp"], **change}})


def test_hostile_names_are_cleaned(make_model: Any, tmp_path: Path) -> None:
    name = 'n"1\x1b[31m\u202e'
    model = make_model().start([name, "n2"]).endpoints({name: 2, "n2": 2})
    for src, dst in ((f"{name}:0", "n2:0"), ("n2:0", f"{name}:0")):
        model.measured("p2p", src, dst, value=4.0, unit="GB/s", how=name)
    plan = planned(model.model())
    assert len(plan["order"]) == 2
    assert not any(mark in json.dumps(plan, ensure_ascii=False) for mark in ("\x1b", "\u202e"))
