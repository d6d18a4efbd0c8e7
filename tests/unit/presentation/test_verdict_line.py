from __future__ import annotations

import pytest

from fabtui.model.measurement import Verdict
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.verdict_line import verdict_line
from fabtui.presentation.wording import plain

BAD = {Verdict.OK: 53, Verdict.FAILED: 1, Verdict.TIMEOUT: 1, Verdict.SLOW: 1}
FOUND = [("n001:0>n000:0 failed", ""), ("n000:1>n001:2 timeout", ""), ("n000:0>n000:3 slow (0.5 % of usual)", "")]


def shown(width: int, counts: dict[Verdict, int] = BAD, found: list[tuple[str, str]] = FOUND, **how: object) -> str:
    given = {"final": True, "count_of": len(found), **how}
    text = plain(verdict_line(counts, found, width, Glyphs(False), **given))  # type: ignore[arg-type]
    assert len(text) <= width
    return text


@pytest.mark.parametrize("width", [36, 40, 59, 60, 80, 100, 120, 200])
def test_counts_of_verdicts_and_the_key_stay_at_every_width(width: int) -> None:
    text = shown(width)
    assert text.startswith("3 of 56 ")
    assert "bad  1x 1T 1!  " in text or "bad  1 failed, 1 timeout, 1 slow  " in text
    assert " F" in text


def test_verdicts_are_words_where_they_take_the_room_of_no_finding() -> None:
    assert "  1 failed, 1 timeout, 1 slow  n001:0>n000:0 failed" in shown(200)
    assert "  1x 1T 1!  n001:0>n000:0 failed" in shown(110), "two findings fit with glyphs, one with words"
    assert shown(79, BAD, FOUND[:1]).startswith("3 of 56 pairs bad  1x 1T 1!  n001:0>n000:0 failed ")
    assert shown(80, BAD, FOUND[:1]).startswith("3 of 56 pairs bad  1 failed, 1 timeout, 1 slow  n001:0>n000:0 failed ")


def test_findings_follow_as_far_as_they_fit_and_the_rest_are_counted() -> None:
    assert shown(110).split("1!  ")[1].split("   ")[0] == "n001:0>n000:0 failed · n000:1>n001:2 timeout · 1 more"
    assert shown(80).split("1!  ")[1].split("   ")[0] == "n001:0>n000:0 failed · 2 more"
    assert "slow (0.5 % of usual)" in shown(200)
    assert shown(200, count_of=40).rstrip().endswith("F 40 findings")
    assert "37 more" in shown(200, count_of=40)


def test_a_sweep_in_progress_claims_nothing_about_untested_pairs() -> None:
    fine = {Verdict.OK: 20}
    assert shown(80, fine, [], final=False, note="none so far: sweep in progress") == (
        "no bad pair among 20 tested pairs  none so far: sweep in progress" + " " * 5 + "F findings"
    )
    assert shown(80, BAD, [], final=False).startswith("3 of 56 tested pairs bad")
    assert shown(80, {}, [], final=False).startswith("no pair tested yet")
    assert shown(80, {}, [], final=False, measured=1).startswith("1 pair tested so far")
    assert shown(80, fine, []).startswith("all 20 pairs ok")
    unclear = shown(80, {Verdict.OK: 20, Verdict.INCONCLUSIVE: 2}, [])
    assert unclear.startswith("no bad pair among 22 pairs  2 inconclusive")
    assert shown(80, fine, [], untested=4).startswith("no bad pair among 20 pairs  4 not tested")
