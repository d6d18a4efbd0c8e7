import json
import socket
import struct
from typing import Any

import pytest

from fabtui_node.probes.network import interfaces as nics
from fabtui_node.system import netlink, rdma_devices, run_command

from .places import Tree


def nic(name: str, *addresses: str, **values: Any) -> dict[str, Any]:
    """Return an interface as ``nics.read`` gives it; addresses as ``192.0.2.1/24`` with flags after a comma."""
    start: dict[str, Any] = {
        "name": name,
        "state": "up",
        "kind": "ethernet",
        "link_kind": None,
        "master": None,
        "ports": [],
        "rdma": None,
        "addresses": [],
    }
    for text in addresses:
        address, *flags = text.split(",")
        host, _, prefix = address.partition("/")
        family = 6 if ":" in host else 4
        start["addresses"].append({"address": host, "prefix": int(prefix), "family": family, "flags": flags})
    return {**start, **values}


def ca(name: str, netdev: str | None) -> dict[str, Any]:
    return {"ca": name, "ports": [{"netdev": netdev}]}


def found(interfaces: list[dict[str, Any]], devices: list[dict[str, Any]] | None = None) -> list[tuple[str, str, Any]]:
    data = nics.data_addresses(interfaces, devices or [])
    return [(entry["address"], entry["nic"], entry["rail"]) for entry in data]


@pytest.mark.parametrize(
    "other",
    [
        nic("lo", "127.0.0.1/8", kind="loopback", state="unknown"),
        nic("docker0", "172.17.0.1/16", kind="virtual", link_kind="bridge"),
        nic("br-0123456789ab", "172.18.0.1/16", kind="virtual", link_kind="bridge"),
        nic("virbr0", "192.168.122.1/24", kind="virtual", link_kind="bridge"),
        nic("cni0", "10.244.0.1/24", kind="virtual", link_kind="bridge"),
        nic("flannel.1", "10.244.0.0/32", kind="virtual", link_kind="vxlan"),
        nic("overlay", "10.244.0.0/32", kind="virtual", link_kind="vxlan"),
        nic("tailscale0", "100.64.0.1/32", kind="virtual"),
        nic("office", "10.8.0.2/24", kind="virtual", link_kind="tun"),
        nic("eth9", "169.254.3.1/16"),
        nic("eth9", "fe80::1/64"),
        nic("eth9", "192.0.2.9/24", state="down"),
        nic("eth9", "192.0.2.9/24", state="lowerlayerdown"),
        nic("eth9", "192.0.2.9/24", master="bond0"),
        nic("eth9", "192.0.2.9/24,secondary"),
        nic("eth9", "2001:db8::9/64,temporary"),
        nic("eth9"),
        nic("br0", "192.0.2.9/24", kind="virtual", link_kind="bridge", ports=["veth0a"]),
    ],
    ids=lambda other: other["name"],
)
def test_what_a_data_path_may_not_use(other: dict[str, Any]) -> None:
    assert [entry[:2] for entry in found([nic("eth0", "192.0.2.1/24"), other])] == [("192.0.2.1", "eth0")]


@pytest.mark.parametrize(
    "other",
    [
        nic("ib0", "10.1.0.1/24", kind="infiniband"),
        nic("bond0", "10.1.0.1/24", kind="virtual", link_kind="bond"),
        nic("eth0.12", "10.1.0.1/24", kind="virtual", link_kind="vlan"),
        nic("eth0", "10.1.0.1/24", kind="virtual", link_kind="veth"),
        nic("br0", "10.1.0.1/24", kind="virtual", link_kind="bridge", ports=["eno1"]),
        nic("eno2", "10.1.0.1/24", state="unknown"),
        nic("eno2", "2001:db8::1/64"),
        nic("eno2", "10.1.0.1/24", "2001:db8::1/64"),
    ],
    ids=lambda other: other["name"],
)
def test_what_a_data_path_may_use(other: dict[str, Any]) -> None:
    wanted = other["addresses"][0]["address"]
    assert [entry[:2] for entry in found([nic("eno1"), other])] == [(wanted, other["name"])]


def test_rails_follow_the_rdma_devices_and_other_nics_have_none() -> None:
    interfaces = [
        nic("eno1", "192.0.2.1/24"),
        nic("ib10", "10.10.0.1/24", kind="infiniband"),
        nic("ib2", "10.2.0.1/24", kind="infiniband"),
    ]
    devices = [ca("mlx5_0", None), ca("mlx5_2", "ib2"), ca("mlx5_10", "ib10")]
    assert found(interfaces, devices) == [("10.2.0.1", "ib2", 1), ("10.10.0.1", "ib10", 2), ("192.0.2.1", "eno1", None)]


