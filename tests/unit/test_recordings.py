"""The recordings that ship: each is listed, and replays to its end."""

from pathlib import Path

import pytest

from fabtui.cli.main import main
from fabtui.config.options import DEMO
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.job.judge import job_verdict
from fabtui.model.events import LogEntry
from fabtui.model.layers import Layer
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.paths import shipped_recordings_folder
from fabtui.presentation.findings import title
from fabtui.report.summary import summary

SESSIONS = Path(__file__).parents[1] / "samples" / "sessions"
FILES = sorted(shipped_recordings_folder().glob("*.jsonl.gz"))
#: Sessions that test pairs; the others observe a running job, or the addresses of a lab.
TESTS = [path for path in [*FILES, *sorted(SESSIONS.glob("*.jsonl.gz"))] if not path.name.startswith(("job-", "lab-"))]
#: What ships in the wheel stays small.
LARGEST = 512 * 1024


def test_the_list_is_complete() -> None:
    listing = (shipped_recordings_folder() / "README.md").read_text()
    for path in FILES:
        assert f"| {path.name} |" in listing
    for line in listing.splitlines():
        name = line.split("|")[1].strip() if line.startswith("|") else ""
        if name.endswith(".gz"):
            assert (shipped_recordings_folder() / name).is_file(), name


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_a_recording_replays_to_its_end(path: Path) -> None:
    assert path.stat().st_size <= LARGEST
    model = Model()
    for event in read_events(path):
        model.apply(event)
    assert model.exit_code is not None, "it was cut short"
    ends = [end for end in model.endpoints if end.kind != "none"]
    assert len(ends) >= 2
    for src in ends:
        for dst in ends:
            if src != dst:
                pair = str(src), str(dst)
                assert model.latest(Layer.P2P, *pair) is not None or pair in model.untested
    first, gap, head = summary(diagnose(model)).splitlines()[:3]
    assert " GPU pairs are " in first
    assert (gap, head[:7]) == ("", "fabtui ")


@pytest.mark.parametrize("path", [path for path in TESTS if "faults" not in path.name], ids=lambda path: path.name)
def test_a_healthy_recording_has_no_findings(path: Path) -> None:
    """Real values of real GPUs spread: a few pairs of each lab are far above the others."""
    model = Model()
    for event in read_events(path):
        model.apply(event)
    found = diagnose(model).findings
    assert [title(one) for one in found] == []
    assert diagnose(model).code == 0


@pytest.mark.parametrize(
    ("path", "ranks", "command"),
    [
        (shipped_recordings_folder() / "job-h200x4-stopped.jsonl.gz", 4, "kill -CONT 7341"),
        (SESSIONS / "job-h100x2-stopped.jsonl.gz", 2, "ssh n000 kill -CONT 1041"),
    ],
)
def test_a_recording_of_a_job_names_the_rank_that_is_behind(path: Path, ranks: int, command: str) -> None:
    assert path.stat().st_size <= LARGEST
    model = Model()
    for event in read_events(path):
        model.apply(event)
    verdict = job_verdict(model)
    assert verdict is not None
    assert verdict.sentence.startswith(f"the job on n000 ({ranks} ranks) has been hanging for 0:")
    assert verdict.sentence.endswith(f"rank 1 on n000:1 is stopped; next: {command}")
    assert [one.rule.id for one in diagnose(model).findings] == ["J20"]
    assert diagnose(model).code == 1


def test_the_recorded_film_names_the_pulled_cable_and_ends_clean() -> None:
    model = Model()
    titles: dict[str, list[str]] = {}
    for event in read_events(shipped_recordings_folder() / "lab-4x2-cable.jsonl.gz"):
        model.apply(event)
        if isinstance(event, LogEntry) and event.text.startswith("demo: "):
            titles[event.text.split()[1]] = [title(one) for one in diagnose(model).findings]
    assert titles["found"] == ["n003 rail 1 (eth1 10.2.0.4) is cut off"]
    assert [*titles] == ["the", "found", "all"]
    assert summary(diagnose(model)).startswith("All 48 address pairs are ok")
    assert (model.turns.healed is not None, len(model.turns.hurt), model.exit_code) == (True, 12, 0)


def test_each_planted_fault_is_found_as_a_finding_of_its_own() -> None:
    model = Model()
    for event in read_events(shipped_recordings_folder() / f"{DEMO}.jsonl.gz"):
        model.apply(event)
    found = [(one.rule.id, one.facts["pair"].source, one.facts["pair"].destination) for one in diagnose(model).findings]
    assert found == [
        ("FT007", "n001:1", "n001:0"),
        ("FT017", "n001:0", "n000:0"),
        ("FT017", "n000:1", "n001:1"),
        ("FT023", "n000:0", "n000:1"),
    ]


def test_a_shipped_recording_plays_by_name_or_a_part_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--demo", "--text"]) == 1
    default = capsys.readouterr().out
    assert main(["replay", "--demo", "faults", "--text"]) == 1
    assert capsys.readouterr().out == default
    assert main(["replay", "--demo", "job", "--text"]) == 1
    for words, text in (
        (["--demo", "lab"], "--demo: no recording 'lab'; there are "),
        (["--demo", "x" * 200], "there are "),
        (["x.gz", "--demo"], "without it: fabtui replay x.gz"),
    ):
        assert main(["replay", *words]) == 2
        assert text in capsys.readouterr().err
