from collections.abc import Callable
from typing import Any

from fabtui.model.records import NodeRecord
from fabtui.presentation.wording import plain
from fabtui.screen.grid.axis import AxisEntry
from fabtui.screen.views.node import port_lines
from fabtui.screen.widgets.pair_text import pair_notes, summary_text
from tests.conftest import ModelMaker


def drawn(rdma: dict[str, Any] | None = None, fabric: dict[str, Any] | None = None) -> str:
    results = {name: look for name, look in (("rdma", rdma), ("ibfabric", fabric)) if look is not None}
    lines = port_lines(NodeRecord("n0", probe_results=results))
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def test_nothing_without_probe_results() -> None:
    assert drawn() == ""
    assert drawn({"error": "failed"}, {"error": "failed"}) == ""


def test_both_probes_share_a_row() -> None:
    port = {"ca": "mlx5_0", "port": 1, "netdev": "eth0", "active_mtu": 1024, "max_mtu": 4096, "pkeys": ["0xffff"]}
    rdma = {
        "ports": [{**port, "gid_index": 5, "ipv4": "10.0.0.1", "refresh": 10, "errors": {"symbol_error": 65535}}],
        "nccl": {"gid_why": "leave NCCL_IB_GID_INDEX unset", "hca_why": "leave NCCL_IB_HCA unset"},
        "nics": [{"interface": "eth0", "link": "yes", "speed": 100000, "fastest": 200000, "discards": {"rx_x": 4}}],
    }
    rdma["ports"][0]["saturated"] = ["symbol_error"]  # type: ignore[index]
    link = {"lanes": 1, "rate": 50.0, "could_rate": 200.0, "below": ["width"]}
    leaf = {"name": "leaf2", "guid": "0x1", "port": 4}
    far = {"ca": "mlx5_0", "port": 1, "leaf": leaf, "link": link, "peer_errors": {"port_rcv_errors": 7}}
    text = drawn(rdma, {"ports": [far]})
    row = next(line for line in text.splitlines() if line.strip().startswith("mlx5_0/1"))
    for words in (
        *("1024 of 4096 B", "eth0", "index 5, 10.0.0.1", "0xffff", "leaf2 port 4", "1X, 50 Gb/s of 200"),
        *("symbol_error 65535 or more", "port_rcv_errors 7"),
    ):
        assert words in row
    assert "leave NCCL_IB_HCA unset" in text
    assert "100 Gb/s  200 Gb/s" in text
    assert "rx_x 4" in text
    assert "updated every 10 ms" in text


def test_what_is_not_known_is_not_zero() -> None:
    text = drawn(
        {"ports": [{"ca": "m", "port": 1, "active_mtu": None, "errors": None}]}, {"ports": [], "error": "no umad"}
    )
    row = next(line for line in text.splitlines() if line.strip().startswith("m/1"))
    assert "0" not in row
    assert "the fabric cannot be queried from this node: no umad" in text


def test_a_pair_shows_its_port_problems(make_model: Callable[[], ModelMaker]) -> None:
    maker = make_model().start("ab")
    ends = []
    for number, node in enumerate("ab"):
        maker.add("inventory", node=node, value={"ib": [{"ca": "mlx5_0", "port": 1}]})
        ends.append({"number": number, "node": node, "index": 0, "kind": "gpu", "nic": "mlx5_0"})
    maker.add("endpoints", endpoints=ends)
    port = {"port": 1, "state": "Down", "physical_state": "Polling", "link_layer": "InfiniBand"}
    maker.add("look", node="b", probe="ibstat", value={"cas": [{"ca": "mlx5_0", "type": "MT4123", "ports": [port]}]})
    maker.measured("p2p", "a:0", "b:0", "failed", error="unreachable")
    model = maker.model()
    source, target = (AxisEntry(node, node, "0", number, True, False) for number, node in enumerate("ab"))
    text = "\n".join(plain(line) for line in pair_notes(model, source, target))
    assert "b mlx5_0/1: Down, physical state Polling: no signal from the other end" in text
    assert "b mlx5_0/1: Down" in summary_text(model, source, target)
