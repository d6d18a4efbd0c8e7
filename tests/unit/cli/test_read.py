"""`fabtui read` as users meet it: what it prints where, and what it exits with."""

import argparse
import io
import json
from pathlib import Path
from typing import Any

import pytest

from fabtui import load_snapshot
from fabtui.cli import main as entry
from fabtui.cli.commands import read
from fabtui.importers.tables import matrix
from fabtui.report.imported_output import value_blocks
from fabtui.report.text import text_lines
from tests.unit.importers.places import output_of
from tests.unit.importers.test_as_model import CUDA

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def put(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_a_matrix_is_shown(tmp_path: Path, capsys: Out) -> None:
    assert entry.main(["read", put(tmp_path / "bw.txt", output_of("nvbandwidth-of-several-nodes"))]) == 0
    out = capsys.readouterr().out
    assert "nvbandwidth: matrices of copies" in out
    assert "  0      -  820.1\n" in out
    assert "1  819.5      -\n" in out


def test_replay_takes_what_read_knows(tmp_path: Path, capsys: Out) -> None:
    name = put(tmp_path / "bw.txt", output_of("nvbandwidth-of-several-nodes"))
    assert entry.main(["read", name]) == 0
    text = capsys.readouterr().out
    assert entry.main(["replay", name, "--text"]) == 0
    assert capsys.readouterr().out == text
    assert entry.main(["replay", name, "--text", "--csv", str(tmp_path / "pairs.csv")]) == 0
    assert (tmp_path / "pairs.csv").read_text().count("\n") > 1
    assert entry.main(["replay", name, "--text", "--junit", str(tmp_path / "x.xml")]) == 2
    assert entry.main(["replay", put(tmp_path / "other.txt", "nothing of the kind"), "--text"]) == 2
    captured = capsys.readouterr().err
    assert f"--junit needs a recording, and {name} is the output of a tool: fabtui read {name}" in captured
    assert "not a recording of fabtui" in captured


def test_one_object_a_file(tmp_path: Path, capsys: Out) -> None:
    names = [put(tmp_path / "bw.txt", output_of("nvbandwidth-of-several-nodes")), put(tmp_path / "what.txt", "hello\n")]
    assert entry.main(["read", "--json", *names]) == 3
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert set(first) == {"file", "findings", "kind", "title", "values", "units", "warnings", "unknown"}
    assert (first["kind"], first["file"]) == ("nvbandwidth", names[0])
    assert first["values"]["tests"][0]["sum"] == 1639.6
    assert (second["kind"], second["raw"], second["values"]) == ("unknown", "hello\n", {})


def test_units_are_those_of_what_is_there(tmp_path: Path, capsys: Out) -> None:
    text = "--- n060 ping statistics ---\n1 packets transmitted, 1 received, 0% packet loss, time 0ms\n"
    assert entry.main(["read", "--json", put(tmp_path / "a", text)]) == 0
    units = json.loads(capsys.readouterr().out)["units"]
    assert units["rtt_avg"] == "ms"
    assert "rtt" not in units


def test_a_reader_that_goes_away_does_not_cost_the_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stdout", Gone())
    csv = tmp_path / "out.csv"
    with pytest.raises(BrokenPipeError):
        read.execute(argparse.Namespace(files=[put(tmp_path / "n060.txt", CUDA)], csv=str(csv)))
    assert len(load_snapshot(csv)) == 8


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(output_of("nvbandwidth-of-several-nodes").encode())))
    assert entry.main(["read", "-"]) == 0
    assert capsys.readouterr().out.startswith("-: nvbandwidth")


