"""The world layer in whole sessions over played nodes."""

import asyncio
import itertools
from pathlib import Path

import pytest

from fabtui.model.events import Measured
from fabtui.model.layers import Layer
from fabtui.model.measurement import Reduced, Verdict
from fabtui.model.recording import read_events
from fabtui.model.schedule import PairSet
from fabtui.model.session_model import Model
from fabtui.session.event_pipeline import EventPump
from fabtui.session.measure import group_tests
from fabtui.session.measure.group_tests import WorldSweep, WorldTest
from fabtui.session.measure.measurement_context import MeasurementContext
from tests.unit.session.fakenodes import Script
from tests.unit.session.played import p2p_of, run, world_of


async def test_the_world_layer_is_filled_beside_the_pairs() -> None:
    model, _ = await run(Script({"a": 2, "b": 2}))
    assert set(world_of(model).values()) == {Verdict.OK}
    assert len(world_of(model)) == 12
    texts = [line.text for line in model.log]
    assert "world communicator of 4 ranks: init 0.50 s, connections 0.25 s, transfers 0.12 s" in texts
    model, _ = await run(Script({"a": 2, "b": 2}), layers=("p2p",))
    assert not world_of(model)
    model, _ = await run(Script({"a": 2, "b": 2}), layers=("world",))
    assert not p2p_of(model)


async def test_smaller_messages_over_slow_links_stand_beside_what_was_requested() -> None:
    model, _ = await run(Script({"a": 1, "b": 1}, most=1 << 20), probes=("p2p", "all_reduce"), bytes=256 << 20)
    of_world = list(model.measurements(Layer.WORLD))
    assert [one.reduced for one in of_world] == [Reduced(1 << 20, 256 << 20, (256 << 20) / 40e9)] * 2
    collectives = {one.asked_bytes: one for one in model.measurements(Layer.BUSBW)}
    assert set(collectives) == {4 << 20, 32 << 20, 256 << 20}
    for size, one in collectives.items():
        assert size is not None
        assert one.reduced == Reduced(1 << 20, size, size / 1e9)
        assert one.value == pytest.approx(1.0)
    model, _ = await run(Script({"a": 1, "b": 1}), probes=("p2p", "all_reduce"))
    assert all(one.reduced is None for one in model.measurements())


async def test_a_big_world_is_reported_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_tests, "_PART", 5)
    record = tmp_path / "r.jsonl.gz"
    script = Script({"a": 2, "b": 2}, stuck={(0, 3)}, patient=True)
    model, _ = await run(script, layers=("world",), record=record)
    assert len(world_of(model)) == 12
    assert world_of(model)["a:0", "b:1"] is Verdict.TIMEOUT
    sizes = [len(getattr(e, "measurements", getattr(e, "pairs", ()))) for e in read_events(record)]
    assert max(sizes) == 5, "no event holds more, and the memory of a session holds few of them at once"


async def test_transfers_are_reported_once_while_others_are_in_progress(tmp_path: Path) -> None:
    record = tmp_path / "r.jsonl.gz"
    model, _ = await run(Script({"a": 2, "b": 2}, early_rows=2), layers=("world",), record=record)
    assert set(world_of(model).values()) == {Verdict.OK}
    assert len(world_of(model)) == 12
    parts = [event.measurements for event in read_events(record) if isinstance(event, Measured)]
    world = [[(one.src, one.dst) for one in part if one.layer is Layer.WORLD] for part in parts]
    assert [len(part) for part in world if part] == [2, 2, 2, 2, 4]
    assert all(one.attempts == 1 for one in model.measurements(Layer.WORLD))


async def test_a_node_is_reported_its_own_transfers_of_the_world_alone() -> None:
    rates = {"a": 2, "b": 2, "c": 1}
    _, nodes = await run(Script(rates), layers=("world",))
    mine = {"a": {0, 1}, "b": {2, 3}, "c": {4}}
    for name, link in nodes.links.items():
        (reported,) = (m["m"] for m in link.sent if m["t"] == "rank" and m["m"]["op"] == "world")
        pairs = [tuple(pair) for round_ in reported["rounds"] for pair in round_]
        assert sorted(pairs) == [p for p in itertools.permutations(range(5), 2) if mine[name] & set(p)]
        assert reported["ranks"] == [0, 1, 2, 3, 4]


