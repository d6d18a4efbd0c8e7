"""Commands for what to do next: on which node, about which device, and none where they would show nothing."""

from pathlib import Path
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import RULES, diagnose
from fabtui.diagnosis.finding import Kind, Subject
from fabtui.diagnosis.knowledge.next_commands import (
    by_fabtui,
    by_hand,
    commands_of_meaning,
    gpu_commands,
    host_of,
    nic_commands,
    node_commands,
    on_node,
    pair_commands,
    path_commands,
    rdma_command,
    route_ends,
    typed,
    within_commands,
)
from fabtui.diagnosis.merge_findings import in_order
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import InventoryUpdate, Measured, ProbeResult
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import copied_step, step_json, step_text
from tests.conftest import replayed, session_of

ROOT = Path(__file__).parents[3]
TIMEOUT = Verdict.TIMEOUT
RECORDINGS = [*sorted(ROOT.glob("recordings/*.jsonl.gz")), *sorted(ROOT.glob("tests/samples/[gs]*/*.jsonl.gz"))]
#: Subjects of findings on node ``b``, or with an end there.
SUBJECTS = (
    Subject(Kind.GPU, "b:0"),
    Subject(Kind.NIC, "b mlx5_1"),
    Subject(Kind.NODE, "b"),
    Subject(Kind.HALVES, "b"),
    Subject(Kind.PAIR, "b:0 - c:1"),
    Subject(Kind.NODE_PAIR, "b > c"),
    Subject(Kind.RAIL, "1"),
)


def session(kind: str = "gpu", nic: str | None = "mlx5_{index}", address: bool = True, **options: Any) -> Model:
    place = "10.{index}.0.{host}" if address else None
    return session_of("ab", 2, options=options, kind=kind, nic=nic, address=place)


@pytest.mark.parametrize("blamed", SUBJECTS, ids=str)
def test_commands_of_every_rule_are_in_order_of_blame(blamed: Subject) -> None:
    model = session()
    steps = [on_node(node, command, model) for node, command in (("a", "ip neigh"), ("b", "ibstat"), ("a", "ip link"))]
    for rule in RULES:
        one = rule.finding(nodes=("b",), commands=steps, blames=blamed)
        (found,) = in_order(model, [one])
        assert found.next == (steps[1], steps[0], steps[2])
        (found,) = in_order(model, [one.replace(next=(steps[0], "fabtui run --nodes a,b"))])
        assert found.next == ("fabtui run --nodes a,b", steps[0])
        (found,) = in_order(model, [one.replace(next=(steps[0],))])
        assert [host_of(step) for step in found.next] == ["b", "a"]


def test_no_nvidia_smi_for_nodes_with_cpu_ranks() -> None:
    model = session("cpu")
    steps = (on_node("a", "nvidia-smi -q -d ECC", model), on_node("a", "ip link", model))
    (found,) = in_order(model, [RULES[0].finding(nodes=("a",), commands=steps)])
    assert found.next == steps[1:]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_first_commands_of_recordings_are_for_the_blamed(path: Path) -> None:
    # A fixture checks all findings of this folder.
    assert diagnose(replayed(path)).all_findings is not None


def linked(*indices: int) -> list[dict[str, Any]]:
    return [{"index": index, "links": [{"link": 0, "state": "active"}]} for index in indices]


def measured(model: Model, layer: Layer, src: str, dst: str, verdict: Verdict = TIMEOUT, **more: Any) -> Measurement:
    value = 45.0 if verdict is Verdict.OK else None
    row = Measurement(layer, src, dst, verdict, value, layer.spec.unit, time=2.0, **more)
    model.apply(Measured(measurements=[row], time=2.0))
    return row


def test_a_command_is_run_over_ssh_unless_the_node_is_this_machine() -> None:
    model = session()
    assert on_node("a b", "ip link") == on_node("a b", "ip link", model) == "ssh 'a b' ip link"
    assert typed("nft list ruleset", model) == "nft list ruleset"
    model.options = {"ssh_config": "/my config"}
    assert on_node("a", "ip link", model) == "ssh -F '/my config' a ip link"
    assert typed("nft list ruleset", model) == "nft list ruleset"
    model.options = {"transport": "local", "ssh_config": "/my config"}
    assert step_text(on_node("a", "ip link", model)) == "ssh a ip link (local: runs here)"
    model.lab = "2x2"
    assert step_text(on_node("a", "ip link", model)) == "ssh a ip link (lab: runs here)"
    assert typed("nft list ruleset", model) == "nft list ruleset"


