"""Findings, class statistics and the sweep's pace, as the side panel has them."""

import math
from collections import Counter
from typing import Any

import msgspec
import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.model.endpoints import PairClass
from fabtui.model.events import Measured, NodeState, Paused, PhaseStart, RanksReady
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.legends import class_rows
from fabtui.presentation.progress_estimate import Pace, round_text, sweep_lines
from fabtui.presentation.verdict_line import sentence_of, sentence_text
from fabtui.presentation.wording import plain, verdict_tone
from fabtui.presentation.wrapping import Line, between, stacked, wrapped
from fabtui.screen.grid.axis import Axis
from fabtui.screen.session_diagnosis import SessionDiagnosis
from fabtui.screen.views.detail_base import table
from fabtui.screen.views.main_layout import panel_width
from fabtui.screen.widgets.finding_lines import summary_lines
from tests.screen.conftest import Opened, press, screen_text, settled, until
from tests.screen.fakefeed import FAILED, FakeFeed, Story, big_sweep, sweep_of_two

GLYPHS = Glyphs(False)


def diagnosed(model: Model) -> SessionDiagnosis:
    found = SessionDiagnosis(model)
    while found.step(0.01):
        pass
    return found


def finding_lines(found: SessionDiagnosis, pair: tuple[str, str] | None, width: int, height: int) -> list[Line]:
    return [line for line, _ in summary_lines(found, pair, width, height, GLYPHS, lambda step: step.startswith("ssh "))]


def test_findings_take_the_room_there_is_titles_before_evidence() -> None:
    found = diagnosed(sweep_of_two().shadow)
    assert len(found.found) == 6
    full = [plain(line) for line in finding_lines(found, FAILED, 45, 40)]
    assert full[0].startswith(" 1 n002 ")
    # The finding about the pair under the cursor is open, and marked at its edge.
    at = next(at for at, line in enumerate(full) if FAILED[0] in line and line[0] == "▌")
    assert full[at].startswith("▌2 ")
    assert any(line.startswith("▌  The packets were dropped") for line in full)
    assert any(line.startswith("▌  i run  ") for line in full)
    assert all(len(line) <= 45 for line in full)
    short = [plain(line) for line in finding_lines(found, FAILED, 45, 6)]
    assert [line[1] for line in short[:3]] == list("12 "), "what to type for the open one before the other titles"
    assert short[-1].strip() == "and 2 more: F shows all"
    seven = [plain(line) for line in finding_lines(found, FAILED, 45, 11)]
    assert [line[1] for line in seven if line[1].isdigit()] == list("123456"), "every title"
    assert len(finding_lines(found, FAILED, 45, 4)) == 4


def test_the_finding_of_the_cursor_is_open_wherever_it_stands() -> None:
    found = diagnosed(sweep_of_two().shadow)
    place, last = [(at, one) for at, one in enumerate(found.found) if one.cells][-1]
    (pair, *_) = sorted(last.cells)
    for height in range(2, 30):
        lines = [plain(line) for line in finding_lines(found, pair, 45, height)]
        assert len(lines) <= height
        assert next(line for line in lines if line.startswith("▌")).startswith(f"▌{place + 1} ")
        assert not any("▌" in plain(one) for one in finding_lines(found, None, 45, height))
    assert finding_lines(found, None, 45, 0) == []


async def test_the_view_of_a_pair_has_its_finding_with_the_number(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(120, 60)) as (app, pilot):
        await until(pilot, lambda: app.findings.known)
        source, target = (app.model.table.number(name) for name in FAILED)
        assert source is not None
        assert target is not None
        app.show_pair(source, target)
        await pilot.press("enter")
        await settled(app, pilot)
        assert "  2 n000:1 > n001:2 failed" in screen_text(app)


async def test_c_runs_the_experiments_of_the_selected_finding_and_shows_what_they_show(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two().events)
    async with opened(feed, size=(160, 60)) as (app, pilot):
        await until(pilot, lambda: app.findings.known)
        await press(pilot, "F", "c", seconds=0.1)
        assert [note.message for note in app._notifications] == [
            "FT001 node-lost has no experiments: run its next steps"
        ]
        await press(pilot, "tab", "c", seconds=0.1)
        assert list(app._notifications)[-1].message == (
            "testing this finding: alone, then other-partners, then NCCL_NET=Socket"
        )
        assert [one.trial for one in feed.confirmed] == ["alone", "other-partners", "sockets"]
        assert feed.confirmed[0].pairs == [FAILED]
        feed.play([PhaseStart(name="confirm", total=2, time=feed.model.now)])
        await press(pilot, "c", seconds=0.1)
        assert "experiments: 0 of 2 tests" in screen_text(app)
        assert list(app._notifications)[-1].message == "experiments are running already"
        alone = feed.confirmed[0]
        row = Measurement(Layer.P2P, *FAILED, Verdict.FAILED, unit="GB/s", arm=alone.arm, time=feed.model.now)
        feed.play([Measured([row], time=feed.model.now), msgspec.structs.replace(alone, time=feed.model.now)])
        feed.play([PhaseStart(name="done", time=feed.model.now)])
        await until(pilot, lambda: "confirmed" in screen_text(app))
        assert "confirmed: n000:1 > n001:2 fails alone, so other traffic is not the reason" in screen_text(app)
        assert "80 % confidence after 1 experiment" in screen_text(app)
        assert "experiments:" not in screen_text(app)
        feed.can_test = False
        await press(pilot, "c", seconds=0.1)
        assert list(app._notifications)[-1].message == "a recording cannot be tested again"
        assert len(feed.confirmed) == 3


