"""Deadlines in sequence: with one fault, no layer waits again for what an earlier one has shown."""

import asyncio
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence
from tests.unit.session.fakenodes import FakeNodes, Script
from tests.unit.session.played import p2p_of, played, run, world_of

NODES = {"a": 1, "b": 1, "c": 1}
PROBES = ("ping", "udp", "p2p", "all_reduce")
ADDRESS = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}


def requests(nodes: FakeNodes, op: str) -> list[dict[str, Any]]:
    found = [m["m"] for link in nodes.links.values() for m in link.sent if m["t"] == "rank" and m["m"]["op"] == op]
    return list({str(one.get("id", number)): one for number, one in enumerate(found)}.values())


async def cut_off(*pairs: str, **options: Any) -> tuple[Model, FakeNodes]:
    """Run a session in which pairs of nodes (``ac``) cannot connect to each other, which the mesh shows as well."""
    ranks = {node: number for number, node in enumerate(NODES)}
    script = Script(
        NODES,
        lost={(ADDRESS[pair[0]], ADDRESS[pair[1]]) for pair in pairs},
        cut={(ranks[pair[0]], ranks[pair[1]]) for pair in pairs},
    )
    return await run(script, timeout=10.0, probes=PROBES, **options)


def confirmation(model: Model) -> list[str]:
    lines = evidence(diagnose(model).findings[0])
    return [line for line in lines if "fresh rank hosts" in line or "experiment" in line]


async def test_a_healthy_session_asks_everything_once_under_whole_deadlines() -> None:
    _, nodes = await run(Script(NODES), timeout=10.0, probes=PROBES)
    assert sorted(len(one["peers"]) for one in requests(nodes, "reach")) == [2, 2, 2]
    assert [(len(one["ranks"]), one["deadline"]) for one in requests(nodes, "world")] == [(3, 10.0)]
    assert [one["deadline"] for one in requests(nodes, "pair")] == [10.0] * 3
    assert [one["deadline"] for one in requests(nodes, "collective")] == [10.0] * 4


@pytest.mark.parametrize(("pairs", "left_out"), [(("ac",), "a"), (("ab", "bc"), "b")])
async def test_what_the_mesh_found_dead_costs_one_deadline_in_each_layer(pairs: tuple[str, ...], left_out: str) -> None:
    model, nodes = await cut_off(*pairs)
    dead = {(f"{pair[at]}:0", f"{pair[1 - at]}:0") for pair in pairs for at in (0, 1)}
    assert {pair for pair, verdict in p2p_of(model).items() if verdict is not Verdict.OK} == dead
    # The check of TCP does not ask again.
    asked = {
        (node, one["node"])
        for node, link in nodes.links.items()
        for m in link.sent
        if m["t"] == "rank" and m["m"]["op"] == "reach"
        for one in m["m"]["peers"]
    }
    assert asked == {
        (s, d) for s in NODES for d in NODES if s != d and f"{s}:0" + f"{d}:0" not in {a + b for a, b in dead}
    }
    # One world of all is tried, under the deadline of forming; then parts that have no dead path, and what is left.
    worlds = [(sorted(one["ranks"]), one["deadline"]) for one in requests(nodes, "world")]
    whole = [one for one in worlds if len(one[0]) == 3]
    assert whole == [([0, 1, 2], 5.0)]
    rest = [number for number, node in enumerate(NODES) if node != left_out]
    assert worlds.count((rest, 5.0)) == 2, "it is formed, and then tested"
    assert {verdict for pair, verdict in world_of(model).items() if f"{left_out}:0" not in pair} == {Verdict.OK}
    # A dead pair is tested once, for a part of the deadline: two tests agree. Its partners are not tested again.
    tests = [(f"{'abc'[one['a']]}{'abc'[one['b']]}", one["deadline"]) for one in requests(nodes, "pair")]
    assert sorted(tests) == sorted((pair, 7.0 if pair in pairs else 10.0) for pair in ("ab", "ac", "bc"))
    assert len(model.suspects) == len(dead)
    # No collective is tried that cannot work.
    good = {"ab", "ac", "bc"} - set(pairs)
    assert {"".join("abc"[rank] for rank in one["ranks"]) for one in requests(nodes, "collective")} == good
    skipped = [one for one in model.measurements(Layer.BUSBW) if one.verdict is Verdict.SKIPPED]
    assert {(one.src, one.dst) for one in skipped} == {*map(tuple, pairs), ("all", "all")}
    assert all("cannot connect to each other" in (one.error or "") for one in skipped)


