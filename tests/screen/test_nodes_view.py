"""A node in detail, all nodes as a table, lost nodes, the event log."""

from typing import Any

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.node_faults import NodeFaults, node_faults
from fabtui.diagnosis.pairs.tally import Survey
from fabtui.model.events import InventoryUpdate, NodeState, NodeUpdate, ProbeResult
from fabtui.model.measurement import Verdict
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.topology import Topology, flat
from fabtui.presentation.wording import plain
from fabtui.screen.app import FabricApp
from fabtui.screen.context import ScreenSettings
from fabtui.screen.views.node import row_lines, system_lines
from fabtui.screen.views.nodes import HEADINGS, folded_rows, node_rows, pair_counts
from fabtui.screen.widgets.sorted_table import Sorting
from tests.screen.conftest import Opened, press, screen_text, settled
from tests.screen.fakefeed import FakeFeed, big_sweep, sweep_of_two
from tests.screen.fakeprobes import inventory
from tests.unit.diagnosis.test_pair_rules import fabric

GLYPHS = Glyphs(False)


def gpu_look(node: str) -> dict[str, Any]:
    gpus = [
        {
            "bus": gpu["bus"].upper(),
            "utilization": 97 if at == 2 else 0,
            "temperature": 86 if at == 1 else 31,
            "temperature_slowdown": 87,
            "power": 118.2,
            "memory_used": 9 << 30,
            "reasons": ["gpu_idle", "hw_thermal_slowdown"] if at == 1 else ["gpu_idle"],
        }
        for at, gpu in enumerate(inventory(node, 4)["gpus"])
    ]
    return {"gpus": gpus}


async def test_a_node_shows_its_gpus_its_part_of_the_grid_and_what_is_odd(opened: Opened) -> None:
    story = sweep_of_two(failed_node=False)
    story.add(ProbeResult(node="n000", probe="gpus", value=gpu_look("n000")))
    value = inventory("n001", 4)
    value["driver"] = "560.1"
    for node in ("n001", "n002", "n003"):
        story.add(NodeUpdate(node=node, state=NodeState.READY, text=""))
        story.add(InventoryUpdate(node=node, value=value if node == "n001" else inventory(node, 4)))
    feed = FakeFeed(story.events)
    async with opened(feed, size=(160, 70)) as (app, pilot):
        await press(pilot, "n")
        text = screen_text(app)
        for words in ("97 %", "86 C", "118", "9.0 GiB of 140.4 GiB", "rows and columns"):
            assert words in text, words
        rows = [line.split() for line in text.splitlines() if line.strip().startswith("GPU 1")]
        assert rows[0][:4] == ["GPU", "1", ".", ".."]
        assert rows[0][4] == ".▾x."
        await press(pilot, "n")
        text = screen_text(app)
        assert "560.1" in text
        assert "others: 570.124.06" in text
        await press(pilot, "r")
        assert feed.probed == ["n001"]


def test_where_cells_do_not_fit_a_glyph_stands_for_a_node() -> None:
    story = big_sweep(16, 8)
    record = story.shadow.nodes["n003"]
    lines = [plain(line) for line in row_lines(story.shadow, record, 100, GLYPHS)]
    assert "its worst cell" in lines[1]
    assert lines[3].split() == ["GPU", "0", "." * 16, "GPU", "0", "." * 16]
    wide = [plain(line) for line in row_lines(story.shadow, record, 320, GLYPHS)]
    assert "one glyph per cell" in wide[1]
    assert all(len(line) <= 100 for line in lines)