async def test_a_finding_of_a_lost_node_cannot_be_confirmed(opened: Opened) -> None:
    feed = FakeFeed(sweep_of_two(failed_node=False).events)
    async with opened(feed, size=(160, 60)) as (app, pilot):
        await until(pilot, lambda: app.findings.known)
        await pilot.press("F")
        feed.model.nodes["n001"].state = NodeState.LOST
        await press(pilot, "c", seconds=0.1)
        assert "cannot be tested: n001 is lost" in list(app._notifications)[-1].message
        assert feed.confirmed == []


def test_a_healthy_fabric_is_reported_after_a_complete_pass() -> None:
    story = big_sweep(2, 4)
    found = SessionDiagnosis(story.shadow)
    assert finding_lines(found, None, 45, 9) == []
    assert found.none_text == "searching"
    story.shadow.done += 5
    # Pairs that were tested again count once.
    assert diagnosed(story.shadow).none_text == "no problem so far; 56 of 56 GPU pairs tested"
    story.shadow.apply(PhaseStart(name="done", total=0, time=story.shadow.elapsed))
    assert diagnosed(story.shadow).none_text == "no problems found"


def test_pairs_are_counted_while_the_rules_rest() -> None:
    story = big_sweep(2, 4)
    found = diagnosed(story.shadow)
    found._resting_until, found._counts_rest_until = math.inf, 0.0
    src, dst = story.ordered_pairs()[0]
    story.measured(Measurement(Layer.P2P, src, dst, Verdict.FAILED, unit="GB/s", time=story.now))
    for _ in range(20):
        assert found.step(1.0), "the rules are still to be applied"
    assert found.tally.counts[Verdict.FAILED] + found.tally.rechecked == 1
    assert found.found == []


async def test_the_end_of_a_sweep_breaks_off_a_search_about_an_earlier_state() -> None:
    story = big_sweep(2, 4)
    found = SessionDiagnosis(story.shadow)
    while found._search is None:
        found.step(0.0)
    story.phase("done")
    found.follow()
    found.stop()
    while not found.known:
        found.step(1.0)
    assert found.final


def test_the_screen_counts_bad_measurements_of_other_things_than_pairs_as_texts_do() -> None:
    model = big_sweep(2, 4).shadow
    model.apply(
        Measured([Measurement(Layer.BUSBW, "n000", "n001", Verdict.FAILED, error="transfer: broken")], time=model.now)
    )
    model.apply(PhaseStart(name="done", total=0, time=model.now))
    text = sentence_text(diagnosed(model).standing())
    assert text == "busbw: 1 failed; all 56 GPU pairs are ok."
    assert text == sentence_of(diagnose(model))


def test_the_open_finding_has_five_lines_at_most_and_its_step_comes_before_sentences() -> None:
    found = diagnosed(sweep_of_two().shadow)
    one = found.found[0].replace(facts={"retest": "one two three four " * 12}, next=("ssh n002",))
    found.found = [one, one]
    whole = [plain(line).strip() for line in finding_lines(found, None, 45, 20)]
    assert whole.index("i run  ssh n002") == 3, "the cause has two lines at most"
    assert whole[2].endswith(" …")
    for height in range(1, 20):
        lines = [plain(line).strip() for line in finding_lines(found, None, 45, height)]
        assert len(lines) <= min(height, 7), "one has five lines, the other one, apart"
        assert lines.count("i run  ssh n002") == (height > 2)


def test_what_slow_pairs_share_has_the_colour_of_slow() -> None:
    story = big_sweep(6, 2)
    for src, dst in story.ordered_pairs():
        if "n003:1" in (src, dst):
            story.measured(Measurement(Layer.P2P, src, dst, Verdict.OK, 1.0, "GB/s", 256 << 20, story.now))
    story.end(1)
    found = diagnosed(story.shadow)
    assert "n003:1" in found.found[0].facts.values()
    first = finding_lines(found, None, 60, 9)[0]
    assert f"bold {verdict_tone(Verdict.SLOW)}" in [style for text, style in first if "1" in text]


