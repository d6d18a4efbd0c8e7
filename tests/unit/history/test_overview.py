"""``fabtui history``: what stands out, courses, and the same numbers in text, JSON and CSV."""

import csv
import io
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from fabtui.cli.main import main
from fabtui.export.formats import schema
from fabtui.history.file import history_file
from tests.past import MOVED, write_past

_SINCE = "2023-10-15"


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_past(tmp_path_factory.mktemp("history") / "site.sqlite")


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["history", *words])
    found = capsys.readouterr()
    return code, found.out, found.err


def test_sessions_that_are_not_listed_count(
    past: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabtui.history.query._MOST_LISTED", 2)
    code, text, _ = _run(capsys, "--file", str(past), "--since", _SINCE)
    assert (code, text.splitlines()[0]) == (0, "1 degrades, 1 flaps, 1 is new in 15 sessions since 2023-10-15")


def test_what_stands_out_is_the_same_in_text_json_and_csv(past: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--file", str(past), "--since", _SINCE)
    code, text, _ = _run(capsys, *options)
    assert code == 0
    lines = text.splitlines()
    value = json.loads(_run(capsys, *options, "--json")[1])
    Draft202012Validator(schema("history")).validate(value)
    assert lines[0] == value["sentence"] == "1 degrades, 1 flaps, 1 is new in 15 sessions since 2023-10-15"
    assert {one["component"]["place"]: one["turn"] for one in value["standouts"]} == {
        "n061:3": "degrades",
        "n060 mlx5_0/1": "flaps",
        "n062": "new",
    }
    rows = list(csv.DictReader(io.StringIO(_run(capsys, *options, "--csv")[1])))
    for one, row, line in zip(value["standouts"], rows, lines[3:], strict=True):
        assert (one["component"]["place"], one["title"]) == (row["place"], row["text"])
        assert f"{one['sessions']} of {one['of']}" in line
        assert f"{100 * one['lowest']:.0f} %" in line if one["lowest"] is not None else " - " in line


@pytest.mark.parametrize("subject", ["n061:3", MOVED, MOVED[:12].lower()])
def test_the_course_of_a_part_begins_where_it_was_before(
    past: Path, capsys: pytest.CaptureFixture[str], subject: str
) -> None:
    _, text, _ = _run(capsys, subject, "--file", str(past))
    assert f"GPU n061:3 ({MOVED})" in text
    assert "n012:3 2023-09-15 to 2023-10-03 (10 sessions)" in text
    value = json.loads(_run(capsys, subject, "--file", str(past), "--json")[1])
    Draft202012Validator(schema("history")).validate(value)
    (course,) = (one for one in value["courses"] if one["component"]["identity"] == MOVED)
    shares = course["shares"]["p2p same-rail"]
    assert len(shares) == 30
    assert f"{100 * shares[-1]['share']:.0f} %" in text


def test_bad_input_is_one_line_and_code_2(past: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, expected in (
        (("n999", "--file", str(past)), "it has the nodes n[012,060-062]"),
        (("--since", "soon"), "such as 2026-09-01"),
        (("add",), "fabtui history add FILE"),
        (("--file", str(tmp_path / "none")), "none"),
        (("--json", "--csv"), "name a file for one of them"),
    ):
        code, out, error = _run(capsys, *words)
        assert (code, out, error.count("\n")) == (2, "", 1), words
        assert expected in error


def test_an_empty_history_states_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code, text, _ = _run(capsys)
    assert code == 0
    assert "fabtui history add " in text
    code, text, error = _run(capsys, "n061")
    assert (code, text, error.count("\n")) == (2, "", 1)
    assert "'n061' is not in the history: no session is in the history yet" in error
    write_past(history_file())
    assert "--since 1y" in _run(capsys, "--since", "2024-06-01")[1]
