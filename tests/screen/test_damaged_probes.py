"""Probe results and inventories with junk anywhere: every table and every sentence can still be rendered."""

from __future__ import annotations

import functools
import itertools
import json
import random
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.knowledge.next_commands import by_hand, path_commands
from fabtui.diagnosis.links.rdma_ports import port_problems
from fabtui.diagnosis.node_faults import node_faults
from fabtui.diagnosis.preflight.checks import preflight
from fabtui.model.events import event_from_json
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs
from fabtui.screen.views.node import node_lines
from fabtui.screen.views.nodes import node_rows, pair_counts
from fabtui.screen.views.pair import hops, path_lines
from tests.screen.fakefeed import sweep_of_two
from tests.screen.fakeprobes import nvlink
from tests.screen.test_hostile import nasty_story
from tests.unit.model.test_wellformed import damaged, recorded

PLAYED = [one.to_json() for one in sweep_of_two().events]
MORE: dict[str, Any] = {
    "nvlink": nvlink(3),
    "rdma": {"ports": [{"ca": "mlx5_0", "port": 1, "netdev": "eth0", "pkeys": ["0xffff"], "errors": {"x": 1}}]},
    "ibstat": {"cas": [{"ca": "mlx5_0", "ports": [{"port": 1, "state": "Active", "rate": 400, "lid": 3}]}]},
    "ibfabric": {
        "ports": [
            {"ca": "mlx5_0", "port": 1, "leaf": {"guid": "0x1", "name": "leaf0", "port": 2}, "link": {"rate": 1}}
        ],
        "fabric": {"leaves": {"0x1": {"name": "leaf0"}}, "below": [], "errors": []},
    },
}


@functools.cache
def sources() -> list[list[dict[str, Any]]]:
    """Return the events of recorded and of played sessions."""
    return [*recorded(), PLAYED, [one.to_json() for one in nasty_story("n000").events]]


def model_of(seed: int) -> Model:
    """A session in which every node sends junk."""
    chance = random.Random(seed)
    share = chance.choice([0.003, 0.02, 0.08])
    model = Model()
    events = list(chance.choice(sources()))
    names = next(one["nodes"] for one in events if one["kind"] == "start")
    events += [
        {"kind": "look", "node": node, "probe": probe, "value": value}
        for node, (probe, value) in itertools.product(names, MORE.items())
    ]
    for one in events:
        if one["kind"] in ("look", "inventory") and isinstance(one.get("value"), dict):
            value = {name: damaged(part, chance, share) for name, part in one["value"].items()}
            one = {**one, "value": value}
        try:
            event = event_from_json(json.loads(json.dumps(one)))
        except ValueError:
            continue
        model.apply(event)
    return model


@pytest.mark.parametrize("seed", range(100))
def test_everything_can_be_rendered(seed: int) -> None:
    model = model_of(seed)
    glyphs = Glyphs(plain=False)
    found = preflight(model)
    diagnosis = diagnose(model)
    faults = node_faults(diagnosis.tally, diagnosis.findings)
    node_rows(model, diagnosis.tally, faults, pair_counts(diagnosis.tally, faults), {}, {}, 0.0)
    for record in model.nodes.values():
        node_lines(model, record, found, 120, glyphs, lambda finding: [])
    for src, dst in itertools.permutations(model.endpoints[:5], 2):
        measurement = next(iter(model.measurements()), None)
        path_lines(hops(model, src, dst, measurement), (src.node, dst.node), 120, glyphs)
        path_commands(model, src, dst, measurement)
        by_hand(model, str(src), str(dst))
        port_problems(model, src)
