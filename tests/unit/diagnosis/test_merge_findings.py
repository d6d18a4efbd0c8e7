"""One list of findings: which are about the same, which one gives the title, and which facts explain which."""

from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import RULES, AddressPair, Finding, Kind, Severity, Subject
from fabtui.diagnosis.merge_findings import joined
from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from tests.unit.diagnosis.test_pair_rules import dead_if, fabric

PAIRS = [(f"a:{i}", f"b:{j}") for i in range(8) for j in range(8)]
NODE_SLOW, GPU_SLOW, HOLE, FIREWALL, LOSS, JUDGEMENT = "FT020", "FT021", "FT204", "FT206", "FT207", "FT301"


def about(rule: str, first: int = 0, last: int = 0, **more: Any) -> Finding:
    found = next(one for one in RULES if one.id == rule)
    return found.finding("", cells=PAIRS[first:last]).replace(**more)


@pytest.fixture(scope="module")
def model() -> Model:
    made = fabric("ab", 4, dead_if(lambda s, d: False))
    assert diagnose(made).findings == []
    return made


def join(model: Model, *results: Finding, facts: tuple[Finding, ...] = ()) -> tuple[list[Finding], list[Finding]]:
    steps = joined(model, results, facts)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: tuple[list[Finding], list[Finding]] = end.value
            return found


def test_a_reason_gives_the_title_and_keeps_the_component(model: Model) -> None:
    gpu, node = Subject(Kind.GPU, "a:0"), Subject(Kind.NODE, "b")
    slow = about(NODE_SLOW, 0, 10, blames=gpu, tested=30, confidence=0.7, rivals=(node,), severity=Severity.WARN)
    (found,), _ = join(model, slow, about(HOLE, 0, 10, blames=node, next=("nft",)))
    assert found.rule.id == HOLE
    assert (found.subject, found.tested, found.confidence, found.rivals) == (gpu, 30, 0.7, (node,))
    assert (found.severity, found.next) == (Severity.BAD, ("nft",))
    (found,), _ = join(model, slow, about(HOLE, 0, 14, blames=node))
    assert found.subject == gpu
    (found,), _ = join(model, slow, about(HOLE, 0, 16, blames=node))
    assert found.subject == node, "what has far more cells is blamed"


def test_of_several_the_one_with_the_most_similar_cells_takes_a_consequence(model: Model) -> None:
    found, _ = join(model, about(NODE_SLOW, 0, 40), about(GPU_SLOW, 40, 50), about(LOSS, 38, 48))
    assert [len(one.facts.get("related", ())) for one in found] == [0, 1]


def test_ranks_that_were_killed_for_memory_follow_from_the_limit_of_their_node(model: Model) -> None:
    killed, refused = (about("FT017", 0, 1, facts={"code": code}) for code in ("E51", "E10"))
    limit, kills = (about(rule, nodes=("b",)) for rule in ("FT141", "FT142"))
    collectives = about("FT034", nodes=("b",))
    (found,), left = join(model, killed, collectives, facts=(kills, limit))
    assert ([one.rule.id for one in found.facts["related"]], left) == (["FT017", "FT034"], [])
    assert (found.rule.id, found.facts["known"][0].rule.id, found.cells) == ("FT141", "FT142", killed.cells)
    found_, _ = join(model, refused, facts=(limit,))
    assert found_[0].rule.id == "FT017", "nothing was killed"


def test_notes_and_what_blocks_datagrams_alone_stay_apart(model: Model) -> None:
    found, _ = join(model, about(NODE_SLOW, 0, 10), about(FIREWALL, 0, 10, facts={"protocols": "UDP"}))
    assert len(found) == 2
    found, _ = join(model, about(NODE_SLOW, 0, 10), about(HOLE, 0, 10, severity=Severity.NOTE))
    assert len(found) == 2
    found, _ = join(model, about(NODE_SLOW), about(GPU_SLOW))
    assert len(found) == 2, "without cells nothing is shared"


def test_what_fails_because_nothing_connects_is_not_reported_apart(model: Model) -> None:
    results = [about(NODE_SLOW, 0, 10), about(GPU_SLOW, 8, 18), about(GPU_SLOW, 14, 30)]
    found, _ = join(model, *results, about(FIREWALL, 0, 20, facts={"protocols": "TCP"}))
    assert [one.rule.id for one in found] == [GPU_SLOW, FIREWALL]
    assert len(found[0].cells) == 16, "most of its pairs connect"
    assert "related" not in found[1].facts


def test_commands_are_five_at_most_and_each_once(model: Model) -> None:
    (found,), _ = join(
        model, about(NODE_SLOW, 0, 9, next=("1", "2", "3")), about(LOSS, 0, 9, next=("3", "4", "5", "6"))
    )
    assert found.next == ("1", "2", "3", "4", "5")


