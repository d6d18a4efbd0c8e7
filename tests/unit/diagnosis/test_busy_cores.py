"""CPU ranks on shared cores: low values by their load are reported as such; what has a common cause is still blamed."""

import itertools
import random
from collections.abc import Callable, Iterable

import pytest

from fabtui.diagnosis.diagnosis import Diagnosis, diagnose
from fabtui.diagnosis.finding import RULES, Finding
from fabtui.diagnosis.pairs.pair_context import PairContext
from fabtui.diagnosis.pairs.tally import Survey
from fabtui.model.class_statistics import ClassValues
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import (
    EndpointsAdded,
    InventoryUpdate,
    Measured,
    NodeState,
    NodeUpdate,
    PhaseStart,
    PlanUpdate,
    ProbeResult,
    SessionEnd,
    SessionStart,
)
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from fabtui.presentation.verdict_line import sentence_of

NODES = ("h0", "h1", "h2", "h3")


def lab(
    slow: Iterable[tuple[str, str]] = (),
    *,
    cores: int = 2,
    load: float = 0.3,
    kind: str = "cpu",
    busbw: Callable[[str, str], float] = lambda a, b: 1.0,
    dead: Iterable[tuple[str, str]] = (),
    ranks: int = 2,
) -> Model:
    """Four nodes of some ranks each on one machine with some cores; some pairs are slow, some fail."""
    model = Model()
    model.apply(SessionStart(nodes=list(NODES), time=1.0))
    for at, node in enumerate(NODES):
        model.apply(NodeUpdate(node=node, state=NodeState.READY, time=1.0))
        model.apply(InventoryUpdate(node=node, value={"cpus": cores}, time=1.0))
        processors = {"load": load, "cpus_online": list(range(cores))}
        host = {"identity": {"boot_id": "b-1", "hostname": node}, "processors": processors}
        model.apply(ProbeResult(node=node, probe="host", value=host, time=1.0))
        ends = [
            Endpoint(ranks * at + i, node, i, kind=kind, nic=f"eth{i}", rail=i, address=f"10.{i}.0.{at + 1}")
            for i in range(ranks)
        ]
        model.apply(EndpointsAdded(endpoints=ends, time=1.0))
    model.apply(PlanUpdate(slow_below=0.2, time=1.0))
    low, failing = set(slow), set(dead)
    for src, dst in itertools.permutations(map(str, model.endpoints), 2):
        add(model, Layer.P2P, src, dst, None if (src, dst) in failing else 0.01 if (src, dst) in low else 1.0)
    for a, b in itertools.combinations(NODES, 2):
        add(model, Layer.BUSBW, a, b, busbw(a, b))
    model.apply(PhaseStart(name="done", time=9.0))
    return model


def add(model: Model, layer: Layer, src: str, dst: str, value: float | None, at: float = 2.0) -> None:
    verdict, error = (Verdict.FAILED, "connect: refused") if value is None else (Verdict.OK, None)
    one = Measurement(layer, src, dst, verdict, value, "GB/s", 1 << 20, at, error=error)
    model.apply(Measured(measurements=[one], time=at))


def of(found: Diagnosis, rule: str) -> list[Finding]:
    return [one for one in found.findings if one.rule.id == rule]


def test_single_slow_pairs_are_the_cores_and_no_reason_to_drain_a_node() -> None:
    found = diagnose(lab([("h3:0", "h3:1"), ("h0:0", "h2:1")], load=4.25))
    (one,) = found.findings
    assert (one.rule.id, str(one.severity)) == ("FT029", "warn")
    assert title(one) == "the cores of h[0-3] are busy: 8 CPU ranks on 2 cores, load 4.2"
    assert evidence(one)[0] == "2 pairs slow that have nothing in common: h0:0 > h2:1, h3:0 > h3:1"
    assert one.next[0] == "ssh h0 uptime"
    assert found.code == 0
    assert found.healthy is not None
    assert (found.healthy.nodes, found.healthy.drain) == (NODES, ())


@pytest.mark.parametrize(("cores", "load"), [(64, 0.3), (64, 63.0)])
def test_ranks_with_cores_enough_are_judged_as_ever(cores: int, load: float) -> None:
    found = diagnose(lab([("h3:0", "h3:1")], cores=cores, load=load))
    assert [one.rule.id for one in found.findings] == ["FT023"]
    assert found.code == 1


def test_cores_that_other_programs_use_are_busy_too() -> None:
    (one,) = diagnose(lab([("h3:0", "h3:1")], cores=64, load=70.0)).findings
    assert title(one) == "the cores of h[0-3] are busy: 8 CPU ranks on 64 cores, load 70.0"


