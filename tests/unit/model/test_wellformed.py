"""Events of files from elsewhere: what passes the check can be applied by a model and shown by every reader."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from fabtui.cli.main import main
from fabtui.model.events import event_from_json
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.recording import read_events

SESSIONS = Path(__file__).parents[2] / "samples" / "sessions"


@functools.cache
def recorded() -> list[list[dict[str, Any]]]:
    return [[event.to_json() for event in read_events(path)] for path in sorted(SESSIONS.glob("*.gz"))]


def test_what_is_recorded_is_well_formed() -> None:
    assert recorded()
    for event in (event for events in recorded() for event in events):
        assert event_from_json(json.loads(json.dumps(event))).to_json() == event


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
