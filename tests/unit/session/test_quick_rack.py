"""A quick sweep of an NVLink rack over played nodes: permutations of all its GPUs, as many pairs at once as it has."""

from __future__ import annotations

from typing import Any

from fabtui.model.endpoints import PairClass, node_of
from tests.unit.session.fakenodes import Script
from tests.unit.session.played import p2p_of, run

UUID = "9f3c1a52-0000-4000-8000-0000000000a1"


def fabric(gpus: int, clique: int) -> dict[str, Any]:
    state = {"state": "completed", "status": "success", "cluster": UUID, "clique": clique}
    return {"gpus": {"gpus": [{"index": index, "fabric": state} for index in range(gpus)]}}


async def test_a_rack_of_18_trays_is_tested_by_permutations_of_its_gpus() -> None:
    trays = {f"t{number:02}": 4 for number in range(18)}
    script = Script(trays, probe_results={tray: fabric(4, 1) for tray in trays})
    model, _ = await run(script, mode="quick", probes=("gpus", "p2p"), layers=("p2p",))
    pairs = set(p2p_of(model))
    assert len(pairs) == 2 * 2 * 72, "both directions of two permutations"
    assert all(node_of(src) != node_of(dst) for src, dst in pairs)
    assert {model.table.class_between(*pair) for pair in pairs} == {PairClass.SAME_DOMAIN}
    assert model.exit_code == 0


async def test_racks_side_by_side_are_tested_between_them_along_the_rails() -> None:
    trays = {f"t{number}": 2 for number in range(4)}
    script = Script(trays, probe_results={tray: fabric(2, at // 2) for at, tray in enumerate(trays)})
    model, _ = await run(script, mode="quick", probes=("gpus", "p2p"), layers=("p2p",))
    classes = {model.table.class_between(*pair) for pair in p2p_of(model)}
    assert classes == {PairClass.SAME_DOMAIN, PairClass.SAME_RAIL}
