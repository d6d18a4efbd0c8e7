from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import junitparser
import pytest

from fabtui.cli.main import main
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import RULES
from fabtui.export.junit import MOST_LISTED, junit_text
from tests.conftest import replayed

Maker = Callable[[], Any]
#: Recordings of tests; an observed job has no pairs.
RECORDINGS = sorted((Path(__file__).parents[3] / "tests" / "samples" / "sessions").glob("h*.jsonl.gz"))
FAULTS = next(path for path in RECORDINGS if "faults" in path.name)
HOSTILE = 'n"1]]>\ufffe\x00\x1b[31m\u202e</failure><x a="'
#: Elements, attributes (True: required) and children of the schema of JUnit that Jenkins publishes (junit-10.xsd).
SCHEMA: dict[str, tuple[dict[str, bool], set[str]]] = {
    "testsuites": (dict.fromkeys(["name", "time", "tests", "failures", "disabled", "errors"], False), {"testsuite"}),
    "testsuite": (
        {"name": True, "tests": True}
        | dict.fromkeys(["failures", "errors", "time", "skipped", "timestamp", "hostname", "id", "package"], False),
        {"properties", "testcase", "system-out", "system-err"},
    ),
    "testcase": (
        {"name": True, "classname": False, "time": False, "status": False, "assertions": False},
        {"skipped", "error", "failure", "system-out", "system-err"},
    ),
    "failure": ({"message": False, "type": False}, set()),
    "skipped": ({"message": False, "type": False}, set()),
    "system-out": ({}, set()),
}


def checked(text: str) -> dict[tuple[str, str], junitparser.TestCase]:
    """Return the test cases by class and name, after a check of the text against the schema."""
    root = ElementTree.fromstring(text.encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        attributes, children = SCHEMA[element.tag]
        assert element.attrib.keys() <= attributes.keys()
        assert {name for name, needed in attributes.items() if needed} <= element.attrib.keys()
        assert {child.tag for child in element} <= children
    parsed = junitparser.JUnitXml.fromstring(text.encode())
    cases = [case for suite in parsed for case in suite]
    counts = parsed.tests, parsed.failures, parsed.errors
    sums = [(suite.tests, suite.failures, suite.errors, suite.skipped) for suite in parsed]
    parsed.update_statistics()
    assert counts == (parsed.tests, parsed.failures, parsed.errors) == (len(cases), parsed.failures, 0)
    assert sums == [(suite.tests, suite.failures, suite.errors, suite.skipped) for suite in parsed]
    found = {(case.classname, case.name): case for case in cases}
    assert len(found) == len(cases)
    return found


def failed(cases: dict[tuple[str, str], junitparser.TestCase]) -> dict[tuple[str, str], Any]:
    return {key: case.result[0] for key, case in cases.items() if case.is_failure}


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_a_recording_gives_a_case_for_each_rule_and_class(path: Path) -> None:
    model = replayed(path)
    cases = checked(junit_text(diagnose(model)))
    assert junit_text(diagnose(model)) == junit_text(diagnose(replayed(path)))
    rules = {name.split()[0] for suite, name in cases if suite == "fabtui.rules"}
    assert rules == {rule.id for rule in RULES if rule.domain not in ("summary", "jobs")}
    tested = {
        *(("fabtui.layers.p2p", kind) for kind in ("same-node", "same-rail", "cross-rail")),
        *(("fabtui.layers.busbw", kind) for kind in ("one-node", "node-pair", "all")),
    }
    classes = {(suite, name.partition(":")[0]) for suite, name in cases if suite.endswith((".p2p", ".busbw"))}
    # A job was observed there, and nothing tested.
    assert classes == (set() if path.name.startswith("job") else tested)
    failures = {name.split()[0] for _, name in failed(cases)}
    assert bool(failures) is ("faults" in path.name or path.name.startswith("job"))
    assert ("J20" in failures) is path.name.startswith("job")


def test_failures_carry_the_finding_with_its_evidence_and_what_to_do() -> None:
    found = failed(checked(junit_text(diagnose(replayed(FAULTS)))))
    failure = next(result for (_, name), result in found.items() if name.startswith("FT017 pair-fails"))
    assert failure.message == "n001:0 > n000:0 failed and 1 more"
    assert failure.type == "bad"
    assert "both ends pass with others" in failure.text
    assert "next: ssh n000 ss -ltnp 'sport = :39505' (lab: runs here)" in failure.text
    slow = next(result for (suite, name), result in found.items() if name.startswith("same-node"))
    assert slow.message == "1 slow of 24 measurements"
    assert "n000:0 > n000:3" in slow.text
    assert "1.96 GB/s" in slow.text


def test_what_was_not_tested_is_skipped_with_the_reason(make_model: Maker) -> None:
    maker = make_model().start(["n1", "n2"]).endpoints({"n1": 2, "n2": 0}).add("phase", name="done", total=0)
    maker.measured("udp", "n1", "n2", "skipped", error="no UDP port", src_addr="10.0.0.1", dst_addr="10.0.0.2")
    cases = checked(junit_text(diagnose(maker.model())))
    skipped = {key: case.result[0].message for key, case in cases.items() if case.is_skipped}
    assert skipped["fabtui.not-tested", "n2: refused"] == "n2: refused"
    assert {message for (suite, _), message in skipped.items() if suite == "fabtui.layers.udp"} == {"no UDP port"}
    pairs = [message for (suite, name), message in skipped.items() if name.startswith("FT017")]
    assert pairs == ["no pair of endpoints was tested"]
    # Pings were.
    assert not any(name.startswith("FT201") for _, name in skipped)


def test_findings_that_are_not_bad_are_output_of_a_case_that_passes(make_model: Maker) -> None:
    maker = make_model().start(["n1", "n2"]).endpoints({"n1": 2, "n2": 2}).pairs(["n1:0", "n1:1", "n2:0"])
    maker.add("plan", untested=[["n1:0", "n2:1", "its GPU is in use"]])
    cases = checked(junit_text(diagnose(maker.model())))
    assert not failed(cases)
    case = next(case for (_, name), case in cases.items() if name.startswith("FT033"))
    assert case.is_passed
    assert "its GPU is in use" in case.system_out


def test_hostile_text_is_text(make_model: Maker) -> None:
    maker = make_model().start([HOSTILE, "n2"]).endpoints({HOSTILE: 1, "n2": 1})
    maker.measured("p2p", f"{HOSTILE}:0", "n2:0", "failed", error=HOSTILE)
    text = junit_text(diagnose(maker.model()))
    assert not {"\x00", "\x1b", "\ufffe", "\u202e"} & set(text)
    found = failed(checked(text))
    assert any("</failure><x" in result.text for result in found.values())


def test_long_lists_of_pairs_are_cut(make_model: Maker) -> None:
    maker = make_model().start(["n1"]).endpoints({"n1": 10})
    names = [f"n1:{index}" for index in range(10)]
    for src, dst in ((src, dst) for src in names for dst in names if src != dst):
        maker.measured("p2p", src, dst, "timeout", error="no byte came")
    case = next(
        result for (suite, _), result in failed(checked(junit_text(diagnose(maker.model())))).items() if "p2p" in suite
    )
    assert case.message == "90 timed out of 90 measurements"
    assert case.text.splitlines()[-1] == f"and {90 - MOST_LISTED} more"


def test_replay_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fabtui.xml"
    assert main(["replay", str(FAULTS), "--text", "--junit", str(path)]) == 1
    assert f"wrote {path}\n" in capsys.readouterr().out
    assert len(checked(path.read_text())) > 90
