from __future__ import annotations

from fabtui.model.baseline import Baseline
from fabtui.model.cell_level import Level
from fabtui.model.layers import Layer
from fabtui.presentation.cell_levels import ASCII, SIGNS, STYLES, UNICODE, style_of
from fabtui.presentation.legends import layers_of, legend
from fabtui.report.grid import matrix
from tests.screen.fakefeed import sweep_of_two
from tests.unit.model.test_baseline import OK, one, sweep, two_nodes


def test_the_legend_of_the_layer_change_names_the_earlier_values() -> None:
    model = two_nodes()
    assert Layer.CHANGE not in layers_of(model)
    sweep(model, "p2p", 10.0, one(OK, 50.0))
    sweep(model, "p2p", 20.0, one(OK, 50.0))
    assert Layer.CHANGE in layers_of(model)

    def text() -> str:
        return "".join(part for part, _ in legend(model, Layer.CHANGE, "", None, 80))

    assert text() == "p2p now / then  slow below 70 %  then: previous sweep"
    model.baseline = Baseline.of("monday.jsonl.gz", 0.0, [one(OK, 50.0)])
    assert text().endswith("then: monday.jsonl.gz")


def test_letters_of_smaller_units_are_explained_where_a_value_has_one() -> None:
    model = two_nodes()
    sweep(model, "p2p", 10.0, one(OK, 50.0))

    def texts() -> tuple[str, str]:
        return "".join(part for part, _ in legend(model, Layer.P2P, "GB/s", None, 80)), "\n".join(matrix(model, ASCII))

    assert not any("MB/s" in text for text in texts())
    sweep(model, "p2p", 20.0, one(OK, 0.0196))
    assert all("M: MB/s" in text for text in texts())
    assert " 19.6M" in texts()[1]


def test_limits_are_left_out_whole_where_they_do_not_fit() -> None:
    model = sweep_of_two().shadow

    def text(width: int) -> str:
        return "".join(part for part, _ in legend(model, Layer.P2P, "GB/s", 4 << 20, width))

    limits = text(200)
    assert "  slow below: node " in limits
    assert text(len(limits)) == limits
    assert text(len(limits) - 1) == limits.partition("  slow below")[0]


def test_a_sign_means_one_thing_in_the_app_and_in_texts() -> None:
    for glyphs in (UNICODE, ASCII):
        shown = {verdict: glyphs.of_style[style_of(verdict, None)] for verdict in SIGNS}
        assert shown == {verdict: sign[glyphs.plain] for verdict, sign in SIGNS.items()}
        assert "-" not in glyphs.of_style.values(), "not tested in texts"
        signs = [glyphs.of_style[style] for style in STYLES[Level.P2P :]]
        assert len(set(signs)) == len(signs)
