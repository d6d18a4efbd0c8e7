"""Findings of earlier sessions, as a session shows them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.history.ingest import add_recordings
from fabtui.history.remembered_findings import past_of
from fabtui.importers.session import replayed
from fabtui.paths import shipped_recordings_folder
from fabtui.presentation.findings import title

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
    assert [bool(one.problem) for one in added] == [False, False, False, True]
    assert "not a recording" in added[-1].problem
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
