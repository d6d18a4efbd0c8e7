"""`fabtui report`: what it writes where, and what it exits with."""

import gzip
import json
import shutil
from pathlib import Path
from shlex import quote

import pytest

from fabtui.cli import main as entry
from tests.unit.importers.places import output_of

ROOT = Path(__file__).resolve().parents[3]
FAULTS = ROOT / "tests" / "samples" / "sessions" / "h200x8-lab-2x4-faults.jsonl.gz"
GOOD = ROOT / "tests" / "samples" / "sessions" / "h200x4-lab-2x2.jsonl.gz"
SAMPLES = ROOT / "tests" / "samples"
Out = pytest.CaptureFixture[str]


def report(*argv: str | Path) -> int:
    return entry.main(["report", *map(str, argv)])


def refused(capsys: Out, *argv: str | Path) -> str:
    assert report(*argv) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_the_exit_code_is_that_of_the_session(tmp_path: Path, capsys: Out) -> None:
    assert report(FAULTS, "-o", tmp_path / "bad.html") == 1
    assert report(GOOD, "-o", tmp_path / "good.html") == 0
    assert capsys.readouterr().out.splitlines() == [f"wrote {tmp_path / name}" for name in ("bad.html", "good.html")]
    assert (tmp_path / "bad.html").read_text().startswith("<!DOCTYPE html>")


def test_the_name_of_the_file_gives_the_format(tmp_path: Path, capsys: Out) -> None:
    report(GOOD, "-o", tmp_path / "a.md")
    assert (tmp_path / "a.md").read_text().startswith("# All 12 GPU pairs are ok.\n")
    assert report(GOOD, "-o", "-") == 0
    printed = capsys.readouterr().out
    assert printed.endswith((tmp_path / "a.md").read_text())
    assert ".html" in refused(capsys, GOOD, "-o", tmp_path / "a.txt")


def test_a_file_of_its_own_is_not_overwritten(tmp_path: Path, capsys: Out) -> None:
    own = tmp_path / "a.md"
    own.write_text("text")
    assert "one of the files" in refused(capsys, own, "-o", own)


def test_without_a_file_the_newest_session_is_named(tmp_path: Path, capsys: Out) -> None:
    own = tmp_path / "sessions"
    own.mkdir()
    (tmp_path / "config.toml").write_text(f"[recording]\nfolder = '{own}'\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FABTUI_CONFIG", str(tmp_path / "config.toml"))
        line = refused(capsys)
        assert line.startswith("fabtui: error: no file given; fabtui report FILE... -o report.html")
        assert line.endswith("one that ships: fabtui report --demo\n")
        shutil.copy(GOOD, own / "a.jsonl.gz")
        assert refused(capsys).endswith(f"your newest session: fabtui report {quote(str(own / 'a.jsonl.gz'))}\n")
    assert "without it: fabtui report" in refused(capsys, GOOD, "--demo")
    assert report("--demo", "-o", tmp_path / "demo.md") == 1
    assert (tmp_path / "demo.md").read_text().startswith("# 4 of 12 GPU pairs are bad")


def test_outputs_of_other_tools_have_a_section_each(tmp_path: Path, capsys: Out) -> None:
    names = ["h200x8/nvlink-s.txt", "ibsim/ibstat_n061.txt", "h200x8/topo-m.txt"]
    assert report(*(SAMPLES / name for name in names), "-o", "-") == 0
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if line.startswith("## ")] == [f"## {Path(name).name}" for name in names]
    unknown = tmp_path / "unknown.txt"
    unknown.write_text("nobody knows this\n")
    assert report(unknown, SAMPLES / names[0], "-o", "-") == 3
    assert "nobody knows this" in capsys.readouterr().out


@pytest.mark.parametrize("content", ['{"a": 1}\n', "nobody knows this\n"])
def test_foreign_content_is_refused_in_one_line(tmp_path: Path, capsys: Out, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    line = refused(capsys, tmp_path / "x.json", "-o", tmp_path / "a.html")
    assert line.endswith(
        "x.json: nothing to report on: no format recognised; fabtui read --list prints the known ones\n"
    )
    assert not (tmp_path / "a.html").exists()


def test_of_a_damaged_recording_the_part_before_the_damage_is_reported(tmp_path: Path, capsys: Out) -> None:
    lines = gzip.decompress(FAULTS.read_bytes()).splitlines(keepends=True)
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_bytes(b"".join(lines[:200]) + b"garbage\n" + b"".join(lines[200:]))
    assert "the report shows the part before it" in refused(capsys, damaged, "-o", tmp_path / "a.md")
    assert "damaged" in (tmp_path / "a.md").read_text().partition("## ")[0]


def test_changes_need_a_session_on_both_sides(tmp_path: Path, capsys: Out) -> None:
    assert report(FAULTS, "--baseline", GOOD, "-o", "-") == 1
    assert "## Changes since h200x4-lab-2x2.jsonl.gz" in capsys.readouterr().out
    sample = SAMPLES / "ibsim" / "ibstat_n061.txt"
    assert "no session" in refused(capsys, sample, "--baseline", GOOD, "-o", "-")


def test_replay_writes_a_report_as_well(tmp_path: Path, capsys: Out) -> None:
    assert entry.main(["replay", str(GOOD), "--text", "--report", str(tmp_path / "a.html")]) == 0
    assert "<main" in (tmp_path / "a.html").read_text()
    assert entry.main(["replay", str(GOOD), "--text", "--report", str(tmp_path / "a.pdf")]) == 2


def test_a_table_with_two_arms_becomes_columns_in_both_units(tmp_path: Path) -> None:
    table = tmp_path / "busbw.html"
    table.write_text("Results of all_reduce.\n" + output_of("busbw-html"))
    assert report(table, "-o", tmp_path / "a.md") == 0
    text = (tmp_path / "a.md").read_text()
    words = [line.strip("| ").replace("|", " ").split() for line in text.splitlines() if line.startswith("|   16 |")]
    assert words == [["16", "15.0", "8.03", "-", "3.78", "2.01", "-"], ["16", "120", "64.2", "-", "30.2", "16.1", "-"]]
    assert "| GPUs | RDMA busbw | RDMA algbw | transport | TCP busbw |" in text
    assert "all_reduce, message size unknown, by number of GPUs, Gb/s" in text


def test_timers_become_a_picture(tmp_path: Path) -> None:
    log = tmp_path / "n065.out"
    log.write_text(output_of("timers-profile"))
    assert report(log, "-o", tmp_path / "a.html") == 0
    text = (tmp_path / "a.html").read_text()
    assert "training timeline of 2 of 2 ranks" in text
    assert "rank 1, compute, 500 ms from 0.00 ms: forward-compute" in text


def test_the_file_for_planners(tmp_path: Path, capsys: Out) -> None:
    plan, log = tmp_path / "plan.json", tmp_path / "a.log"
    assert report(GOOD, "-o", tmp_path / "a.md", "--planner", plan) == 0
    assert f"wrote {plan}" in capsys.readouterr().out.splitlines()
    assert json.loads(plan.read_text())["order"] == ["n000", "n001"]
    log.write_text(output_of("timers-profile"))
    assert "the files hold no nodes" in refused(capsys, log, "-o", tmp_path / "b.md", "--planner", plan)