async def test_a_rank_that_spoils_the_world_is_found_by_halves_and_the_rest_is_tested() -> None:
    model, _ = await run(Script({"a": 4, "b": 4}, spoilers={6}))
    bad = {pair for pair, verdict in world_of(model).items() if verdict is not Verdict.OK}
    assert all("b:2" in pair for pair in bad)
    assert len(bad) == 14
    assert len(world_of(model)) == 56
    latest = model.latest(Layer.WORLD, "a:0", "b:2")
    assert latest is not None
    assert "does not form with b:2" in (latest.error or "")
    assert "no socket interface found" in (latest.error or "")
    assert set(p2p_of(model).values()) == {Verdict.OK}, "the pair layer continues"


async def test_a_world_that_does_not_form_again_leaves_what_was_measured() -> None:
    script = Script({"a": 4, "b": 4}, world_rates={(0, 6): 4e9}, spoilers={1}, spoilers_after=1)
    model, nodes = await run(script, layers=("world",))
    assert nodes.links["a"].worlds == 3, "what is slow is tested again, twice"
    bad = {pair: verdict for pair, verdict in world_of(model).items() if verdict is not Verdict.OK}
    assert bad == {("a:0", "b:2"): Verdict.SLOW}
    latest = model.latest(Layer.WORLD, "a:0", "b:2")
    assert latest is not None
    assert latest.value == 4.0
    assert any("does not form again: " in line.text for line in model.log)


async def test_slow_pairs_of_a_world_are_tested_again_among_the_ranks_with_which_it_forms() -> None:
    model, nodes = await run(Script({"a": 4, "b": 4}, world_rates={(0, 6): 4e9}, spoilers={5}), layers=("world",))
    asked = [m["m"]["ranks"] for m in nodes.links["a"].sent if m["t"] == "rank" and m["m"]["op"] == "world"]
    assert asked[-2:] == [[0, 1, 2, 3, 4, 6, 7]] * 2
    assert sum(len(ranks) == 8 for ranks in asked) == 1
    assert world_of(model)["a:0", "b:2"] is Verdict.SLOW


async def test_two_parts_that_do_not_form_together_leave_the_smaller_out() -> None:
    model, _ = await run(Script({"a": 3, "b": 2}, apart={frozenset((0, 4)), frozenset((1, 3))}))
    cells = world_of(model)
    assert len(cells) == 20
    good = {pair for pair, verdict in cells.items() if verdict is Verdict.OK}
    assert good == {(s, d) for s in ("a:2", "b:0", "b:1") for d in ("a:2", "b:0", "b:1") if s != d}
    assert all(cells[pair] is Verdict.FAILED for pair in cells.keys() - good)


async def test_a_transfer_that_hangs_in_the_world_is_one_bad_cell() -> None:
    model, _ = await run(Script({"a": 2, "b": 2}, stuck={(0, 3)}))
    cells = world_of(model)
    assert cells["a:0", "b:1"] is Verdict.TIMEOUT
    assert {v for pair, v in cells.items() if pair != ("a:0", "b:1")} <= {Verdict.OK, Verdict.INCONCLUSIVE}


async def test_pairs_that_are_slow_only_beside_others_count_in_no_exit_code_and_are_reported() -> None:
    model, _ = await run(Script({"a": 4, "b": 4}, world_rates={(0, 6): 4e9}))
    assert world_of(model)["a:0", "b:2"] is Verdict.SLOW
    assert p2p_of(model)["a:0", "b:2"] is Verdict.OK
    assert (model.exit_code, model.end_text) == (0, "All 56 GPU pairs are ok alone; 1 slow alongside other traffic.")
    model, _ = await run(Script({"a": 4, "b": 4}, world_rates={(0, 6): 4e9}), layers=("world",))
    assert model.exit_code == 1, "nothing shows that the pair passes alone"
    model, _ = await run(Script({"a": 4, "b": 4}))
    assert (model.exit_code, model.end_text) == (0, "All 56 GPU pairs are ok.")


async def test_a_world_of_nobody_is_not_formed_again_for_what_was_slow_before() -> None:
    pump, go = EventPump(Model(), None), asyncio.Event()
    go.set()
    test = WorldTest(bytes=4, iters=1, warmup=0, deadline=0.01)
    sweep = WorldSweep(MeasurementContext(pump, go), test, PairSet())
    async with asyncio.timeout(5):
        await sweep.again({(0, 1)})


async def test_a_transfer_for_which_little_time_was_left_is_not_timed_out() -> None:
    for short, verdict in ((False, Verdict.TIMEOUT), (True, Verdict.INCONCLUSIVE)):
        model, _ = await run(Script({"a": 2, "b": 2}, stuck={(0, 3)}, short=short), layers=("world",))
        latest = model.latest(Layer.WORLD, "a:0", "b:1")
        assert latest is not None
        assert latest.verdict is verdict
        assert ("left it too little time" in (latest.error or "")) is short
