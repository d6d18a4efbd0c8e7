"""`fabtui nodes` as users meet it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabtui.cli import main as entry
from fabtui.export.csv import write_csv
from fabtui.nodeset import read_hosts
from tests.unit.diagnosis.test_pair_rules import dead_if, fabric

Out = pytest.CaptureFixture[str]
RECORDINGS = Path(__file__).parents[3] / "tests" / "samples" / "sessions"
FAULTS, GOOD = (str(RECORDINGS / f"h200x8-lab-2x4{name}.jsonl.gz") for name in ("-faults", ""))


@pytest.mark.slow
def test_a_recording_a_csv_and_a_json_give_the_same_set(tmp_path: Path, capsys: Out) -> None:
    csv, snapshot = str(tmp_path / "pairs.csv"), str(tmp_path / "session.json")
    assert entry.main(["replay", FAULTS, "--text", "--csv", csv, "--json", snapshot]) == 1
    replayed = capsys.readouterr().out
    assert "\nwhat to do now\n" in replayed
    found = []
    for name in (FAULTS, csv, snapshot):
        assert entry.main(["nodes", name, "--json"]) == 1
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["nodes"] == found[1]["nodes"] == found[2]["nodes"]
    assert found[0]["joining"] == found[1]["joining"] == found[2]["joining"]
    assert json.loads(Path(snapshot).read_text())["healthy"] == found[0]


def test_a_good_session_has_exit_code_0_and_a_host_file_that_fabtui_reads(tmp_path: Path, capsys: Out) -> None:
    hosts, csv = tmp_path / "hosts", tmp_path / "pairs.csv"
    write_csv(fabric("ab", 4, dead_if(lambda s, d: False)), csv)
    assert entry.main(["nodes", str(csv), "--hostfile", str(hosts)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("All 56 GPU pairs are ok.\n\n2 of 2 nodes are healthy together, with 8 of 8 GPUs\n")
    assert out.endswith(f"\nwrote {hosts}\n")
    assert hosts.read_text() == "a slots=4\nb slots=4\n"
    assert read_hosts(str(hosts), "--hostfile") == ["a", "b"]


def test_bad_input_is_one_line(tmp_path: Path, capsys: Out) -> None:
    other = tmp_path / "a.txt"
    other.write_text("hello\n")
    empty = tmp_path / "session.jsonl"
    empty.write_text(
        '{"kind":"start","format":1,"version":"1","nodes":["n0"],"faults":[],"options":{},"seq":0,"time":1}\n'
    )
    cases = [
        ([str(other)], "expected a recording, CSV or JSON of fabtui"),
        ([str(tmp_path / "none")], "cannot read"),
        ([str(empty)], "no pair of endpoints was tested"),
        ([GOOD, "--hostfile", "-"], "--hostfile"),
        ([GOOD, "--hostfile", str(tmp_path)], "is a folder"),
    ]
    for words, expected in cases:
        assert entry.main(["nodes", *words]) == 2, words
        out, error = capsys.readouterr()
        assert expected in error
        assert error.count("\n") == 1
        assert not out
