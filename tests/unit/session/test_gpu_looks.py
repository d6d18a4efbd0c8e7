"""Times of GPU probes: beside tests without disturbing them, and never before the ranks have started."""

from __future__ import annotations

from fabtui.model.layers import Layer
from tests.unit.session.fakenodes import FakeNodes, Script
from tests.unit.session.played import run


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