@pytest.mark.parametrize(
    ("command", "pasted", "argv"),
    [
        ("ip -s link", "ip -s link", ["ip", "-s", "link"]),
        ("ss -ltnp 'sport = :39505'", "ss -ltnp 'sport = :39505'", ["ss", "-ltnp", "sport = :39505"]),
        ("sudo dmesg | grep -i xid", "sudo dmesg | grep -i xid", ["sh", "-c", "sudo dmesg | grep -i xid"]),
        ("'sysctl a; ip rule'", "sysctl a; ip rule", ["sh", "-c", "sysctl a; ip rule"]),
    ],
)
def test_what_is_copied_in_a_lab_needs_no_login(command: str, pasted: str, argv: list[str]) -> None:
    model = session()
    step = on_node("a", command, model)
    assert step == copied_step(step) == f"ssh a {command}"
    assert step_text(step) == step + " (needs a shell)" * (";" in command)
    assert step_json(step) == {"node": "a", "argv": argv}
    model.lab = "2x2"
    step = on_node("a", command, model)
    assert step == f"ssh a {command}"
    assert copied_step(step) == pasted
    assert step_json(step) == {"node": "a", "argv": argv}
    assert copied_step("fabtui run --lab 2x2") == step_text("fabtui run --lab 2x2") == "fabtui run --lab 2x2"


def test_a_pair_of_nodes_is_pinged_and_its_nics_measured() -> None:
    model = session()
    measured(model, Layer.P2P, "a:0", "b:1")
    assert pair_commands(model, "a:0", "b:1") == [
        "ssh a ping -c3 -I 10.0.0.1 10.1.0.2",
        "ssh a ip neigh show to 10.1.0.2",
        "ssh a ip route get 10.1.0.2 from 10.0.0.1",
        "fabtui run --nodes a,b --probes perftest",
    ]
    assert pair_commands(model, "b:1", "a:0") == [], "it was not tested"
    measured(model, Layer.P2P, "b:1", "a:0", Verdict.OK)
    assert pair_commands(model, "b:1", "a:0") == []
    assert pair_commands(model, "a:0", "a:0") == pair_commands(model, "a:0", "x:0") == []


def test_data_that_arrives_damaged_is_not_pinged() -> None:
    model = session()
    measured(model, Layer.P2P, "a:0", "b:1", Verdict.WRONG)
    assert pair_commands(model, "a:0", "b:1") == [
        "ssh a nvidia-smi -q -i 0 -d ECC,ROW_REMAPPER",
        "ssh b nvidia-smi -q -i 1 -d ECC,ROW_REMAPPER",
        "ssh a ibstat mlx5_0",
        "ssh b ibstat mlx5_1",
        "fabtui run --nodes a,b --probes perftest",
    ]
    measured(model, Layer.P2P, "b:0", "b:1", Verdict.WRONG)
    assert pair_commands(model, "b:0", "b:1") == [f"ssh b nvidia-smi -q -i {at} -d ECC,ROW_REMAPPER" for at in (0, 1)]
    cpus = session("cpu")
    measured(cpus, Layer.P2P, "b:0", "b:1", Verdict.WRONG)
    assert pair_commands(cpus, "b:0", "b:1") == ["ssh b sudo dmesg | grep -iE 'mce|edac'"]


@pytest.mark.parametrize("tcp", [Verdict.OK, Verdict.TIMEOUT, None])
def test_a_timeout_is_pinged_unless_the_network_passes(tcp: Verdict | None) -> None:
    model = session()
    measured(model, Layer.P2P, "a:0", "b:1")
    for layer, verdict in ((Layer.PING, Verdict.OK), (Layer.UDP, Verdict.OK), (Layer.TCP, tcp)):
        if verdict is not None:
            measured(model, layer, "a", "b", verdict, src_addr="10.0.0.1", dst_addr="10.1.0.2")
    nics = ["ssh a ibstat mlx5_0", "ssh b ibstat mlx5_1", "fabtui run --nodes a,b --probes perftest"]
    pings = ["ssh a ping -c3 -I 10.0.0.1 10.1.0.2", "ssh a ip neigh show to 10.1.0.2"]
    pings += ["ssh a ip route get 10.1.0.2 from 10.0.0.1", nics[2]]
    debug = "fabtui run --nodes a,b --probes ping,udp,tcp,p2p --pair 'a:0>b:1' --env NCCL_DEBUG=INFO"
    assert pair_commands(model, "a:0", "b:1") == (pings if tcp is Verdict.TIMEOUT else [debug, *nics])


def test_a_slow_pair_has_its_nics_inspected() -> None:
    model = session()
    across = (("a:0", "b:1", 9.0), ("a:1", "b:0", 90.0), ("b:0", "a:1", 91.0), ("b:1", "a:0", 89.0))
    rows = [Measurement(Layer.P2P, src, dst, Verdict.OK, value, "GB/s", time=2.0) for src, dst, value in across]
    model.apply(Measured(measurements=rows, time=2.0))
    assert pair_commands(model, "a:0", "b:1")[:2] == ["ssh a ibstat mlx5_0", "ssh b ibstat mlx5_1"]
    assert pair_commands(model, "a:1", "b:0") == []


