"""The grids as text: as wide as there is room, and of nodes where there are many endpoints."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fabtui.cli.printing import chosen_layers, shown_from
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.errors import InputError
from fabtui.model.baseline import Baseline
from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import ASCII
from fabtui.report.document import Shown
from fabtui.report.grid import MOST_ENDPOINTS, grid, grids
from fabtui.report.summary import summary

Maker = Callable[[], Any]


def fabric(make_model: Maker, nodes: int, each: int, value: float = 350.0) -> Any:
    """A healthy fabric in which each endpoint was tested with all of its node, and with its rail's next."""
    names = [f"n{at:03d}" for at in range(nodes)]
    maker = make_model().start(names).endpoints(dict.fromkeys(names, each))
    for at, node in enumerate(names):
        for a in range(each):
            for b in range(each):
                if a != b:
                    maker.measured("p2p", f"{node}:{a}", f"{node}:{b}", value=value, unit="GB/s", bytes=1 << 28)
            other = names[(at + 1) % nodes]
            if other != node:
                maker.measured("p2p", f"{node}:{a}", f"{other}:{a}", value=46.0, unit="GB/s", bytes=1 << 28)
    return maker


def rows(lines: list[str]) -> dict[str, str]:
    return {line.split()[0]: line for line in lines if line.startswith("  n") and line.split()[0] != "numbers:"}


def test_sixteen_endpoints_have_numbers(make_model: Maker) -> None:
    maker = fabric(make_model, 2, 8)
    maker.measured("p2p", "n000:1", "n000:2", value=90.0, unit="GB/s", bytes=1 << 28)
    lines = grid(maker.model(), Layer.P2P, ASCII, 120)
    assert lines[0] == "p2p, GB/s at 256 MiB; a row sends, a column receives"
    assert "90.0!" in rows(lines)["n000:1"]
    assert lines[-1] == "  ! slow   - not tested"
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize(("nodes", "each", "width"), [(8, 8, 240), (8, 8, 150), (8, 8, 80), (2, 8, 60), (64, 1, 100)])
def test_what_has_no_room_for_numbers_has_signs(make_model: Maker, nodes: int, each: int, width: int) -> None:
    maker = fabric(make_model, nodes, each)
    maker.measured("p2p", "n000:0", "n001:0", "timeout", unit="GB/s")
    maker.measured("p2p", "n001:0", f"n{2 % nodes:03d}:0", value=41.0, unit="GB/s", bytes=1 << 28)
    lines = grid(maker.model(), Layer.P2P, ASCII, width)
    assert lines[0] == "p2p, one way, two-rank communicator; a row sends, a column receives"
    assert max(map(len, lines[1:])) <= width or nodes == 64
    found = rows(lines)
    assert len(found) == nodes * each
    assert "T" in found["n000:0"]
    assert "8" in found["n001:0"].removeprefix("  n001:0") or "9" in found["n001:0"].removeprefix("  n001:0")
    assert "  . ok" in "\n".join(lines)
    assert "T timed out" in "\n".join(lines[-2:])


def test_signs_stand_under_the_name_of_their_node(make_model: Maker) -> None:
    maker = fabric(make_model, 8, 8)
    maker.measured("p2p", "n000:0", "n005:0", "failed", unit="GB/s")
    lines = grid(maker.model(), Layer.P2P, ASCII, 100)
    assert lines[1].index("n005") == rows(lines)["n000:0"].index("x")


@pytest.mark.parametrize(("nodes", "width", "wide"), [(16, 120, True), (16, 80, False), (128, 240, False)])
def test_many_endpoints_are_shown_by_node(make_model: Maker, nodes: int, width: int, wide: bool) -> None:
    each = MOST_ENDPOINTS // nodes + 1
    maker = fabric(make_model, nodes, max(2, each))
    maker.measured("p2p", "n003:0", "n004:1", "failed", unit="GB/s")
    maker.measured("p2p", "n005:0", "n005:1", value=70.0, unit="GB/s", bytes=1 << 28)
    lines = grid(maker.model(), Layer.P2P, ASCII, width)
    assert "a cell is the worst pair of two nodes" in lines[0]
    found = rows(lines)
    assert len(found) == nodes
    cells = found["n003"].split()[1:] if wide else list(found["n003"].split(None, 1)[1])
    assert cells[4] == "x"
    assert cells[3] == ("100" if wide else ".")
    assert cells[5] == "-"
    own = found["n005"].split()[1:] if wide else list(found["n005"].split(None, 1)[1])
    assert own[5] == ("20!" if wide else "!")
    assert "columns: the nodes in the order of the rows, from 000" in "\n".join(lines)
    assert max(map(len, lines[1:])) <= width


