"""Events of files from elsewhere: what passes the check can be applied by a model and shown by every reader."""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from fabtui.cli.main import main
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.preflight.checks import preflight
from fabtui.export import json as snapshots
from fabtui.export import preflight as preflights
from fabtui.export.csv import write_csv
from fabtui.model.events import event_from_json
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import UNICODE
from fabtui.report.preflight import before_tests
from fabtui.report.summary import summary
from fabtui.report.text import text_lines

SESSIONS = Path(__file__).parents[2] / "samples" / "sessions"
JUNK: list[Any] = [
    *(None, True, False, -1, 0, 3, 2**70, 1e308, -0.5, float("inf"), float("nan"), 10**400, 1e11),
    *("", "9" * 30, "x\x1b[2J\u202e[red]", "\ud800", "10.0.0.9"),
    *([], [[]], {}, {"a": []}, [1, "2", None], {"rows": [None, [1], {}]}, ["a", {}]),
]


@functools.cache
def recorded() -> list[list[dict[str, Any]]]:
    """Return the events of each recorded session."""
    return [[event.to_json() for event in read_events(path)] for path in sorted(SESSIONS.glob("*.gz"))]


def damaged(value: Any, chance: random.Random, share: float) -> Any:
    """Return a value with junk in some places and some things left out."""
    if chance.random() < share:
        return chance.choice(JUNK)
    if isinstance(value, dict):
        return {k: damaged(part, chance, share) for k, part in value.items() if chance.random() >= share / 4}
    return [damaged(part, chance, share) for part in value] if isinstance(value, list) else value


def test_what_is_recorded_is_well_formed() -> None:
    assert recorded()
    for event in (event for events in recorded() for event in events):
        assert event_from_json(json.loads(json.dumps(event))).to_json() == event


@pytest.mark.parametrize("seed", range(24))
def test_what_passes_can_be_shown(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    share = chance.choice([0.0005, 0.003, 0.02])
    model = Model()
    for event in chance.choice(recorded()):
        shown = damaged(event, chance, share) if chance.random() < 0.5 else event
        try:
            model.apply(event_from_json(shown))
        except (KeyError, ValueError, TypeError, AttributeError):
            continue
    diagnosed, found = diagnose(model), preflight(model)
    json.dumps(snapshots.as_json(diagnosed), allow_nan=False)
    preflights.json_text(model, found)
    preflights.csv_text(found)
    write_csv(model, tmp_path / "x.csv")
    for text in (summary(diagnosed), *text_lines(before_tests(diagnosed.preflight, UNICODE))):
        assert "\x1b[2J" not in text
        assert "\u202e" not in text


@pytest.mark.parametrize(
    "event",
    [
        {"kind": "node", "node": 5, "state": "ready"},
        {"kind": "look", "node": "n000", "probe": "gpus", "value": [1]},
        {"kind": "log", "level": "info", "text": "x", "time": 1e300},
        {"kind": "measured", "measurements": [{"layer": "p2p", "src": "a", "dst": "b", "verdict": "ok", "value": "1"}]},
        {"kind": "plan", "untested": [["a", "b"]]},
        {"kind": ["look"]},
    ],
    ids=["name", "look", "time", "value", "row", "kind"],
)
def test_a_damaged_recording_is_bad_input(
    event: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps({"kind": "start", "nodes": ["n000"]}) + "\n" + json.dumps(event) + "\n")
    assert main(["replay", str(path), "--text"]) == 2
    shown = capsys.readouterr()
    assert f"{path}, line 2: not an event of fabtui (" in shown.err
    assert "1 node" in shown.out, "what comes before it is shown"


def test_what_was_lost_one_way_is_counted_by_size_and_a_collective_in_bytes() -> None:
    one = Measurement(Layer.UDP, "a", "b", Verdict.TIMEOUT, unit="%", src_addr="10.0.0.1", dst_addr="10.0.0.2")
    for extra in ({"sent": {"small": 5, "big": 3}, "arrived": {"small": 0, "big": 0}, "no_room": 0.0}, {"sent": 4096}):
        event_from_json({"kind": "measured", "measurements": [{**one.to_json(), "extra": extra}], "time": 1.0})
    wrong = {**one.to_json(), "extra": {"sent": {"small": "5"}}}
    with pytest.raises(ValueError, match="measurements"):
        event_from_json({"kind": "measured", "measurements": [wrong], "time": 1.0})
