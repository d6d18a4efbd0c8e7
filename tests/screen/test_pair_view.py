"""The pair in detail: its way, its neighbours, its history, the library's log, the commands."""

from pathlib import Path

import pytest

from fabtui.importers.session import read_session
from fabtui.model.events import CounterDeltas, ProbeResult
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import plain
from fabtui.presentation.wrapping import Lines
from fabtui.screen.grid.axis import Axis, AxisEntry
from fabtui.screen.views.pair import (
    direction_lines,
    event_lines,
    history_lines,
    hops,
    library_lines,
    neighbour_lines,
    path_lines,
)
from fabtui.screen.widgets.pair_text import pair_items, summary_text
from fabtui.screen.widgets.sparkline import cells_strip, sparkline
from tests.conftest import session_of
from tests.screen.conftest import Opened, press, screen_text
from tests.screen.fakefeed import FAILED, FakeFeed, Story, sweep_of_two
from tests.unit.model.test_link_limits import model_of, swept

GLYPHS = Glyphs(False)


def text(lines: Lines) -> str:
    return "\n".join(plain(line).rstrip() for line in lines)


def way(model: Model, src: str, dst: str, width: int = 200) -> str:
    a, b = model.table.number(src), model.table.number(dst)
    assert a is not None
    assert b is not None
    ends = model.endpoints[a], model.endpoints[b]
    stations = hops(model, *ends, model.latest(Layer.P2P, src, dst))
    return text(path_lines(stations, (ends[0].node, ends[1].node), width, GLYPHS))


def test_the_way_between_nodes_names_every_station_it_knows() -> None:
    found = way(sweep_of_two().shadow, "n000:0", "n001:1")
    names = found.splitlines()[1].replace("─", " ").split()
    assert " ".join(names) == "GPU 0 PCIe switch mlx5_0 network mlx5_1 PCIe switch GPU 1"
    assert "host memory" in found
    assert "rail 0" in found
    assert "10.0.0.1" in found
    assert "Active 400 Gb/s" in found
    assert "NET/IB" in found
    assert found.splitlines()[0].split() == ["n000", "n001"]


def test_the_reverse_direction_supplies_addresses() -> None:
    model = sweep_of_two().shadow
    a, b = (model.endpoints[model.table.number(name) or 0] for name in FAILED)
    stations = hops(model, a, b, model.latest(Layer.P2P, FAILED[1], FAILED[0]))
    about = {hop.name: hop.about for hop in stations}
    assert about["mlx5_1"][1] == "10.1.0.1"
    assert about["mlx5_2"][1] == "10.2.0.2"


def test_gpu_direct_goes_past_the_memory_of_the_host() -> None:
    found = way(sweep_of_two().shadow, "n000:0", "n001:0")
    assert "GDRDMA" in found
    assert "host memory" not in found


def test_a_narrow_pcie_link_is_marked() -> None:
    assert "gen5 x8 of x16" in way(sweep_of_two().shadow, "n000:3", "n001:0")


def test_what_is_not_known_is_a_question_mark() -> None:
    found = way(session_of("ab"), "a:0", "b:0")
    assert found.splitlines()[1].replace("─", " ").split() == [
        *("GPU", "0", "PCIe", "?", "network", "?", "PCIe", "GPU", "0"),
    ]
    assert "transport ?" in found


def test_the_way_within_a_node() -> None:
    story = Story(["a"], 2)
    story.connect("a")
    story.endpoints("a")
    links = [{"link": n, "state": "active" if n else "inactive", "speed": 26.5} for n in range(4)]
    gpus = [{"index": n, "links": links} for n in range(2)]
    story.add(ProbeResult(node="a", probe="nvlink", value={"gpus": gpus}))
    story.measured(*story.good("a:0", "a:1"), *story.good("a:1", "a:0", transport="SHM/direct"))
    assert "NVLink" in way(story.shadow, "a:0", "a:1")
    assert "3 of 4 links" in way(story.shadow, "a:0", "a:1")
    assert "host memory" in way(story.shadow, "a:1", "a:0")


