"""Findings of earlier sessions, as a session shows them."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.history.components import PartKind, Parts
from fabtui.history.entry import add_recordings, entry_of
from fabtui.history.file import HistoryWriter
from fabtui.history.query import past_of
from fabtui.importers.session import replayed
from fabtui.model.events import InventoryUpdate, ProbeResult
from fabtui.model.session_model import Model
from fabtui.paths import shipped_recordings_folder
from fabtui.presentation.findings import title
from tests.conftest import session_of

DAY = 86400.0
FAULTS = "h200x4-lab-2x2-faults.jsonl.gz"


def later(path: Path, days: float) -> Path:
    """Write a copy of the recording with faults, as if it had been made some days later."""
    with gzip.open(shipped_recordings_folder() / FAULTS, "rt") as lines, gzip.open(path, "wt") as out:
        for line in lines:
            event = json.loads(line)
            event["time"] += days * DAY
            out.write(json.dumps(event) + "\n")
    return path


def test_a_finding_knows_since_when_and_how_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    paths = [later(tmp_path / f"{days}.jsonl.gz", days) for days in (0, 3, 10)]
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_text("no recording")
    file = tmp_path / "fabtui" / "history" / "site.sqlite"
    added = list(add_recordings([*paths, broken], file, title))
    assert [bool(problem) for _, problem in added] == [False, False, False, True]
    assert "not a recording" in added[-1][1]
    model, _ = replayed(paths[-1])
    model.past = past_of(model, file)
    found = [one.recurrence for one in diagnose(model).findings]
    assert found
    assert all(one is not None and (one.times, one.sessions_ago, round(one.days)) == (3, 2, 10) for one in found)
    first, _ = replayed(paths[0])
    assert past_of(first, file) is None or all(past.recurrence is None for past in diagnose(first).findings), (
        "an earlier session knows nothing of later ones"
    )
    assert past_of(model, broken) is None


def session(serials: dict[str, str]) -> Model:
    """Return a session of nodes whose cables have these serial numbers; the port of the first node has errors."""
    now = 1_700_000_000.0
    model = session_of(serials, rails=True, time=now, options={"probes": ["p2p"]}, kind="gpu", nic="mlx5_0")
    for at, (node, serial) in enumerate(serials.items()):
        port = {"ca": "mlx5_0", "port": 1, "state": "Active", "guid": f"0x{node}", "netdev": "eth0"}
        counted = {**port, "link_layer": "Ethernet", "errors": {} if at else {"symbol_error": 900}, "saturated": []}
        value = {"ports": [counted], "nics": [{"interface": "eth0", "module": {"serial": serial}}]}
        model.apply(InventoryUpdate(node=node, value={"ib": [port]}, time=now))
        model.apply(ProbeResult(node=node, probe="rdma", value=value, time=now))
    return model


def test_a_finding_moves_with_its_cable(tmp_path: Path) -> None:
    found = entry_of(diagnose(session({"a": "SN1", "b": "SN2"})), "", title)
    file = tmp_path / "history" / "site.sqlite"
    HistoryWriter(file).add([replace(found, started=found.started - DAY)])
    now = session({"c": "SN1", "d": "SN3"})
    now.past = past_of(now, file)
    (past,) = (one.recurrence for one in diagnose(now).findings if one.rule.id == "FT103")
    assert past is not None
    assert (past.moved, past.moved_from, past.times) == ("cable", "a mlx5_0/1", 2)
    both = Parts(session({"a": "SN1", "b": "SN1"}))
    assert [one.kind for one in both.blamed("a mlx5_0")] == [PartKind.PORT], "two ends have the number of one cable"
