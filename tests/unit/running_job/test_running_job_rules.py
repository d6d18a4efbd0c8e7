"""Findings about a running job behind every door of a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabtui.cli import main as entry
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.export.json import as_json
from fabtui.export.junit import junit_text
from fabtui.importers.session import read_session
from fabtui.model.events import JobEvidence, SessionStart
from fabtui.presentation.findings import evidence, title
from fabtui.session.event_pipeline import Journal

from .played_job import T0, gpu, rank

NEXT = "ssh n1 kill -CONT 1041"


def events() -> list[JobEvidence | SessionStart]:
    """Return the events of a session that only observed a job whose rank 1 is stopped."""
    found: list[JobEvidence | SessionStart] = [SessionStart(["n1"], time=T0)]
    for second in range(6):
        rows = [rank(0, state="R"), rank(1, state="T")]
        value = {"clock": 5.0 + second, "ranks": rows, "gpus": [gpu(0, 100, 126), gpu(1, 0, 124)]}
        found.append(JobEvidence("n1", "activity", value, time=T0 + second))
    return found


def test_doors(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    path = tmp_path / "job.jsonl.gz"
    journal = Journal(path)
    journal.append(events())
    journal.close()
    found = diagnose(read_session(str(path)))
    first = found.all_findings[0]
    assert (first.rule.id, first.nodes, first.next, str(first.subject.name)) == ("J20", ("n1",), (NEXT,), "n1:1")
    assert title(first) == "the job on n1 (2 ranks) has been hanging for 0:05 or longer: rank 1 on n1 is stopped"
    lines = evidence(first)
    assert lines[0].startswith("GPUs (NVML): GPU of rank 0 waits in a kernel (100 % at 126 W)")
    assert any(line.startswith("processes (/proc): ") and "rank 1 on n1 is stopped" in line for line in lines)
    assert found.code == 1
    assert as_json(found)["findings"][0]["id"] == "J20"
    assert 'failures="1"' in junit_text(found)
    assert entry.main(["replay", str(path), "--text"]) == 1
    text = capsys.readouterr().out
    assert "J20" in text
    assert NEXT in text
    assert entry.main(["explain", "J20"]) == 0
    assert "running-job-hangs" in capsys.readouterr().out
