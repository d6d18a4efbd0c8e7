"""Wrong data: a verdict of its own, the worst one, whose finding comes first."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import Diagnosis, diagnose
from fabtui.exit_status import BAD
from fabtui.model.measurement import DEAD, SEVERITY, Measurement, Verdict, is_wrong_data, worst, wrong_amount
from fabtui.presentation.findings import evidence, title
from fabtui.presentation.wording import verdict_words
from tests.conftest import ModelMaker

MakeModel = Callable[..., ModelMaker]
ENDS = [f"n{node}:{index}" for node in range(3) for index in range(4)]
BYTE = "verify: 1 of 4194304 bytes are wrong in message 10, the first at offset 2097152"


def diagnosed(make_model: MakeModel, bad: dict[tuple[str, str], tuple[str, str]], lost: str = "") -> Diagnosis:
    """Return the diagnosis of three nodes, all of whose pairs are well but some, by verdict and error."""
    maker = make_model().start(["n0", "n1", "n2"]).endpoints({"n0": 4, "n1": 4, "n2": 4})
    for number, (src, dst) in enumerate(permutations(ENDS, 2)):
        verdict, error = bad.get((src, dst), ("ok", None))
        value = {} if error else {"value": 2.0 + number % 7 / 100}
        maker.measured("p2p", src, dst, verdict, error=error, unit="GB/s", bytes=4 << 20, **value)
    if lost:
        maker.add("node", node=lost, state="lost", text="no answer")
    return diagnose(maker.model())


def test_the_worst_of_all_verdicts() -> None:
    assert SEVERITY[-1] is worst([Verdict.FAILED, Verdict.WRONG, Verdict.TIMEOUT]) is Verdict.WRONG
    assert Verdict.WRONG.bad
    assert Verdict.WRONG in DEAD
    assert verdict_words(Verdict.WRONG) == "wrong data"


def test_it_stands_before_larger_causes(make_model: MakeModel) -> None:
    refused = {(src, "n2:1"): ("failed", "connect: refused") for src in ENDS if not src.startswith("n2")}
    found = diagnosed(make_model, {**refused, ("n0:1", "n1:0"): ("wrong", BYTE)})
    assert title(found.findings[0]) == "n0:1 > n1:0 wrong data, 1 byte wrong in the 4 MiB checked"
    assert found.findings[0].cells == {("n0:1", "n1:0")}
    assert BYTE in evidence(found.findings[0])
    assert found.findings[1].cells == refused.keys()
    assert found.code == BAD
    assert found.tally.counts[Verdict.WRONG] == 1


def test_one_that_others_have_in_common_is_named(make_model: MakeModel) -> None:
    bad = {("n1:2", dst): ("wrong", BYTE) for dst in ENDS if dst != "n1:2"}
    found = diagnosed(make_model, bad).findings[0]
    assert title(found) == "n1:2 as sender: wrong data in 11 of 11 pairs"
    assert found.cells == bad.keys()


def test_a_lost_node_does_not_explain_it(make_model: MakeModel) -> None:
    timeout = {(src, "n2:1"): ("timeout", "transfer: timed out") for src in ENDS if not src.startswith("n2")}
    found = diagnosed(make_model, {**timeout, ("n0:3", "n2:0"): ("wrong", BYTE)}, lost="n2")
    assert [one.rule.name for one in found.findings[:2]] == ["wrong-data", "node-lost"]


def test_in_the_world_communicator_only(make_model: MakeModel) -> None:
    maker = make_model().start(["n0"]).endpoints({"n0": 2}).pairs(["n0:0", "n0:1"])
    maker.measured("world", "n0:0", "n0:1", "wrong", error="3 of 65536 bytes checked around offset 0 are wrong")
    found = diagnose(maker.model()).findings[0]
    assert title(found) == "n0:0 > n0:1 wrong data, 3 bytes wrong in the 64 KiB checked"


def test_of_a_collective(make_model: MakeModel) -> None:
    maker = make_model().start(["n0", "n1"]).endpoints({"n0": 1, "n1": 1}).pairs(["n0:0", "n1:0"])
    maker.measured("busbw", "n0", "n1", "wrong", error="verify: 3 values are wrong", bytes=1 << 20, unit="GB/s")
    first = diagnose(maker.model()).findings[0]
    assert title(first) == "all_reduce of n0 and n1: wrong data, 3 values wrong"


@pytest.mark.parametrize(
    ("error", "extra", "wrong"),
    [
        (BYTE, None, True),
        (f"peer: {BYTE}", None, True),
        ("1 of 65536 bytes checked around offset 0 are wrong, the first at 3", None, True),
        ("7 elements of the result are wrong", None, True),
        ("the first message is wrong", None, True),
        ("verify: 2 bytes wrong in the 1 MiB that were checked (message 4 MiB), the first at 0", None, True),
        ("nothing arrived in 4096 bytes of the 4 KiB that were checked", {"error_kind": "blank"}, False),
        ("anything", {"error_kind": "verify"}, True),
        ("connect: the password is wrong", None, False),
        ("it printed: verify: 1 of 2 bytes are wrong", None, False),
        ("connection refused", {"error_kind": "refused"}, False),
        (None, None, False),
    ],
)
def test_earlier_recordings_call_it_failed(error: str | None, extra: dict[str, Any] | None, *, wrong: bool) -> None:
    assert is_wrong_data(error, extra) is wrong
    value = {"layer": "p2p", "src": "a:0", "dst": "b:0", "verdict": "failed", "error": error, "extra": extra}
    read = Measurement.from_json({name: one for name, one in value.items() if one is not None})
    assert read.verdict is (Verdict.WRONG if wrong else Verdict.FAILED)
    # Other verdicts stay as they are.
    assert Measurement.from_json({**value, "verdict": "timeout"}).verdict is Verdict.TIMEOUT


@pytest.mark.parametrize(
    ("error", "size", "text"),
    [
        (BYTE, None, "1 byte wrong in the 4 MiB checked"),
        (
            "17 of 4096 bytes checked around offset 0 are wrong, the first at 3",
            1 << 20,
            "17 bytes wrong in the 4 KiB checked (message 1 MiB)",
        ),
        ("verify: 1234 values are wrong", 1 << 20, "1,234 values wrong"),
        (
            "2 bytes wrong in the 1 MiB that were checked (message 4 MiB), the first at 0",
            4 << 20,
            "2 bytes wrong in the 1 MiB checked (message 4 MiB)",
        ),
        ("the first message is wrong", 1 << 20, ""),
        (None, None, ""),
    ],
)
def test_its_amount(error: str | None, size: int | None, text: str) -> None:
    assert wrong_amount(error, size) == text
