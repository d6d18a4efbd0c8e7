from __future__ import annotations

from pathlib import Path

import pytest

from fabtui_node.probes.network import routes
from fabtui_node.system import run_command

ARP = """IP address       HW type     Flags       HW address            Mask     Device
10.1.0.3         0x1         0x2         a2:02:f5:b1:48:90     *        eth0
10.2.0.3         0x1         0x0         00:00:00:00:00:00     *        eth1
10.1.0.9         0x1         0x6         02:00:00:00:00:09     *        eth0
10.1.0.8         0x1         x           02:00:00:00:00:08     *        eth0
10.1.0.7 0x1
"""


def test_neighbours_whose_mac_address_is_known() -> None:
    assert routes.parse_neighbours(ARP) == [
        {"address": "10.1.0.3", "nic": "eth0", "mac": "a2:02:f5:b1:48:90", "state": None},
        {"address": "10.1.0.9", "nic": "eth0", "mac": "02:00:00:00:00:09", "state": "permanent"},
    ]
    assert routes.parse_neighbours("") == []


def test_neighbours_with_their_states() -> None:
    text = (
        '[{"dst":"10.1.0.3","dev":"eth0","lladdr":"a2:02:f5:b1:48:90","state":["REACHABLE"]},'
        '{"dst":"fd00::1","dev":"eth0","router":null,"lladdr":"a2:02:f5:b1:48:91","state":["STALE"]},'
        '{"dst":"fe80::1","dev":"eth0","lladdr":"a2:02:f5:b1:48:91","state":["STALE"]},'
        '{"dst":"10.1.0.9","dev":"eth0","state":["FAILED"]},{"dst":3,"dev":"x","lladdr":"y"},'
        '{"dst":"10.1.0.4","dev":"eth0","lladdr":"02:00:00:00:00:09","state":["\\u001b[2J"]},7]'
    )
    found = [(one["address"], one["mac"], one["state"]) for one in routes.parse_ip_neigh(text)]
    assert found == [
        ("10.1.0.3", "a2:02:f5:b1:48:90", "reachable"),
        ("fd00::1", "a2:02:f5:b1:48:91", "stale"),
        ("10.1.0.4", "02:00:00:00:00:09", None),
    ]
    assert routes.parse_ip_neigh("Option -j is unknown") == []


@pytest.mark.parametrize(
    ("text", "dev", "via"),
    [
        ('[{"dst":"10.1.0.1","from":"10.2.0.4","gateway":"10.2.0.254","dev":"eth1"}]', "eth1", "10.2.0.254"),
        ('[{"dev":"eth1"}]', "eth1", None),
        ('[{"dev":3}]', None, None),
        ("[3]", None, None),
        ("[]", None, None),
        ("RTNETLINK answers: Network is unreachable", None, None),
    ],
)
def test_the_interface_and_gateway_of_a_route(text: str, dev: str | None, via: str | None) -> None:
    assert routes.parse_route(text) == {"dev": dev, "via": via}


def test_filters_as_they_take_effect(tmp_path: Path) -> None:
    for nic, value in {"all": 1, "default": 1, "lo": 0, "eth0": 0, "eth1": 2}.items():
        folder = tmp_path / "sys/net/ipv4/conf" / nic
        folder.mkdir(parents=True)
        (folder / "rp_filter").write_text(f"{value}\n")
    found = routes.run({}, None, 5.0, str(tmp_path))
    assert found == {
        "routes": [],
        "neighbours": [],
        "filters": {"eth0": {"rp_filter": 1, "arp_ignore": 0}, "eth1": {"rp_filter": 2, "arp_ignore": 0}},
    }


@pytest.mark.skipif(run_command.find("ip") is None, reason="no iproute2 on this machine")
def test_a_route_of_this_machine_and_one_that_cannot_be() -> None:
    (here, none) = routes.run({"pairs": [["127.0.0.1", "127.0.0.2"], ["10.1.0.1", "fd00::1"]]}, None, 5.0)["routes"]
    assert (here["src"], here["dst"], here["dev"], here["error"]) == ("127.0.0.1", "127.0.0.2", "lo", None)
    assert none["dev"] is None
    assert none["error"]