def test_the_kind_can_be_named(tmp_path: Path, capsys: Out) -> None:
    name = put(tmp_path / "a.txt", "hello\n")
    assert entry.main(["read", "--as", "PING", name]) == 0
    assert "no summary" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("all_reduce_perf", "nccl-tests"),
        ("ib_write_bw", "perftest"),
        ("osu_bw", "osu"),
        ("slurm-sinfo", "sinfo"),
        ("p2pbandwidthlatencytest", "p2pBandwidthLatencyTest"),
        ("nvlink-status", "nvidia-smi-nvlink-s"),
        ("Dmesg", "dmesg"),
    ],
)
def test_a_tool_names_its_kind(tmp_path: Path, capsys: Out, name: str, kind: str) -> None:
    assert entry.main(["read", "--json", "--as", name, put(tmp_path / "a.txt", "hello\n")]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == kind


def test_a_kind_that_is_none_names_all(tmp_path: Path, capsys: Out) -> None:
    assert entry.main(["read", "--as", "pong", put(tmp_path / "a.txt", "hello\n")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "there is no kind 'pong'; there are" in error
    assert "nccl-tests" in error


def test_all_kinds(capsys: Out) -> None:
    assert entry.main(["read", "--list"]) == 0
    out = capsys.readouterr().out
    assert "* nccl-tests " in out
    assert "  ibstat " in out
    assert "  dmesg " in out


def test_measurements_go_into_a_snapshot(tmp_path: Path, capsys: Out) -> None:
    csv = tmp_path / "out.csv"
    names = [put(tmp_path / "n060.txt", CUDA), put(tmp_path / "n061.txt", CUDA)]
    assert entry.main(["read", *names, "--csv", str(csv)]) == 0
    assert f"wrote {csv} (16 rows)" in capsys.readouterr().out
    frame = load_snapshot(csv)
    assert frame.pivot_layer("p2p").loc["n061:0", "n061:1"] == 275.07
    assert frame.pivot_layer("p2p@P2P=Disabled").loc["n060:0", "n060:1"] == 21.51
    assert set(frame["time"].isna()) == {True}


def test_json_and_a_snapshot_at_once(tmp_path: Path, capsys: Out) -> None:
    csv = tmp_path / "out.csv"
    assert entry.main(["read", "--json", put(tmp_path / "n060.txt", CUDA), "--csv", str(csv)]) == 0
    captured = capsys.readouterr()
    json.loads(captured.out)
    assert captured.err == f"wrote {csv} (8 rows)\n"


def test_nothing_to_export(tmp_path: Path, capsys: Out) -> None:
    csv = tmp_path / "out.csv"
    text = "PING a (192.0.2.1) 56(84) bytes of data.\n"
    assert entry.main(["read", put(tmp_path / "a", text), "--csv", str(csv)]) == 3
    assert "nothing to export: ping has no pairs and no collectives" in capsys.readouterr().err
    assert not csv.exists()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "no file given"),
        (["/nowhere/at/all"], "cannot read /nowhere/at/all: No such file"),
        (["--csv", "/nowhere/at/all.csv", "FILE"], "--csv: cannot write"),
        (["--open", "--json", "FILE"], "--open and --json exclude each other"),
        (["--baseline", "FILE", "FILE"], "--baseline of read needs --open"),
        (["--open", "FILE"], "nothing to show in the grid: unknown has no pairs"),
        (["--no-such"], "fabtui read has no option --no-such"),
        (["FILE", "FOLDER"], "no files in it"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, capsys: Out, argv: list[str], words: str) -> None:
    there = {"FILE": put(tmp_path / "a.txt", "hello\n"), "FOLDER": str(tmp_path / "empty")}
    (tmp_path / "empty").mkdir()
    try:
        code = entry.main(["read", *(there.get(word, word) for word in argv)])
    except SystemExit as left:
        code = int(str(left.code))
    error = capsys.readouterr().err
    assert code == 2
    assert error.count("\n") == 1
    assert words in error


def test_different_measures_are_not_put_into_one_grid(tmp_path: Path, capsys: Out) -> None:
    names = [put(tmp_path / "a.txt", CUDA), put(tmp_path / "b.txt", output_of("nvbandwidth-of-several-nodes"))]
    assert entry.main(["read", *names, "--csv", str(tmp_path / "out.csv")]) == 2
    assert "p2pBandwidthLatencyTest and nvbandwidth are not comparable" in capsys.readouterr().err


def test_hostile_text_steers_no_terminal(tmp_path: Path, capsys: Out) -> None:
    text = "PING \x1b]0;owned\x07n060\u202e (192.0.2.1) 56(84) bytes of data.\nping: \x1b[31mbad\x9b0m\n"
    assert entry.main(["read", put(tmp_path / "a\x1b[2J.txt", text), put(tmp_path / "b", "\x1b[2Junknown\x07\n")]) == 3
    out = capsys.readouterr().out
    assert not set(out) & {"\x1b", "\x07", "\u202e", "\x9b"}
    assert entry.main(["read", "--json", str(tmp_path / "b")]) == 3
    assert "\\u001b" not in capsys.readouterr().out


def shown(values: dict[str, Any], width: int = 60, **units: str) -> list[str]:
    return text_lines(value_blocks(values, units), width)


def test_a_wide_matrix_is_folded() -> None:
    names = [str(number) for number in range(12)]
    cells = [[float(row * 12 + column) for column in range(12)] for row in range(12)]
    lines = shown({"m": matrix("rates (GB/s)", "GB/s", names, names, cells)})
    assert max(map(len, lines)) <= 60
    assert lines[0] == "rates (GB/s)"
    heads = [line.split() for line in lines if line.split()[:1] == ["0"] and line.split()[1:2] == ["1"]]
    assert heads[0] == [str(number) for number in range(len(heads[0]))]
    assert sum(line.split()[:1] == ["7"] for line in lines) >= 2


def test_a_table_has_its_units_under_its_names() -> None:
    lines = shown({"rows": [{"bytes": 8, "busbw": 1.5}, {"bytes": 16, "busbw": None}]}, bytes="B", busbw="GB/s")
    assert lines == ["rows", "  bytes  busbw", "      B   GB/s", "      8    1.5", "     16      -"]


def test_the_unit_of_an_object_holds_for_all_its_values() -> None:
    units = {"clocks": "MHz", "memory": "MiB", "utilization": "%"}
    values = {"clocks": {"sm": 345, "memory": 3201}, "memory": {"total": 8, "used": 0}, "utilization": {"memory": 7}}
    assert text_lines(value_blocks(values, units), 60) == [
        "clocks       sm 345, memory 3201 MHz",
        "memory       total 8, used 0 MiB",
        "utilization  memory 7 %",
    ]
    table = text_lines(value_blocks({"gpus": [values, values]}, units), 90)
    assert [line.split() for line in table[1:4]] == [
        ["clocks", "memory", "utilization"],
        ["sm", "memory", "total", "used", "memory"],
        ["MHz", "MHz", "MiB", "MiB", "%"],
    ]


def test_a_row_too_wide_is_reported_line_by_line() -> None:
    lines = shown({"rows": [{f"name_{number}": "word" * 3 for number in range(8)}]})
    assert lines[:3] == ["rows", "  1 of 1", "    name 0  wordwordword"]


def test_long_tables_are_counted() -> None:
    lines = shown({"rows": [{"a": number} for number in range(1000)]})
    assert lines[-1] == "  and 800 more; --json has them all"


def test_what_is_deep_ends() -> None:
    value: dict[str, Any] = {}
    for _ in range(100):
        value = {"a": value, "b": [[{"c": 1}]]}
    assert len(shown(value)) < 100


def test_a_cut_rail_is_named(tmp_path: Path, capsys: Out) -> None:
    lines = ["SourceNode,SourceIP,DestinationNode,DestinationIP,NetworkSegment,Status"]
    for a in range(1, 9):
        for b in range(1, 9):
            for rail in (1, 2):
                status = "Failure" if rail == 2 and 3 in (a, b) else "Success"
                row = f"n{a:03d},10.{rail}.0.{a},n{b:03d},10.{rail}.0.{b},10.{rail}.0,{status}"
                lines += [row] if a != b else []
    assert entry.main(["read", put(tmp_path / "mesh.csv", "\n".join(lines) + "\n")]) == 0
    out = capsys.readouterr().out
    assert "findings: 1" in out
    assert "n003 rail 1 (10.2.0.3) is cut off" in out
    assert "next: ssh n003 ping -c3 -I 10.2.0.3 10.2.0.1\n" in out
    # Only what does not answer is listed.
    assert "10.1.0.1  n002" not in out


def test_every_kind_is_in_the_manual() -> None:
    from fabtui.importers.catalogue import formats
    from fabtui.importers.to_model.dispatch import convertible

    manual = (Path(__file__).resolve().parents[3] / "docs/import.md").read_text()
    for name in formats():
        assert f"`{name}`" in manual, name
        if convertible(name):
            (line,) = (
                line for line in manual.splitlines() if line.startswith("|") and f"`{name}`" in line.split("|")[1]
            )
            assert line.split("|")[1].rstrip().endswith("*"), name


def test_an_isolated_fabric_is_named(tmp_path: Path, capsys: Out) -> None:
    for a in range(4):
        for b in range(4):
            node = "n060" if b < 2 else "n061"
            reported = (
                f"{node} [{b}] : OK {a} -> {b}" if a // 2 == b // 2 or abs(a - b) == 2 else "RuntimeError: timed out"
            )
            hello = "".join(f"{'n060' if rank < 2 else 'n061'} [{rank}/4]\n" for rank in range(4))
            if a != b:
                put(tmp_path / f"p2p-test-{a}-{b}-{10 * a + b}.out", f"{hello}{reported}\n")
    assert entry.main(["read", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "counts  ok 8, failed 4" in out
    assert "\n    1 rail-isolated (or PXN-only) fabric (4 pairs)  FT010\n        all 4 pairs across rails fail" in out