def test_the_rows_of_the_table_count_what_is_bad_and_for_how_long_nodes_are_gone() -> None:
    model = sweep_of_two().shadow
    tally = Survey(model).finish()
    counts, since = pair_counts(tally, NodeFaults()), model.nodes["n002"].since
    rows = node_rows(model, tally, NodeFaults(), counts, {"n001": 2}, {"n000": 1}, since + 134)
    shown = [dict(zip(HEADINGS, (cell.text for cell in row.cells), strict=True)) for row in rows]
    assert [(row["node"], row["fault"][:6], row["own pairs"], row["problems"], row["differs"]) for row in shown] == [
        ("n000", "failed", "3", "1", "0"),
        ("n001", "failed", "3", "0", "2"),
        ("n002", "failed", "0", "0", "0"),
    ]
    assert shown[2]["fault"].startswith("failed 2:14; connection refused")
    texts = shown[0]
    assert (texts["GPUs"], texts["ports up"], texts["NCCL"]) == ("4 x H200", "4 of 4 at 400", "2.28.9")


def test_nodes_at_fault_come_first_and_the_others_are_one_row() -> None:
    """``e`` has a bad NIC, so that all others fail with it; one pair of two of them is a stray."""

    def judge(src: str, dst: str) -> Verdict | float:
        dead = src[0] != dst[0] and "e:2" in (src, dst)
        return Verdict.FAILED if dead else 0.3 if (src, dst) == ("a:0", "b:1") else 1.0

    model = fabric("abcdefghijklmnop", 4, judge)
    diagnosis = diagnose(model)
    faults = node_faults(diagnosis.tally, diagnosis.findings)
    assert list(faults.causes) == ["e"]
    assert list(faults.strays) == [("a:0", "b:1")]
    counts = pair_counts(diagnosis.tally, faults)
    rows = node_rows(model, diagnosis.tally, faults, counts, {}, {}, 0.0)
    shown = Sorting(HEADINGS.index("fault")).sorted(folded_rows(rows, faults, counts, is_open=False))
    texts = [[cell.text for cell in row.cells[:5]] for row in shown]
    assert [row[0] for row in texts] == ["e", "15 others"]
    assert texts[0][2:] == ["120", "0", "0"]
    assert texts[1][1:] == ["no fault of their own", "0", "1", "up to 8"]
    opened = Sorting(HEADINGS.index("fault")).sorted(folded_rows(rows, faults, counts, is_open=True))
    assert [row.name for row in opened] == ["e", "", *"abcdfghijklmnop"]
    lines = flat(Topology(model, diagnosis.tally, faults, None, GLYPHS).roots())
    at_fault = [line.split()[1] for line in lines if line.startswith("  x") or line.startswith("    x")]
    assert at_fault == ["rail", "e:2", "e"]


async def test_the_table_sorts_by_its_columns_and_opens_nodes(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed) as (app, pilot):
        await press(pilot, "t")
        table = app.screen.query_one("NodesTable")

        def order() -> list[str]:
            return [line.split()[0] for line in screen_text(app).splitlines()[2:5]]

        assert order() == ["n002", "n000", "n001"], "what is at fault first"
        await pilot.press("down", "down")
        await press(pilot, *["right"] * 2)
        assert "state ▾" in screen_text(app)
        assert order() == ["n002", "n000", "n001"], "what is gone first"
        assert table.chosen == "n001", "the cursor stays on its node"  # type: ignore[attr-defined]
        await press(pilot, "i")
        assert order() == ["n001", "n000", "n002"]
        await press(pilot, *["left"] * 4)
        assert "NCCL ▾" in screen_text(app)
        await press(pilot, "r")
        assert feed.probed == ["n001"]
        await pilot.press("y")
        assert "n002" in app.clipboard
        await pilot.click("NodesTable", offset=(3, 0))
        await pilot.pause()
        assert "node ▾" in screen_text(app)
        await press(pilot, "home", "enter")
        assert type(app.screen).__name__ == "NodeScreen"
        await pilot.press("escape")
        assert type(app.screen).__name__ == "NodesScreen"
        await pilot.press("t")
        assert app.screen is app.main


