"""Table of the worst pairs, in the side panel and in place of the grid."""

from dataclasses import replace

from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.wording import plain
from fabtui.presentation.wrapping import text_width
from fabtui.screen.widgets.sorted_table import Columns, Sorting, TableCell, TableRow, table_lines
from fabtui.screen.widgets.text_line import heading_at
from tests.screen.conftest import Opened, press, screen_text
from tests.screen.fakefeed import FakeFeed, sweep_of_two
from tests.screen.test_verdict import diagnosed

GLYPHS = Glyphs(plain=False)


async def test_the_worst_pairs_are_sorted_by_a_click_on_a_heading(opened: Opened) -> None:
    # The panel lists the pairs if not each has a finding: the slow ones of n000:0 have one together.
    story = sweep_of_two(end=False)
    for far in range(4):
        for pair in (("n000:0", f"n001:{far}"), (f"n001:{far}", "n000:0")):
            good = story.good(*pair)[0]
            assert good.value is not None
            story.measured(replace(good, value=good.value / 4))
    story.end(1)
    async with opened(FakeFeed(story.events), size=(120, 64)) as (app, pilot):
        text = await diagnosed(app, pilot)
        panel = app.main.panel.region
        line = next(at for at, one in enumerate(text) if "share" in one and "class" in one)

        def listed() -> list[str]:
            rows = screen_text(app).splitlines()[line + 1 : line + 12]
            return [" ".join(row.partition("▏")[2].split()) for row in rows]

        first = listed()
        assert first[0].startswith("x n000:1 > n001:2 failed"), first
        assert first[-1].startswith("▾ n000:1 > n001:1 12.4 GB/s"), first
        x = text[line].index("value") - panel.x
        await pilot.click("#panel", offset=(x, line - panel.y))
        await pilot.pause()
        assert "value ▾" in screen_text(app).splitlines()[line]
        await pilot.click("#panel", offset=(x, line - panel.y))
        await pilot.pause()
        assert "value ▴" in screen_text(app).splitlines()[line]
        assert listed() == first[::-1], "what has no value comes last"
        await press(pilot, "v")
        assert "value ▴" in screen_text(app), "the list has the order of the panel"
        await press(pilot, "home", "i")
        assert app.main.worst_pairs.cursor == 10, "the cursor stays on its pair"
        await pilot.press("home")
        await press(pilot, "enter")
        assert "n000:1 > n001:2" in screen_text(app).splitlines()[0]


def test_rows_without_a_value_or_a_class_are_sorted_too() -> None:
    columns = Columns(("name", "n"), frozenset({"n"}), frozenset({"name"}))
    rows = [TableRow("a", [TableCell("a", 0), TableCell("-", (0, 0.0))])]
    rows.append(TableRow("b", [TableCell("b", 1), TableCell("7", (1, 7.0))]))
    sorting = Sorting(1, inverted=True)
    found = table_lines(columns, sorting.sorted(rows), sorting, GLYPHS)
    assert [plain(line).split() for line in found.rows] == [["b", "7"], ["a", "-"]]
    assert plain(found.head) == " name  n ▴"
    assert [heading_at(found.spans, x) for x in (0, 5, 6, 9, 10)] == [0, 0, 1, 1, None]
    assert table_lines(columns, rows[:1], sorting, GLYPHS).spans == [(0, 5, 0)], "an empty column is left out"
    wide = [TableRow("c", [TableCell("机架", 0), TableCell("7", (1, 7.0))]), rows[1]]
    assert {text_width(plain(line)) for line in table_lines(columns, wide, sorting, GLYPHS).rows} == {10}


async def test_zooming_out_of_the_list_reports_that_there_is_nothing_to_zoom(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events)) as (app, pilot):
        await press(pilot, "v", "minus")
        assert [note.message for note in app._notifications] == ["a list has no zoom; v shows the grid"]
