"""`fabtui read` on reports of running jobs: the answer first, and the dumps of the ranks of a job as one result."""

import json
import pickle
import shutil
from pathlib import Path

import pytest

from fabtui.cli import main as entry

from ..probes.places import SAMPLES

RAS = SAMPLES / "ras"
#: Each recorded state, as the README of the samples has it: the start of the answer, and the counts of AllReduce.
_BEHIND = "AllReduce 251 of communicator f88f135d92df96f2 (2 ranks): rank 1 on 192.0.2.2 has not called it (last 250)"
_GIVEN_UP = (
    "process {} on 192.0.2.2 (GPU {}), rank {} of communicator ea9a40d216467915 (2 ranks): RAS considers it dead"
)
_AGREE = "in 1 communicator all ranks have launched the same number of each collective"
_NOT_CALLED = "all_reduce 252 of default_pg (2 ranks): rank 1 has not called it (last 251); rank 0 waits at rank.py:16"
STATES = {
    "running-json": (_AGREE, [4230, 4230]),
    "running-status": (_AGREE, []),
    "running-verbose": (_AGREE, []),
    "stopped2s-status": ("process 560 on 192.0.2.2 (GPU 1), rank 1 of communicator ea9a40d216467915", [None]),
    # RAS lost another rank in the JSON than in the text: each report was one query of its own.
    "resumed-json": (_GIVEN_UP.format(560, 1, 1), [9490, None]),
    "resumed-status": (_GIVEN_UP.format(559, 0, 0), [None]),
    "resumed-verbose": (_GIVEN_UP.format(559, 0, 0), [None]),
    "killed-json": (_GIVEN_UP.format(560, 1, 1), [9510, None]),
    "killed-status": (_GIVEN_UP.format(560, 1, 1), [None]),
    "killed-verbose": (_GIVEN_UP.format(560, 1, 1), [None]),
    "skip-json": (_BEHIND, [270, 250]),
    "skip-status": (_BEHIND, [270, 250]),
    "skip-verbose": (_BEHIND, [270, 250]),
    "p2phang-json": (_AGREE, [250, 250]),
    "p2phang-status": (_AGREE, []),
    "p2phang-verbose": (_AGREE, []),
}
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
    for name in ("live-fr_0.pickle", "live-fr_1.pickle", *(f"groups-fr_{rank}.json" for rank in range(4))):
        shutil.copy(RAS / name, tmp_path / name)
    assert entry.main(["read", "--json", str(tmp_path)]) == 0
    groups, live = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert [groups["file"], live["file"]] == [f"{tmp_path}/groups-fr_*", f"{tmp_path}/live-fr_*"]
    assert {groups["kind"], live["kind"]} == {"flight-recorder"}
    assert (groups["values"]["dumps"], live["values"]["dumps"]) == (4, 2)
    assert "all_reduce 5 of DP 1 (2 ranks): rank 3 has not called it" in "\n".join(groups["values"]["answer"])
    assert live["values"]["answer"][0].startswith("all_reduce 252 of default_pg (2 ranks): rank 1 has not called it")


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


def test_every_recorded_state(capsys: Out) -> None:
    # Texts of other versions are samples of the reader alone.
    reports = [path for path in sorted(RAS.glob("*.txt")) if not path.stem.startswith("nccl-")]
    assert {path.stem for path in reports} == set(STATES)
    assert entry.main(["read", "--json", *map(str, reports)]) == 0
    for path, line in zip(reports, capsys.readouterr().out.splitlines(), strict=True):
        start, launched = STATES[path.stem]
        found = json.loads(line)
        assert (found["kind"], found["warnings"], found["unknown"]) == ("nccl-ras", [], []), path
        values = found["values"]
        assert values["answer"][0].startswith(start), path
        assert [one["launched"].get("AllReduce") for one in values["ranks"]] == launched, path
        assert values["timeouts"] == (path.stem == "stopped2s-status"), path
        assert values["nccl"] == "2.28.9", path
    assert entry.main(["read", "--json", str(RAS / "stopped2s-status.txt")]) == 0
    assert json.loads(capsys.readouterr().out)["values"]["collection_time"] == pytest.approx(2.9, abs=0.01)


@pytest.mark.slow
def test_every_recorded_dump_and_log(capsys: Out) -> None:
    """The watchdog's messages have the timeout of 45 s and the collective that the dumps name."""
    paths = sorted([*RAS.glob("live-*"), *RAS.glob("timeout-*"), *RAS.glob("p2phang-fr*"), *RAS.glob("*.log")])
    assert entry.main(["read", "--json", *map(str, paths)]) == 0
    found = {Path(one["file"]).name: one for one in map(json.loads, capsys.readouterr().out.splitlines())}
    answers = {name: one["values"]["answer"][0] for name, one in found.items() if "answer" in one["values"]}
    assert answers == {
        "live-fr_*": _NOT_CALLED,
        "timeout-fr_*": _NOT_CALLED,
        "p2phang-fr_*": "recv 3 of default_pg: rank 0 waits in recv from rank 1 at rank.py:23; rank 1 has not called"
        " send",
    }
    (timeout,) = found["skip-rank0.log"]["values"]["timeouts"]
    assert (timeout["rank"], timeout["seq"], timeout["limit"], timeout["completed"]) == (0, 252, 45000, 251)
    assert found["skip-rank1.log"]["values"]["ranks"] == [1]
