"""The cell matrix against the judgement of each single cell."""

import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fabtui.model import cell_matrix
from fabtui.model.cell_level import Judged, Level, judge
from fabtui.model.cell_matrix import CellMatrix
from fabtui.model.events import NodeState
from fabtui.model.layers import Layer, all_layers
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from tests.screen.fakefeed import Story, big_sweep

RECORDINGS = Path(__file__).parents[3] / "tests" / "samples" / "sessions"


@cache
def recorded(name: str, events: int | None = None) -> Model:
    model = Model()
    for count, event in enumerate(read_events(RECORDINGS / name)):
        if events is not None and count >= events:
            break
        model.apply(event)
    return model


def assert_as_judged(model: Model, layer: Layer, matrix: CellMatrix) -> None:
    numbers = [end.number for end in model.rows]
    levels = matrix.filled()
    for row, src in enumerate(numbers):
        for column, dst in enumerate(numbers):
            level, cell, share = judge(model, layer, src, dst)
            where = f"{layer}: {model.endpoints[src]} > {model.endpoints[dst]}"
            assert Level(levels[row, column]) is level, where
            if cell is not None and cell.value is not None and share is not None:
                assert matrix.slowness[row, column] == pytest.approx(1 / share, rel=1e-4) if share else True, where
            else:
                assert matrix.slowness[row, column] == 0, where
    for a in range(len(matrix.starts)):
        for b in range(len(matrix.starts)):
            assert matrix.node_levels[a, b] == matrix.block(a, b).max()
            assert matrix.tested[a, b] == (matrix.block(a, b) > Level.UNTESTED).sum()
    assert matrix.bad_per_row.tolist() == (matrix.levels >= Level.SLOW).sum(1).tolist()


@pytest.mark.parametrize("events", [150, 400, 900, None])
@pytest.mark.parametrize("name", ["h200x8-lab-2x4-faults.jsonl.gz", "h200x8-lab-2x4.jsonl.gz"])
def test_a_matrix_has_the_level_of_each_cell(name: str, events: int | None) -> None:
    model = recorded(name, events)
    for layer in all_layers():
        assert_as_judged(model, layer, CellMatrix.of_model(model, layer))


@pytest.mark.parametrize("fewest", [0, 2000])
def test_cells_change_in_any_order_of_results_and_steps(fewest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_matrix, "_FEWEST", fewest)
    chance = random.Random(7)
    story = Story(["n000", "n001", "n002"], 3)
    for name in ("n000", "n001", "n002"):
        story.connect(name)
    story.endpoints("n000", "n001", "n002")
    model, pairs = story.shadow, story.ordered_pairs()
    for src, dst in pairs[:40]:
        story.measured(*story.good(src, dst))
    rows = [end.number for end in model.rows]
    matrix = CellMatrix(model, Layer.P2P, rows, [0, 3, 6])
    model.drain_changes()
    for _ in range(40):
        for src, dst in chance.sample(pairs, 5):
            verdict = chance.choice([Verdict.OK, Verdict.OK, Verdict.FAILED, Verdict.TIMEOUT, Verdict.SKIPPED])
            value = chance.choice([40.0, 300.0, 2.0]) if verdict is Verdict.OK else None
            story.measured(Measurement(Layer.P2P, src, dst, verdict, value, "GB/s", 256 << 20, story.now))
        matrix.touch(model.drain_changes() or ())
        matrix.rejudge()
        for _ in range(chance.randrange(4)):
            matrix.step(0.0)
    matrix.rejudge()
    while not matrix.step(0.0):
        pass
    assert matrix.complete
    assert_as_judged(model, Layer.P2P, matrix)


def test_many_changed_cells_are_judged_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_matrix, "_FEWEST", 10)
    model = big_sweep(4, 2, part=1.0).shadow
    matrix = CellMatrix.of_model(model, Layer.P2P)
    alone: list[tuple[int, int]] = []
    judged = matrix.judged

    def noted(row: int, column: int) -> Judged:
        alone.append((row, column))
        return judged(row, column)

    monkeypatch.setattr(matrix, "judged", noted)
    cells = [(row, column) for row in range(matrix.size) for column in range(matrix.size) if row != column]
    for touched, singly in ((cells[:5], 5), (cells, 0)):
        alone.clear()
        matrix.touch(touched)
        while not matrix.step(0.0):
            pass
        assert len(alone) == singly
    assert_as_judged(model, Layer.P2P, matrix)


def test_a_part_of_the_endpoints_in_another_order() -> None:
    model = recorded("h200x8-lab-2x4-faults.jsonl.gz")
    whole = CellMatrix.of_model(model, Layer.P2P)
    numbers = [5, 4, 1, 0]
    part = CellMatrix.of_model(model, Layer.P2P, numbers)
    assert np.array_equal(part.filled(), whole.filled()[np.ix_(numbers, numbers)])
    assert part.node_levels.shape == (2, 2)


def test_a_matrix_leaves_the_shared_table_as_it_is() -> None:
    model = recorded("h200x8-lab-2x4-faults.jsonl.gz")
    whole = CellMatrix.of_model(model, Layer.P2P).filled()
    CellMatrix.of_model(model, Layer.P2P, [end.number for end in model.rows][::-1])
    assert np.array_equal(CellMatrix.of_model(model, Layer.P2P).filled(), whole)


@pytest.mark.parametrize("layer", [Layer.P2P, Layer.HEALTH, Layer.TRANSPORT])
def test_cells_keep_their_levels_until_they_are_judged_again(layer: Layer) -> None:
    story = big_sweep(3, 2, part=0.5)
    model, pairs = story.shadow, story.ordered_pairs()
    matrix = CellMatrix.of_model(model, layer)
    story.running(*pairs[-4:])
    story.state("n000", NodeState.LOST, "cut")
    # Cells without a result have a level as well.
    matrix.touch((row, column) for row in range(matrix.size) for column in range(matrix.size))
    matrix.step(1.0)
    for returns in (False, True):
        if returns:
            story.phase("all_reduce")
            story.state("n000", NodeState.READY)
        before = matrix.levels.copy()
        matrix.rejudge(changed=True)
        matrix.judge_block(0, 1)
        assert matrix.levels[0, 2] == judge(model, layer, 0, 2).level
        assert np.array_equal(matrix.levels[2:], before[2:])
        while not matrix.step(0.0):
            pass
        assert_as_judged(model, layer, matrix)