def fact(kind: Kind, name: str, *more: Subject) -> Finding:
    return about(JUDGEMENT, blames=Subject(kind, name), about=(Subject(kind, name), *more), next=("look",))


@pytest.mark.parametrize(
    ("kind", "name", "explains"),
    [
        (Kind.GPU, "a:1", True),
        (Kind.NIC, "a mlx5_1", True),
        (Kind.NODE, "a", False),
        (Kind.GPU, "a:2", False),
        (Kind.NIC, "b mlx5_1", False),
    ],
)
def test_a_fact_explains_its_component_and_what_is_next_to_it(
    model: Model, kind: Kind, name: str, explains: bool
) -> None:
    (found,), left = join(
        model, about(GPU_SLOW, 0, 9, blames=Subject(Kind.GPU, "a:1"), next=("x",)), facts=(fact(kind, name),)
    )
    assert len(found.facts.get("known", ())) == explains
    assert len(left) == (not explains)
    assert found.next == (("look", "x") if explains else ("x",))


@pytest.mark.parametrize(("nic", "explains"), [("a eth1", True), ("a eth0", False)])
def test_a_fact_about_a_link_that_flaps_is_a_part_of_it_before_anything_fails(
    model: Model, nic: str, explains: bool
) -> None:
    flaps = about("FT220", blames=Subject(Kind.NIC, nic), severity=Severity.WARN)
    (found,), left = join(model, flaps, facts=(fact(Kind.NIC, "a eth1"),))
    assert len(found.facts.get("known", ())) == explains
    assert len(left) == (not explains)


def test_a_fact_about_a_part_explains_its_node(model: Model) -> None:
    slow = about(NODE_SLOW, 0, 9, blames=Subject(Kind.NODE, "a"))
    halves = slow.replace(blames=Subject(Kind.HALVES, "a"))
    for one in (slow, halves):
        (found,), left = join(
            model, one, facts=(fact(Kind.GPU, "a:3"), fact(Kind.NIC, "a mlx5_0"), fact(Kind.GPU, "b:3"))
        )
        assert (len(found.facts["known"]), len(left)) == (2, 1)


def test_a_fact_about_a_rival_decides(model: Model) -> None:
    gpu, nic, node = Subject(Kind.GPU, "a:1"), Subject(Kind.NIC, "a mlx5_1"), Subject(Kind.NODE, "a")
    tie = about(GPU_SLOW, 0, 9, blames=gpu, rivals=(node, nic), confidence=0.5)
    (found,), _ = join(model, tie, facts=(fact(*nic),))
    assert (found.subject, found.rivals, found.confidence) == (nic, (gpu, node), None)
    (found,), _ = join(model, tie, facts=(fact(*gpu),))
    assert (found.subject, found.rivals, found.confidence) == (gpu, (node, nic), 0.5)


def test_facts_explain_no_notes_and_nothing_without_results(model: Model) -> None:
    gpu = Subject(Kind.GPU, "a:1")
    for one in (about(GPU_SLOW, 0, 9, blames=gpu, severity=Severity.NOTE), about(GPU_SLOW, blames=gpu)):
        (found,), left = join(model, one, facts=(fact(*gpu),))
        assert ("known" in found.facts, len(left)) == (False, 1)


def test_facts_about_one_device_are_one_and_those_about_a_node_are_not(model: Model) -> None:
    _, left = join(model, facts=(fact(Kind.GPU, "a:1"), fact(Kind.GPU, "a:1"), fact(Kind.GPU, "a:2")))
    assert [len(one.facts.get("known", ())) for one in left] == [1, 0]
    _, left = join(model, facts=(fact(Kind.NODE, "a"), fact(Kind.NODE, "a")))
    assert len(left) == 2
    both = fact(Kind.GPU, "a:1", Subject(Kind.GPU, "a:2"))
    (one,) = join(model, facts=(fact(Kind.GPU, "a:1"), both, fact(Kind.GPU, "a:2")))[1]
    assert (one.about, len(one.facts["known"])) == (both.about, 2), "what is about one of them is a part of it"
    _, left = join(model, facts=(fact(Kind.GPU, "a:1", Subject(Kind.NODE, "a")), fact(Kind.GPU, "a:1")))
    assert len(left) == 2


@pytest.mark.parametrize(
    ("kind", "name", "explains"),
    [(Kind.GPU, "a:1", True), (Kind.NIC, "a mlx5_1", False), (Kind.GPU, "a:3", False), (Kind.NODE, "a", False)],
)
def test_a_fact_about_an_end_explains_its_pair(model: Model, kind: Kind, name: str, explains: bool) -> None:
    for sign in "->":
        pair = about(GPU_SLOW, 0, 2, blames=Subject(Kind.PAIR, f"a:0 {sign} a:1"))
        assert len(join(model, pair, facts=(fact(kind, name),))[1]) == (not explains)


