import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabtui.cli.main import main
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.model.exit_codes import exit_code, not_tested

Maker = Callable[[], Any]
NAMES = ["n0:0", "n0:1", "n1:0", "n1:1"]


def whole(make_model: Maker) -> Any:
    return make_model().start(["n0", "n1"]).endpoints({"n0": 2, "n1": 2}).pairs(NAMES).add("phase", name="done")


def test_all_good_is_0(make_model: Maker) -> None:
    model = whole(make_model).model()
    assert exit_code(model) == 0
    assert not_tested(model) == []


@pytest.mark.parametrize("verdict", ["failed", "timeout"])
@pytest.mark.parametrize("layer", ["p2p", "ping", "busbw", "latency", "world"])
def test_anything_bad_is_1(make_model: Maker, layer: str, verdict: str) -> None:
    maker = whole(make_model).measured(layer, "n0:0", "n1:0", verdict, error="x")
    maker.add("node", node="n1", state="lost", text="gone")
    assert exit_code(maker.model()) == 1


def test_slow_within_its_class_is_1(make_model: Maker) -> None:
    maker = whole(make_model).measured("p2p", "n0:0", "n1:0", value=0.1, unit="GB/s", bytes=4 << 20)
    maker.measured("p2p", "n1:0", "n0:0", value=2.0, unit="GB/s", bytes=4 << 20)
    maker.measured("p2p", "n0:1", "n1:1", value=2.0, unit="GB/s", bytes=4 << 20)
    assert exit_code(maker.model()) == 1


def test_a_bad_pair_that_passed_when_tested_again_is_good(make_model: Maker) -> None:
    maker = whole(make_model).measured("p2p", "n0:0", "n1:0", "failed", error="x")
    maker.measured("p2p", "n0:0", "n1:0", value=2.0, unit="GB/s", bytes=4 << 20)
    assert exit_code(maker.model()) == 0


def test_a_node_that_is_gone_is_3(make_model: Maker) -> None:
    model = whole(make_model).add("node", node="n1", state="lost", text="the cable").model()
    assert exit_code(model) == 3
    assert not_tested(model) == ["n1: the cable"]
    assert diagnose(model).code == 3, "FT001 is bad, but nothing is known about the node"
    bad = whole(make_model).measured("p2p", "n0:0", "n1:0", "failed", error="x")
    assert diagnose(bad.add("node", node="n1", state="lost", text="the cable").model()).code == 1


def test_a_node_with_nothing_to_test_is_3(make_model: Maker) -> None:
    maker = whole(make_model).add("endpoints", endpoints=[], notes={"n1": "no GPU to test on n1"})
    assert exit_code(maker.model()) == 3


def test_pairs_that_were_not_tested_are_3(make_model: Maker) -> None:
    maker = whole(make_model).add("plan", layer="p2p", untested=[["n0:0", "n1:0", "in use"]])
    assert exit_code(maker.model()) == 3
    assert not_tested(maker.model()) == ["1 pair: in use"]


def test_a_look_that_failed_is_3(make_model: Maker) -> None:
    assert exit_code(whole(make_model).add("look", node="n0", probe="ibstat", error="no").model()) == 3


def test_inconclusive_is_3(make_model: Maker) -> None:
    assert exit_code(whole(make_model).measured("ping", "n0", "n1", "inconclusive").model()) == 3


def test_a_session_that_was_not_finished_is_3(make_model: Maker) -> None:
    maker = whole(make_model).add("phase", name="all_reduce", total=12)
    maker.measured("busbw", "all", "all", value=1.0, unit="GB/s", bytes=4)
    assert exit_code(maker.model()) == 3
    assert not_tested(maker.model()) == ["the session was not finished: it ended in all_reduce, after 1 of 12 tests"]


def test_nothing_measured_is_3(make_model: Maker) -> None:
    maker = make_model().start(["n0"]).endpoints({"n0": 1}).add("phase", name="done")
    assert not_tested(maker.model()) == ["nothing was measured: there is one endpoint, and a test needs two"]
    assert exit_code(maker.model()) == 3
    maker = make_model().start(["n0"], options={"probes": ["ping"]}).endpoints({"n0": 2}).add("phase", name="done")
    assert not_tested(maker.model()) == ["nothing was measured: there is one node, and pings go from node to node"]


def test_probes_alone_are_enough_when_nothing_else_was_requested(make_model: Maker) -> None:
    maker = make_model().start(["n0"], options={"probes": ["ibstat"]}).endpoints({"n0": 1})
    maker.add("phase", name="done")
    assert exit_code(maker.model()) == 3
    assert exit_code(maker.add("look", node="n0", probe="ibstat", value={"ports": []}).model()) == 0


def test_a_node_that_is_gone_is_reported_once(make_model: Callable[[], Any]) -> None:
    maker = make_model().start(["n0", "n1"]).endpoints({"n0": 1, "n1": 0})
    maker.add("look", node="n1", probe="host", error="refused")
    maker.add("plan", untested=[["n0:0", "n1:-", "refused"], ["n1:-", "n0:0", "refused"]])
    assert [line for line in not_tested(maker.model()) if "refused" in line] == ["n1: refused"]


@pytest.mark.parametrize("probes", [5, None, True, "p2p", {"p2p": 1}, [5, None]])
def test_options_of_a_damaged_recording_are_no_reason_to_fail(
    probes: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = {"seq": 0, "time": 1, "kind": "start", "nodes": ["n1", "n2"], "options": {"probes": probes}}
    (tmp_path / "r.jsonl").write_text(json.dumps(start) + "\n")
    argv = ["replay", "--text", str(tmp_path / "r.jsonl"), "--json", str(tmp_path / "o"), "--csv", str(tmp_path / "c")]
    assert main(argv) in (0, 3)
    assert "this is a bug" not in capsys.readouterr().err
