"""`fabtui nodes` as users meet it."""

import json
from pathlib import Path

import pytest

from fabtui.cli import main as entry
from fabtui.cli.options_from_args import request_from
from fabtui.cli.parser import build_parser
from fabtui.export.csv import write_csv
from fabtui.model.measurement import Verdict
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
    assert out.startswith("2 of 2 nodes are healthy together, with 8 of 8 GPUs\n")
    assert out.endswith(f"\nwrote {hosts}\n")
    assert hosts.read_text() == "a slots=4\nb slots=4\n"
    assert read_hosts(str(hosts), "--hostfile") == ["a", "b"]


def test_stray_pairs_leave_no_node_out_and_are_written_for_a_retest(tmp_path: Path, capsys: Out) -> None:
    """Node ``e`` of five has a bad NIC; one pair of 192 at ``a`` and ``b`` and one at ``c`` and ``d`` are strays."""
    strays: dict[tuple[str, str], Verdict | float] = {
        ("a:0", "b:1"): Verdict.TIMEOUT,
        ("c:3", "d:3"): 0.3,
        ("d:3", "c:3"): 0.3,
    }

    def judge(src: str, dst: str) -> Verdict | float:
        dead = src[0] != dst[0] and "e:2" in (src, dst)
        return Verdict.FAILED if dead else strays.get((src, dst), 1.0)

    csv, pairs, hosts = tmp_path / "pairs.csv", tmp_path / "strays", tmp_path / "hosts"
    write_csv(fabric("abcde", 8, judge), csv)
    assert entry.main(["nodes", str(csv), "--strays", str(pairs), "--hostfile", str(hosts)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("4 of 5 nodes have no fault of their own, with 32 of 40 GPUs\n\nleft out\n  e  e:2 ")
    assert "\n3 stray pairs (2 slow, 1 timed out) among these nodes: retest them first\n" in out
    assert "  test them: fabtui run --nodes a,b,c,d --pairs-from FILE --probes p2p\n" in out
    assert "  without any stray pair: 2 nodes (--strict)\n" in out
    assert "slots=8\n" not in out
    assert read_hosts(str(hosts), "--hostfile") == ["a", "b", "c", "d"]
    words = ["run", "--pairs-from", str(pairs), "--no-record"]
    options = request_from(build_parser(words).parse_args(words)).options
    assert (options.pairs, options.hosts) == ((("a:0", "b:1"), ("c:3", "d:3")), ("a", "b", "c", "d"))
    assert entry.main(["nodes", str(csv), "--strict"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("2 of 5 nodes are healthy together, with 16 of 40 GPUs\n\nleft out\n  e  e:2 ")
    assert "1 stray pair: a:0 > b:1; retest" in out
    assert "2 stray pairs: c:3 > d:3, d:3 > c:3; retest" in out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "names no pair"),
        ("a:0>b:1\nhello\n", "line 2: 'hello' is not a pair of endpoints"),
        ("a:0>a:0", "line 1: 'a:0>a:0' is not a pair"),
        ("a:0>-b:0", "begins with '-'"),
        ("#" * (5 << 20), "is larger than 4 MiB: not a list of pairs"),
    ],
    ids=["empty", "malformed", "one end", "option", "large"],
)
def test_a_list_of_pairs_that_cannot_be_used_is_one_line(tmp_path: Path, capsys: Out, text: str, expected: str) -> None:
    (tmp_path / "pairs").write_text(text)
    assert entry.main(["run", "--no-record", "--pairs-from", str(tmp_path / "pairs")]) == 2
    assert entry.main(["run", "--no-record", "--lab", "2x2", "--pairs-from", str(tmp_path / "none")]) == 2
    (tmp_path / "pairs").write_text("n000:0>n001:9")
    assert entry.main(["run", "--no-record", "--lab", "2x2", "--pairs-from", str(tmp_path / "pairs")]) == 2
    first, missing, unknown = capsys.readouterr().err.splitlines()
    assert expected in first
    assert "cannot read" in missing
    assert "--pairs-from: 'n001:9': n001 has endpoints 0 to 1" in unknown


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