@pytest.mark.parametrize(
    ("transport", "between", "stations"),
    [
        ("P2P/MNNVL", ("n000:0", "n001:1"), "GPU 0 NVLink GPU 1"),
        ("NVLS", ("n000:0", "n000:1"), "GPU 0 NVLink GPU 1"),
        ("IPC/read", ("n000:0", "n000:1"), "GPU 0 NVLink GPU 1"),
        ("NET/OFI/0 + P2P/IPC", ("n000:0", "n000:1"), "GPU 0 PCIe switch mlx5_0 network mlx5_1 PCIe switch GPU 1"),
    ],
)
def test_the_way_is_that_of_the_table_of_transports(transport: str, between: tuple[str, str], stations: str) -> None:
    story = sweep_of_two()
    links = [{"link": n, "state": "active", "speed": 26.5} for n in range(4)]
    for node in ("n000", "n001"):
        gpus = [{"index": n, "links": links} for n in range(4)]
        story.add(ProbeResult(node=node, probe="nvlink", value={"gpus": gpus}))
    story.measured(*story.good(*between, transport=transport))
    found = way(story.shadow, *between)
    assert " ".join(found.splitlines()[1].replace("─", " ").split()) == stations
    assert ("host memory" in found) == ("OFI" in transport)


def test_where_it_is_too_wide_it_goes_down() -> None:
    lines = way(sweep_of_two().shadow, "n000:0", "n001:1", 60).splitlines()
    assert lines[0].strip() == "n000"
    assert lines[1].split() == ["│", "GPU", "0", "H200,", "0000:0a:00.0"]
    assert lines[-1].strip() == "n001"
    assert next(line for line in lines if "mlx5_0" in line).split()[2:5] == ["rail", "0,", "10.0.0.1,"]
    assert max(map(len, lines)) <= 60


def test_the_limit_of_the_links_stands_beside_the_transport() -> None:
    model = swept(model_of(generation=5), (360.0, "P2P/CUMEM"), (46.0, "NET/IB/mlx5_0"))
    entries = [AxisEntry(str(end)[0], str(end)[0], str(end.index), end.number, False, False) for end in model.endpoints]
    assert "limit 75 % of the NVLink limit 478" in text(pair_items(model, entries[0], entries[1], GLYPHS))
    assert "limit     92 % of the RDMA port limit 50.0" in text(direction_lines(model, entries[0], entries[2], GLYPHS))
    assert "75 % of the NVLink limit 478, class same-node" in summary_text(model, entries[0], entries[1])


def test_neighbors_show_if_only_the_pair_is_bad() -> None:
    model = sweep_of_two().shadow
    a, b = model.table.number(FAILED[0]), model.table.number(FAILED[1])
    assert a is not None
    assert b is not None
    rows = text(neighbour_lines(model, model.endpoints[a], model.endpoints[b], Layer.P2P, GLYPHS)).splitlines()
    assert rows[3].split() == ["n000:1", ">", "others", "of", "n001", "3", "43.9", "44.2", "44.4", "1", ".▾."]
    assert rows[4].split()[:6] == ["others", "of", "n000", ">", "n001:2", "3"]
    assert rows[4].endswith("..T")
    assert rows[5].split()[:4] == ["n000", ">", "n001", "16"]
    assert rows[5].endswith("3  .....▾x.......T.")
    assert rows[6].split()[:4] == ["n001", ">", "n000", "16"]


def test_the_history_is_a_sparkline_and_a_table() -> None:
    story = sweep_of_two()
    for verdict, value in ((Verdict.OK, 44.0), (Verdict.TIMEOUT, None), (Verdict.OK, 22.0)):
        one = Measurement(Layer.P2P, *FAILED, verdict, value, "GB/s", 256 << 20, story.now)
        story.measured(one)
    history = story.shadow.history(Layer.P2P, *FAILED)
    assert plain(sparkline(story.shadow, history, GLYPHS)) == "x█T▄"
    assert plain(sparkline(story.shadow, history, Glyphs(True))) == "x#T:"
    found = text(history_lines(story.shadow, *FAILED, GLYPHS))
    assert "4 attempts, 3 bad, 22.0 to 44.0 GB/s" in found
    assert "~ flapping: 2 changes" in found
    times = [line.split()[2] for line in found.splitlines() if line[2:4].isdigit()]
    assert times[0] == "p2p", "the latest first"