async def test_without_the_mesh_a_dead_pair_is_tested_twice() -> None:
    model, nodes = await run(Script(NODES, cut={(0, 2)}), timeout=10.0, probes=("p2p", "all_reduce"))
    deadlines = [one["deadline"] for one in requests(nodes, "pair") if (one["a"], one["b"]) == (0, 2)]
    assert deadlines == [10.0, 7.0]
    # A request that has failed is not repeated with the same ranks in a row.
    worlds = [(sorted(one["ranks"]), one["deadline"]) for one in requests(nodes, "world")]
    assert [one for one in worlds if len(one[0]) == 3] == [([0, 1, 2], 10.0), ([0, 1, 2], 6.0)]
    assert [len(one["ranks"]) for one in requests(nodes, "collective")] == [2, 2]
    assert model.exit_code == 1


async def test_a_slow_link_is_confirmed_once_and_explains_the_other_layers() -> None:
    slow = {(0, 1): 1e9, (0, 2): 1e9}
    model, nodes = await run(Script(NODES, rates=dict(slow), world_rates=slow), timeout=10.0, probes=PROBES)
    pairs = [(one["a"], one["b"]) for one in requests(nodes, "pair")]
    assert {pair: pairs.count(pair) for pair in set(pairs)} == {(0, 1): 2, (0, 2): 2, (1, 2): 1}
    assert len(requests(nodes, "world")) == 1
    collectives = {
        "".join("abc"[rank] for rank in one["ranks"]): one["deadline"] for one in requests(nodes, "collective")
    }
    assert collectives == {"ab": 5.0, "ac": 5.0, "bc": 10.0, "abc": 5.0}
    assert sum(verdict is Verdict.SLOW for verdict in p2p_of(model).values()) == 2


async def test_a_value_that_moves_is_tested_once_more() -> None:
    model, nodes = await run(Script(NODES, rates={(0, 1): [1e9, 2e9, 1e9]}), timeout=10.0, probes=("p2p",))
    pairs = [(one["a"], one["b"]) for one in requests(nodes, "pair")]
    assert pairs.count((0, 1)) == 4, "twice alone, and once before the path is blamed"
    assert p2p_of(model)["a:0", "b:0"] is Verdict.SLOW


async def test_wrong_data_that_comes_and_goes_is_not_hidden_by_a_repeat() -> None:
    script = Script(NODES, corrupt={(0, 1): 1})
    model, nodes = await run(script, timeout=10.0, probes=("p2p",))
    assert p2p_of(model)["a:0", "b:0"] is Verdict.WRONG
    assert model.exit_code == 1
    assert nodes.links["c"].spawns == 1, "only the two concerned start again"
    assert {node: nodes.links[node].spawns for node in "ab"} == {"a": 2, "b": 2}
    (line,) = confirmation(model)
    assert line == "tested: a:0 > b:0 passes on fresh rank hosts, so it comes and goes: it was wrong all the same"


async def test_wrong_data_that_stays_is_wrong_again_on_fresh_rank_hosts() -> None:
    model, _ = await run(Script(NODES, corrupt={(0, 1): 9}), timeout=10.0, probes=("p2p",))
    assert len(model.history(Layer.P2P, "a:0", "b:0")) == 1, "the repeat is apart"
    line, sure = confirmation(model)
    assert line.startswith(
        "confirmed: a:0 > b:0 is wrong again on fresh rank hosts, so nothing that earlier tests left"
    )
    assert sure.endswith("confidence after 1 experiment")


async def test_collectives_that_were_skipped_are_due_when_their_pairs_pass_again() -> None:
    script = Script(NODES, cut={(0, 2)})
    async with played(script, timeout=10.0, probes=("p2p", "all_reduce"), keep_warm=True) as (feed, _):
        async with asyncio.timeout(40):
            await feed.run()
            assert feed._sweep is not None
            assert not feed._sweep.runner.recovered_groups()
            script.cut.clear()
            await feed.retest([("a:0", "c:0")])
            due = {(group.src, group.dst) for _, group in feed._sweep.runner.recovered_groups()}
    assert due == {("a", "c"), ("all", "all")}