def test_a_reason_about_a_node_with_two_gpus_blames_the_node(model: Model) -> None:
    pair, node = Subject(Kind.PAIR, "a:0 - a:1"), Subject(Kind.NODE, "a")
    (found,), _ = join(model, about(GPU_SLOW, 0, 2, blames=pair), about("FT042", 0, 2, blames=node))
    assert (found.rule.id, found.subject) == ("FT042", node)


@pytest.mark.parametrize(("rule", "cells"), [("FT208", 0), (LOSS, 10)])
def test_delay_and_loss_say_why_a_nic_is_slow(model: Model, rule: str, cells: int) -> None:
    nic = Subject(Kind.NIC, "a mlx5_0")
    reason = about(rule, 0, cells, blames=nic, severity=Severity.WARN, next=("ping",))
    (found,), _ = join(model, about(GPU_SLOW, 0, 10, blames=nic, next=("ibstat",)), reason)
    assert (found.rule.id, found.severity, len(found.cells)) == (rule, Severity.BAD, 10)
    assert found.next == ("ping", "ibstat")
    assert [one.rule.id for one in found.facts["related"]] == [GPU_SLOW]


def test_much_loss_breaks_pairs_and_little_does_not(model: Model) -> None:
    nic = Subject(Kind.NIC, "a mlx5_0")
    dead = about("FT014", 0, 10, blames=nic)
    for percent, title in ((2.0, "FT014"), (31.0, LOSS)):
        (found,), _ = join(model, dead, about(LOSS, 0, 10, blames=nic, facts={"loss": (percent, percent)}))
        assert found.rule.id == title


def test_a_cut_off_interface_that_is_up_is_no_fault_of_its_nic(model: Model) -> None:
    nic = Subject(Kind.NIC, "a mlx5_0")
    for beyond, title in ((True, "FT201"), (False, "FT014")):
        cut = about("FT201", 0, 10, blames=nic, facts={"beyond": beyond})
        (found,), _ = join(model, about("FT014", 0, 10, blames=nic), cut)
        assert found.rule.id == title


def test_a_firewall_of_a_node_explains_its_dead_endpoints(model: Model) -> None:
    wall = about(FIREWALL, 0, 4, blames=Subject(Kind.NODE, "a"))
    (found,), _ = join(model, about("FT014", 3, 20, blames=Subject(Kind.GPU, "a:0")), wall)
    assert found.rule.id == FIREWALL


def test_how_to_leave_out_an_interface_is_no_remedy_for_one_that_is_down(model: Model) -> None:
    nic = Subject(Kind.NIC, "a mlx5_0")
    down = about("FT221", 0, 10, blames=nic, next=("ip",))
    (found,), _ = join(model, down, facts=(about(JUDGEMENT, blames=nic, next=("set NCCL_SOCKET_IFNAME",)),))
    assert found.next == ("ip",)


def test_what_fails_over_a_port_that_flaps_follows_from_it(model: Model) -> None:
    nic = Subject(Kind.NIC, "a mlx5_1")
    flaps = about("FT220", blames=nic, severity=Severity.WARN)
    over = frozenset({("a:1", "b:0"), ("b:1", "a:1")})
    for rule in ("FT014", "FT016", GPU_SLOW, "FT023"):
        (found,), _ = join(model, flaps, about(rule, cells=over, next=("check its NIC",)))
        assert (found.rule.id, found.severity, found.cells) == ("FT220", about(rule).severity, over)
    for rule, cells in (
        (GPU_SLOW, {("a:1", "a:2")}),
        (GPU_SLOW, {("a:1", "b:0"), ("a:2", "b:0")}),
        ("FT007", over),
    ):
        results, _ = join(model, flaps, about(rule, cells=frozenset(cells)))
        assert len(results) == 2, "within the node, over another port, wrong data"


def test_pings_that_are_lost_at_a_node_with_a_faulty_port_follow_from_it(model: Model) -> None:
    port = Subject(Kind.NIC, "a mlx5_1")
    path = AddressPair("a", "10.0.0.1", "b", "10.0.0.2")
    pings = frozenset({(Layer.PING, path), (Layer.PING, path.reverse)})
    icmp = about("FT203", nodes=("a", "b"), measurements=pings, severity=Severity.WARN)
    for rule in ("FT220", "FT221"):
        (found,), _ = join(model, about(rule, blames=port, severity=Severity.WARN), icmp)
        assert [one.rule.id for one in (found, *found.facts["related"])] == [rule, "FT203"]
    results, _ = join(model, about("FT220", blames=Subject(Kind.NIC, "c mlx5_1")), icmp)
    assert len(results) == 2