def test_a_slow_pair_within_a_node_of_unknown_cores_is_no_link() -> None:
    model = lab([("h3:0", "h3:1")])
    for record in model.nodes.values():
        record.first_probe_results.clear()
    found = diagnose(model)
    assert [title(one) for one in found.findings] == [
        "CPU ranks of h3 may share cores: some values are low, and no link explains them"
    ]
    assert found.code == 0


def test_the_inventory_knows_the_cores_where_the_probe_of_the_host_did_not_run() -> None:
    model = lab([("h3:0", "h3:1"), ("h0:0", "h2:1")])
    for record in model.nodes.values():
        record.first_probe_results.clear()
        record.inventory = {"cpus": 2, "boot_id": "b-1", "cpus_online": 2, "load": 9.5}
    found = diagnose(model)
    assert [title(one) for one in found.findings] == ["the cores of h[0-3] are busy: 8 CPU ranks on 2 cores, load 9.5"]
    assert found.code == 0


def test_gpus_do_not_wait_for_cores() -> None:
    found = diagnose(lab([("h3:0", "h3:1")], kind="gpu"))
    assert [one.rule.id for one in found.findings] == ["FT023"]
    assert found.code == 1


def test_a_slow_nic_is_blamed_on_busy_cores_too() -> None:
    slow = [(f"{node}:1", "h1:1") for node in NODES if node != "h1"]
    found = diagnose(lab([*slow, ("h3:0", "h3:1")]))
    assert [one.rule.id for one in found.findings] == ["FT021", "FT029"]
    assert title(found.findings[0]).startswith("h1:1 is slow with")
    assert found.code == 1
    assert found.healthy is not None
    assert found.healthy.drain == ("h1",)


def test_a_rank_with_many_slow_pairs_on_busy_cores_is_not_to_blame_while_others_of_its_pairs_are_well() -> None:
    """A rank that got little of the cores for some seconds; a slow NIC or a slow process is slow with all."""
    others = [f"{node}:{rank}" for node in NODES for rank in (0, 1)][1:]
    slow = [*(("h0:0", end) for end in others[-5:]), *((end, "h0:0") for end in others[-4:])]
    assert [one.rule.id for one in diagnose(lab(slow, load=16.0)).findings] == ["FT029"]
    # With cores enough there is no other reason.
    assert [one.rule.id for one in diagnose(lab(slow, cores=64)).findings] == ["FT021"]


def test_what_waits_for_cores_in_both_layers_is_no_failure() -> None:
    model = lab([("h0:0", "h2:1")], load=4.25)
    for src, dst in itertools.permutations(map(str, model.endpoints), 2):
        add(model, Layer.WORLD, src, dst, 0.01 if (src, dst) == ("h0:0", "h2:1") else 1.0)
    found = diagnose(model)
    assert [one.rule.id for one in found.findings] == ["FT029"]
    assert found.code == 0


def test_ranks_whose_values_are_close_by_chance_are_no_reference_for_the_others() -> None:
    """Values of ranks that share cores spread, and the best cluster may be small."""
    values = [1.2, 1.21, 1.22, 1.23, 1.24, 1.25, *(0.9 - 0.01 * at for at in range(50))]
    of_ranks = ClassValues(values)
    assert not [one for one in values if of_ranks.is_slow(one, 0.2)]
    # Links are in one of two clusters, and so are ranks of which some have less than half.
    assert len([one for one in values if of_ranks.is_slow(one, 0.7)]) == 50
    halves = ClassValues([1.2, 1.21, 1.22, 1.23, 1.24, 1.25, *[0.3] * 10])
    assert halves.is_slow(0.3, 0.2)


def test_two_wide_modes_of_ranks_are_both_usual_and_one_value_of_many_pairs_is_a_fault() -> None:
    """Values of ranks that get a core to themselves are many times those of the others."""
    fast = [10.0 + 0.4 * at for at in range(20)]
    slower = [1.0 * 1.045**at for at in range(25)]
    modes = ClassValues([*fast, *slower])
    assert not [one for one in slower if modes.is_slow(one, 0.2)]
    assert modes.is_slow(0.1, 0.2)
    assert [one for one in slower if modes.is_slow(one, 0.7)] == slower, "links have one"
    few = ClassValues([*fast, *slower[:12]])
    assert few.is_slow(slower[0], 0.2), "less than half of them"
    alike = ClassValues([*fast, *[1.0, 1.01, 1.02] * 8])
    assert alike.is_slow(1.0, 0.2), "a limit of the link"
    far = ClassValues([*fast, *(0.01 * 1.045**at for at in range(25))])
    assert far.is_slow(0.012, 0.2), "lost packets"


