import os
from pathlib import Path
from typing import Any

import pytest

from fabtui_node.probes.rdma import ibstat
from fabtui_node.system import rdma_devices

from .places import Tree, sample


def test_from_sysfs(tree: Tree) -> None:
    tree.ca("mlx5_10", rate="40 Gb/sec (4X QDR)", state="1: DOWN", phys_state="3: Disabled", link_layer="Ethernet")
    tree.ca("mlx5_2")
    low, high = ibstat.from_sysfs(str(tree.root))
    assert (low["ca"], high["ca"]) == ("mlx5_2", "mlx5_10")
    assert low["node_guid"] == "0xa088c20300e312f2"
    assert low["ports"] == [
        {
            "port": 1,
            "state": "Active",
            "physical_state": "LinkUp",
            "rate": 400.0,
            "lid": 0x33BF,
            "sm_lid": 1,
            "link_layer": "InfiniBand",
            "guid": "0xa088c20300e312f2",
            "capability_mask": "0xa651ec48",
        }
    ]
    assert (high["ports"][0]["state"], high["ports"][0]["physical_state"]) == ("Down", "Disabled")


def test_sysfs_files_that_are_missing_or_strange(tree: Tree) -> None:
    tree.files("class/infiniband/odd0/ports/1", state="9: WHATEVER", rate="?", lid="none")
    tree.files("class/infiniband/odd0/ports/notaport", state="4: ACTIVE")
    (port,) = ibstat.from_sysfs(str(tree.root))[0]["ports"]
    assert port["state"] == "9: WHATEVER"
    assert port["physical_state"] == port["link_layer"] == "unknown"
    assert (port["rate"], port["lid"], port["guid"]) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "rate"), [("2.5 Gb/sec (1X SDR)", 2.5), ("400 Gb/sec (4X NDR)", 400.0), ("", None), (None, None)]
)
def test_sysfs_rate(text: str | None, rate: float | None) -> None:
    assert rdma_devices.parse_rate(text) == rate


def fake_ibstat(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put an ``ibstat`` of our making before all others."""
    tool = folder / "bin/ibstat"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")


def run(tree: Tree) -> dict[str, Any]:
    return ibstat.run({}, None, 20.0, str(tree.root))


def test_run_believes_the_tool(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ibstat(tree.root, monkeypatch, "cat <<'END'\n" + sample("ibsim/ibstat_n061.txt") + "END")
    value = run(tree)
    assert (value["source"], value["error"]) == ("ibstat", None)
    assert value["cas"][0]["ports"][0]["lid"] == 6
    assert "Base lid: 6" in value["raw"]


def test_run_keeps_the_ports_before_a_panic(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    text = sample("ibsim/ibstat_n061.txt")
    panic = "ibpanic: [7] main: stat of IB device 'mlx5_8' failed: No such file or directory"
    fake_ibstat(tree.root, monkeypatch, f"cat <<'END'\n{text}END\necho \"{panic}\" >&2; exit 255")
    value = run(tree)
    assert value["source"] == "ibstat"
    assert value["error"] == panic
    assert len(value["cas"]) == 1


def test_run_falls_back_to_sysfs(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ibstat(tree.root, monkeypatch, "echo 'ibpanic: [7] main: no umad' >&2; exit 255")
    tree.ca("mlx5_0")
    value = run(tree)
    assert value["source"] == "sysfs"
    assert value["cas"][0]["ca"] == "mlx5_0"
    assert value["error"] == "ibpanic: [7] main: no umad"


def test_run_on_a_node_without_any(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ibstat(tree.root, monkeypatch, "exit 0")
    assert run(tree) == {"source": "none", "cas": [], "raw": "", "error": None}
