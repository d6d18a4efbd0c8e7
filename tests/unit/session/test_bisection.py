"""The search by halves over played nodes: groups side by side, its events, its outcome at every door."""

import json
from pathlib import Path

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.pairs.bisection_rules import outcome_sentence
from fabtui.export.json import bisection_text
from fabtui.model.events import BisectGroup, BisectRound, BisectStart
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from tests.unit.session.fakenodes import Script
from tests.unit.session.played import run

NODES = dict.fromkeys(("n000", "n001", "n002", "n003", "n004", "n005", "n006", "n007"), 2)


@pytest.mark.parametrize(
    ("slow", "outcome", "sentence"),
    [
        ([], "nothing", "all_reduce of 8 nodes is as fast as its parts: nothing was found"),
        ([{6}], "found", "all_reduce of 8 nodes is slow because of n003, though no pair shows it"),
        ([{4, 14}], "found", "all_reduce of 8 nodes is slow because of n002 with n007, though no pair shows it"),
        ([set(range(16))], "whole", "all_reduce of 8 nodes is slow only with all together"),
    ],
)
async def test_the_outcome(slow: list[set[int]], outcome: str, sentence: str, tmp_path: Path) -> None:
    record = tmp_path / "r.jsonl.gz"
    model, nodes = await run(Script(NODES, slow_together=slow), probes=("p2p",), bisect=True, record=record)
    last = model.bisection.last
    assert last is not None
    assert last.outcome == outcome
    assert outcome_sentence(model).startswith(sentence)
    found = diagnose(model)
    assert ("FT047" in [one.rule.id for one in found.findings]) is (outcome != "nothing")
    assert found.code == (outcome != "nothing")
    started = [one for link in nodes.links.values() for one in link.exchanged if one["op"] == "collective"]
    assert len({one["id"] for one in started}) > 2
    again = Model()
    for event in read_events(record):
        again.apply(event)
    assert bisection_text(again) == bisection_text(model)
    assert json.loads(bisection_text(model))["outcome"] == outcome


async def test_a_bad_pair_is_the_reason() -> None:
    script = Script(NODES, slow_together=[{4, 14}], rates={(4, 14): 1e9})
    model, _ = await run(script, probes=("p2p",), bisect=True)
    assert outcome_sentence(model).endswith("because of n002 > n007: n002:0 > n007:0 is slow as a pair")


async def test_too_few_nodes_are_no_answer() -> None:
    model, _ = await run(Script({"a": 1, "b": 1}), probes=("p2p",), bisect=True)
    assert outcome_sentence(model) == "the search has no answer: a search needs 4 nodes or ranks, and there are 2"


def test_nothing_was_found_though_a_group_failed_once() -> None:
    model = Model()
    model.apply(BisectStart(units=["a", "b", "c", "d"], collective="all_reduce", bytes=4, ranks=4))
    failed = BisectGroup([0, 1], [], "failed")
    model.apply(BisectRound(number=0, purpose="all", groups=[failed], outcome="nothing"))
    assert outcome_sentence(model) == "all_reduce of 4 ranks is as fast as its parts: nothing was found"


def test_a_round_with_unknown_units_is_refused() -> None:
    model = Model()
    model.apply(BisectStart(units=["a", "b"], collective="all_reduce", bytes=4, ranks=2))
    with pytest.raises(ValueError, match="unknown units"):
        model.apply(BisectRound(number=0, purpose="all", left=[2]))