def test_all_pairs_of_different_nodes_are_never_slow_beside_busy_cores() -> None:
    ends = [f"{node}:{rank}" for node in NODES for rank in (0, 1)]
    apart = [pair for pair in itertools.permutations(ends, 2) if pair[0][:2] != pair[1][:2]]
    slow = apart[::2] + apart[1:20:2]
    rules = {one.rule.id for one in diagnose(lab(slow, load=16.0)).findings}
    assert not {"FT025", "FT022"} & rules or "FT029" not in rules


def test_the_warning_about_this_box_comes_last() -> None:
    model = lab([("h0:0", "h2:1")], load=4.25)
    model.apply(NodeUpdate(node="h2", state=NodeState.LOST, text="Connection lost", time=10.0))
    model.apply(NodeUpdate(node="h2", state=NodeState.READY, time=18.0))
    model.apply(ProbeResult(node="h1", probe="host", value={"limits": {"nofile": [64, 64]}}, time=19.0))
    assert [one.rule.id for one in diagnose(model).findings][-1] == "FT029"


def test_what_is_over_does_not_explain_what_is_slow() -> None:
    model = lab([("h0:0", "h2:1")], load=4.25)
    model.apply(NodeUpdate(node="h3", state=NodeState.LOST, text="Connection lost", time=10.0))
    model.apply(NodeUpdate(node="h3", state=NodeState.READY, time=18.0))
    assert sentence_of(diagnose(model)) == (
        "1 of 56 pairs is slow: the cores of h[0-3] are busy: 8 CPU ranks on 2 cores, load 4.2; "
        "h3 was gone for 8 s, and is back"
    )


def within(node: str, *ranks: int) -> list[tuple[str, str]]:
    pairs = itertools.permutations(range(4), 2)
    return [(f"{node}:{a}", f"{node}:{b}") for a, b in pairs if not {a, b}.isdisjoint(ranks)]


@pytest.mark.parametrize(
    ("ranks", "first", "of_gpus"),
    [
        ((0, 1, 2, 3), "h3 is slow within itself, on all its 4 endpoints", "h3 is slow within itself"),
        ((2,), "h3:2 is slow within its node: check its process and its cores", "h3:2 is slow within its node"),
    ],
)
def test_cpu_ranks_that_are_slow_within_their_node_have_no_nvlinks_and_drain_none(
    ranks: tuple[int, ...], first: str, of_gpus: str
) -> None:
    found = diagnose(lab(within("h3", *ranks), cores=64, ranks=4))
    (one,) = found.findings
    assert title(one).startswith(first)
    assert one.next[-1] == "ssh h3 uptime"
    assert "NVLink" not in "\n".join([title(one), *evidence(one), *one.next])
    assert found.healthy is not None
    assert (found.code, found.healthy.drain, list(found.healthy.left_out)) == (1, (), ["h3"])
    found = diagnose(lab(within("h3", *ranks), ranks=4, kind="gpu"))
    assert title(found.findings[0]).startswith(of_gpus)
    assert "uptime" not in " ".join(found.findings[0].next)
    assert found.healthy is not None
    assert found.healthy.drain == ("h3",)


@pytest.mark.parametrize(("cores", "drained"), [(2, ()), (None, ()), (64, ("h1",))])
def test_a_node_whose_only_nic_is_slow_is_drained_if_its_cores_do_not_explain_it(
    cores: int | None, drained: tuple[str, ...]
) -> None:
    slow = [pair for pair in itertools.permutations([f"{node}:0" for node in NODES], 2) if "h1:0" in pair]
    model = lab(slow, cores=cores or 2, ranks=1)
    for record in model.nodes.values() if cores is None else ():
        record.first_probe_results.clear()
    found = diagnose(model)
    assert found.findings[0].subject.node == "h1"
    assert found.healthy is not None
    assert (found.code, found.healthy.drain, list(found.healthy.left_out)) == (1, drained, ["h1"])


def test_a_component_whose_pairs_others_explain_is_no_finding() -> None:
    slow = [(f"{node}:1", "h1:1") for node in NODES if node != "h1"]
    context = PairContext(model := lab(slow, cores=64), Survey(model).finish())
    for _ in context.search():
        pass
    assert context.blames
    context.blames = [one._replace(bad=()) for one in context.blames]
    (rule,) = [one for one in RULES if one.id == "FT021"]
    assert [one for one in rule.check(context) if one is not None] == []


