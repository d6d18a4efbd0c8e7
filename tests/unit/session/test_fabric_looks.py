"""InfiniBand fabric probe: each node inspects its own cables, and one with the rights walks the fabric."""

import base64
import gzip
import json
import zlib
from pathlib import Path
from typing import Any, Literal

import pytest

from fabtui.model.events import Event, InventoryUpdate, ProbeResult
from fabtui.model.facts.states import PROBE
from fabtui.model.layers import Layer
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.session.node_client import ProbeFailed
from fabtui.session.options import SessionOptions
from fabtui.session.probe_runner import MAX_WALKERS, ProbeRunner
from tests.unit.session.fakenodes import FakeNodes, Script
from tests.unit.session.played import run


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


def steps(nodes: FakeNodes, node: str) -> list[str]:
    """Return the requests to a node, one word each, in order; GPU probes by their name."""
    words = []
    for message in nodes.links[node].sent:
        if message["t"] == "probe":
            words.append(message["name"])
        elif message["t"] == "rank":
            words.append("rank " + message["m"]["op"])
    return words


async def test_gpus_are_probed_once_the_ranks_have_started() -> None:
    model, nodes = await run(Script({"a": 2, "b": 2}))
    for node in ("a", "b"):
        words = steps(nodes, node)
        assert words.count("gpus") == words.count("gpuload") == words.count("topology") == words.count("kernel") == 1
        assert words.index("kernel") < words.index("rank init"), "it does not ask the driver"
        assert words.index("rank init") < words.index("gpus") < words.index("rank world")
        assert words.index("gpus") < words.index("gpuload") < words.index("rank pair")
        last = max(at for at, word in enumerate(words) if word in ("rank pair", "rank collective"))
        assert last < words.index("topology") < words.index("rank quit"), "after the tests, while GPUs have contexts"
        assert {"gpus", "gpuload", "topology", "kernel"} <= set(model.nodes[node].probe_results)


async def test_beside_tests_no_tool_that_takes_seconds_is_started() -> None:
    _, nodes = await run(Script({"a": 2}))
    (asked,) = [m["args"] for m in nodes.links["a"].sent if m["t"] == "probe" and m["name"] == "gpus"]
    assert asked == {"check": False}


async def test_a_preflight_asks_everything() -> None:
    model, nodes = await run(Script({"a": 2, "b": 0}), preflight_only=True)
    (asked,) = [m["args"] for m in nodes.links["a"].sent if m["t"] == "probe" and m["name"] == "gpus"]
    assert asked == {}
    assert "gpuload" not in steps(nodes, "a"), "nothing gives the GPUs work"
    assert {"gpus", "topology", "kernel"} <= set(model.nodes["a"].probe_results)
    assert not {"gpus", "topology"} & set(model.nodes["b"].probe_results), "no GPUs"
    assert "kernel" in model.nodes["b"].probe_results


async def test_what_is_not_wanted_is_not_asked() -> None:
    _, nodes = await run(Script({"a": 2, "b": 2}), probes=("p2p",))
    assert not {"gpus", "gpuload", "topology", "kernel"} & set(steps(nodes, "a"))


async def test_a_failed_probe_is_reported_and_stops_nothing() -> None:
    broken = {"a": {name: {"fails": "no"} for name in ("gpus", "gpuload", "topology", "kernel")}}
    model, _ = await run(Script({"a": 2}, probe_results=broken))
    assert model.nodes["a"].probe_results["gpus"]["error"] == "no"
    assert len([m for m in model.measurements() if m.layer is Layer.P2P]) == 2
    assert model.exit_code == 3, "something that was wanted could not be probed"


def sent(**facts: str) -> dict[str, Any]:
    data = zlib.compress(json.dumps({key.replace("__", "."): value for key, value in facts.items()}).encode())
    return {"state": base64.b64encode(data).decode(), "failed": {}}


async def test_the_key_is_kept_nowhere_and_equal_values_are_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    common = {f"sysctl__s{at}": str(at) for at in range(1000)}
    results = {name: {PROBE: sent(**common, own=name)} for name in "abcd"}
    results["d"][PROBE]["state"] = "!"
    script = Script(dict.fromkeys("abcd", 1), probe_results=results)
    model, nodes = await run(script, record=path, preflight_only=True)
    keys = {
        message["args"]["key"]
        for link in nodes.links.values()
        for message in link.sent
        if message["t"] == "probe" and message["name"] == PROBE
    }
    (key,) = keys
    assert len(bytes.fromhex(key)) >= 16
    assert key not in gzip.decompress(path.read_bytes()).decode()
    events = [one for one in read_events(path) if isinstance(one, ProbeResult) and one.probe == PROBE]
    sizes = sorted(len(json.dumps(one.value)) for one in events if one.value is not None)
    assert len(sizes) == 3
    assert sizes[1] < 100 < 10_000 < sizes[2]
    assert model.nodes["d"].probe_results[PROBE].keys() == {"error"}
