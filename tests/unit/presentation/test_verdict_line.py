"""The verdict sentence."""

from collections.abc import Callable
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import RULES, diagnose
from fabtui.diagnosis.finding import Finding, Route, Severity
from fabtui.diagnosis.pairs.pair_context import SlowestFact
from fabtui.model.events import at_fault
from fabtui.model.measurement import Verdict
from fabtui.model.session_logs import Acknowledgement
from fabtui.presentation.cell_levels import ASCII, Glyphs
from fabtui.presentation.verdict_line import Standing, sentence_of, sentence_text, verdict_sentence
from tests.conftest import ModelMaker

OK = {Verdict.OK: 56}
TWO = {Verdict.OK: 54, Verdict.TIMEOUT: 1, Verdict.SLOW: 1}
PATH = "the path between them is at fault: both ends work with other partners (n000:1 with n001:0)"


def finding(rule: str, *, severity: Severity | None = None, **facts: Any) -> Finding:
    (one,) = (one for one in RULES if one.name == rule)
    return one.finding(severity=severity, facts=facts)


def pair(src: str, dst: str, verdict: str, retest: str = PATH, share: float = 0.0, *, both: bool = False) -> Finding:
    slow: dict[str, Any] = {"of_usual": SlowestFact(src, dst, share, 1.0, "GB/s")} if share else {}
    name = "pair-slow" if share else "pair-fails"
    return finding(name, pair=Route(src, dst, both), verdict=verdict, retest=retest, at_fault=at_fault(retest), **slow)


LOST = finding("node-lost", node="n005", state="lost", reason="no answer for 30 s")
FIRST = pair("n000:1", "n001:2", "timeout")
SECOND = pair("n000:3", "n001:0", "slow", share=0.01)
CONTENTION = finding("contention", severity=Severity.WARN, slow=12)
SUSPECT = (("a:0", "b:1"), Verdict.FAILED)
CUT_OFF = finding("unreachable")
TWO_BAD = Standing(TWO, [FIRST, SECOND], "GPU pair", failing=True)


