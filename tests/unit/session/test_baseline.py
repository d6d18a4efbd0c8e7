import gzip
import json
from pathlib import Path

import pytest

from fabtui.atomic_write import write_text
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.errors import InputError
from fabtui.export.json import session_text
from fabtui.model.layers import Layer
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.session.feeds.baseline import read_baseline

RECORDING = Path(__file__).parents[3] / "tests" / "samples" / "sessions" / "h200x8-lab-2x4.jsonl.gz"


def test_a_recording_and_the_snapshot_of_it_are_the_same_baseline(tmp_path: Path) -> None:
    model = Model()
    for event in read_events(RECORDING):
        model.apply(event)
    write_text(tmp_path / "s.json", session_text(diagnose(model)))
    (tmp_path / "plain.jsonl").write_bytes(gzip.decompress(RECORDING.read_bytes()))
    first = read_baseline(RECORDING)
    assert first.layer is Layer.P2P
    assert len(first.values) == 56
    assert first.time == model.started
    for other in ("s.json", "plain.jsonl"):
        again = read_baseline(tmp_path / other)
        assert again.name == other
        assert again.time == pytest.approx(first.time, abs=0.001)
        assert {pair: m.value for pair, m in again.values.items()} == {p: m.value for p, m in first.values.items()}


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "not a recording"),
        ("hello", "not a recording"),
        ("{}", "not a recording"),
        ('{"measurements": []}', "holds no pair"),
        ('{"measurements": [1, null, {"layer": "p2p"}, {"layer": "next", "src": "a:0"}]}', "holds no pair"),
        ('{"kind":"start","nodes":["a"],"seq":0,"time":1.0}\n', "holds no pair"),
        ('{"kind":"start","seq":0,"time":1.0}\n', "'nodes' of 'start' is missing"),
    ],
)
def test_what_is_none_is_reported_in_a_line(tmp_path: Path, text: str, reported: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(InputError, match=reported) as caught:
        read_baseline(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_baseline(tmp_path / "none.json")


def test_a_snapshot_of_the_future_keeps_what_is_known(tmp_path: Path) -> None:
    good = {"layer": "p2p", "src": "a:0", "dst": "b:0", "verdict": "ok", "value": 5.0, "unit": "GB/s", "bytes": 8}
    value = {"started": "soon", "measurements": [{**good, "colour": 3}, {**good, "layer": "scatter"}, "?"]}
    (tmp_path / "s.json").write_text(json.dumps(value))
    found = read_baseline(tmp_path / "s.json")
    assert found.time == 0.0
    assert list(found.values) == [("a:0", "b:0")]
