"""`fabtui read` on reports of running jobs: the answer first, and the dumps of the ranks of a job as one result."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest

from fabtui.cli import main as entry

from ..probes.places import SAMPLES

RAS = SAMPLES / "ras"
Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def test_a_report_of_ras(capsys: Out) -> None:
    assert entry.main(["read", str(RAS / "skip-verbose.txt")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:4] == [
        "  answer",
        "    AllReduce 251 of communicator f88f135d92df96f2 (2 ranks): rank 1 on 192.0.2.2 has not called it (last"
        " 250); the others are at 270",
    ]
    assert lines[lines.index("  next") + 1] == "    ssh 192.0.2.2 py-spy dump --pid 742"
    assert entry.main(["read", "--json", str(RAS / "killed-json.txt")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["warnings"], found["unknown"]) == ("nccl-ras", [], [])
    assert found["values"]["silent_processes"] == [{"pid": 560, "node": "192.0.2.2", "gpus": "1", "dead": True}]


def test_the_dumps_of_a_job_are_one_result(tmp_path: Path, capsys: Out) -> None:
    for name in ("live-fr_0.pickle", "live-fr_1.pickle", "timeout-fr_0.pickle", "timeout-fr_1.pickle"):
        shutil.copy(RAS / name, tmp_path / name)
    assert entry.main(["read", "--json", str(tmp_path)]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["file"] for one in found] == [f"{tmp_path}/live-fr_*", f"{tmp_path}/timeout-fr_*"]
    for one in found:
        assert one["kind"] == "flight-recorder"
        assert one["values"]["dumps"] == 2
        assert one["values"]["answer"][0].startswith("all_reduce 252 of default_pg (2 ranks): rank 1 has not called it")
    assert entry.main(["read", *(str(RAS / f"groups-fr_{rank}.json") for rank in range(4))]) == 0
    assert "all_reduce 5 of DP 1 (2 ranks): rank 3 has not called it" in capsys.readouterr().out


def test_a_dump_without_a_rank(tmp_path: Path, capsys: Out) -> None:
    shutil.copy(RAS / "live-fr_0.pickle", tmp_path / "trace.pickle")
    assert entry.main(["read", "--json", str(tmp_path / "trace.pickle")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "not known whose dump it is" in found["warnings"][0]
    assert found["values"]["ranks"][0]["waits_in"] == "all_reduce 252"


def test_a_pickle_with_code_is_not_read(tmp_path: Path, capsys: Out) -> None:
    (tmp_path / "fr_0").write_bytes(pickle.dumps({"version": "2.10", "entries": [print]}))
    assert entry.main(["read", str(tmp_path / "fr_0")]) == 3
    assert "contains more than plain values" in capsys.readouterr().out
    (tmp_path / "fr_0").write_bytes((RAS / "live-fr_0.pickle").read_bytes()[:-300])
    assert entry.main(["read", str(tmp_path / "fr_0")]) == 3
    assert "the pickle is cut off or damaged at byte" in capsys.readouterr().out
