"""The fabric as a tree: what is known is placed, what is unknown stays so, and the path of a pair is marked."""

from typing import Any

from fabtui.diagnosis.node_faults import NodeFaults
from fabtui.diagnosis.pairs.tally import Survey, Tally
from fabtui.model.events import ProbeResult
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.topology import ON_PATH, Branch, Topology, flat
from tests.screen.fakefeed import Story, sweep_of_two

MATRIX: dict[str, Any] = {
    "rows": ["GPU0", "GPU1", "GPU2", "GPU3", "NIC0"],
    "columns": ["GPU0", "GPU1", "GPU2", "GPU3", "NIC0"],
    "cells": [
        ["X", "NV18", "NV18", "NV18", "PXB"],
        ["NV18", "X", "NV18", "NV18", "PXB"],
        ["NV18", "NV18", "X", "NV18", "SYS"],
        ["NV18", "NV18", "NV18", "X", "SYS"],
        ["PXB", "PXB", "SYS", "SYS", "X"],
    ],
    "affinity": {},
    "nics": {"NIC0": "mlx5_0"},
}


def tally_of(model: Model) -> Tally:
    survey = Survey(model)
    while not survey.step(1.0):
        pass
    return survey.tally


def tree(model: Model, pair: tuple[str, str] | None = None) -> list[Branch]:
    numbers = None
    if pair is not None:
        ends = [model.table.number(name) for name in pair]
        assert ends[0] is not None
        assert ends[1] is not None
        numbers = ends[0], ends[1]
    return Topology(model, tally_of(model), NodeFaults(), numbers, Glyphs(True)).roots()


def marked(branches: list[Branch]) -> list[str]:
    found = []
    for one in branches:
        found += [word for word, style in one.parts if style == ON_PATH]
        found += marked(one.children())
    return found


def probed(story: Story, probe: str, value: dict[str, Any]) -> Model:
    for node in ("n000", "n001"):
        story.add(ProbeResult(node=node, probe=probe, value=value))
    return story.shadow


def test_unknown_leaves_and_nodes_without_tests_stay_unknown() -> None:
    lines = flat(tree(sweep_of_two().shadow))
    assert not any(line.startswith("leaf switches") for line in lines), "an empty branch is not shown"
    assert "  ? n002  untested  failed" in lines
    assert lines[-1] == "    no device is known"


def test_verdicts_count_each_pair_once() -> None:
    lines = flat(tree(sweep_of_two().shadow))
    assert "  x rail 1  1 failed, 1 slow  2 nodes, 2 endpoints" in lines
    assert "  . rail 0  2 nodes, 2 endpoints" in lines
    assert "    . n000:2  mlx5_2, rail 2" in lines


def test_leaves_have_the_names_that_probes_report() -> None:
    story = sweep_of_two()
    ports = [
        {"ca": f"mlx5_{at}", "port": 1, "guid": f"g{at}", "leaf": {"guid": f"leaf{at // 2}", "name": f"SW{at // 2}"}}
        for at in range(4)
    ]
    lines = flat(tree(probed(story, "ibfabric", {"ports": ports, "fabric": None, "error": None})))
    assert lines[0] == "leaf switches  2, reported by probes"
    assert lines[1].endswith("SW0  1 failed, 1 slow  2 nodes, 4 endpoints")
    assert [line for line in lines if "SW1" in line]


def test_the_matrix_groups_devices_by_pcie_switch() -> None:
    story = sweep_of_two()
    model = probed(story, "topology", {"matrix": MATRIX})
    node = next(one for one in tree(model)[-1].children() if one.node == "n000")
    lines = flat(node.children())
    # Two links per GPU cannot lead to three GPUs by 18 links each.
    assert lines[0] == "NVSwitch  NV18 between all GPUs"
    assert lines[1] == "NUMA node 0"
    assert lines[2].strip() == "PCIe switch"
    names = [" ".join(line.split()[:3]) for line in lines[3:6]]
    assert names == [". GPU 0", "x GPU 1", "mlx5_0 Active 400"]


def test_the_path_of_a_pair_leads_through_both_nics() -> None:
    model = sweep_of_two().shadow
    found = marked(tree(model, ("n000:1", "n001:2"))[-1:])
    assert found.count("PCIe switch") == 2
    assert {"n000", "n001", "GPU 1", "GPU 2", "mlx5_1", "mlx5_2", "NUMA node 0"} <= set(found)
    assert "mlx5_0" not in found
    assert "NVLink" not in found


def test_a_pair_within_a_node_takes_nvlink() -> None:
    found = marked(tree(sweep_of_two().shadow, ("n000:1", "n000:2"))[-1:])
    assert {"NVLink", "GPU 1", "GPU 2"} <= set(found)
    assert not [name for name in found if name.startswith(("mlx5", "PCIe"))]
