"""The keys of the main screen."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from fabtui.model.layers import Layer, key_layers


def layer_binding(layer: Layer) -> Binding:
    """Return the key of a layer."""
    key = layer.spec.key or ""
    return Binding(key, f"layer('{layer}')", id=f"main.layer-{layer}", show=False, tooltip=f"show layer {layer}")


KEYS: list[BindingType] = [
    Binding("enter", "pair", "pair", id="main.pair", tooltip="look into the cursor's pair, both ways"),
    Binding("n", "node(0)", "node", id="main.node", tooltip="look at the node of the cursor's row"),
    Binding("N", "node(1)", id="main.column-node", show=False, tooltip="look at the node of the cursor's column"),
    Binding("r", "retest", "re-test", id="main.retest", tooltip="test the cursor's pair again, alone"),
    Binding("R", "sweep", "sweep", id="main.sweep", tooltip="run the whole sweep again"),
    Binding("w", "watch", "watch", id="main.watch", tooltip="test all again in the background, or stop that"),
    Binding("space", "pause", "pause", id="main.pause", tooltip="start no new test, or go on"),
    *map(layer_binding, key_layers()),
    Binding("y", "copy", "copy", id="main.copy", tooltip="copy what is known of the cursor's pair"),
    Binding("c", "connecting", "nodes", id="main.connecting", tooltip="the nodes' states, and back to the grid"),
    Binding("t", "view('nodes')", "table", id="main.nodes", tooltip="all nodes as a table"),
    Binding(
        "P", "view('preflight')", "preflight", id="main.preflight", tooltip="what is wrong with nodes, what differs"
    ),
    Binding("L", "log", "log", id="main.log", tooltip="make the event log large or small"),
    Binding(
        "F", "view('findings')", "findings", id="main.findings", tooltip="all that is wrong, and what to type next"
    ),
    Binding("p", "panel", id="main.panel", show=False, tooltip="show or hide the side panel"),
]
