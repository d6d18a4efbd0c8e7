"""Rules about pairs without a common component, about tapers, and about pairs that only stand out."""

from dataclasses import replace
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding, Kind
from fabtui.diagnosis.pairs.pair_context import PairContext
from fabtui.diagnosis.pairs.pair_rules import LeafTaper
from fabtui.diagnosis.pairs.tally import Tally
from fabtui.model.events import InventoryUpdate, Measured, ProbeResult
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import title
from fabtui.presentation.verdict_line import fault_text
from tests.unit.diagnosis.test_pair_rules import Judge, dead_if, fabric

OK, TIMEOUT = Verdict.OK, Verdict.TIMEOUT
LEAF = dict(zip("abcdef", "112233", strict=True))
#: Pairs without a common end, node pair or rail.
SCATTERED = [("a:0", "b:1"), ("b:2", "c:3"), ("c:0", "d:1"), ("d:2", "a:3"), ("b:0", "d:3")]


def of(model: Model, rule: str) -> list[Finding]:
    return [one for one in diagnose(model).findings if one.rule.name == rule]


def scattered(count: int, value: Verdict | float) -> Model:
    return fabric("abcd", 4, lambda s, d: value if (s, d) in SCATTERED[:count] else 1.0)


@pytest.mark.parametrize(
    ("value", "single", "several"), [(TIMEOUT, "pair-fails", "pairs-same-error"), (0.3, "pair-slow", "pairs-slow")]
)
def test_four_pairs_are_reported_one_by_one_and_five_as_one(value: Any, single: str, several: str) -> None:
    four = scattered(4, value)
    assert (len(of(four, single)), len(of(four, several))) == (4, 0)
    five = scattered(5, value)
    assert (len(of(five, single)), len(of(five, several))) == (0, 1)
    assert len(of(five, several)[0].cells) == 5


def test_one_slow_value_after_a_good_one_is_one_slow_measurement_until_a_second_test_confirms_it() -> None:
    model = fabric("abcd", 4, dead_if(lambda s, d: False))
    model.suspects["a:0", "b:1"] = "the path between them is at fault: both ends work with other partners (x)"
    for at, severity in ((5.0, "warn"), (6.0, "bad")):
        slow = Measurement(Layer.P2P, "a:0", "b:1", OK, 1.0, "GB/s", 8, at)
        model.apply(Measured(measurements=[slow], time=at))
        (one,) = diagnose(model).findings
        assert (one.rule.name, one.severity) == ("pair-slow", severity)
        once = at == 5.0
        assert title(one) == ("a:0 > b:1 slow: one slow measurement" if once else "a:0 > b:1 slow")
        assert fault_text(one).endswith("(one slow measurement)" if once else "(path)")


@pytest.mark.parametrize(
    ("pairs", "name", "text"),
    [
        ([("a:0", "b:1")], "a:0 > b:1", "a:0 > b:1 timed out"),
        ([("b:1", "a:0")], "b:1 > a:0", "b:1 > a:0 timed out"),
        ([("a:0", "b:1"), ("b:1", "a:0")], "a:0 - b:1", "a:0 - b:1 timed out"),
    ],
)
def test_a_single_pair_is_named_by_its_directions(pairs: list[tuple[str, str]], name: str, text: str) -> None:
    (found,) = diagnose(fabric("abcd", 2, dead_if(lambda s, d: (s, d) in pairs))).findings
    assert found.subject == (Kind.PAIR, name)
    assert (title(found), found.cells) == (text, frozenset(pairs))
    assert found.next[0].startswith(f"ssh {pairs[0][0][0]} ping") or len(pairs) == 2


def test_a_slow_pair_has_its_share_and_commands_though_it_was_measured() -> None:
    (one,) = of(fabric("abcd", 2, lambda s, d: 0.3 if (s, d) == ("b:1", "a:0") else 1.0), "pair-slow")
    assert one.next[0] == "ssh b ibstat mlx5_1"
    assert one.facts["of_usual"].value == pytest.approx(13.5)
    assert "slowest" not in one.facts
    (inside,) = of(fabric("abcd", 2, lambda s, d: 0.3 if {s, d} == {"b:0", "b:1"} else 1.0), "pair-slow")
    assert inside.next[0] == "ssh b nvidia-smi topo -p2p n"
    assert inside.facts["slowest"].value == pytest.approx(105.0)
    assert "of_usual" not in inside.facts


