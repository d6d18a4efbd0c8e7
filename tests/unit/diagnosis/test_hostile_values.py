"""Findings and notes for hostile inventories and probe results: no value from a node raises."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.links.rdma_ports import pair_notes
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EndpointsAdded, InventoryUpdate, ProbeResult
from fabtui.model.session_model import Model

words = st.sampled_from(
    ["a", "mlx5_0", "eth0", "0x1", "L1", "Active", "Down", "Polling", "switch", "CA", "width", "10.0.0.1"]
)
OF_PORTS = """ports cas ca port guid leaf link below peer fabric leaves errors saturated peer_errors name type lanes
rate could_lanes state physical_state node 0x1 gids nics addresses address netdev rdma ib
gid_index active_mtu pkeys env"""
names = st.sampled_from(OF_PORTS.split())
values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 300) | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5),
    max_leaves=25,
)
results = st.dictionaries(names, values, max_size=4)
port = st.fixed_dictionaries({"ca": st.just("mlx5_0"), "port": st.just(1)}, optional={"leaf": values, "guid": values})
shaped = st.fixed_dictionaries({"ports": st.lists(port | values, max_size=3) | values, "fabric": results | values})


@pytest.mark.slow
@given(
    inventory=results,
    probed=st.lists(
        st.tuples(st.sampled_from(["ibstat", "rdma", "ibfabric"]), st.sampled_from("ab"), results | shaped)
    ),
)
def test_any_probe_result(inventory: dict[str, Any], probed: list[tuple[str, str, dict[str, Any]]]) -> None:
    model = Model()
    for node in "ab":
        known = {"ib": [{"ca": "mlx5_0", "port": 1, "netdev": "eth0"}], **inventory}
        model.apply(InventoryUpdate(node, known))
    ends = [Endpoint(n, node, 0, kind="cpu", name="CPU rank", nic="mlx5_0") for n, node in enumerate("ab")]
    model.apply(EndpointsAdded(ends))
    for probe, node, value in probed:
        model.apply(ProbeResult(node, probe, value))
    assert isinstance(pair_notes(model, "a:0", "b:0"), list)
    assert isinstance(diagnose(model).findings, list)
