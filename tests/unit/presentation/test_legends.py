from fabtui.model.baseline import Baseline
from fabtui.model.cell_level import Level
from fabtui.model.events import PhaseStart
from fabtui.model.layers import Layer
from fabtui.presentation.cell_levels import ASCII, SIGNS, STYLES, UNICODE, style_of
from fabtui.presentation.legends import layers_of, legend, usual_line, usual_lines, usual_rows
from fabtui.presentation.wording import plain
from fabtui.report.grid import matrix
from tests.conftest import session_of
from tests.screen.fakefeed import sweep_of_two
from tests.unit.model.test_baseline import OK, one, sweep


def test_the_legend_of_the_layer_change_names_the_earlier_values() -> None:
    model = session_of("ab", time=0.0)
    assert Layer.CHANGE not in layers_of(model)
    sweep(model, "p2p", 10.0, one(OK, 50.0))
    sweep(model, "p2p", 20.0, one(OK, 50.0))
    assert Layer.CHANGE in layers_of(model)

    def text() -> str:
        return "".join(part for part, _ in legend(model, Layer.CHANGE, "", None, 80, UNICODE))

    assert text() == "p2p now / then  slow below 70 %  then: previous sweep"
    model.baseline = Baseline.of("monday.jsonl.gz", 0.0, [one(OK, 50.0)])
    assert text().endswith("then: monday.jsonl.gz")


def test_letters_of_smaller_units_are_explained_where_a_value_has_one() -> None:
    model = session_of("ab", time=0.0)
    sweep(model, "p2p", 10.0, one(OK, 50.0))

    def texts() -> tuple[str, str]:
        return "".join(part for part, _ in legend(model, Layer.P2P, "GB/s", None, 80, UNICODE)), "\n".join(
            matrix(model, ASCII)
        )

    assert not any("MB/s" in text for text in texts())
    sweep(model, "p2p", 20.0, one(OK, 0.0196))
    assert all("M: MB/s" in text for text in texts())
    assert " 19.6M" in texts()[1]


def test_the_unit_stays_where_there_is_no_room_for_more() -> None:
    model = sweep_of_two().shadow

    def text(width: int) -> str:
        return "".join(part for part, _ in legend(model, Layer.P2P, "GB/s", 4 << 20, width, UNICODE))

    assert [text(width) for width in (200, 20, 12, 1)] == [
        "GB/s at 4 MiB, row → column",
        "GB/s at 4 MiB",
        "GB/s",
        "GB/s",
    ]


def test_usual_values_stand_in_a_table_with_their_limits_and_on_one_line() -> None:
    model = sweep_of_two().shadow
    rows = usual_rows(model, Layer.P2P)
    assert [row.name for row in rows] == ["same node", "same rail", "cross rail"]
    assert all(float(row.limit) < float(row.usual) for row in rows)
    head, *lines = map(plain, usual_lines(model, Layer.P2P))
    assert head == "usual value, GB/s"
    assert lines[0].split() == ["same", "node", rows[0].usual, "slow", "below", rows[0].limit]
    assert len({line.index("slow") for line in lines}) == 1
    assert plain(usual_line(model, Layer.P2P, ASCII)) == "usual: " + " . ".join(
        f"{row.name} {row.usual}" for row in rows
    )
    assert usual_lines(model, Layer.HEALTH) == []


def test_a_layer_without_values_names_what_runs_before_it() -> None:
    model = sweep_of_two().shadow
    model.apply(PhaseStart(name="world", total=56, time=1.0))
    assert plain(legend(model, Layer.PING, "", None, 80, ASCII)) == "no values of ping yet: world is running (press 3)"
    assert plain(legend(model, Layer.WORLD, "", None, 80, ASCII)) == "world is running: no value yet"
    model.apply(PhaseStart(name="all_reduce", total=9, time=2.0))
    assert plain(legend(model, Layer.BUSBW, "", None, 80, ASCII)) == "busbw is running: no value yet"


def test_a_sign_means_one_thing_in_the_app_and_in_texts() -> None:
    for glyphs in (UNICODE, ASCII):
        shown = {verdict: glyphs.of_style[style_of(verdict, None)] for verdict in SIGNS}
        assert shown == {verdict: sign[glyphs.plain] for verdict, sign in SIGNS.items()}
        assert "-" not in glyphs.of_style.values(), "not tested in texts"
        signs = [glyphs.of_style[style] for style in STYLES[Level.P2P :]]
        assert len(set(signs)) == len(signs)
