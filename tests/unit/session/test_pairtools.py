"""External tools: the ends they measure between, and the values of their output."""

from types import SimpleNamespace
from typing import Any

import pytest

from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.session.measure import external_tools
from fabtui.session.measure.external_tools import PairTools, ToolPort, _ring, how, ports_of, read

INVENTORY: dict[str, Any] = {
    "data_addresses": [
        {"address": "10.0.0.1", "nic": "eth0", "rail": None, "family": 4},
        {"address": "10.1.0.1", "nic": "ib0", "rail": 1, "family": 4},
    ],
    "ib": [
        {"ca": "mlx5_0", "port": 1, "state": "Down", "link_layer": "InfiniBand", "netdev": None, "gids": []},
        {"ca": "mlx5_1", "port": 1, "state": "Active", "link_layer": "InfiniBand", "netdev": "ib0", "gids": []},
        {
            "ca": "mlx5_2",
            "port": 2,
            "state": "Active",
            "link_layer": "Ethernet",
            "netdev": "eth9",
            "gids": [
                {"index": 1, "gid": "fe80:0000:0000:0000:0000:0000:0000:0001", "type": "RoCE v2"},
                {"index": 2, "gid": "0000:0000:0000:0000:0000:ffff:0a02:0001", "type": "IB/RoCE v1"},
                {"index": 3, "gid": "0000:0000:0000:0000:0000:ffff:0a02:0001", "type": "RoCE v2"},
            ],
        },
    ],
}


def test_ends() -> None:
    assert ports_of("iperf3", INVENTORY) == [ToolPort("10.0.0.1", 0, "10.0.0.1"), ToolPort("10.1.0.1", 1, "10.1.0.1")]
    assert ports_of("perftest", INVENTORY) == [
        ToolPort("mlx5_1:1", 1, "10.1.0.1", "mlx5_1", 1, None),
        ToolPort("mlx5_2:2", 2, "10.0.0.1", "mlx5_2", 2, 3),
    ]
    assert ports_of("perftest", {"ib": [3, {"state": "Active"}], "data_addresses": 4}) == []
    assert ports_of("iperf3", None) == []


@pytest.mark.parametrize(
    ("layer", "values", "expected"),
    [
        (Layer.IPERF3, {"bandwidth": 1.0}, (1.0, "GB/s", None)),
        (Layer.IPERF3, {"bandwidth": None}, (None, "GB/s", None)),
        (Layer.IB_WRITE_BW, {"rows": [{"bytes": 1.0}, {"bytes": 1048576.0, "bandwidth": 5.0}]}, (5.0, "GB/s", 1048576)),
        (Layer.IB_SEND_BW, {"rows": []}, (None, "GB/s", None)),
        (Layer.IB_READ_LAT, {"rows": [{"bytes": 8.0, "t_typical": 3.2, "t_avg": 3.3}]}, (3.2, "us", 8)),
        (Layer.IB_READ_LAT, {"rows": [{"bytes": 8.0, "t_avg": 3.3}]}, (3.3, "us", 8)),
        (Layer.IB_READ_LAT, "nothing", (None, "us", None)),
    ],
)
def test_values(layer: Layer, values: Any, expected: tuple[float | None, str, int | None]) -> None:
    assert read(layer, values) == expected


@pytest.mark.parametrize("count", [17, 18, 31])
def test_a_ring_has_each_next_to_two_in_disjoint_rounds(count: int) -> None:
    rounds = _ring(count)
    pairs = [pair for one in rounds for pair in one]
    assert len(pairs) == len({frozenset(pair) for pair in pairs}) == count
    for one in rounds:
        ends = [end for pair in one for end in pair]
        assert len(ends) == len(set(ends))


def test_how_names_the_added_options() -> None:
    assert how(Layer.IB_WRITE_BW) == "ib_write_bw, 2 s"
    assert how(Layer.IB_WRITE_BW, ("-q", "4", "-r", "64")) == "ib_write_bw, 2 s, -q 4"
    assert how(Layer.IB_WRITE_BW, ("-n", "500")) == "ib_write_bw, -n 500"
    assert how(Layer.IB_READ_LAT, ("-q", "4")) == "ib_read_lat"
    assert how(Layer.IPERF3, ("-q", "4")) == "iperf3, 2 s"


@pytest.mark.parametrize(
    ("verdicts", "measured"),
    [
        ([Verdict.OK], 1),
        ([Verdict.FAILED, Verdict.OK], 2),
        # Costs its deadline each time, and is not what somebody does who connects first.
        ([Verdict.TIMEOUT], 1),
        ([Verdict.FAILED] * 9, external_tools.TRIES),
    ],
)
async def test_a_failure_is_measured_again(
    verdicts: list[Verdict], measured: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []
    context: Any = SimpleNamespace(pump=SimpleNamespace(emit=events.append))
    left = {way: list(verdicts) for way in ("ab", "ba")}

    async def one(self: PairTools, probe: str, layer: Layer, source: ToolPort, target: ToolPort) -> Measurement:
        verdict = left[source.node + target.node].pop(0)
        return Measurement(layer, source.node, target.node, verdict, None, "GB/s", None, 0.0, "")

    monkeypatch.setattr(PairTools, "_one", one)
    rails = [(ToolPort("10.0.0.1", 0, "10.0.0.1", node="a"), ToolPort("10.0.0.2", 0, "10.0.0.2", node="b"))]
    await PairTools(context, {})._pair("iperf3", rails)
    assert len(events) == 2 * measured