def test_a_rail_is_not_asked_about_from_the_address_of_another() -> None:
    model = session()
    measured(model, Layer.P2P, "a:1", "b:1", src_addr="10.0.0.1", dst_addr="10.0.0.2")
    assert pair_commands(model, "a:1", "b:1")[0] == "ssh a ping -c3 -I 10.1.0.1 10.1.0.2"


def test_the_addresses_that_were_used_are_pinged() -> None:
    model = session()
    row = measured(model, Layer.P2P, "a:0", "b:1", src_addr="192.168.0.1%eth0", dst_addr="mlx5_1:1")
    a, b = model.endpoints[0], model.endpoints[3]
    assert path_commands(model, a, b, row)[0] == "ssh a ping -c3 -I 192.168.0.1 10.1.0.2"
    assert route_ends(model, row) == "10.1.0.2 from 192.168.0.1"
    assert path_commands(model, a, b)[0] == "ssh a ping -c3 -I 10.0.0.1 10.1.0.2"
    without = session(address=False)
    row = measured(without, Layer.P2P, "a:0", "b:1", dst_addr="10.0.0.9")
    assert path_commands(without, a, without.endpoints[3], row) == [
        "ssh a ping -c3 -I 10.0.0.1 10.0.0.9",
        "ssh a ip neigh show to 10.0.0.9",
        "ssh a ip route get 10.0.0.9 from 10.0.0.1",
        "fabtui run --nodes a,b --probes perftest",
    ]
    assert route_ends(without, row) is None


def test_a_pair_of_gpus_of_a_node_has_its_links_inspected() -> None:
    model = session()
    measured(model, Layer.P2P, "b:0", "b:1")
    expected = ["ssh b nvidia-smi topo -p2p n", "ssh b nvidia-smi topo -m"]
    assert pair_commands(model, "b:0", "b:1") == within_commands(model, *model.endpoints[2:]) == expected
    expected[1] = "ssh b nvidia-smi nvlink -e -i 0,1"
    model.apply(ProbeResult(node="b", probe="nvlink", value={"gpus": linked(0, 1)}, time=2.0))
    assert pair_commands(model, "b:0", "b:1") == within_commands(model, *model.endpoints[2:]) == expected
    cpus = session("cpu")
    assert within_commands(cpus, *cpus.endpoints[2:]) == []
    mixed = (model.endpoints[0], cpus.endpoints[1])
    assert within_commands(model, *mixed) == []


def test_a_gpu_has_its_nvlinks_inspected_if_it_has_any() -> None:
    model = session()
    general = ["ssh b nvidia-smi -q -i 1 -d ECC,PERFORMANCE,PAGE_RETIREMENT", "ssh b sudo dmesg | grep -i xid"]
    assert gpu_commands(model, model.endpoints[3]) == general
    card = {"index": 1, "links": []}
    model.apply(ProbeResult(node="b", probe="nvlink", value={"gpus": [*linked(0), card]}, time=2.0))
    assert gpu_commands(model, model.endpoints[3]) == general
    model.apply(ProbeResult(node="b", probe="nvlink", value={"gpus": linked(1)}, time=2.0))
    assert gpu_commands(model, model.endpoints[3]) == [general[0], "ssh b nvidia-smi nvlink -e -i 1", general[1]]
    assert gpu_commands(model, Endpoint(9, "x", 1)) == [one.replace("ssh b", "ssh x") for one in general]
    cpus = session("cpu")
    assert gpu_commands(cpus, cpus.endpoints[3]) == []


def test_a_node_of_gpus_has_its_topology_inspected_and_any_other_its_interfaces() -> None:
    assert node_commands(session(), "b") == [
        "ssh b nvidia-smi topo -m",
        "ssh b lsmod | grep -E 'nvidia_peermem|nv_peer_mem'",
    ]
    assert node_commands(session("cpu"), "b") == ["ssh b ip -s link"]
    assert node_commands(session(), "x") == ["ssh x ip -s link"]


@pytest.mark.parametrize(
    ("nic", "listed", "command"),
    [
        ("mlx5_{index}", [], "ibstat mlx5_1"),
        ("bnxt_re{index}", [{"ca": "bnxt_re1"}], "ibstat bnxt_re1"),
        ("bnxt_re{index}", [{"ca": "bnxt_re0"}], "ip -s -s link show bnxt_re1"),
        ("eth{index}", [], "ip -s -s link show eth1"),
        (None, [], "ip -s link"),
    ],
)
def test_a_nic_is_inspected_as_what_it_is(nic: str | None, listed: list[dict[str, Any]], command: str) -> None:
    model = session(nic=nic)
    model.apply(InventoryUpdate(node="b", value={"ib": listed}, time=1.0))
    assert nic_commands(model, model.endpoints[3]) == [f"ssh b {command}"]


