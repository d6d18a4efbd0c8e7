"""The probe of the fabric over tools of ours, which print what the real ones printed of a simulated fabric."""

import os
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from fabtui_node.probes.rdma import ib_fabric

from .places import SAMPLES, Tree

OWN = """\
# Port info: DR path slid 65535; dlid 65535; 0 port 1
Lid:.............................11
CapMask:.........................0x50c048
				IsTrapSupported
LinkWidthSupported:..............1X or 4X or 8X or 12X or 2X
LinkWidthActive:.................{width}
LinkState:.......................{state}
PhysLinkState:...................{physical}
LinkSpeedActive:.................10.0 Gbps
LinkSpeedSupported:..............2.5 Gbps or 5.0 Gbps or 10.0 Gbps
NeighborMTU:.....................2048
LinkSpeedExtActive:..............{speed}
LinkSpeedExtSupported:...........14.0625 Gbps or 25.78125 Gbps or 53.125 Gbps
"""
NODE = """\
# Node info: DR path slid 65535; dlid 65535; 0,1
NodeType:........................Switch
Guid:............................0x0000000000200001
LocalPort:.......................4
"""
GUID = "0x000000000010000f"


class Tools:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own()
        self.script(
            "smpquery",
            'case "$*" in\n*"portinfo 0 1") cat own ;;\n*"portinfo 0,1 4") cat peer ;;\n'
            '*"portinfo 0,1 0") cat base ;;\n'
            "*nodeinfo*) cat node ;;\n*nodedesc*) echo 'Node Description:.......leaf2' ;;\nesac",
        )
        (folder / "node").write_text(NODE)
        (folder / "base").write_text("# Port info: x port 0\nLid:.....3\n")
        self.sample("sminfo", "sminfo.txt")
        self.script("perfquery", 'case "$*" in *"3 4") cat errors ;; esac')
        (folder / "errors").write_text((SAMPLES / "ibsim/perfquery_leaf1_p2.txt").read_text())
        self.sample("iblinkinfo", "iblinkinfo_line.txt")
        self.sample("ibnetdiscover", "ibnetdiscover_ports.txt")
        self.sample("ibqueryerrors", "ibqueryerrors_bad.txt", 1)

    def script(self, tool: str, body: str) -> None:
        (self.folder / tool).write_text(f"#!/bin/sh\ncd {quote(str(self.folder))}\n{body}\n")
        (self.folder / tool).chmod(0o755)

    def sample(self, tool: str, name: str, code: int = 0) -> None:
        self.script(tool, f"cat {quote(str(SAMPLES))}/ibsim/{name}\nexit {code}")

    def own(
        self, width: str = "1X", state: str = "Active", physical: str = "LinkUp", speed: str = "53.125 Gbps"
    ) -> None:
        text = OWN.format(width=width, state=state, physical=physical, speed=speed)
        (self.folder / "own").write_text(text)
        (self.folder / "peer").write_text(text)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    folder = tmp_path / "tools"
    folder.mkdir()
    path = f"{folder}:{os.environ['PATH']}"
    monkeypatch.setattr("fabtui_node.system.run_command.environment", lambda extra=None: {"PATH": path})
    return Tools(folder)


@pytest.fixture
def value(tools: Tools, tree: Tree) -> dict[str, Any]:
    tree.ca("mlx5_1", gids__0="fe80:0000:0000:0000:0000:0000:0010:000f")
    return run(tree)


def run(tree: Tree, **args: Any) -> dict[str, Any]:
    return ib_fabric.run(args, None, 30.0, str(tree.root))


def test_a_port_and_its_leaf(value: dict[str, Any]) -> None:
    (port,) = value["ports"]
    assert (port["ca"], port["guid"], port["state"], port["mtu"], port["problem"]) == (
        "mlx5_1",
        GUID,
        "Active",
        2048,
        None,
    )
    assert port["leaf"] == {"guid": "0x0000000000200001", "name": "leaf2", "port": 4, "type": "switch"}
    assert port["link"] == {
        "lanes": 1,
        "lane_rate": 53.125,
        "rate": 50.0,
        "below": ["width"],
        "could_lanes": 4,
        "could_lane_rate": 53.125,
        "could_rate": 200.0,
    }
    assert port["sm"]["lid"] == 1
    assert port["peer_errors"] == {"symbol_error": 1742, "link_error_recovery": 7}


def test_the_whole_fabric(value: dict[str, Any]) -> None:
    fabric = value["fabric"]
    assert (fabric["switches"], fabric["adapters"], fabric["links"]) == (3, 8, 12)
    assert fabric["leaves"][GUID] == {"guid": "0x0000000000200001", "name": "leaf2", "port": 4}
    assert [(link["name"], link["port"], link["below"]) for link in fabric["below"]] == [
        ("n063 mlx5_1", 1, ["width"]),
        ("spine1", 2, ["speed"]),
    ]
    assert (fabric["bad_ports"], fabric["complete"], fabric["warnings"]) == (5, True, [])
    assert {(port["node"], port["port"]) for port in fabric["errors"]} == {
        ("n062 mlx5_1", 1),
        ("leaf2", 3),
        ("spine1", 4),
        ("leaf1", 2),
        ("n061 mlx5_0", 1),
    }


