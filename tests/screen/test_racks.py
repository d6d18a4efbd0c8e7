"""Grid and topology of NVLink racks: groups and branches by NVLink domain."""

from collections.abc import Callable
from typing import Any

import pytest

from fabtui.diagnosis.node_faults import NodeFaults
from fabtui.diagnosis.pairs.tally import Survey
from fabtui.model.events import ProbeResult
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.topology import Topology, flat
from fabtui.screen.grid.cells import RowOrder
from tests.screen.conftest import Opened, make_app, press, screen_text
from tests.screen.fakefeed import FakeFeed, Story
from tests.screen.test_grouping import grouped
from tests.screen.test_snapshots import pressed

TRAYS, GPUS = 9, 4
OUTSIDE = "n013"


def rack_of(node: str) -> str | None:
    return None if node == OUTSIDE else f"{'ab'[int(node[1:]) % 2] * 8}-0000-0000-0000-000000000001"


def racks() -> Story:
    """Two racks of nine trays, one of which is outside its domain: NVLink within them, RDMA between them."""
    story = Story([f"n{number:03d}" for number in range(2 * TRAYS)], GPUS)
    story.step = 0.0005
    for name in story.shadow.nodes:
        story.connect(name)
    story.endpoints(*story.shadow.nodes)
    for name in story.shadow.nodes:
        fabric = {"state": "completed", "cluster": rack_of(name), "clique": 7}
        gpus = [{"index": at, "name": "NVIDIA GB200", "fabric": fabric} for at in range(GPUS)]
        story.add(ProbeResult(node=name, probe="gpus", value={"gpus": gpus}))
    pairs = story.ordered_pairs()
    story.phase("p2p", len(pairs))
    for at, (a, b) in enumerate(pairs):
        inside = a[:4] == b[:4] or rack_of(a[:4]) == rack_of(b[:4])
        value = (740.0 if inside else 46.0) * (1 + 0.002 * (at % 7))
        transport = "P2P/MNNVL" if inside else "NET/IB/0/GDRDMA"
        common: dict[str, Any] = {"unit": "GB/s", "bytes": 256 << 20, "time": story.now, "transport": transport}
        story.measured(Measurement(Layer.P2P, a, b, Verdict.OK, value, how="nccl 2.28.9", **common))
    story.end(0)
    return story


def test_domains_are_groups_in_the_order_of_their_first_tray_and_what_is_in_none_comes_last() -> None:
    groups = grouped(racks().shadow, RowOrder.DOMAIN)
    assert [(name, len(ends)) for name, ends in groups] == [
        ("NVLink aaaaaaaa/7", TRAYS * GPUS),
        ("NVLink bbbbbbbb/7", (TRAYS - 1) * GPUS),
        ("no NVLink domain", GPUS),
    ]
    assert groups[0][1][:5] == ["n000:0", "n000:1", "n000:2", "n000:3", "n002:0"]


async def test_the_key_of_groups_begins_with_domains(opened: Opened) -> None:
    async with opened(FakeFeed(racks().events), size=(200, 60)) as (app, pilot):
        await press(pilot, "O")
        assert " by NVLink domain " in screen_text(app)
        seen = [app.main.view_state.order]
        await press(pilot, "O")
        seen.append(app.main.view_state.order)
        assert seen == [RowOrder.DOMAIN, RowOrder.RAIL], "leaf switches are unknown"


def test_the_topology_has_domains_with_their_trays() -> None:
    model = racks().shadow
    lines = flat(Topology(model, Survey(model).finish(), NodeFaults(), None, Glyphs(True)).roots())
    assert lines[0] == "NVLink domains  2, reported by probes"
    assert [line for line in lines if "NVLink" in line] == [
        "NVLink domains  2, reported by probes",
        "  . NVLink aaaaaaaa/7  9 nodes, 36 endpoints",
        "  . NVLink bbbbbbbb/7  8 nodes, 32 endpoints",
        "  . in no NVLink domain, or unknown  1 node, 4 endpoints",
    ]


@pytest.mark.snapshot
@pytest.mark.parametrize("keys", [("O",), ("T",)], ids=["grid", "topology"])
def test_pictures_of_racks(snap_compare: Callable[..., bool], keys: tuple[str, ...]) -> None:
    app = make_app(FakeFeed(racks().events))
    assert snap_compare(app, terminal_size=(140, 46), run_before=pressed(*keys))
