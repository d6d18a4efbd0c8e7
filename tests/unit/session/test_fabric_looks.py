"""InfiniBand fabric probe: each node inspects its own cables, and one with the rights walks the fabric."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from fabtui.model.events import Event, InventoryUpdate
from fabtui.model.session_model import Model
from fabtui.session.node_client import ProbeFailed
from fabtui.session.options import SessionOptions
from fabtui.session.probe_runner import MAX_WALKERS, ProbeRunner


class Asked:
    def __init__(self, walks: set[str], fails: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        self.walks = walks
        self.fails = fails
        self.questions: list[tuple[str, str, Any]] = []

    def node(self, name: str) -> Any:
        asked = self

        class Node:
            async def probe(self, probe: str, args: dict[str, Any], deadline: float) -> dict[str, Any]:
                asked.questions.append((name, probe, args.get("whole")))
                if name in asked.fails:
                    raise ProbeFailed("failed", "no")
                return {"fabric": {} if args["whole"] and name in asked.walks else None}

        return Node()


class Pump:
    def __init__(self, model: Model) -> None:
        self.model = model

    def emit(self, event: Event) -> None:
        self.model.apply(event)


async def look(
    asked: Asked,
    nodes: list[str],
    model: Model | None = None,
    without: str = "",
    options: SessionOptions = SessionOptions(),  # noqa: B008 - frozen
) -> Model:
    model = model or Model()
    for node in nodes:
        ib = [] if node == without else [{"ca": "mlx5_0"}]
        model.apply(InventoryUpdate(node, {"ib": ib}))
    clients: Any = {node: asked.node(node) for node in nodes}
    pump: Any = Pump(model)
    await ProbeRunner(options, pump, clients).run(nodes, ["ibfabric"])
    return model


async def test_one_node_walks_for_all() -> None:
    asked = Asked({"a", "b", "c"})
    model = await look(asked, ["a", "b", "c", "d"], without="d")
    assert sorted(asked.questions) == [("a", "ibfabric", True), ("b", "ibfabric", False), ("c", "ibfabric", False)]
    assert model.nodes["a"].probe_results["ibfabric"] == {"fabric": {}}
    await look(asked, ["e"], model)
    assert asked.questions[-1] == ("e", "ibfabric", False)


@pytest.mark.parametrize("fails", [set(), {"n0"}])
async def test_some_are_tried_and_not_all(fails: set[str]) -> None:
    nodes = [f"n{number}" for number in range(MAX_WALKERS + 3)]
    asked = Asked({"n1"}, fails)
    await look(asked, nodes)
    assert [name for name, _, whole in asked.questions if whole] == ["n0", "n1"]
    assert {name for name, _, _ in asked.questions} == set(nodes)
    asked = Asked(set())
    await look(asked, nodes)
    assert sum(bool(whole) for _, _, whole in asked.questions) == MAX_WALKERS
    assert len(asked.questions) == len(nodes)


@pytest.mark.parametrize(
    ("transport", "preflight", "whole"), [("local", True, False), ("local", False, True), ("ssh", True, True)]
)
async def test_a_prolog_walks_no_fabric(transport: Literal["ssh", "local"], preflight: bool, whole: bool) -> None:
    asked = Asked({"n0"})
    await look(asked, ["n0"], options=SessionOptions(transport=transport, preflight_only=preflight))
    assert asked.questions == [("n0", "ibfabric", whole)]