@pytest.mark.parametrize(
    ("standing", "text"),
    [
        (Standing(OK, noun="GPU pair"), "All 56 GPU pairs are ok."),
        (Standing({Verdict.OK: 1}), "The only pair is ok."),
        (
            TWO_BAD,
            "2 of 56 GPU pairs are bad: n000:1 > n001:2 timed out (path), n000:3 > n001:0 1.0 % of usual (path)",
        ),
        (
            Standing({Verdict.OK: 55, Verdict.FAILED: 1}, [pair("n000:1", "n001:0", "failed", "")], failing=True),
            "1 of 56 pairs is bad: n000:1 > n001:0 failed",
        ),
        (
            Standing({Verdict.OK: 54, Verdict.FAILED: 2}, [pair("a:1", "b:0", "failed", "x: check b:0", both=True)]),
            "2 of 56 pairs are bad: a:1 - b:0 failed (b:0)",
        ),
        (
            Standing({**OK, Verdict.FAILED: 9}, [FIRST] * 5),
            f"9 of 65 pairs are bad: {', '.join(['n000:1 > n001:2 timed out (path)'] * 3)}, and 2 more",
        ),
        (Standing({Verdict.SLOW: 56}, failing=True), "56 of 56 pairs are bad."),
        (Standing({Verdict.OK: 50, Verdict.SLOW: 6}), "6 of 56 pairs are slow."),
        (Standing(OK, beside=3), "All 56 pairs are ok alone; 3 slow alongside other traffic."),
        (Standing(OK, [LOST], failing=True, complete=False), "n005 is lost; all 56 tested pairs are ok."),
        (
            Standing(TWO, [LOST, SECOND], complete=False),
            "2 of 56 tested pairs are bad: n005 is lost, n000:3 > n001:0 1.0 % of usual (path)",
        ),
        (Standing({}, [LOST], failing=True, complete=False), "n005 is lost; no pair was tested."),
        (
            Standing({}, [finding("node-lost", node="n001", state="failed", reason="connection refused")]),
            "n001 failed: connection refused; no pair was tested.",
        ),
        (
            Standing({Verdict.OK: 2}, [LOST], gone="n005 is lost", untested=10, complete=False, failing=True),
            "n005 is lost: 10 of 12 pairs could not be tested, 2 are ok.",
        ),
        (
            Standing(TWO, [LOST, FIRST], gone="n005 is lost", untested=4, complete=False),
            "n005 is lost: 2 of 56 tested pairs are bad, 4 not tested: n000:1 > n001:2 timed out (path)",
        ),
        (
            Standing({Verdict.OK: 4}, [LOST], gone="n005 is lost", running=True, total=12, complete=False),
            "n005 is lost: 4 of 12 pairs tested.",
        ),
        (
            Standing({}, [CUT_OFF], running=True, measured=14, total=56, rechecked=2, suspect=SUSPECT),
            "Addresses do not reach each other; 2 suspects, 14 of 56 pairs tested: a:0 > b:1 failed and 1 more",
        ),
        (Standing(OK, [CUT_OFF], running=True, total=56), "Addresses do not reach each other; 56 of 56 pairs tested."),
        (
            Standing(OK, [CONTENTION], running=True),
            "56 pairs tested; warning: contention: 12 pairs are slow alongside other traffic and pass alone",
        ),
        (
            Standing(TWO, [SECOND], judging=True, worst=SUSPECT),
            "2 of 56 pairs are bad: a:0 > b:1 failed, n000:3 > n001:0 1.0 % of usual (path)",
        ),
        (
            Standing({}, complete=False, reason="n001: connection refused"),
            "No pair was tested: n001: connection refused",
        ),
        (
            Standing(OK, untested=4, complete=False, reason="4 pairs: GPU in use"),
            "All 56 tested pairs are ok, 4 not tested: 4 pairs: GPU in use",
        ),
        (
            Standing(TWO, [FIRST], untested=4, complete=False),
            "2 of 56 tested pairs are bad, 4 not tested: n000:1 > n001:2 timed out (path)",
        ),
        (
            Standing(OK, [CONTENTION]),
            "All 56 pairs are ok; warning: contention: 12 pairs are slow alongside other traffic and pass alone",
        ),
        (
            Standing(OK, [CONTENTION], failing=True),
            "contention: 12 pairs are slow alongside other traffic and pass alone; all 56 pairs are ok.",
        ),
        (
            Standing(OK, failing=True, others="ping: 1 failed"),
            "ping: 1 failed; all 56 pairs are ok.",
        ),
        (Standing({Verdict.OK: 20, Verdict.INCONCLUSIVE: 2}), "No bad pair among 22 pairs, 2 inconclusive."),
        (Standing({}, noun="GPU pair", running=True), "No GPU pair tested yet."),
        (Standing({}, running=True, measured=3, total=56), "3 of 56 pairs measured, being judged."),
        (
            Standing({Verdict.OK: 24}, running=True, total=56, rechecked=7, suspect=SUSPECT, measured=31),
            "7 suspects, 31 of 56 pairs tested: a:0 > b:1 failed and 6 more",
        ),
        (
            Standing(TWO, [FIRST], running=True, rechecked=7),
            "2 of 56 tested pairs are bad, 7 suspects: n000:1 > n001:2 timed out (path)",
        ),
        (Standing({}, lead="job 7 is well"), "job 7 is well"),
        (Standing({Verdict.OK: 2}, lead="job 7 hangs", untested=10, complete=False, reason="in use"), "job 7 hangs"),
        (Standing(OK, lead="job 7 is well"), "job 7 is well; all 56 pairs are ok."),
        (
            Standing(TWO, [FIRST], lead="job 7 hangs"),
            "job 7 hangs; 2 of 56 pairs are bad: n000:1 > n001:2 timed out (path)",
        ),
        (Standing({}, [LOST], lead="job 7 is well", failing=True), "job 7 is well; but n005 is lost"),
    ],
)
def test_one_sentence_states_the_verdict(standing: Standing, text: str) -> None:
    assert sentence_text(standing) == text


def test_faults_that_the_user_knows_about_are_marked() -> None:
    known = FIRST.replace(acknowledged=Acknowledgement("cable ordered", 0.0))
    assert sentence_text(Standing(TWO, [SECOND, known])).endswith("n000:1 > n001:2 timed out (path) (known)")
    cut = sentence_text(Standing(TWO, [known]), 60)
    assert len(cut) <= 60
    assert cut.endswith("timed out (known)")


def test_the_domain_of_the_nodes_is_left_out() -> None:
    one = pair("n000.cluster:1", "n001.cluster:2", "failed", "")
    assert sentence_text(Standing(TWO, [one], domain=".cluster")).endswith(": n000:1 > n001:2 failed")


@pytest.mark.parametrize("glyphs", [Glyphs(False), ASCII])
@pytest.mark.parametrize("width", [24, 36, 40, 60, 80, 100, 120, 200])
def test_a_width_shortens_the_faults_and_never_the_numbers(width: int, glyphs: Glyphs) -> None:
    for findings in ([FIRST, SECOND], [LOST], []):
        text = sentence_text(Standing(TWO, findings, "GPU pair", failing=True), width, glyphs)
        assert len(text) <= width
        assert text.startswith(("2 of 56 GPU pairs are bad", "2 of 56 bad"))
        assert text.isascii() or not glyphs.plain