def test_judgements(value: dict[str, Any]) -> None:
    judged = [(one["subject"], one["verdict"], one["text"]) for one in ib_fabric.judge(value)]
    assert judged[:2] == [
        ("mlx5_1/1", "slow", "link below what both ends can do: width 1X of 4X, 50 Gb/s, to leaf2 port 4"),
        ("mlx5_1/1", "slow", "errors of the link: link_error_recovery 7, symbol_error 1742, at leaf2 port 4"),
    ]
    text = next(text for subject, _, text in judged if subject == "spine1 port 2")
    assert text.startswith("link below what both ends can do: 25.78125 Gb/s a lane of 53.125")
    assert text.endswith(", to leaf1 port 16")
    # Problems beside adapters are reported by their nodes and counted here.
    words = "cables of adapters in the fabric with errors, or below what both ends support"
    assert ("ibfabric", "note", f"{words}: 5") in judged
    assert [subject for subject, _, _ in judged] == ["mlx5_1/1", "mlx5_1/1", "spine1 port 2", "ibfabric"]


def test_only_its_own_cables(tools: Tools, tree: Tree) -> None:
    tree.ca("mlx5_1")
    value = run(tree, whole=False)
    assert value["fabric"] is None
    assert value["ports"][0]["leaf"]["name"] == "leaf2"


def test_a_link_as_good_as_it_can_be(tools: Tools, tree: Tree) -> None:
    tree.ca("mlx5_1", counters__symbol_error=0)
    tools.own(width="4X")
    (tools.folder / "errors").write_text("")
    value = run(tree, whole=False)
    assert value["ports"][0]["link"]["below"] == []
    assert ib_fabric.judge(value) == []


def test_a_port_that_is_down(tools: Tools, tree: Tree) -> None:
    tree.ca("mlx5_1")
    tools.own(state="Down", physical="Polling")
    (port,) = run(tree)["ports"]
    assert (port["state"], port["leaf"], port["link"], port["problem"]) == ("Down", None, None, None)


def test_no_rights(tools: Tools, tree: Tree) -> None:
    tree.ca("mlx5_1")
    tools.script("smpquery", 'echo "ibpanic: [5] mad_rpc_open_port: can\'t open UMAD port (mlx5_1:1)" >&2; exit 255')
    value = run(tree)
    assert value["error"] == "ibpanic: [5] mad_rpc_open_port: can't open UMAD port (mlx5_1:1)"
    assert (value["ports"][0]["leaf"], value["fabric"]) == (None, None)
    assert ib_fabric.judge(value) == []


def test_no_tools_and_no_infiniband(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui_node.system.run_command.environment", lambda extra=None: {"PATH": "/nowhere"})
    assert run(tree) == {"ports": [], "fabric": None, "error": None}
    tree.ca("mlx5_0", link_layer="Ethernet")
    assert run(tree)["ports"] == []
    tree.ca("mlx5_1")
    assert run(tree)["error"] == "no smpquery on this node"


def test_a_manager_that_is_silent(tools: Tools, tree: Tree) -> None:
    tree.ca("mlx5_1")
    tools.sample("sminfo", "sminfo_from_unlinked.txt", 255)
    judged = [one["text"] for one in ib_fabric.judge(run(tree, whole=False))]
    assert "no subnet manager answered" in judged


def test_a_fabric_that_answers_in_part(tools: Tools, tree: Tree) -> None:
    tree.ca("mlx5_1")
    tools.sample("iblinkinfo", "iblinkinfo_mad_loss60.txt")
    value = run(tree)
    assert value["fabric"]["complete"] is False
    assert ("ibfabric", "inconclusive") in [(one["subject"], one["verdict"]) for one in ib_fabric.judge(value)]


def test_discovery_where_link_info_is_missing(tools: Tools) -> None:
    (tools.folder / "iblinkinfo").write_text("#!/bin/sh\nexit 1\n")
    found = ib_fabric.walk([("mlx5_1", 1, GUID)], 1e12)
    assert found is not None
    assert (found["switches"], found["adapters"], found["leaves"][GUID]["name"]) == (3, 8, "leaf2")


def test_two_adapters_on_one_cable(tools: Tools) -> None:
    row = '0x%016x " n%d mlx5_0" %d 1[  ] ==( 4X 25.78125 Gbps Active/  LinkUp)==>  0x%016x %d 1[  ] "n%d mlx5_0" ( )'
    rows = [row % (1, 1, 1, 2, 2, 2), row % (2, 2, 2, 1, 1, 1)]
    tools.script("iblinkinfo", "cat <<'END'\n" + "\n".join(rows) + "\nEND")
    found = ib_fabric.walk([("mlx5_0", 1, "0x1")], 1e12)
    assert found is not None
    assert (found["switches"], found["links"], found["leaves"]) == (0, 1, {})


def test_each_fabric_is_walked_once(tools: Tools) -> None:
    found = ib_fabric.walk([("mlx5_0", 1, "0x0000000000100005"), ("mlx5_1", 1, GUID)], 1e12)
    assert found is not None
    assert found["switches"] == 3
    found = ib_fabric.walk([("mlx5_0", 1, "0x0000000000100005"), ("mlx5_9", 1, "0x1")], 1e12)
    assert found is not None
    assert (found["switches"], found["bad_ports"]) == (6, 10)