def test_a_slow_pair_beside_a_dead_one_is_no_dead_one() -> None:
    values: dict[tuple[str, str], Verdict | float] = {("a:0", "b:1"): 0.3, ("c:0", "d:1"): TIMEOUT}
    model = fabric("abcd", 2, lambda s, d: values.get((s, d), 1.0))
    assert [title(one) for one in diagnose(model).findings] == ["c:0 > d:1 timed out", "a:0 > b:1 slow"]


def with_stalls(kind: str, *ratios: float) -> Model:
    model = fabric("ab", 2, dead_if(lambda s, d: False), kind=kind)
    rows = [
        replace(m, extra={"times": {"count": 20, "median": 1e-3, "p99": ratio * 1e-3}})
        for m, ratio in zip([m for m in model.measurements() if m.layer is Layer.P2P], ratios, strict=False)
    ]
    model.apply(Measured(measurements=rows, time=3.0))
    return model


def test_the_two_pairs_with_the_slowest_messages_are_notes() -> None:
    found = of(with_stalls("gpu", 4.0, 9.0, 5.0), "slow-messages")
    assert [round(one.facts["ratio"], 1) for one in found] == [9.0, 5.0]
    assert [str(one.severity) for one in found] == ["note", "note"]
    assert len(of(with_stalls("gpu", 4.0), "slow-messages")) == 1
    assert of(with_stalls("cpu", 4.0, 9.0), "slow-messages") == [], "those of CPU ranks always spread widely"


def on_leaves(judge: Judge, leaf_of: str, per_node: int = 2) -> Model:
    nodes = "abcdef"[: len(leaf_of)]
    model = fabric(nodes, per_node, judge)
    for node, leaf in zip(nodes, leaf_of, strict=True):
        ports = [{"ca": f"mlx5_{index}", "port": 1} for index in range(per_node)]
        model.apply(InventoryUpdate(node=node, value={"ib": ports}, time=3.0))
        found = [{**port, "leaf": {"guid": f"leaf {leaf}"}} for port in ports]
        model.apply(ProbeResult(node=node, probe="ibfabric", value={"ports": found}, time=3.0))
    return model


def tapers(model: Model) -> list[tuple[tuple[str, str], float]]:
    found = LeafTaper().findings(PairContext(model, Tally()))
    return [((one.facts["leaf_a"], one.facts["leaf_b"]), one.facts["share"]) for one in found]


@pytest.mark.parametrize(("share", "count"), [(0.88, 1), (0.92, 0)])
def test_a_taper_of_a_tenth_is_worth_a_note(share: float, count: int) -> None:
    found = tapers(on_leaves(lambda s, d: share if (s[0] in "abc") != (d[0] in "abc") else 1.0, "111222"))
    assert len(found) == count
    if found:
        assert found[0][0] == ("a,b,c", "d,e,f")
        assert found[0][1] == pytest.approx(share)


def test_one_leaf_switch_has_no_taper_and_three_have_one_name() -> None:
    assert tapers(on_leaves(lambda s, d: 0.5 if s[0] != d[0] else 1.0, "1111")) == []
    (one,) = tapers(on_leaves(lambda s, d: 1.0 if LEAF[s[0]] == LEAF[d[0]] else 0.5, "112233"))
    assert one[0] == ("nodes of 3 leaf switches", "each other")


def test_a_taper_between_rails_alone_counts_too() -> None:
    def judge(src: str, dst: str) -> float:
        return 0.5 if LEAF[src[0]] != LEAF[dst[0]] and src[2] != dst[2] else 1.0

    (one,) = tapers(on_leaves(judge, "1122"))
    assert one[1] == pytest.approx(0.5)
