"""Patterns that are searched all at once: no text that one matches is passed over."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

from fabtui.diagnosis.knowledge.error_catalogue import meanings
from fabtui.diagnosis.knowledge.failure_stage import stages
from fabtui.diagnosis.knowledge.log_causes import LogReader
from fabtui.diagnosis.knowledge.pattern_set import PatternSet

PASTED = Path(__file__).parents[2] / "samples" / "pasted"


@pytest.mark.parametrize(
    ("pattern", "text", "other"),
    [
        ("(?<!not )here", "it is here", "her"),
        (r"ends(?! never)(?:[(]|$)", "it ends", "it ended"),
        (r"end$", "the end\n", "ending"),
        (r"a.{2,300}b(?=c)", "a--bc", "b--a"),
        (r"[^()\s]{1,80}(?![\w.)])\(x", "f(x", "f(y"),
        ("(?i)Error \\d{1,3}", "an ERROR 12", "an err 12"),
        (r'\A(?=(?s:.*)"a[)(]?")(?=(?s:.*)"b")', '{\n"b": 1, "a(": 2}', '{"b": 1}'),
    ],
)
def test_a_set_finds_what_a_search_finds(pattern: str, text: str, other: str) -> None:
    patterns = PatternSet([("other", "zzz"), ("own", pattern), ("own", "yyy")])
    assert re.search(pattern, text)
    assert patterns.owners(text) == ["own"]
    assert patterns.owners(other) == []
    assert patterns.owners(f"{text} yyy zzz \udcff")[0] == "other"


def test_what_patterns_match_is_in_their_sets() -> None:
    lines = [one.prints for one in meanings()]
    lines += [line for path in sorted(PASTED.glob("*.txt")) for line in path.read_text().splitlines()]
    patterns = [one.pattern for one in meanings() if one.pattern] + [one.words for one in stages()]
    possible = PatternSet((pattern, pattern) for pattern in patterns)
    found = [(pattern, line) for line in lines for pattern in patterns if re.search(pattern, line)]
    assert len(found) > 300
    assert [(pattern, line) for pattern, line in found if pattern not in possible.owners(line)] == []


@pytest.mark.slow
def test_many_warnings_take_little_time() -> None:
    line = "n{0:03}:41:42 [{1}] NCCL WARN Something odd number {0} of an unknown kind of things {2}\n"
    text = "".join(line.format(number, number % 8, "ab" * (number % 9)) for number in range(48_000))
    assert len(text) > 4_200_000
    start = time.process_time()
    LogReader().add(text)
    # About 2 s on one core; a busy machine takes longer.
    assert time.process_time() - start < 10


def test_each_line_of_a_log_is_searched_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    owners = PatternSet.owners

    def counted(patterns: PatternSet[Any], text: str) -> list[Any]:
        searched.append(text)
        return owners(patterns, text)

    lines = [f"n{number}:1:2 [0] NCCL WARN what nobody knows: {number}" for number in range(50)]
    monkeypatch.setattr(PatternSet, "owners", counted)
    reader = LogReader()
    reader.add("\n".join(lines))
    assert len(searched) <= 2 * len(lines)
    assert reader.result().unknown