def test_what_fails_on_busy_cores_fails() -> None:
    found = diagnose(lab([("h3:0", "h3:1")], dead=[("h0:0", "h2:1")]))
    assert [one.rule.id for one in found.findings] == ["FT017", "FT029"]
    assert found.code == 1


def test_what_passes_alone_is_the_cores_and_not_the_fabric() -> None:
    pairs = [(f"h0:{i}", f"{node}:{j}") for i in (0, 1) for node in NODES[1:] for j in (0, 1)]
    model = lab(pairs)
    for pair in pairs:
        add(model, Layer.P2P, *pair, 1.0, at=5.0)
    found = diagnose(model)
    (one,) = found.findings
    assert (one.rule.id, str(one.severity)) == ("FT029", "note")
    assert evidence(one)[0] == "12 of 12 slow pairs passed when retested alone"
    assert found.code == 0


def test_collectives_with_one_node_that_are_slow_are_about_this_node() -> None:
    found = diagnose(lab(busbw=lambda a, b: 0.01 if "h1" in (a, b) else 1.0))
    (one,) = found.findings
    assert title(one) == "h1: all 3 all_reduce with it are slow, the 3 without it are not"
    assert evidence(one)[0] == "all_reduce of h0 and h1: 0.010 GB/s, 1.0 % of the median"
    assert one.next == ("fabtui run --nodes h0,h1 --probes all_reduce", "ssh h1 uptime")
    assert found.code == 1


def test_one_slow_collective_on_busy_cores_is_the_cores() -> None:
    found = diagnose(lab(busbw=lambda a, b: 0.01 if (a, b) == ("h1", "h2") else 1.0))
    (one,) = found.findings
    assert (one.rule.id, evidence(one)[0]) == ("FT029", "slow collectives: all_reduce of h1 and h2")
    assert found.code == 0


def test_collectives_follow_from_what_the_pairs_of_their_node_show() -> None:
    slow = [(f"{node}:1", "h1:1") for node in NODES if node != "h1"]
    found = diagnose(lab(slow, busbw=lambda a, b: 0.01 if "h1" in (a, b) else 1.0))
    assert [one.rule.id for one in found.findings] == ["FT021"]


def test_a_node_that_went_and_came_back_is_reported() -> None:
    model = lab()
    model.apply(NodeUpdate(node="h2", state=NodeState.LOST, text="Connection lost", time=10.0))
    for at, state in ((12.0, NodeState.CONNECTING), (14.0, NodeState.LOOKING), (18.0, NodeState.READY)):
        model.apply(NodeUpdate(node="h2", state=state, time=at))
    found = diagnose(model)
    (one,) = found.findings
    assert (title(one), str(one.severity)) == ("h2 was gone for 8 s, and is back", "warn")
    assert evidence(one) == ("Connection lost",)
    assert one.next == ("ssh h2 uptime",)
    assert found.code == 0


def test_cpu_ranks_flap_from_sweep_to_sweep_only() -> None:
    model = lab()
    pair = "h0:0", "h2:0"
    for at, value in enumerate([0.01, 0.01, 1.0, 0.01, 0.01, 1.0]):
        add(model, Layer.P2P, *pair, value, at=10.0 + at)
    model.apply(SessionEnd(exit=0, time=20.0))
    assert of(diagnose(model), "FT031") == []
    for sweep, verdict in enumerate([None, 1.0, None, 1.0]):
        add(model, Layer.P2P, *pair, verdict, at=30.0 + 10 * sweep)
        model.apply(SessionEnd(exit=0, time=35.0 + 10 * sweep))
    assert [title(one) for one in of(diagnose(model), "FT031")] == ["h0:0 > h2:0 flaps in p2p"]


@pytest.mark.parametrize("seed", range(6))
def test_a_port_far_below_what_busy_cores_explain_is_named(seed: int) -> None:
    """Most pairs are slow by load; the port passes 0.1 % of what is usual, and nothing else is common to its pairs."""
    model, draw = lab(load=15.0), random.Random(seed)
    for src, dst in itertools.permutations(map(str, model.endpoints), 2):
        value = draw.choice((0.1, 0.15, 0.25, 1.0))
        add(model, Layer.P2P, src, dst, 0.001 if src[1] != dst[1] and src[3] == "1" and dst == "h1:1" else value, 3.0)
    found = diagnose(model)
    (one,) = of(found, "FT021")
    assert title(one).startswith("h1:1 is slow with other nodes as receiver")
    assert one.cells == {("h0:1", "h1:1"), ("h2:1", "h1:1"), ("h3:1", "h1:1")}
    assert {rule.rule.id for rule in found.findings} <= {"FT021", "FT029"}
