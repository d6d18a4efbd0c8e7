"""Rules FT040 to FT042: pairs that take a slower path than their hardware allows, and whom they name."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Finding, Kind, Severity
from fabtui.model.events import InventoryUpdate, Measured, ProbeResult
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from tests.conftest import session_of

#: Returns the transport of a pair of endpoints (``a:0``).
Path = Callable[[str, str], str | None]
SOCKET, IB, GDR, P2P, SHM = "NET/Socket/eth0", "NET/IB/0", "NET/IB/0/GDRDMA", "P2P/CUMEM", "SHM/direct"


def fabric(
    path: Path,
    nodes: str = "abcd",
    *,
    per_node: int = 2,
    rdma: str = "abcd",
    nvlinks: str = "abcd",
    env: dict[str, dict[str, str]] | None = None,
    **options: Any,
) -> Model:
    model = session_of(nodes, per_node, rails=True, options=options)
    for node in nodes:
        state = "Active" if node in rdma else "Down"
        value = {"ib": [{"ca": "mlx5_0", "port": 1, "state": state}], "env": (env or {}).get(node, {})}
        model.apply(InventoryUpdate(node=node, value=value, time=1.0))
        links = [{"link": 0, "state": "active" if node in nvlinks else "inactive"}]
        gpus = [{"index": index, "links": links} for index in range(per_node)]
        model.apply(ProbeResult(node=node, probe="nvlink", value={"gpus": gpus}, time=1.0))
    for a, b in itertools.permutations(map(str, model.endpoints), 2):
        speed = 350.0 if a[0] == b[0] else 45.0
        row = Measurement(Layer.P2P, a, b, Verdict.OK, speed, "GB/s", 1 << 28, 2.0, transport=path(a, b))
        model.apply(Measured(measurements=[row], time=2.0))
    return model


def off(src: str, dst: str) -> bool:
    return src[0] != dst[0]


def of(rule: str, path: Path, *args: Any, **more: Any) -> list[tuple[tuple[Kind, str], int]]:
    return [(one.subject, len(one.cells)) for one in found(rule, path, *args, **more)]


def found(rule: str, path: Path, *args: Any, **more: Any) -> list[Finding]:
    return [one for one in diagnose(fabric(path, *args, **more)).findings if one.rule.name == rule]


def test_healthy_transports_are_no_finding() -> None:
    assert diagnose(fabric(lambda s, d: GDR if off(s, d) else P2P)).findings == []


def test_sockets_everywhere_are_about_all_nodes() -> None:
    (one,) = found("socket-fallback", lambda s, d: SOCKET if off(s, d) else P2P)
    assert (one.subject, len(one.cells), one.severity) == ((Kind.FABRIC, "all nodes"), 48, Severity.BAD)
    assert title(one).startswith("all nodes: 48 pairs use NET/Socket (TCP)")
    assert one.next == ("ssh a env | grep -E '^(NCCL|UCX)_'", "ssh a ibv_devinfo", "ssh a ls /dev/infiniband")


@pytest.mark.parametrize(("nics", "expected"), [("eth0 eth1", ["n"]), ("eth1", []), ("eth0", [])])
def test_a_node_that_sends_over_another_nic_than_most_is_named_if_it_has_the_usual_one(
    nics: str, expected: list[str]
) -> None:
    model = fabric(lambda s, d: P2P if not off(s, d) else f"NET/Socket/{'eth1' if s[0] == 'c' else 'eth0'}", rdma="")
    value = {"nics": [{"name": name, "state": "up"} for name in nics.split()], "env": {"NCCL_SOCKET_IFNAME": "eth1"}}
    model.apply(InventoryUpdate(node="c", value=value, time=3.0))
    named = [one for one in diagnose(model).findings if one.rule.name == "odd-nic"]
    assert [one.facts["rail"] for one in named] == [0, 1][: 2 * len(expected)]
    for one in named:
        assert title(one) == f"c sends over eth1 on rail {one.facts['rail']}, most nodes over eth0"
        assert evidence(one) == ("c has eth0, too", "set: NCCL_SOCKET_IFNAME=eth1 on c")
        assert one.next == ("ssh c env | grep -E '^(NCCL|UCX)_'",)


def _with_login(
    path: Path, nodes: str = "abc", *, login: str = "mgmt0", more: dict[str, Any] | None = None
) -> list[str]:
    """Return the titles of findings about nodes that SSH came in to by an interface, with eth0 and mgmt0 up."""
    model = fabric(path, nodes, per_node=1, rdma="", nvlinks="")
    nics = [{"name": name, "state": "up", "login": name == login} for name in ("eth0", "mgmt0")]
    for number, node in enumerate(nodes):
        data = [{"address": f"10.0.0.{number + 1}", "nic": "eth0", "rail": 0}]
        value = {"nics": nics, "data_addresses": data, **(more or {})}
        model.apply(InventoryUpdate(node=node, value=value, time=3.0))
    return [title(one) for one in diagnose(model).findings]


LOGIN = "NCCL sends over mgmt0, the network of SSH, though eth0 carries data: set NCCL_SOCKET_IFNAME=eth0"


@pytest.mark.parametrize("seed", range(8))
def test_the_network_of_ssh_has_the_same_title_however_nccl_spreads_its_traffic(seed: int) -> None:
    chance = random.Random(seed)
    over = {way: chance.choice(("eth0", "mgmt0")) for way in itertools.permutations("abcdef", 2)}
    assert _with_login(lambda s, d: f"NET/Socket/{over[s[0], d[0]]}", "abcdef") == [f"all nodes: {LOGIN}"]


def test_the_network_of_ssh_on_one_node_names_it_and_elsewhere_is_no_finding() -> None:
    one: Path = lambda s, d: f"NET/Socket/{'mgmt0' if s[0] == 'c' else 'eth0'}"  # noqa: E731
    assert _with_login(one) == [f"c: {LOGIN}"]
    assert _with_login(lambda s, d: "NET/Socket/mgmt0") == [f"all nodes: {LOGIN}"]
    assert _with_login(lambda s, d: "NET/Socket/eth0") == []
    # SSH comes in by the only network, or by one with RDMA, or is not known.
    assert _with_login(lambda s, d: "NET/Socket/mgmt0", more={"data_addresses": []}) == []
    assert _with_login(lambda s, d: "NET/Socket/eth0", login="eth0") == []
    assert _with_login(lambda s, d: "NET/Socket/mgmt0", login="") == []


@pytest.mark.parametrize("seed", range(8))
def test_two_interfaces_that_carry_traffic_are_no_odd_node(seed: int) -> None:
    chance = random.Random(seed)
    over = {way: chance.choice(("eth0", "mgmt0")) for way in itertools.permutations("abcdef", 2)}
    assert _with_login(lambda s, d: f"NET/Socket/{over[s[0], d[0]]}", "abcdef", login="") == []


@pytest.mark.parametrize(("nodes", "others", "named"), [("abc", "c", "cc"), ("abcd", "cd", ""), ("ab", "b", "")])
def test_most_nodes_are_two_and_more_than_half(nodes: str, others: str, named: str) -> None:
    """Each of the two rails of a node is named."""

    def path(src: str, dst: str) -> str:
        return P2P if not off(src, dst) else f"NET/Socket/{'eth1' if src[0] in others else 'eth0'}"

    model = fabric(path, nodes, rdma="")
    nics = [{"name": name, "state": "up"} for name in ("eth0", "eth1")]
    for node in nodes:
        model.apply(InventoryUpdate(node=node, value={"nics": nics}, time=3.0))
    assert "".join(one.facts["node"] for one in diagnose(model).findings if one.rule.name == "odd-nic") == named


def test_sockets_of_one_node_are_about_it() -> None:
    def path(src: str, dst: str) -> str:
        return P2P if not off(src, dst) else SOCKET if "c" in (src[0], dst[0]) else GDR

    assert of("socket-fallback", path) == [((Kind.NODE, "c"), 24)]
    assert of("socket-fallback", path, rdma="bad") == [], "c has no active RDMA port"


def test_sockets_of_some_pairs_are_about_their_nodes() -> None:
    def path(src: str, dst: str) -> str:
        return P2P if not off(src, dst) else SOCKET if {src, dst} == {"b:0", "d:1"} else GDR

    assert of("socket-fallback", path) == [((Kind.NODES, "b,d"), 2)]


def test_the_variables_that_force_sockets_are_named() -> None:
    env = {node: {"NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "INFO"} for node in "ab"}
    path: Path = lambda s, d: SOCKET if off(s, d) else P2P  # noqa: E731
    (one,) = found("socket-fallback", path, env={"b": {"NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "INFO"}})
    assert evidence(one)[0] == "set: NCCL_IB_DISABLE=1 on b"
    (one,) = found("socket-fallback", path, env=env | {"c": {"NCCL_NET": "Socket", "NCCL_IB_HCA": "x"}})
    assert evidence(one)[0] == "set: NCCL_IB_DISABLE=1 on a, NCCL_IB_DISABLE=1 on b, NCCL_IB_HCA=x on c", (
        "three at most"
    )
    model = fabric(path)
    model.options["env"] = ["NCCL_NET=Socket", "NCCL_DEBUG=WARN"]
    (one,) = [one for one in diagnose(model).findings if one.rule.name == "socket-fallback"]
    assert evidence(one)[0] == "set: NCCL_NET=Socket (--env)"


def test_rdma_without_gpudirect_where_others_have_it() -> None:
    def path(src: str, dst: str) -> str:
        return P2P if not off(src, dst) else IB if "c" in (src[0], dst[0]) else GDR

    assert of("no-gpudirect", path) == [((Kind.NODE, "c"), 24)]
    assert of("no-gpudirect", lambda s, d: IB if off(s, d) else P2P) == [], "no pair has it: that is the setup"
    assert of("no-gpudirect", lambda s, d: P2P if not off(s, d) else SOCKET if s[0] == "c" else GDR) == []


def test_without_gpudirect_across_rails_alone_the_nic_may_be_too_far() -> None:
    assert of("no-gpudirect", lambda s, d: P2P if not off(s, d) else GDR if s[2] == d[2] else IB) == []
    one = ("a:0", "b:1")
    named = of("no-gpudirect", lambda s, d: P2P if not off(s, d) else IB if (s, d) == one else GDR)
    assert named == [((Kind.NODES, "a,b"), 1)]


@pytest.mark.parametrize("slower", [SHM, SOCKET, IB])
def test_gpus_with_nvlinks_that_do_not_use_them(slower: str) -> None:
    def path(src: str, dst: str) -> str:
        return GDR if off(src, dst) else slower if src[0] == "b" else P2P

    assert of("no-peer-to-peer", path) == [((Kind.NODE, "b"), 2)]
    assert of("no-peer-to-peer", path, nvlinks="acd") == []
    (one,) = found("no-peer-to-peer", path)
    assert one.next[1:] == ("ssh b nvidia-smi topo -p2p n",)


def test_an_unknown_transport_is_no_slower_one() -> None:
    assert diagnose(fabric(lambda s, d: None)).findings == []
    assert of("no-peer-to-peer", lambda s, d: SHM if s == "a:0" and not off(s, d) else None, per_node=4) != []


PLUGINS = ("Libfabric", "AWS Libfabric", "OFI", "IBext_v10", "gIB", "FasTrak", "GPUDirectTCPX_v7", "AINIC", "UCX")


@pytest.mark.parametrize("plugin", PLUGINS)
def test_plugins_without_gpudirect_and_sockets_beside_them(plugin: str) -> None:
    def without(src: str, dst: str) -> str:
        return P2P if not off(src, dst) else f"NET/{plugin}/0" + ("" if "c" in (src[0], dst[0]) else "/GDRDMA")

    def sockets(src: str, dst: str) -> str:
        return P2P if not off(src, dst) else SOCKET if "c" in (src[0], dst[0]) else f"NET/{plugin}/0/GDRDMA"

    healthy = fabric(lambda s, d: f"NET/{plugin}/0/GDRDMA" if off(s, d) else P2P)
    assert of("no-gpudirect", without) == [((Kind.NODE, "c"), 24)]
    assert of("socket-fallback", sockets) == [((Kind.NODE, "c"), 24)]
    assert diagnose(healthy).findings == []


def test_sockets_beside_adapters_of_aws() -> None:
    model = fabric(lambda s, d: SOCKET if off(s, d) else P2P)
    for node in "abcd":
        ports = [{"ca": "rdmap79s0", "port": 1, "state": "Active", "link_layer": "Unknown", "type": "EFA"}]
        model.apply(InventoryUpdate(node=node, value={"ib": ports}, time=3.0))
    (one,) = [one for one in diagnose(model).findings if one.rule.name == "socket-fallback"]
    assert one.next == ("ssh a env | grep -E '^(NCCL|UCX)_'", "ssh a fi_info -p efa", "ssh a ls /dev/infiniband")
