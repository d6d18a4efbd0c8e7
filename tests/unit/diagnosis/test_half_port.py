"""Rule FT151: two PCI functions of one connector, of which one carries nothing."""

import itertools
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding, Severity
from fabtui.model.events import CounterDeltas, InventoryUpdate, Measured, PlanUpdate
from fabtui.model.facts.link_limits import limit_of
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from tests.conftest import session_of

SIZE = 1 << 28
FIRST, SECOND = "rocep1s0f0", "roceP2p1s0f0"


def ports(state: str = "Active", pcie: float | None = 126.03, shared: bool = True) -> list[dict[str, Any]]:
    """Return the ports of a DGX Spark with one cable: its second connector has none."""
    found = []
    for connector, states in (("p0", ("Active", state)), ("p1", ("Down", "Down"))):
        for prefix, one in zip(("p1", "P2p1"), states, strict=True):
            port = {"ca": f"roce{prefix}s0f{connector[1]}", "port": 1, "state": one, "rate": 200.0}
            port |= {"link_layer": "Ethernet", "pcie_rate": pcie}
            found.append({**port, **({"connector": f"0xfc4cea0300f94230 {connector}/1"} if shared else {})})
    return found


def model_of(first: int = SIZE, second: int = 0, *, env: dict[str, str] | None = None, **more: Any) -> Model:
    """Two nodes, of which the first counted bytes on both functions while its pairs were tested."""
    model = session_of("ab", rails=True, nic=FIRST)
    gpu = {"index": 0, "name": "NVIDIA GB10", "pcie": {"gen_max": 5, "width": 16}, "near_nics": [FIRST, SECOND]}
    for node in "ab":
        value = {"ib": ports(**more), "gpus": [gpu], "env": env or {}}
        model.apply(InventoryUpdate(node=node, value=value, time=1.0))
    model.apply(PlanUpdate(slow_below=0.7, time=1.0))
    moved = {"port_xmit_data": first, "port_rcv_data": first}
    hca: dict[str, Any] = {f"{FIRST}/1": moved}
    if second:
        hca[f"{SECOND}/1"] = {"port_xmit_data": second, "port_rcv_data": second}
    deltas = {"hca": hca, "still": [] if second else [f"{SECOND}/1"]}
    model.apply(CounterDeltas(node="a", since=1.5, until=2.5, deltas=deltas, time=2.5))
    for src, dst in itertools.permutations(("a:0", "b:0")):
        row = Measurement(Layer.P2P, src, dst, Verdict.OK, 12.0, "GB/s", SIZE, 2.0, transport=f"NET/IB/{FIRST}")
        model.apply(Measured(measurements=[row], time=2.0))
    return model


def found(model: Model) -> list[Finding]:
    return [one for one in diagnose(model).findings if one.rule.id == "FT151"]


def test_a_half_that_carries_nothing() -> None:
    (one,) = found(model_of(env={"NCCL_IB_HCA": FIRST}))
    assert (one.severity, one.nodes) == (Severity.WARN, ("a",))
    assert title(one) == f"a: half of the port is unused: {SECOND} carried nothing while pairs were tested"
    assert evidence(one) == (
        f"{FIRST} passes 126 of 200 Gb/s: its PCIe link is no faster",
        f"both lead to one connector: NCCL_IB_HCA={FIRST},{SECOND} uses both",
        f"set: NCCL_IB_HCA={FIRST} on a",
    )
    assert one.next[0] == f"export NCCL_IB_HCA={FIRST},{SECOND}"


def test_a_half_that_is_not_active_needs_no_counters() -> None:
    both = found(model_of(0, state="Down"))
    assert [title(one) for one in both] == [
        f"{node}: half of the port is unused: {SECOND} is not active" for node in "ab"
    ]


@pytest.mark.parametrize(
    "model",
    [
        model_of(SIZE // 2, SIZE // 2),
        model_of(shared=False),
        model_of(pcie=252.0),
        model_of(pcie=None),
        model_of(first=1000),
    ],
)
def test_ports_that_are_used_or_not_known_to_be_unused(model: Model) -> None:
    assert found(model) == []


def test_the_limit_of_both_halves_is_that_of_the_port_and_of_one_its_pcie_link() -> None:
    model = model_of()
    one, two, every = (
        limit_of(model, Measurement(Layer.P2P, "a:0", "b:0", Verdict.OK, 9.0, "GB/s", SIZE, 2.0, transport=name))
        for name in (f"NET/IB/{FIRST}", f"NET/IB/{FIRST}+{SECOND}", "NET/Libfabric/0")
    )
    assert one is not None
    assert two is not None
    assert (one.value, two.value, every) == (15.754, 25.0, two)
