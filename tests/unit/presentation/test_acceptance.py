"""Acceptance: what passes, fails, was not tested and is not covered, and profiles that are wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fabtui.cli.main import main
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.errors import InputError
from fabtui.importers.session import replayed
from fabtui.presentation.acceptance import ItemOutcome, judge, read_profile, shipped
from fabtui.report.progress import ReadingProgress

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "recordings" / "h200x4-lab-2x2-faults.jsonl.gz"
HEAD = 'title = "t"\n[[item]]\nid = "a"\ntitle = "b"\n'


def test_the_profiles_that_ship_are_valid_and_judge_the_demo() -> None:
    found = diagnose(replayed(DEMO, ReadingProgress(sys.stderr, "demo"))[0])
    for name in shipped():
        judged = judge(read_profile(name), found)
        outcomes = {one.item.id: one.outcome for one in judged}
        assert all(one.evidence for one in judged)
        assert ItemOutcome.NOT_COVERED in outcomes.values()
    assert outcomes["pairs"] is ItemOutcome.FAIL
    outcomes = {one.item.id: one.outcome for one in judge(read_profile("clustermax"), found)}
    assert outcomes["wrong-data"] is ItemOutcome.FAIL
    assert outcomes["gpus-alike"] is ItemOutcome.PASS
    assert outcomes["host-link"] is outcomes["rdma-ports"] is ItemOutcome.NOT_TESTED


def test_the_page_and_the_cases_of_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, cases = tmp_path / "a.md", tmp_path / "a.xml"
    argv = ["accept", str(DEMO), "--profile", "clustermax", "--report", str(page), "--junit", str(cases)]
    assert main(argv) == 1
    printed = capsys.readouterr().out
    assert "fail (2)" in printed
    assert "ClusterMAX checklist: " in printed
    assert page.read_text().startswith("# ClusterMAX checklist: 15 pass, 2 fail, 5 not tested, 6 not covered of 28")
    suite = ElementTree.parse(cases).getroot().find("testsuite[@name='fabtui.acceptance']")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("28", "2")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("title = 1", "Expected `str`, got `int`"),
        ('title = "t"', "no items, or two with the same id"),
        (HEAD, "item 'a': it needs one of fact, rules, layer and covered_by"),
        (HEAD + 'rules = ["FT999"]', "there is no 'FT999'"),
        (HEAD + 'layer = "p3p"', "there is no 'p3p'"),
        (HEAD + 'fact = "gpuz"', "no fact 'gpuz'"),
        (HEAD + "nonsense = 1", "unknown field `nonsense`"),
        ("= 1", "Invalid"),
    ],
)
def test_a_wrong_profile_is_one_line(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"^--") as caught:
        read_profile(str(path))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