def test_more_nodes_than_fit_are_left_to_the_csv(make_model: Maker) -> None:
    names = [f"n{at:03d}" for at in range(257)]
    maker = make_model().start(names).endpoints(dict.fromkeys(names, 1))
    (line,) = grid(maker.model(), Layer.P2P, ASCII, 240)
    assert line == "p2p: 257 x 257 nodes, too many to print; --csv has all pairs, the app shows them"


def test_every_layer_that_has_something_is_shown(make_model: Maker) -> None:
    maker = fabric(make_model, 2, 2)
    maker.measured("latency", "n000:0", "n000:1", value=4.2, unit="us", bytes=8)
    maker.measured("ping", "n000", "n001", value=0.05, unit="ms", src_addr="10.0.0.1", dst_addr="10.0.0.2")
    maker.measured("busbw", "n000", "n001", value=40.0, unit="GB/s", bytes=1 << 28)
    found = [one.title.partition(",")[0] for one in grids(maker.model(), None, ASCII, 120)]
    assert found == ["health", "p2p", "latency", "ping", "busbw"]
    text = summary(diagnose(maker.model()), True, Shown(None, 120))
    for layer in found:
        assert f"\n{layer}, " in text
    assert "less is better" in text


def test_transports_are_named_in_short(make_model: Maker) -> None:
    maker = make_model().start(["n0"]).endpoints({"n0": 2})
    maker.measured("p2p", "n0:0", "n0:1", value=3.0, unit="GB/s", transport="NET/IB/0/GDRDMA")
    lines = grid(maker.model(), Layer.TRANSPORT, ASCII, 120)
    assert "GDR" in rows(lines)["n0:0"]


def test_an_empty_session_has_no_grid() -> None:
    assert grid(Model(), Layer.P2P, ASCII, 80) == ["p2p: no endpoints to test"]


def test_layers_are_chosen_by_name() -> None:
    assert chosen_layers("latency, p2p") == (Layer.P2P, Layer.LATENCY)
    assert chosen_layers("all") is None
    assert shown_from({}).layers == ()
    assert shown_from({}, everything=True).layers is None
    assert shown_from({"grids": "ping"}, everything=True).layers == (Layer.PING,)
    for wrong in ("", "p2p,", "alltoall", "all,p2p", "\x1b[2J"):
        with pytest.raises(InputError, match=r"--grids: .*there are health, p2p,.*, or all"):
            chosen_layers(wrong)


def test_everything_is_ascii_where_that_is_wanted(make_model: Maker) -> None:
    assert summary(diagnose(fabric(make_model, 2, 8).model()), True, Shown(None, 120)).isascii()


def test_changes_need_something_to_compare_with(make_model: Maker) -> None:
    model = fabric(make_model, 2, 2).model()
    assert grid(model, Layer.CHANGE, ASCII, 100) == [
        "change: nothing to compare with: there is no earlier session or sweep"
    ]


def test_changes_between_many_endpoints_are_percentages_of_the_earlier_values(make_model: Maker) -> None:
    model = fabric(make_model, 16, 5).model()
    halved = [one for one in model.measurements(Layer.P2P) if (one.src, one.dst) == ("n003:0", "n003:1")]
    model.baseline = Baseline.of("before", 0.0, [replace(one, value=700.0) for one in halved])
    lines = grid(model, Layer.CHANGE, ASCII, 120)
    assert rows(lines)["n003"].split()[1:5] == ["-", "-", "-", "50!"]
    assert "numbers: percent of the earlier value" in "\n".join(lines)
