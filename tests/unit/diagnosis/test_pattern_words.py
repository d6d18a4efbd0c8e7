"""Words that patterns need: no line with a meaning is passed over for the lack of one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fabtui.diagnosis.knowledge.error_catalogue import Meaning, meanings
from fabtui.diagnosis.knowledge.failure_stage import stages
from fabtui.diagnosis.knowledge.log_causes import WordIndex
from fabtui.diagnosis.knowledge.pattern_words import LinePattern, form_of, words_of

PASTED = Path(__file__).parents[2] / "samples" / "pasted"


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("abc", {"abc"}),
        ("ab[cd]efgh", {"efgh"}),
        ("Abc(?:Def|Ghi)", {"abcdef", "abcghi"}),
        ("abcd?efgh", {"efgh"}),
        ("(?:x|yyy) longer word", {" longer word"}),
        ("one|two2", {"one", "two"}),
        ("(?:word){0,3}end1ing", {"ending"}),
        ("(?i:Word)", {"word"}),
        ("(?<!not )here", {"here"}),
        ("(?!without)", None),
        (r"\d{1,3}", None),
        ("ab|xyz", None),
        ("timeout.{1,9}rare", {"rare"}),
    ],
)
def test_words_that_a_pattern_needs(pattern: str, words: set[str] | None) -> None:
    assert words_of(pattern) == (None if words is None else frozenset(word.encode() for word in words))


@pytest.mark.parametrize("one", [one for one in meanings() if one.pattern is not None], ids=lambda one: one.id)
def test_the_example_of_an_entry_has_a_word_of_its_pattern(one: Meaning) -> None:
    words = words_of(one.pattern.pattern if one.pattern else "")
    assert words, "a pattern without a word is tried on every line of a large log"
    assert any(word in form_of(one.prints) for word in words)


def test_stages_that_are_evident_need_words() -> None:
    assert all(words_of(one.words.pattern) for one in stages() if one.evident)


@pytest.mark.parametrize("at_once", [7, 50, 1 << 20])
def test_the_index_finds_what_a_search_finds(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WordIndex, "_AT_ONCE", at_once)
    chance = random.Random(7)
    words = [("".join(chance.choices("abc .", k=chance.randint(3, 5))).encode(), at % 9) for at in range(40)]
    text = b"\n".join("".join(chance.choices("abc .", k=chance.randint(0, 30))).encode() for _ in range(60))
    expected = {
        number: frozenset(owner for word, owner in words if word in line)
        for number, line in enumerate(text.split(b"\n"))
        if any(word in line for word, _ in words)
    }
    assert WordIndex(words).lines(text) == expected
    assert WordIndex(words).lines(b"") == {}


@pytest.mark.parametrize(
    ("pattern", "text", "other"),
    [
        (r"(?i:Error) \d{1,3}\b", "an ERROR 12", "an err 12"),
        (r"^status=12(?!\d)", "status=12", "state=12"),
        (r"[A-Z]{2,4}_\w{3,9}7", "NCCL_IB7", "nccl-7"),
        (r"\S{1,20} -> (?:[1-3]|done)$", "x -> done", "x - done"),
        (r"[^a-z\n]{2}2p\.cc", "/p2p.cc", "/shm.cc"),
        ("(?:one |two )?three", "three", "four"),
    ],
)
def test_a_form_shows_that_a_pattern_cannot_match(pattern: str, text: str, other: str) -> None:
    one = LinePattern(pattern)
    assert one.may_match(form_of(text).decode())
    assert not one.may_match(form_of(other).decode())


def test_forms_of_what_patterns_match_may_match() -> None:
    lines = [one.prints for one in meanings()]
    lines += [line for path in sorted(PASTED.glob("*.txt")) for line in path.read_text().splitlines()]
    patterns = [one.pattern for one in meanings() if one.pattern] + [one.words for one in stages()]
    found = [(one, line) for line in lines for one in patterns if one.search(line)]
    assert len(found) > 300
    assert [(one.pattern, line) for one, line in found if not one.may_match(form_of(line).decode())] == []
