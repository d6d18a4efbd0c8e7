"""Prices, published values and earlier sessions: each number is the same behind every door."""

import asyncio
import html
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from fabtui.cli import main as entry
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.export.formats import schema
from fabtui.export.json import as_json
from fabtui.history.entry import entry_of
from fabtui.history.file import DAY, HistoryWriter, history_file
from fabtui.history.query import past_of
from fabtui.importers.session import replayed
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EndpointsAdded, Event, InventoryUpdate, Measured, PhaseStart, PlanUpdate, SessionStart
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import UNICODE
from fabtui.presentation.component_history import overview_sentence, standout_cells
from fabtui.presentation.findings import title
from fabtui.presentation.numbers import percent_text, value_text
from fabtui.presentation.wording import plain
from fabtui.screen.grid.axis import Axis
from fabtui.screen.session_diagnosis import SessionDiagnosis
from fabtui.screen.views.pair import direction_lines
from fabtui.screen.widgets.finding_lines import finding_block
from fabtui.session.event_pipeline import Journal

pytestmark = pytest.mark.slow

#: Start of the session (epoch seconds), and days before it of those that its history has.
BEGAN, BEFORE = 1_700_000_000.0, (9, 6, 2)
NODES = [f"n{at}" for at in range(6)]
WIDTH = 500


def events() -> list[Event]:
    """Return the events of a session of six nodes with four GPUs each, whose third node is slow."""
    ends = [
        Endpoint(at, name, index, name="NVIDIA H200", uuid=f"GPU-{at}", nic=f"mlx5_{index}", rail=index)
        for at, (name, index) in enumerate(itertools.product(NODES, range(4)))
    ]
    rows = []
    for a, b in itertools.permutations(ends, 2):
        value = 350.0 if a.node == b.node else 20.0 if "n2" in (a.node, b.node) else 46.0
        rows.append(Measurement(Layer.P2P, str(a), str(b), Verdict.OK, value, "GB/s", 1 << 28, BEGAN + 1))
    groups = [(a, b, 76.0 if "n2" in (a, b) else 176.0) for a, b in itertools.combinations(NODES, 2)]
    for src, dst, value in [("all", "all", 76.0), *groups, *((name, name, 338.0) for name in NODES)]:
        extra = {"ranks": 24 if src == "all" else 4 * len({src, dst}), "algorithm": "RING/SIMPLE"}
        rows.append(Measurement(Layer.BUSBW, src, dst, Verdict.OK, value, "GB/s", 1 << 33, BEGAN + 2, extra=extra))
    return [
        SessionStart(nodes=NODES, options={"probes": ["p2p", "all_reduce"]}, time=BEGAN),
        *(InventoryUpdate(node=name, value={"machine_id": f"machine-{name}"}, time=BEGAN) for name in NODES),
        EndpointsAdded(endpoints=ends, time=BEGAN),
        PlanUpdate(slow_below=0.7, time=BEGAN),
        Measured(measurements=rows, time=BEGAN + 2),
        PhaseStart(name="done", time=BEGAN + 3),
    ]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with the history of three earlier sessions, and the recording of the session."""
    folder = tmp_path_factory.mktemp("state")
    earlier = []
    for days in BEFORE:
        model = Model()
        for one in events():
            model.apply(replace(one, time=one.time - days * DAY))
        earlier.append(entry_of(diagnose(model), "", title))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        HistoryWriter(history_file()).add(earlier)
    journal = Journal(folder / "session.jsonl.gz")
    journal.append(events())
    journal.close()
    return folder


def model_of(recording: Path) -> Model:
    model, _ = replayed(recording)
    model.past = past_of(model)
    return model


Door = Callable[[Path, pytest.CaptureFixture[str]], str]


def _text(recording: Path, out: pytest.CaptureFixture[str]) -> str:
    entry.main(["replay", str(recording), "--text"])
    return out.readouterr().out


def _report(recording: Path, out: pytest.CaptureFixture[str]) -> str:
    page = recording.with_name("report.html")
    entry.main(["report", str(recording), "-o", str(page)])
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text().replace("<td", "|<td")))


def _json(recording: Path, out: pytest.CaptureFixture[str]) -> str:
    return _texts(as_json(diagnose(model_of(recording))))


def _app(recording: Path, out: pytest.CaptureFixture[str]) -> str:
    model = model_of(recording)
    screen = SessionDiagnosis(model)
    while screen.step(1.0):
        pass
    lines = [line for at, one in enumerate(screen.found) for line in finding_block(one, WIDTH, at + 1)]
    for one, other in itertools.pairwise(Axis.of_model(model).entries[:2]):
        lines += direction_lines(model, one, other, UNICODE)
    return "\n".join(map(plain, lines))


def _assistant(recording: Path, out: pytest.CaptureFixture[str]) -> str:
    from tests.unit.mcp import assistant

    async def silent(passed: float, step: str) -> None: ...

    return _texts(asyncio.run(assistant.door().call("findings", {"file": str(recording)}, silent)))


def _texts(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(map(_texts, value.values()))
    return "\n".join(map(_texts, value)) if isinstance(value, list) else str(value)


@pytest.mark.parametrize("door", [_text, _report, _json, _app, _assistant], ids=lambda door: door.__name__[1:])
def test_a_price_a_published_value_and_the_past_are_the_same(
    door: Door, state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    recording = state / "session.jsonl.gz"
    shown = " ".join(door(recording, capsys).split())
    value = as_json(diagnose(model_of(recording)))
    Draft202012Validator(schema("session")).validate(value)
    (priced,) = [one for one in value["findings"] if "price" in one["facts"]]
    price, past = priced["facts"]["price"], priced["recurrence"]
    busbw, without = value_text(price["busbw"]), price["without"]
    assert (
        f"without n2: {busbw} -> {value_text(without['busbw'])} GB/s ({100 * (without['ratio'] - 1):+.0f} %)" in shown
    )
    assert f"error {100 * price['error']:.1f} % in {price['compared']} other measured collectives" in shown
    (note,) = value["published"]
    low = value_text(note["ranges"][0]["low"])
    assert note["text"].startswith(f"{value_text(note['busbw'])} GB/s over n0: published for 4 x H200: {low} GB/s")
    assert note["text"] in shown
    assert (past["times"], past["sessions_ago"], past["days"]) == (4, 3, 9.0)
    assert "first seen 3 sessions ago (2023-11-05), fourth time in 9 days" in shown


def test_what_stands_out_is_the_same_in_the_report_and_in_the_history(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    recording = state / "session.jsonl.gz"
    model = model_of(recording)
    assert model.past is not None
    found = model.past.overview
    entry.main(["history", "--since", "2023-01-01", "--json"])
    value = json.loads(capsys.readouterr().out)
    counted = [(one["sessions"], one["of"], one["lowest"]) for one in value["standouts"]]
    assert counted == [(one.sessions, one.of, one.lowest) for one in found.standouts]
    assert counted[0][:2] == (3, 3)
    shown = _report(recording, capsys)
    assert overview_sentence(found) in shown
    for one in found.standouts:
        assert one.lowest is not None
        assert standout_cells(one)[2] == percent_text(one.lowest)
        assert re.search(r" *\| *".join(map(re.escape, standout_cells(one))), shown)