def test_lines_lead_to_their_finding() -> None:
    found = diagnosed(sweep_of_two().shadow)
    lines = summary_lines(found, None, 45, 4, GLYPHS)
    assert [target for _, target in lines] == [0, 0, 1, 6], "the last line leads to the list"


def test_class_statistics() -> None:
    model = sweep_of_two().shadow
    lines = class_table(model, Layer.P2P, *classes_of(model))
    assert lines[0] == ["p2p", "n", "worst", "usual", "best", "slow <", "bad"]
    assert lines[1][:2] == ["node", "24"]
    rail = lines[2]
    assert (rail[0], rail[2], rail[-1]) == ("rail", "12.4", "1")
    latency = class_table(model, Layer.LATENCY, Counter(), Counter())
    assert float(latency[1][2]) > float(latency[1][4]), "of what is better when it is less, the highest is the worst"
    assert class_table(model, Layer.HEALTH, *classes_of(model))[0][0] == "p2p"
    assert class_rows(Model(), Layer.P2P, Counter(), Counter())[1] == []


def class_table(model: Model, layer: Layer, bad: Counter[PairClass], tested: Counter[PairClass]) -> list[list[str]]:
    headings, rows = class_rows(model, layer, bad, tested)
    return [headings, *rows]


def classes_of(model: Model) -> tuple[Counter[PairClass], Counter[PairClass]]:
    found = diagnosed(model)
    return found.bad, found.tally.of_class


@pytest.mark.parametrize("good", [0, 2])
def test_pairs_without_a_value_count_in_their_class(good: int) -> None:
    story = Story(["a", "b"], 4)
    story.endpoints("a", "b")
    across = [(f"{one}:{rail}", f"{other}:{rail}") for rail in range(4) for one, other in (("a", "b"), ("b", "a"))]
    for pair in across[:good]:
        story.measured(*story.good(*pair))
    story.measured(*(Measurement(Layer.P2P, src, dst, Verdict.FAILED) for src, dst in across[good:]))
    (rail,) = class_table(story.shadow, Layer.P2P, *classes_of(story.shadow))[1:]
    assert (rail[:2], rail[-1]) == (["rail", "8"], str(8 - good))
    assert (rail[2] == "-") is (not good)


def half(total: int = 56, done: int = 14) -> Model:
    story = Story(["a", "b"], 4)
    for node in ("a", "b"):
        story.connect(node)
    story.endpoints("a", "b")
    story.phase("p2p", total)
    for src, dst in story.ordered_pairs()[:done]:
        story.measured(*story.good(src, dst))
    return story.shadow


def test_the_sweep_has_a_bar_a_round_a_rate_and_what_is_left() -> None:
    model = half()
    pace = Pace()
    began = model.phase.since - model.started
    pace.take(model, began + 7.0)
    lines = [plain(line) for line in sweep_lines(model, began + 7.0, pace, GLYPHS, 45)]
    assert lines[0] == "p2p   round 2 of 7"
    assert lines[1].endswith("░ 25%")
    assert lines[1].count("█") == 10
    assert len(lines[1]) == 45
    assert lines[2].startswith("2 tests/s")
    assert lines[2].endswith("about 21 s left")


def test_nothing_is_left_after_the_last_test_of_a_phase() -> None:
    model = half(56, 56)
    pace = Pace()
    began = model.phase.since - model.started
    pace.take(model, began + 7.0)
    assert pace.left(model) is None
    assert not any("left" in plain(line) for line in sweep_lines(model, began + 7.0, pace, GLYPHS, 45))


def test_starting_ranks_have_a_name_and_count_nodes() -> None:
    story = Story(["a", "b"], 4)
    story.endpoints("a", "b")
    story.phase("ranks", 2)
    story.add(RanksReady(node="a"))
    lines = [plain(line) for line in sweep_lines(story.shadow, 3.0, Pace(), GLYPHS, 45)]
    assert lines[0] == "starting ranks"
    assert lines[1].endswith(" 1/2  50%")
    assert lines[2] == "0:03", "no rate yet"


def test_a_pause_is_shown_without_remaining_time() -> None:
    model = half()
    model.apply(Paused(on=True))
    pace = Pace()
    pace.take(model, 10.0)
    lines = [plain(line) for line in sweep_lines(model, 10.0, pace, GLYPHS, 45)]
    assert lines[0].endswith("PAUSED")
    assert "left" not in lines[2]


@pytest.mark.parametrize("what", ["start", "end"])
def test_there_is_no_sweep_before_and_after(what: str) -> None:
    model = Model() if what == "start" else sweep_of_two().shadow
    assert sweep_lines(model, 1.0, Pace(), GLYPHS, 45) == []