@pytest.mark.parametrize(
    ("others", "setting", "expected"),
    [
        ([nic("eth0", "10.1.0.1/24"), nic("eth1", "10.2.0.1/24")], "", [("eth0", 0), ("eth1", 1)]),
        ([nic("eth0", "10.1.0.1/24", state="down")], "", []),
        ([], "", [("eno1", 0)]),
        ([nic("eth0")], "", [("eno1", 0)]),
        ([nic("docker0", "172.17.0.1/16", kind="virtual")], "", [("eno1", 0)]),
        ([nic("eth0", "10.1.0.1/24")], "eno,eth", [("eno1", 0), ("eth0", 1)]),
        ([nic("eth0", "10.1.0.1/24")], "=eno1", [("eno1", 0), ("eth0", 1)]),
        ([nic("eth0", "10.1.0.1/24")], "=eno", [("eth0", 0)]),
        ([nic("eth0", "10.1.0.1/24")], "^eno1", [("eth0", 0)]),
    ],
    ids=["no rail", "a rail down", "alone", "no address", "a container's", "prefix", "exact", "another", "excluded"],
)
def test_the_interface_that_ssh_came_in_by_is_no_rail(
    monkeypatch: pytest.MonkeyPatch, others: list[dict[str, Any]], setting: str, expected: list[tuple[str, int]]
) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", setting)
    mine = nic("eno1", "192.0.2.1/24", login=True)
    assert [entry[1:] for entry in found([mine, *others])] == expected
    assert ("192.0.2.1", "eno1", 0) in found([{**mine, "rdma": "mlx5_0"}, *others], [ca("mlx5_0", "eno1")])


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        ("192.0.2.9 5000 127.0.0.1 22", True),
        ("fe80::9 5000 ::1%lo 22", True),
        ("fe80::9 5000 ::1%eth7 22", False),
        ("192.0.2.9 5000 192.0.2.77 22", False),
        ("UNKNOWN 65535 UNKNOWN 65535", False),
        ("127.0.0.1", False),
        ("", False),
    ],
)
def test_the_interface_of_the_ssh_connection(monkeypatch: pytest.MonkeyPatch, connection: str, expected: bool) -> None:
    monkeypatch.setenv("SSH_CONNECTION", connection)
    (lo,) = [one for one in nics.read([]) if one["name"] == "lo"]
    assert lo["login"] is expected


def test_a_rail_that_is_down_does_not_renumber_the_others() -> None:
    interfaces = [nic(f"eth{n}", f"10.{n}.0.1/24") for n in range(3)]
    interfaces[1]["state"] = "down"
    assert found(interfaces) == [("10.0.0.1", "eth0", 0), ("10.2.0.1", "eth2", 2)]


def test_the_labs_address_is_the_only_one() -> None:
    interfaces = [nic("eth0", "192.0.2.1/24"), nic("lo", "127.0.0.1/8", kind="loopback")]
    (entry,) = nics.data_addresses(interfaces, [], "127.0.60.7")
    assert entry == {"address": "127.0.60.7", "nic": "lo", "rail": 0, "family": 4}
    (entry,) = nics.data_addresses(interfaces, [], "192.0.2.1")
    assert entry["nic"] == "eth0"
    assert nics.data_addresses(interfaces, [], "no address") == nics.data_addresses(interfaces, [])


def test_addresses_and_kinds_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def link(index: int, **more: bytes) -> Any:
        attributes = {3: b"eth%d\0" % index, 6: b"tbf\0", 18: b"\x09\0\x01\0veth\0"}
        return struct.pack("=BxHiII", 0, 1, index, 0, 0), attributes

    def address(text: str, prefix: int, flags: int) -> Any:
        family = socket.AF_INET6 if ":" in text else socket.AF_INET
        attributes = {1: socket.inet_pton(family, text), 8: struct.pack("=I", flags)}
        return struct.pack("=BBBBI", family, prefix, flags & 0xFF, 0, 2), attributes

    given = [("192.0.2.2", 24, 0x80), ("192.0.2.3", 24, 0x81), ("2001:db8::2", 64, 0x01), ("::1", 128, 0x80)]
    tables = {netlink.LINKS: [link(2)], netlink.ADDRESSES: [address(*one) for one in given]}
    monkeypatch.setattr(netlink, "dump", lambda kind: iter(tables[kind]))
    assert nics.by_kernel() == {
        "eth2": {
            "link_kind": "veth",
            "qdisc": "tbf",
            "addresses": [
                {"address": "192.0.2.2", "prefix": 24, "family": 4, "flags": []},
                {"address": "192.0.2.3", "prefix": 24, "family": 4, "flags": ["secondary"]},
                {"address": "2001:db8::2", "prefix": 64, "family": 6, "flags": ["temporary"]},
                {"address": "::1", "prefix": 128, "family": 6, "flags": []},
            ],
        }
    }