def test_at_80_columns_the_first_fault_is_whole_and_the_others_are_counted() -> None:
    assert sentence_text(TWO_BAD, 80) == "2 of 56 GPU pairs are bad: n000:1 > n001:2 timed out (path), and 1 more"
    assert sentence_text(TWO_BAD, 60) == "2 of 56 GPU pairs are bad: n000:1 > n001:2 timed out (path)"
    assert sentence_text(TWO_BAD, 24) == "2 of 56 bad"


def test_long_sets_of_nodes_are_shortened_before_the_sentence_is_cut() -> None:
    cut = finding("node-pair-blocked", route=Route("n[040-043,050]", "n[000-039,044-049,051-063]", False))
    standing = Standing({Verdict.FAILED: 112, Verdict.OK: 3920}, [cut], "GPU pair")
    assert sentence_text(standing, 90).endswith(": no traffic from n[040-043,050] to n[000…]")
    assert sentence_text(standing, 70).endswith(": no traffic from n[040…] to n[000…]")


def test_the_numbers_have_the_colour_of_the_worst_verdict() -> None:
    assert verdict_sentence(TWO_BAD)[0] == ("2 of 56 GPU pairs are bad", "$cell-timeout")
    assert verdict_sentence(Standing(OK))[0][1] == "$cell-good"
    assert "warning" in verdict_sentence(Standing(OK, complete=False))[0][1]


def test_sentences_of_sessions(make_model: Callable[[], ModelMaker]) -> None:
    names = ["n000:0", "n000:1", "n001:0", "n001:1"]
    maker = make_model().start(["n000", "n001"]).endpoints({"n000": 2, "n001": 2}).pairs(names)
    maker.add("phase", name="done")
    assert sentence_of(diagnose(maker.model())) == "All 12 pairs are ok."
    maker.measured("p2p", "n000:1", "n001:1", "failed", error="connect: Connection refused")
    assert sentence_of(diagnose(maker.model())) == "1 of 12 pairs is bad: n000:1 > n001:1 failed"
    unfinished = make_model().start(["n000", "n001"]).endpoints({"n000": 2, "n001": 2}).pairs(names)
    assert "are ok." not in sentence_of(diagnose(unfinished.model()))
    pings = make_model().start(["n000", "n001"], options={"probes": ["ping"]})
    pings.measured("ping", "n000", "n001", value=0.1, unit="ms", src_addr="10.0.0.1", dst_addr="10.0.0.2")
    pings.add("phase", name="done")
    assert sentence_of(diagnose(pings.model())) == "The only address pair is ok."


def test_results_that_nobody_has_judged_yet_and_causes_that_are_being_searched() -> None:
    assert sentence_text(Standing(noun="GPU pair", measured=12, judging=True)) == "12 GPU pairs measured, being judged."
    bad = {Verdict.OK: 53, Verdict.SLOW: 3}
    assert sentence_text(Standing(bad, noun="GPU pair", failing=True, judging=True)) == (
        "3 of 56 GPU pairs are bad, looking for causes."
    )
    assert sentence_text(Standing({Verdict.OK: 56}, judging=True)) == "No problem so far; 56 pairs tested."


def test_details_of_a_fault_are_left_out_before_its_words_are_cut() -> None:
    wrong = finding("pair-fails", pair=Route("n001:1", "n001:0", False), verdict="wrong", wrong="1 byte wrong")
    one = Standing({Verdict.OK: 11, Verdict.WRONG: 1}, [wrong])
    whole = "1 of 12 pairs is bad: n001:1 > n001:0 wrong data, 1 byte wrong"
    assert sentence_text(one, len(whole)) == whole
    assert sentence_text(one, len(whole) - 1) == "1 of 12 pairs is bad: n001:1 > n001:0 wrong data"
    assert sentence_text(one, 46) == "1 of 12 bad: n001:1 > n001:0 wrong data"
    assert sentence_text(one, 36).endswith("wrong …")


def test_a_fault_that_does_not_fit_ends_with_a_whole_word() -> None:
    lost = finding("node-lost", node="n005", state="failed", reason="connection refused: nobody listens")
    text = sentence_text(Standing({Verdict.OK: 12}, [lost], failing=True), 62)
    assert text == "n005 failed: connection refused: nobody listens; 12 of 12 ok"
    assert (
        sentence_text(Standing({Verdict.OK: 12}, [lost], failing=True), 44) == "n005 failed: connection …; 12 of 12 ok"
    )