def test_rdma_is_measured_where_both_ends_have_it() -> None:
    model = session()
    a, b = model.endpoints[0], model.endpoints[3]
    assert rdma_command(model, a, b) == ["fabtui run --nodes a,b --probes perftest"]
    ethernet = Endpoint(3, "b", 1, nic="eth1")
    assert rdma_command(model, a, ethernet) == rdma_command(model, ethernet, a) == []
    model.lab = "2x2"
    assert rdma_command(model, a, b) == []


def test_commands_of_an_error_run_on_the_end_that_they_concern() -> None:
    model = session()
    row = measured(model, Layer.P2P, "a:0", "b:1")
    commands = [("src", "ulimit -l"), ("dst", "ibstat"), ("dst", "ip route get {route}"), ("src", "ulimit -l")]
    assert commands_of_meaning(model, commands, row) == [
        "ssh a ulimit -l",
        "ssh b ibstat",
        "ssh b ip route get 10.1.0.2 from 10.0.0.1",
    ]
    without = session(address=False)
    assert commands_of_meaning(without, commands, measured(without, Layer.P2P, "a:0", "b:1")) == [
        "ssh a ulimit -l",
        "ssh b ibstat",
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ""),
        ({"transport": "ssh", "host_key_policy": "config", "engine": "auto"}, ""),
        (
            {"transport": "openssh", "remote_python": "/opt/python3"},
            "--transport openssh --remote-python /opt/python3 ",
        ),
        ({"engine": "gloo", "bytes": 8, "ranks_per_node": 2}, "--engine gloo --bytes 8 --ranks-per-node 2 "),
        ({"engine": "nccl"}, "--engine nccl "),
        ({"engine": "torch", "bytes": 8}, "--bytes 8 "),
        ({"bytes": "8"}, ""),
    ],
)
def test_the_same_pair_is_tested_again_with_the_options_of_the_session(options: dict[str, Any], words: str) -> None:
    model = session(**options)
    assert by_fabtui(model, "a:0", "b:1") == f"fabtui run --nodes a,b {words}--probes ping,p2p --pair 'a:0>b:1'"
    assert by_fabtui(model, "a:0", "a:1").startswith("fabtui run --nodes a ")
    model.lab, model.faults = "2x2", ["a:0>b:0=dead"]
    assert by_fabtui(model, "a:0", "b:1").startswith("fabtui run --lab 2x2 --lab-fault 'a:0>b:0=dead' ")


def test_a_pair_of_gpus_by_hand() -> None:
    model = session()
    model.apply(
        InventoryUpdate(node="b", value={"pythons": [{"path": "/p1"}, {"path": "/p2", "torch": "2"}]}, time=1.0)
    )
    command = by_hand(model, "a:0", "b:1")
    first, _, second = command.removesuffix("; wait").partition(" & ")
    for part in ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29517 CUDA_VISIBLE_DEVICES=0", "python3 -c"):
        assert part in first
    for part in (
        *("RANK=1", "CUDA_VISIBLE_DEVICES=1 NCCL_DEBUG=INFO", "/p2 -c", 'device="cuda"', '"nccl"', "synchronize"),
    ):
        assert part in second
    assert (first[:6], second[:6]) == ("ssh a ", "ssh b ")
    assert "torch.zeros(16777216," in first, "64 MiB of float32"
    measured(model, Layer.P2P, "a:0", "b:1", bytes=4096)
    assert "torch.zeros(1024," in by_hand(model, "a:0", "b:1")
    assert "GLOO_SOCKET_IFNAME" not in command


def test_a_pair_of_cpu_ranks_by_hand() -> None:
    model = session("cpu")
    entries = [{"address": "10.9.0.9", "nic": "eth9"}, {"address": "10.1.0.2", "nic": "eth1"}]
    model.apply(InventoryUpdate(node="b", value={"data_addresses": entries}, time=1.0))
    first, _, second = by_hand(model, "a:0", "b:1").partition(" & ")
    assert "GLOO_SOCKET_IFNAME=eth1" in second
    assert "GLOO_SOCKET_IFNAME" not in first
    for part in (first, second):
        assert 'device="cpu"' in part
        assert '"gloo"' in part
        assert "CUDA_VISIBLE_DEVICES" not in part
    model.lab = "2x2"
    assert by_hand(model, "a:0", "b:1").startswith("RANK=0 ")


def test_what_cannot_be_tested_by_hand() -> None:
    assert by_hand(session("none"), "a:0", "b:1") == ""
    assert (
        by_hand(session(), "a:0", "a:0") == by_hand(session(), "a:0", "x:1") == by_hand(session(), "x:1", "a:0") == ""
    )
    assert "MASTER_ADDR=a " in by_hand(session(address=False), "a:0", "b:1")
