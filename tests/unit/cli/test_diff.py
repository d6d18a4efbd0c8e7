"""``fabtui diff`` from its arguments to its exit code."""

import csv
import io
import json
from pathlib import Path

import pytest

from fabtui.atomic_write import write_text
from fabtui.cli import main as entry
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.export.csv import write_csv
from fabtui.export.json import session_text
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model

Out = pytest.CaptureFixture[str]
RECORDINGS = Path(__file__).parents[3] / "tests" / "samples" / "sessions"
HEALTHY, FAULTS = (str(RECORDINGS / f"h200x8-lab-2x4{name}.jsonl.gz") for name in ("", "-faults"))
FAULTY_PAIRS = {("n000:1", "n001:2"), ("n000:0", "n000:3"), ("n001:0", "n000:0")}


def written(recording: str, path: Path) -> str:
    model = Model()
    for event in read_events(Path(recording)):
        model.apply(event)
    if path.suffix == ".csv":
        write_csv(model, path)
    else:
        write_text(path, session_text(diagnose(model)))
    return str(path)


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("forms")
    return {"jsonl.gz": FAULTS, **{ending: written(FAULTS, folder / f"s.{ending}") for ending in ("csv", "json")}}


@pytest.mark.slow
def test_two_recordings(capsys: Out) -> None:
    assert entry.main(["diff", HEALTHY, FAULTS]) == 1
    out = capsys.readouterr().out
    assert "worse: " in out
    assert "n000:1 > n001:2" in out
    assert "new findings: " in out
    assert out.startswith("Something is worse: ")
    assert entry.main(["diff", HEALTHY, HEALTHY]) == 0
    assert capsys.readouterr().out.startswith("Nothing is worse.\n")


def test_json_and_csv(capsys: Out, tmp_path: Path) -> None:
    path = tmp_path / "changes.csv"
    assert entry.main(["diff", HEALTHY, FAULTS, "--csv", str(path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["worse"], found["then"], found["now"]) == ("fabtui diff", True, HEALTHY, FAULTS)
    worse = {(pair["src"], pair["dst"]) for pair in found["pairs"] if pair["status"] == "worse"}
    assert worse >= FAULTY_PAIRS
    assert sum(found["layers"]["p2p"].values()) == 56
    assert found["findings"]["new"]
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert len(rows) == len(found["pairs"])
    assert {row["verdict_now"] for row in rows if (row["src"], row["dst"]) == ("n000:1", "n001:2")} == {
        "timeout",
        "untested",
    }


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [("csv", "json"), ("json", "jsonl.gz"), ("jsonl.gz", "csv")])
def test_one_session_in_any_form_equals_itself(capsys: Out, forms: dict[str, str], before: str, after: str) -> None:
    assert entry.main(["diff", forms[before], forms[after], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pairs"] == []
    assert (found["findings"]["new"], found["findings"]["gone"]) == ([], [])
    assert (found["facts"] is None) is ("csv" in (before, after))
    assert found["facts"] in (None, [])


def test_bad_input_is_one_line(capsys: Out, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello\n")
    other = written(HEALTHY, tmp_path / "other.csv")
    (tmp_path / "other.csv").write_text(Path(other).read_text().replace("n000", "m000").replace("n001", "m001"))
    for argv, words in (
        ([HEALTHY, "/nowhere"], "cannot read /nowhere"),
        ([HEALTHY, str(tmp_path / "x.txt")], "nothing to compare in"),
        ([HEALTHY, other], "nothing to compare: "),
        (["-", "-"], "only once"),
        ([HEALTHY, other, "--csv", other], "one of the two files"),
        ([HEALTHY, other, "--csv", "/nowhere/at/all.csv"], "cannot write"),
        ([HEALTHY, other, "--json", "--csv"], "same destination"),
    ):
        assert entry.main(["diff", *argv]) == 2, argv
        err = capsys.readouterr().err
        assert err.startswith("fabtui: error: "), argv
        assert words in err
        assert err.count("\n") == 1