def test_read_a_folder(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nics, "by_kernel", dict)
    gpu_root = "pci0000:15/0000:15:01.0"
    card = tree.pci(f"{gpu_root}/0000:16:00.0", numa_node=1)
    tree.ca("mlx5_0", card, netdev="ens1np0")
    tree.nic("ens1np0", card, speed=400000, mtu=9000)
    tree.nic("eth1", tree.pci("pci0000:00/0000:00:03.0", numa_node=-1), speed=-1, operstate="down")
    tree.nic("ib0", type=32)
    tree.nic("bond0", bonding__mode="active-backup")
    tree.files("class/net", bonding_masters="bond0")
    interfaces = {entry["name"]: entry for entry in nics.read(rdma_devices.devices(str(tree.root)), str(tree.root))}
    assert list(interfaces) == ["bond0", "ens1np0", "eth1", "ib0"]
    first = interfaces["ens1np0"]
    assert (first["kind"], first["speed_mbps"], first["mtu"], first["state"]) == ("ethernet", 400000, 9000, "up")
    assert (first["rdma"], first["bus"], first["numa"]) == ("mlx5_0", "0000:16:00.0", 1)
    second = interfaces["eth1"]
    assert (second["speed_mbps"], second["numa"], second["state"]) == (None, None, "down")
    assert interfaces["ib0"]["kind"] == "infiniband"
    assert (interfaces["bond0"]["kind"], interfaces["bond0"]["link_kind"]) == ("virtual", "bond")


def test_the_kernel_and_ip_agree_on_this_machine() -> None:
    done = run_command.run(["ip", "-j", "-d", "addr"], 10)
    if not done.ok:
        pytest.skip("no iproute2 that speaks JSON here")
    known = nics.by_kernel()
    for link in json.loads(done.stdout):
        mine = known[link["ifname"]]
        addresses = [(entry["local"], entry["prefixlen"]) for entry in link["addr_info"]]
        assert [(entry["address"], entry["prefix"]) for entry in mine["addresses"]] == addresses
        assert (mine["qdisc"], mine["link_kind"]) == (link["qdisc"], link.get("linkinfo", {}).get("info_kind"))


def test_ports_of_one_card_are_distinguished(tree: Tree) -> None:
    card = tree.pci("pci0000:15/0000:16:00.0")
    tree.ca("mlx4_0", card)
    tree.files("class/infiniband/mlx4_0/ports/2", state="4: ACTIVE")
    tree.files(f"{card}/net/ib0", dev_port=0)
    tree.files(f"{card}/net/ib1", dev_port=1)
    (device,) = rdma_devices.devices(str(tree.root))
    assert [(port["port"], port["netdev"]) for port in device["ports"]] == [(1, "ib0"), (2, "ib1")]


def test_gids(tree: Tree) -> None:
    tree.ca("mlx5_0", gids__10="0000:0000:0000:0000:0000:ffff:c000:0201", gid_attrs__types__10="RoCE v2")
    ((port,),) = (device["ports"] for device in rdma_devices.devices(str(tree.root)))
    assert [(gid["index"], gid["type"]) for gid in port["gids"]] == [(0, None), (10, "RoCE v2")]


@pytest.mark.parametrize(("carrier", "state"), [(1, "up"), (0, "down"), (None, "down")])
def test_an_interface_with_a_carrier_is_up_before_the_kernel_has_set_its_state(
    tree: Tree, carrier: Any, state: str
) -> None:
    tree.nic("eth0", operstate="down", **({} if carrier is None else {"carrier": carrier}))
    (entry,) = nics.read([], str(tree.root))
    assert entry["state"] == state