def test_a_strip_separates_the_cells_of_nodes() -> None:
    model = sweep_of_two().shadow
    parts = cells_strip(model, Layer.P2P, [(1, n) for n in range(8)], GLYPHS)
    assert plain(parts) == ". .. .▾x."
    assert [style for text, style in parts if text == "▾"] == ["$cell-slow"]


def test_the_librarys_log_comes_with_its_warnings_first() -> None:
    raw = "[n000:1]\nNCCL INFO Channel 00/1\nseconds: 1\n[n001:2]\nNCCL WARN ibv_modify_qp failed with 110\x1b[31m"
    one = Measurement(Layer.P2P, *FAILED, Verdict.FAILED, raw=raw)
    lines = [plain(line).strip() for line in library_lines([one, one])[2:]]
    assert lines == ["n001:2  NCCL WARN ibv_modify_qp failed with 110[31m", "n000:1  NCCL INFO Channel 00/1"]


def test_the_event_log_of_a_pair_has_what_names_it_and_not_its_like() -> None:
    story = sweep_of_two()
    for words in ("n000:1 is slow", "n000:11 is slow", "xn000:1 is slow", "n000:1 - n001:2 is timeout now"):
        story.log(words)
    found = [plain(line).split("  ")[-1] for line in event_lines(story.shadow, *FAILED)[2:]]
    assert found == ["n000:1 - n001:2 is timeout now", "n000:1 is slow"]


async def test_the_pair_has_it_all_and_y_takes_it_along(opened: Opened) -> None:
    story = sweep_of_two()
    deltas = {
        "hca": {"mlx5_1/1": {"local_ack_timeout_err": 7}},
        "errors": [["hca", "mlx5_1/1", "local_ack_timeout_err"]],
    }
    story.add(CounterDeltas(node="n000", since=0.0, until=story.now + 9, deltas=deltas))
    async with opened(FakeFeed(story.events), size=(140, 110)) as (app, pilot):
        await press(pilot, "right_square_bracket", "right_square_bracket", "enter")
        found = screen_text(app)
        for words in (
            *("2 n000:1 > n001:2 failed   1 pair", "path  known hops", "others of n000 > n001:2"),
            *("local_ack_timeout_err", "library log", "NCCL WARN ibv_modify_qp failed", "by hand"),
            *("--pair 'n000:1>n001:2'", "torch.distributed"),
        ):
            assert words in found, words
        await pilot.press("y")
        assert "        ssh n000 ibstat mlx5_1\n" in app.clipboard
        assert "by hand: fabtui run --lab 2x4" in app.clipboard
        await pilot.press("Y")
        assert app.clipboard.startswith("fabtui run --lab 2x4")
        assert "\n" not in app.clipboard
        # What is wrong and what to type come before the table, also on a small terminal.
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        lines = screen_text(app).splitlines()
        assert "n000:1 > n001:2 failed" in lines[1]
        assert lines[-1].rstrip().endswith("q quit")
        command = next(number for number, line in enumerate(lines) if "next    fabtui run" in line)
        assert command < next(number for number, line in enumerate(lines) if line.startswith("  p2p "))


async def test_an_endpoint_with_itself_has_no_way_and_no_command(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(80, 40)) as (app, pilot):
        await press(pilot, "down", "enter")
        assert "path" not in screen_text(app)
        await press(pilot, "Y", seconds=0.1)
        assert "no pair to test" in "".join(note.message for note in app._notifications)


def test_a_collective_has_the_published_values_for_its_hardware() -> None:
    model = read_session(str(Path(__file__).parents[1] / "samples/sessions/h200x8-lab-2x4.jsonl.gz"))
    first, second = Axis.of_model(model).entries[4:6]
    lines = direction_lines(model, first, second, GLYPHS)
    assert "338 GB/s over n001: published for 4 x H200: 363 GB/s" in text(lines)