async def test_a_lost_node_is_shown_with_its_time() -> None:
    story = sweep_of_two(failed_node=False)
    story.state("n001", NodeState.LOST, "no heartbeat for 10 s", "ssh n001 uptime", retry=story.now + 142)
    now = [100.0]
    app = FabricApp(lambda: FakeFeed(story.events), ScreenSettings(colors="24"), clock=lambda: now[0])
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(app, pilot)
        title = screen_text(app).splitlines()[0]
        assert "n001 is lost" in title
        assert title.count("lost") == 1
        assert " next try in 142 s" in title
        now[0] += 134
        app.main.tick()
        await press(pilot, "end")
        text = screen_text(app)
        assert " next try in 8 s" in text.splitlines()[0]
        assert "n001 lost 2:14 ago: no heartbeat" in text
        assert "░" in text
        await press(pilot, "N")
        assert "lost  for 2:14, next try in 8 s" in screen_text(app)
        await press(pilot, "escape", "t")
        assert "next try in 8 s; no heartbeat" in screen_text(app)


async def test_in_a_recording_the_time_a_node_is_gone_is_that_of_the_recording() -> None:
    story = sweep_of_two(failed_node=False)
    story.state("n001", NodeState.LOST, "no heartbeat")
    story.now += 30
    story.log("the end")
    now = [100.0]
    feed = FakeFeed(story.events, can_test=False)
    app = FabricApp(lambda: feed, ScreenSettings(colors="24"), clock=lambda: now[0])
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(app, pilot)
        now[0] += 1000
        app.main.tick()
        await press(pilot, "end")
        assert "n001 lost 0:30 ago" in screen_text(app)


async def test_the_large_log_scrolls_and_stays_where_it_is_read(opened: Opened) -> None:
    story = sweep_of_two()
    for number in range(60):
        story.log(f"line {number}")
    feed = FakeFeed(story.events)
    async with opened(feed, size=(100, 30)) as (app, pilot):
        await press(pilot, "L")
        text = screen_text(app)
        assert "event log" in text
        assert "line 59" in text
        assert "49 to 62 of 62" in text
        await press(pilot, "pageup", "up")
        assert "35 to 48 of 62" in screen_text(app)
        story.events.clear()
        story.log("one more")
        feed.play(story.events)
        await pilot.pause(0.2)
        assert "35 to 48 of 63" in screen_text(app), "what is read does not move away"
        await press(pilot, "end")
        assert "one more" in screen_text(app)
        await press(pilot, "home")
        assert "1 to 14 of 63" in screen_text(app)
        row = app.main.grid.row
        await press(pilot, "escape")
        assert "event log" not in screen_text(app)
        await pilot.press("down")
        assert app.main.grid.row == row + 1


async def test_the_large_log_is_filtered(opened: Opened) -> None:
    story = sweep_of_two()
    for number in range(60):
        story.log(f"line {number}")
    async with opened(FakeFeed(story.events), size=(100, 30)) as (app, pilot):
        await press(pilot, "L", "slash", *"line", "space", *"59", "enter", seconds=0.1)
        assert "1 to 1 of 1" in screen_text(app)
        assert "filter: line 59" in screen_text(app)
        await press(pilot, "escape", seconds=0.1)
        assert "of 62" in screen_text(app), "escape shows all lines first"
        await press(pilot, "escape", seconds=0.1)
        assert not app.main.log_is_large


async def test_the_nodes_are_filtered_and_g_leads_to_an_endpoint(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await press(pilot, "t", "slash", *"n002", "enter", seconds=0.1)
        assert screen_text(app).count("4 of 4 at 400") == 0
        assert app.screen.query_one("NodesTable").chosen == "n002"  # type: ignore[attr-defined]
        await press(pilot, "escape", seconds=0.1)
        assert screen_text(app).count("4 of 4 at 400") == 2
        await press(pilot, "g", *"n001", "enter", seconds=0.1)
        assert app.screen is app.main
        entries = app.main.cursor_entries()
        assert entries is not None
        assert entries[0].node == "n001"


def test_limits_have_their_units() -> None:
    rows_shown = dict(system_lines({"limits": {"memlock": {"soft": 8 << 20}, "nofile": {"soft": 20000}}}))
    assert (rows_shown["memlock"], rows_shown["open files"]) == ("8 MiB", "20000")
    assert dict(system_lines({"limits": {"memlock": {"soft": -1}}}))["memlock"] == "unlimited"
