"""Layers: one declaration, from which everything else is derived."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.export.csv import write_csv
from fabtui.export.frames import load_snapshot
from fabtui.export.json import as_json
from fabtui.model.cell_level import ratio
from fabtui.model.layers import Better, Layer, LayerSpec, Per, all_layers, grid_layers, key_layers, registered
from fabtui.model.measurement import Verdict
from fabtui.presentation.cell_levels import ASCII, UNICODE, CellStyle, style_of
from fabtui.presentation.legends import legend, meanings
from fabtui.report.document import Shown
from fabtui.report.grid import grid
from fabtui.report.summary import summary
from tests.unit.test_reference import reference_page

Maker = Callable[[], Any]
JITTER = LayerSpec(
    name="jitter",
    title="deviation of the round trip",
    description="Standard deviation of the round-trip time.",
    unit="us",
    better=Better.LESS,
    judged=True,
    feeds_health=True,
    key="K",
    grid=True,
)


@pytest.fixture
def jitter() -> Iterator[Layer]:
    with registered(JITTER) as layer:
        yield layer


def nodes_with(make_model: Maker, layer: str, values: dict[tuple[int, int], float], unit: str) -> Any:
    """Return the maker of a model of four nodes with one value per pair of them, 1.0 unless given."""
    names = ["n0", "n1", "n2", "n3"]
    maker = make_model().start(names).endpoints(dict.fromkeys(names, 1))
    by_address = Layer(layer).spec.by_address
    for a, src in enumerate(names):
        for b, dst in enumerate(names):
            if a == b:
                continue
            ends = (src, dst) if by_address else (f"{src}:0", f"{dst}:0")
            addresses = {"src_addr": f"10.0.0.{a}", "dst_addr": f"10.0.0.{b}"} if by_address else {}
            maker.measured(layer, *ends, value=values.get((a, b), 1.0), unit=unit, **addresses)
    return maker


def sign(lines: list[str], row: int, column: int) -> str:
    return lines[2 + row].split(maxsplit=1)[1].replace(" ", "")[column - (column > row)]


@pytest.mark.parametrize("layer", ["tcp", "udp", "ping", "latency", "ib_read_lat"])
def test_a_larger_value_is_the_worse_one_where_less_is_better(make_model: Maker, layer: str, tmp_path: Path) -> None:
    """A TCP connect that takes three times longer than its peers was drawn as the best value."""
    model = nodes_with(make_model, layer, {(0, 1): 3.0, (0, 2): 0.3}, "ms").model()
    lines = grid(model, Layer(layer), ASCII, 16)
    assert (sign(lines, 0, 1), sign(lines, 0, 2), sign(lines, 1, 2)) == ("8", ".", ".")
    assert "8 over 1.18 x" in " ".join(lines)
    shares = [ratio(Layer(layer), value, 1.0) for value in (3.0, 0.3)]
    assert [style_of(Verdict.OK, share) for share in shares] == [CellStyle.LOW, CellStyle.GOOD]
    assert (CellStyle.LOW, "over 1.18 x") in meanings(Layer(layer))


@pytest.mark.parametrize(("layer", "worst"), [("tcp", 9.0), ("ping", 9.0), ("iperf3", 1.0), ("mtu", 1.0)])
def test_of_several_addresses_the_worst_is_shown_and_pivoted(
    make_model: Maker, layer: str, worst: float, tmp_path: Path
) -> None:
    maker = make_model().start(["n0", "n1"]).endpoints({"n0": 1, "n1": 1})
    for address, value in (("10.0.0.1", 1.0), ("10.0.1.1", 9.0), ("10.0.2.1", 3.0)):
        maker.measured(layer, "n0", "n1", value=value, unit="ms", src_addr="10.0.0.0", dst_addr=address)
    model = maker.model()
    assert model.cell(Layer(layer), 0, 1).value == worst
    path = tmp_path / "s.csv"
    write_csv(model, path)
    assert load_snapshot(path).pivot_layer(layer).loc["n0", "n1"] == worst


def test_a_layer_is_added_by_one_declaration(make_model: Maker, jitter: Layer, tmp_path: Path) -> None:
    model = nodes_with(make_model, "jitter", {(0, 1): 30.0}, "us").model()
    cell = model.cell(jitter, 0, 1)
    assert (cell.value, cell.unit, cell.verdict) == (30.0, "us", Verdict.SLOW)
    assert model.cell(Layer.HEALTH, 0, 1).verdict is Verdict.SLOW
    text = summary(diagnose(model), True, Shown(None, 120))
    assert "jitter, us, less is better; a row sends, a column receives" in text
    assert "30.0!" in text
    assert "".join(part for part, _ in legend(model, jitter, "us", None, 80, UNICODE)) == (
        "us, deviation of the round trip, less is better"
    )
    path = tmp_path / "s.csv"
    write_csv(model, path)
    with path.open(newline="") as file:
        found = {(row["src"], row["dst"]): row for row in csv.DictReader(file) if row["layer"] == "jitter"}
    assert (found["n0:0", "n1:0"]["value"], found["n0:0", "n1:0"]["verdict"]) == ("30.0", "slow")
    assert load_snapshot(path).pivot_layer("jitter").loc["n0:0", "n1:0"] == 30.0
    written = json.loads(json.dumps(as_json(diagnose(model))))["measurements"]
    assert [m["value"] for m in written if m["layer"] == "jitter" and m["verdict"] == "slow"] == [30.0]
    assert "| `K` | `jitter` | Standard deviation of the round-trip time. | us |" in reference_page("layers")


def test_a_declaration_ends_with_its_block() -> None:
    with registered(JITTER) as layer:
        assert Layer("jitter") is layer
        assert layer in key_layers()
        assert layer in grid_layers()
        with pytest.raises(ValueError, match="'jitter' is registered already"):
            registered(JITTER).__enter__()
        with pytest.raises(ValueError, match="the key 'K' is taken"):
            registered(LayerSpec(name="other", title="t", key="K")).__enter__()
    assert "jitter" not in all_layers()
    with pytest.raises(ValueError, match="unknown layer 'jitter'"):
        Layer("jitter")


def test_every_declaration_is_whole() -> None:
    for layer in all_layers():
        spec = layer.spec
        assert spec.title, layer
        assert spec.description.endswith("."), layer
        assert (spec.better is None) == (layer in (Layer.HEALTH, Layer.TRANSPORT, Layer.JOB)), layer
        assert spec.unit or spec.derived, layer
        assert not spec.judged or spec.better is not None, layer
        assert spec.per is Per.ADDRESS_PAIR or not spec.healthy, layer
    assert [layer.spec.key for layer in key_layers()] == [str(number) for number in range(1, len(key_layers()) + 1)]
