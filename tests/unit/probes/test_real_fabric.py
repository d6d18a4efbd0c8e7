"""Parsers of the tools for InfiniBand, RoCE and network interfaces on outputs that people have posted.

They are not ours to ship, so they are read where they lie; each test checks the values of the index.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fabtui.importers import catalogue
from fabtui_node.parsers.base import Reading

from .places import REAL

#: The format of each folder.
FOLDERS = {
    "ethtool": "ethtool",
    "iblinkinfo": "iblinkinfo",
    "ibnetdiscover": "ibnetdiscover",
    "ibqueryerrors": "ibqueryerrors",
    "ibstat": "ibstat",
    "ibstatus": "ibstatus",
    "ibswinfo": "ibswinfo",
    "ibv_devinfo": "ibv_devinfo",
    "perfquery": "perfquery",
    "rdma-link": "rdma-link",
    "show_gids": "show_gids",
}


def index() -> dict[str, str]:
    if not (REAL / "INDEX.csv").is_file():
        return {}
    with (REAL / "INDEX.csv").open(newline="") as file:
        return {row["file"]: row["expect"] for row in csv.DictReader(file) if row["file"].split("/")[0] in FOLDERS}


pytestmark = pytest.mark.skipif(not index(), reason="no real samples here (FABTUI_REAL_SAMPLES)")


def read(name: str) -> Reading:
    return catalogue.formats()[FOLDERS[name.partition("/")[0]]].parse((REAL / name).read_text())


def values(name: str) -> Any:
    return read(name).values


def test_every_file_has_its_expectation_here() -> None:
    named = set(re.findall(r'"([a-z_-]+/[\w.-]+\.txt)"', Path(__file__).read_text()))
    assert {name for name in index() if not name.startswith("ibstat/")} <= named


@pytest.mark.parametrize("name", list(index()) or [""])
def test_each_is_known_and_understood(name: str) -> None:
    text = (REAL / name).read_text()
    wanted = FOLDERS[name.partition("/")[0]]
    ranked = sorted(((form.likely(text), known) for known, form in catalogue.formats().items()), reverse=True)
    if text:
        assert ranked[0][1] == wanted
        assert ranked[0][0] > ranked[1][0]
    assert read(name).unknown == []


def interface(name: str) -> Any:
    (found,) = values(name)["interfaces"]
    return found


def test_ethtool() -> None:
    found = interface("ethtool/eth0-100mb-link-partner.txt")
    assert (found["interface"], found["speed"], found["fastest"]) == ("eth0", 100, 1000)
    assert (found["duplex"], found["link"]) == ("Full", "yes")
    found = interface("ethtool/mlx4-fibre-40000-up.txt")
    assert (found["interface"], found["speed"], found["port"]) == ("enp1s0", 40000, "FIBRE")
    assert (found["duplex"], found["link"], found["autoneg"]) == ("Full", "yes", "off")
    found = interface("ethtool/veth-pod-10g.txt")
    assert (found["interface"], found["speed"], found["link"]) == ("eth0", 10000, "yes")
    assert read("ethtool/veth-pod-10g.txt").warnings == ["Cannot get wake-on-lan settings: Operation not permitted"]
    found = interface("ethtool/virtio-1000-up.txt")
    assert (found["interface"], found["speed"], found["duplex"]) == ("enp0s3", 1000, "Full")
    assert (found["link"], found["autoneg"]) == ("yes", "on")


def test_iblinkinfo_after_grep() -> None:
    links = values("iblinkinfo/edr-grep-up.txt")["links"]
    assert Counter(link["type"] for link in links) == {"CA": 3, "switch": 3}
    assert all((link["guid"] is not None) == (link["type"] == "CA") for link in links)
    assert {(link["lanes"], link["lane_rate"], link["rate"]) for link in links} == {(4, 25.78125, 100.0)}
    assert {link["lid"] for link in links if link["type"] == "switch"} == {2}


def test_iblinkinfo_of_a_part() -> None:
    links = values("iblinkinfo/hdr-quantum-part.txt")["links"]
    assert len({link["name"] for link in links if link["type"] == "CA"}) == 6
    switch = [link for link in links if link["type"] == "switch"]
    assert Counter(link["state"] for link in switch) == {"Active": 8, "Down": 6}
    assert [link["port"] for link in switch if link["state"] == "Down"] == [5, 6, 7, 8, 9, 10]
    assert {link["physical_state"] for link in switch if link["state"] == "Down"} == {"Polling"}
    assert {(link["lane_rate"], link["rate"]) for link in links if link["state"] == "Active"} == {(53.125, 200.0)}
    assert (links[-1]["type"], links[-1]["name"]) == ("CA", "cu02 HCA-1")


def test_iblinkinfo_of_a_whole_fabric() -> None:
    links = values("iblinkinfo/qdr-18port-switch.txt")["links"]
    adapters = [link for link in links if link["type"] == "CA"]
    switch = [link for link in links if link["type"] == "switch"]
    assert (len({link["name"] for link in adapters}), len(adapters), len(switch)) == (8, 9, 18)
    assert [link["port"] for link in switch if link["state"] == "Down"] == [8, 10, 11, 12, 13, 15, 16, 17, 18]
    assert sum(link["state"] == "Active" for link in switch) == 9
    assert [link["port"] for link in adapters if link["name"] == "teaker-9 HCA-1"] == [1, 2]


@pytest.mark.parametrize(
    ("name", "rows", "adapters", "free"),
    [
        ("ibnetdiscover/p-format-edr-mixed.txt", 9, 3, [(2052, 37, None), (1781, 80, "SDR")]),
        ("ibnetdiscover/p-format-hdr-odd-names.txt", 6, 2, [(24, 1, "SDR"), (25, 1, "SDR"), (478, 22, "QDR")]),
        ("ibnetdiscover/p-format-unquoted-name.txt", 1, 0, [(479, 22, "QDR")]),
    ],
)
def test_ibnetdiscover(name: str, rows: int, adapters: int, free: list[Any]) -> None:
    links = values(name)["links"]
    assert (len(links), sum(link["type"] == "CA" for link in links)) == (rows, adapters)
    unconnected = [(link["lid"], link["port"], link["speed"]) for link in links if link["peer"] is None]
    assert unconnected == free
    assert {link["type"] for link in links if link["peer"] is None} == {"switch"}


def test_ibnetdiscover_keeps_blanks_of_names() -> None:
    names = [link["name"] for link in values("ibnetdiscover/p-format-hdr-odd-names.txt")["links"]]
    assert " 5FB0406-spine-IB03 " in names


def test_ibqueryerrors() -> None:
    (port,) = values("ibqueryerrors/one-port-all-line.txt")["ports"]
    assert (port["guid"], port["port"]) == ("0x1070fd0300370ea2", "ALL")
    wanted = {"LinkDownedCounter": 25, "PortRcvErrors": 26, "PortXmitDiscards": 2846, "PortXmitWait": 14681376621}
    assert port["counters"] == wanted


def test_ibstatus() -> None:
    ports = values("ibstatus/a100-9dev-hdr-plus-eth40.txt")["ports"]
    assert (len(ports), {port["state"] for port in ports}, {port["physical_state"] for port in ports}) == (
        9,
        {"Active"},
        {"LinkUp"},
    )
    assert [port["rate"] for port in ports] == [200.0] * 8 + [40.0]
    assert (ports[8]["ca"], ports[8]["link_layer"], ports[8]["gid"]) == ("mlx5_8", "Ethernet", None)
    assert ports[0]["lid"] == 0x33BF
    one, two = values("ibstatus/mlx4-2ports-qdr-down.txt")["ports"]
    assert (one["port"], one["state"], one["physical_state"], one["rate"], one["lid"]) == (
        1,
        "Active",
        "LinkUp",
        40.0,
        10,
    )
    assert (one["lanes"], one["speed"], one["link_layer"]) == (4, "QDR", "InfiniBand")
    assert (two["port"], two["state"], two["physical_state"], two["rate"]) == (2, "Down", "Disabled", 10.0)
    assert (two["lanes"], two["link_layer"]) == (1, "Ethernet")


def test_ibswinfo() -> None:
    found = values("ibswinfo/edr-unmanaged-ok.txt")
    assert (found["ports"], found["temperature"], found["part"]) == (36, 45.0, "MSB7790-ES2F")
    assert (found["psus"]["0"]["status"], found["psus"]["1"]["status"]) == ("OK", "OK")
    # The file is named ok, and that holds for its power supplies; its fans differ.
    assert found["fan_status"] == "ERROR"


def test_ibv_devinfo() -> None:
    (device,) = values("ibv_devinfo/h100-ib-port-down-lid65535.txt")["devices"]
    (port,) = device["ports"]
    assert (port["state"], port["link_layer"], port["lid"], port["sm_lid"]) == ("Down", "InfiniBand", 65535, 0)
    (device,) = values("ibv_devinfo/mlx4-2ports-ib-active-eth-down.txt")["devices"]
    one, two = device["ports"]
    assert (one["state"], one["link_layer"], one["lid"], one["sm_lid"]) == ("Active", "InfiniBand", 3, 12)
    assert (one["active_mtu"], two["active_mtu"]) == (4096, 1024)
    assert (two["state"], two["link_layer"]) == ("Down", "Ethernet")
    (device,) = values("ibv_devinfo/qedr-verbose-part.txt")["devices"]
    assert (device["ca"], device["vendor"], device["board"], device["ports"]) == ("qedr0", "0x1077", None, [])


def test_perfquery() -> None:
    assert values("perfquery/empty-output-timeout.txt") == {"blocks": []}
    (block,) = values("perfquery/rcv-error-details.txt")["blocks"]
    assert (block["lid"], block["port"]) == (2052, 1)
    assert (block["counters"]["PortLocalPhysicalErrors"], block["counters"]["PortMalformedPktErrors"]) == (0, 0)
    (block,) = values("perfquery/x-edr-hca-clean.txt")["blocks"]
    counters = dict(block["counters"])
    assert (block["lid"], block["port"], counters["PortXmitData"], counters["PortXmitWait"]) == (
        133,
        1,
        37108676853855,
        0,
    )
    assert not any(count for name, count in counters.items() if not re.search("Pkts|Data", name))
    one, two = values("perfquery/x-edr-switch-2ports.txt")["blocks"]
    assert (one["lid"], one["port"], one["counters"]["PortXmitWait"]) == (1719, 1, 22730501)
    assert two["counters"]["PortXmitData"] == 26006570014026
    (block,) = values("perfquery/x-edr-switch-waits.txt")["blocks"]
    wanted = {
        "LinkDownedCounter": 1,
        "PortRcvSwitchRelayErrors": 7,
        "PortXmitDiscards": 20046,
        "PortXmitWait": 41864608,
    }
    assert (block["lid"], block["port"]) == (2052, 1)
    assert {name: block["counters"][name] for name in wanted} == wanted


def test_rdma_link() -> None:
    links = values("rdma-link/cx5-two-ports-active.txt")["links"]
    assert [(link["state"], link["physical_state"], link["netdev"]) for link in links] == [
        ("Active", "LinkUp", "ens6f0np0"),
        ("Active", "LinkUp", "ens6f1np1"),
    ]
    links = values("rdma-link/no-netdev-odd-indices.txt")["links"]
    assert len(links) == 6
    assert {link["ca"]: link["netdev"] for link in links if link["netdev"]} == {"mlx5_39": "eno0"}
    assert "mlx5_113" in {link["ca"] for link in links}
    links = values("rdma-link/one-active-one-disabled.txt")["links"]
    assert [(link["ca"], link["state"], link["physical_state"]) for link in links] == [
        ("mlx5_0", "Active", "LinkUp"),
        ("mlx5_1", "Down", "Disabled"),
    ]


def test_show_gids() -> None:
    found = values("show_gids/cx6-6gids.txt")
    assert (len(found["gids"]), found["count"]) == (6, 6)
    assert found["roce_v2_ipv4"] == [{"ca": "mlx5_0", "port": 1, "index": 5, "ipv4": "172.19.0.60"}]
    assert (found["gids"][3]["version"], found["gids"][3]["ipv4"]) == (2, None)
    found = values("show_gids/ib-port-without-netdev.txt")
    assert [(gid["ca"], gid["netdev"]) for gid in found["gids"]] == [
        ("mlx5_0", "ens11f0"),
        ("mlx5_0", "ens11f0"),
        ("mlx5_1", None),
    ]
    assert found["roce_v2_ipv4"] == []
    assert (values("show_gids/no-gids-in-pod.txt")["gids"], values("show_gids/no-gids-in-pod.txt")["count"]) == ([], 0)
