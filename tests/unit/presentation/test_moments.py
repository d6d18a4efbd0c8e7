"""The verdict sentence at 50 moments of each recording: it contradicts no cell, and names the worst state."""

import re
from pathlib import Path

import pytest

from fabtui.diagnosis.finding import Severity
from fabtui.model.layers import Layer
from fabtui.model.measurement import SEVERITY, Verdict
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.presentation.verdict_line import fault_text, sentence_text
from fabtui.presentation.wording import verdict_words
from fabtui.screen.session_diagnosis import SessionDiagnosis
from tests.conftest import ModelMaker

ROOT = Path(__file__).parents[3]
RECORDINGS = sorted([*ROOT.glob("recordings/*.jsonl.gz"), *ROOT.glob("tests/samples/*/*.jsonl.gz")])
SESSIONS = [path for path in RECORDINGS if not path.parent.name.startswith("running-job")]
MOMENTS = 50
CALM = re.compile(r"[Nn]o problem|\ball .*\bok\b|\bAll .*\bok\b|0 of \d+ bad|No bad pair")


def worst_cells(model: Model) -> dict[tuple[str, str], Verdict]:
    """Return the bad cells of p2p, or of world where p2p has none, with their verdicts."""
    cells: dict[tuple[str, str], Verdict] = {}
    for layer in (Layer.WORLD, Layer.P2P):
        for verdict, src, dst in model.results.verdicts_in(layer):
            cells[src, dst] = verdict
    return {pair: verdict for pair, verdict in cells.items() if verdict.bad}


def problems(model: Model, found: SessionDiagnosis) -> list[str]:
    """Return what the sentence claims against a cell or the list of findings, and what it fails to name."""
    standing = found.standing()
    text = sentence_text(standing, 10_000)
    cells, lost = worst_cells(model), [name for name in model.nodes if model.gone(name)]
    listed = [one for one in found.found if one.severity is Severity.BAD]
    wrong = []
    if CALM.match(text) and (cells or lost or listed):
        wrong.append(f"calm above {cells or lost or [fault_text(one) for one in listed]}")
    if lost and not all(name in text for name in lost):
        wrong.append(f"{lost} not named")
    worst = max(cells.values(), key=SEVERITY.index, default=None)
    mine = {pair for pair, verdict in cells.items() if verdict is worst}
    # A finding names the cause of its cells instead; slow ones of busy cores may pass.
    explained = any(mine & one.cells and fault_text(one) in text for one in found.found)
    slow = worst is Verdict.SLOW and ("slow" in text or "% of usual" in text or "suspect" in text or "bad" in text)
    if worst is not None and not (verdict_words(worst) in text or explained or slow):
        wrong.append(f"{worst} of {sorted(mine)[:3]} not named")
    if (counted := re.search(r"(\d+) of (\d+) (?:tested )?(?:GPU )?pairs? (?:is|are) bad", text)) is not None:
        wrong += [f"{counted[1]} bad, {len(cells)} cells"] * (int(counted[1]) > len(cells))
        wrong += [f"{counted[2]} tested"] * (int(counted[2]) != model.results.tested)
    return [f"{problem}: {text}" for problem in wrong]


def is_counted(found: SessionDiagnosis) -> bool:
    return found._survey is not None and found._survey.current


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.name)
@pytest.mark.parametrize("lagging", [False, True], ids=["with findings", "before its findings"])
def test_the_sentence_contradicts_nothing_and_names_the_worst(path: Path, lagging: bool) -> None:
    events = list(read_events(path))
    model, wrong, tested = Model(), [], 0
    found, at = SessionDiagnosis(model), 0
    start, length = events[0].time, events[-1].time - events[0].time
    for moment in range(1, MOMENTS + 1):
        while at < len(events) and (events[at].time <= start + length * moment / MOMENTS or moment == MOMENTS):
            model.apply(events[at])
            at += 1
        found._counts_rest_until = 0.0
        found._resting_until = 0.0 if not lagging or moment % 5 == 0 else float("inf")
        while found.step(1.0) and (found._resting_until == 0.0 or found._search or not is_counted(found)):
            pass
        wrong += [f"{moment}: {one}" for one in problems(model, found)]
        assert model.results.tested >= tested
        tested = model.results.tested
    assert not wrong, "\n".join(wrong)


def test_what_no_count_has_yet_is_named_at_once() -> None:
    maker = ModelMaker().start(["a", "b"]).endpoints({"a": 1, "b": 1}).add("phase", name="p2p", total=2)
    model = maker.measured("p2p", "a:0", "b:0", value=2.0, unit="GB/s").model()
    found = SessionDiagnosis(model)
    while found.step(1.0):
        pass
    assert sentence_text(found.standing()) == "No problem so far; 1 of 2 pairs tested."
    for verdict, text in (
        ("failed", "1 suspect, 2 of 2 pairs tested: b:0 > a:0 failed"),
        ("wrong", "1 of 2 tested pairs is bad, looking for causes: b:0 > a:0 wrong data"),
    ):
        model.apply(maker.measured("p2p", "b:0", "a:0", verdict, error="x").events[-1])
        assert sentence_text(found.standing()) == text