def test_the_rate_is_that_of_the_latest_seconds_of_the_phase() -> None:
    model = half()
    pace = Pace()
    began = model.phase.since - model.started
    pace.take(model, began + 1.0)
    assert pace.rate == 14.0
    for second in range(2, 40):
        pace.take(model, began + second)
    assert pace.rate is None, "nothing came for long"
    model.apply(PhaseStart(name="world", total=56, time=model.now + 50))
    pace.take(model, model.phase.since - model.started + 1.0)
    assert pace.rate is None
    assert round_text(model) == "round 1 of 7"


def test_what_is_tested_in_no_rounds_has_none() -> None:
    assert round_text(half(total=6, done=1)) == ""


def test_all_lines_of_a_table_are_wrapped_between_the_same_cells() -> None:
    lines = table(
        ["GPU", "memory", "UUID"], [["0", "1.0 GiB of 80 GiB", "GPU-0123456789"], ["10", "2.0 GiB of 80 GiB", "-"]]
    )
    assert [plain(line).rstrip() for line in stacked(lines, 60, 4)] == [
        "  GPU  memory             UUID",
        "  0    1.0 GiB of 80 GiB  GPU-0123456789",
        "  10   2.0 GiB of 80 GiB  -",
    ]
    assert [plain(line) for line in stacked(lines, 30, 4)] == [
        *("  GPU  memory", "    UUID"),
        *("  0    1.0 GiB of 80 GiB", "    GPU-0123456789"),
        *("  10   2.0 GiB of 80 GiB", "    -"),
    ]
    # The last column may wrap between its words.
    lines = table(["NIC", "addresses"], [["eth0", "192.0.2.1, 192.0.2.2"]])
    assert [plain(line) for line in stacked(lines, 20, 4)] == [
        "  NIC   addresses",
        "  eth0  192.0.2.1,",
        "    192.0.2.2",
    ]


def test_lines_are_wrapped_clipped_and_filled() -> None:
    assert [plain(line) for line in wrapped([("one two three", "")], 8, 2)] == ["one two", "  three"]
    assert [plain(line) for line in stacked([[("abcdefghij", "")]], 4, 1)] == ["abcd", " efg", " hij"]
    assert plain(between([("left side", "")], [("9 cells", "")], 14, "…")) == "left … 9 cells"


async def test_the_view_of_all_findings_goes_to_their_cells(opened: Opened) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(80, 24)) as (app, pilot):
        await press(pilot, "F")
        text = screen_text(app)
        assert "1 n002 failed" in text
        assert "next    is sshd running there? ssh -v n002" in text
        await pilot.press("y")
        assert app.clipboard.startswith("  1 n002 failed")
        await pilot.press("Y")
        assert "n000:1 > n001:2 failed" in app.clipboard
        await press(pilot, "1", seconds=0.1)
        assert "concerns no pair" in "".join(note.message for note in app._notifications)
        await pilot.press("8")
        await press(pilot, "2")
        assert app.screen is app.main
        assert (app.main.grid.row, app.main.grid.column) == (1, 6)


@pytest.mark.parametrize(("width", "shown"), [(99, False), (100, True)])
async def test_the_panel_collapses_under_100_columns(opened: Opened, width: int, shown: Any) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(width, 30)) as (app, _):
        assert app.main.panel.display is shown


@pytest.mark.parametrize(("width", "across"), [(120, 48), (180, 48), (200, 64), (250, 80)])
async def test_a_wide_screen_has_a_wide_panel(opened: Opened, width: int, across: int) -> None:
    async with opened(FakeFeed(sweep_of_two().events), size=(width, 40)) as (app, _):
        assert app.main.panel.outer_size.width == across


def test_the_panel_takes_nothing_from_the_cells() -> None:
    axis = Axis.of_model(big_sweep(8, 8, part=0.0).shadow)
    assert panel_width(axis, 250, 60) == 48, "64 columns of three are as wide as can be beside it"
    assert panel_width(Axis.of_model(sweep_of_two().shadow), 250, 60) == 80


async def test_findings_follow_a_session_by_themselves(opened: Opened) -> None:
    story = sweep_of_two()
    feed = FakeFeed(story.events)
    async with opened(feed) as (app, pilot):
        await until(pilot, lambda: app.findings.known)
        assert len(app.findings.found) == 6
        story.events.clear()
        story.measured(*story.good(*FAILED))
        feed.play(story.events)
        await until(pilot, lambda: len(app.findings.found) == 5)
        await pilot.pause(0.2)
        assert "n000:1 > n001:2 failed" not in screen_text(app)


def test_each_pair_is_surveyed_once_whatever_layers_it_was_tested_in() -> None:
    story = sweep_of_two()
    count = story.shadow.results.tested
    assert count == 56
    story.measured(Measurement(Layer.WORLD, *FAILED, Verdict.OK, 44.0, "GB/s", 1 << 28, story.now))
    story.measured(*story.good(*FAILED))
    assert story.shadow.results.tested == count
