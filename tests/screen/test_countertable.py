from typing import Any

from fabtui.model.events import CounterDeltas
from fabtui.model.layers import Layer
from fabtui.presentation.wording import plain
from fabtui.screen.views.pair import counter_lines
from tests.screen.conftest import Opened, press, screen_text
from tests.screen.fakefeed import FakeFeed, Story

ERRORS: dict[str, Any] = {
    "hca": {
        "mlx5_0/1": {"port_xmit_data": 3 << 30, "port_xmit_packets": 812345, "symbol_error": 17, "out_of_buffer": 2}
    },
    "nvlink": {"0": {"3": {"crc": 5}, "all": {"tx_bytes": 1 << 20}}},
    "errors": [["hca", "mlx5_0/1", "symbol_error"], ["hca", "mlx5_0/1", "out_of_buffer"], ["nvlink", "0", "3", "crc"]],
    "reset": [["net", "eth0", "rx_bytes"]],
}
TRAFFIC: dict[str, Any] = {"net": {"eth0": {f"c{n}": n for n in range(1, 31)}}}


def story(*counted: tuple[str, dict[str, Any]]) -> Story:
    made = Story(["n000", "n001"], 1)
    for node in made.nodes:
        made.connect(node)
    made.endpoints(*made.nodes)
    made.phase("p2p", 2)
    since = made.now
    made.measured(*made.good("n000:0", "n001:0"), *made.good("n001:0", "n000:0"))
    for node, deltas in counted:
        made.add(CounterDeltas(node=node, since=since - 1, until=since + 1, deltas=deltas))
    made.end(0)
    return made


def lines(made: Story) -> list[str]:
    measurement = made.shadow.latest(Layer.P2P, "n000:0", "n001:0")
    return [plain(line).rstrip() for line in counter_lines(made.shadow, measurement)]


def test_errors_first_then_resets_then_traffic() -> None:
    rows = [line.split(maxsplit=1)[1] for line in lines(story(("n000", ERRORS)))[3:]]
    assert [" ".join(row.split()) for row in rows] == [
        *("mlx5_0/1 symbol_error 17", "GPU 0, NVLink 3 crc 5", "mlx5_0/1 out_of_buffer 2"),
        *("eth0 rx_bytes was reset", "mlx5_0/1 port_xmit_data 3 GiB"),
        *("GPU 0, all NVLinks tx_bytes 1 MiB", "mlx5_0/1 port_xmit_packets 812,345"),
    ]


def test_both_nodes_and_no_more_than_can_be_read() -> None:
    shown = lines(story(("n000", ERRORS), ("n001", TRAFFIC)))
    assert sum(line.startswith("  n000") for line in shown) == 7
    assert sum(line.startswith("  n001") for line in shown) == 16
    assert shown[-1] == "  and 14 more in the recording"


def test_nothing_is_shown_without_counters() -> None:
    assert lines(story()) == []
    assert counter_lines(story().shadow, None) == []


async def test_the_pair_screen_shows_them(opened: Opened) -> None:
    async with opened(FakeFeed(story(("n001", ERRORS)).events), (120, 50)) as (app, pilot):
        await press(pilot, "right", "enter")
        text = screen_text(app)
    assert "counters" in text
    assert "symbol_error" in text


def test_a_counter_at_its_limit_is_marked() -> None:
    full = {"hca": {"mlx5_0/1": {"symbol_error": 535}}, "errors": [["hca", "mlx5_0/1", "symbol_error"]]}
    text = "\n".join(lines(story(("n000", {**full, "full": full["errors"]}))))
    assert "535 or more: the counter is at its limit" in text


def test_congestion_stands_below_errors_and_is_called_that() -> None:
    deltas = {
        "hca": {"mlx5_0/1": {"np_cnp_sent": 1200, "rx_write_requests": 5, "out_of_sequence": 3}},
        "net": {"eth0": {"rx_prio3_pause": 9}},
        "errors": [["hca", "mlx5_0/1", "out_of_sequence"]],
    }
    rows = [line.split(maxsplit=1)[1] for line in lines(story(("n000", deltas)))[3:]]
    assert [" ".join(row.split()) for row in rows] == [
        "mlx5_0/1 out_of_sequence 3",
        "mlx5_0/1 np_cnp_sent 1,200 (congested)",
        "eth0 rx_prio3_pause 9 (congested)",
        "mlx5_0/1 rx_write_requests 5",
    ]
