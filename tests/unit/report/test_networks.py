from collections.abc import Callable
from typing import Any

from fabtui.report.session_notes import networks
from fabtui.sanitize import clean

EVIL = "\x1b[2J\nx"


def nic(name: str, address: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "addresses": [{"address": address, "prefix": 24}], **more}


def session(make_model: Callable[[], Any], rails: int, login: Any, measured: bool = True) -> list[str]:
    names = ["a", "b"]
    maker = make_model().start(names)
    ends = []
    for at, node in enumerate(names):
        data = [{"address": f"10.{rail}.0.{at}", "nic": f"eth{rail}", "rail": rail} for rail in range(rails)]
        nics = [nic(f"eth{rail}", f"10.{rail}.0.{at}") for rail in range(rails)]
        nics += [nic("eno1", f"192.0.2.{at}", login=login), nic("eno2", "fe80::1", login=login)]
        maker.add("inventory", node=node, value={"nics": nics, "data_addresses": data})
        ends.append({"number": at, "node": node, "index": 0, "kind": "cpu", "name": "CPU rank", "rail": 0})
    maker.add("endpoints", endpoints=ends)
    if measured:
        maker.pairs(["a:0", "b:0"])
    return networks(maker.model())


def test_the_tested_networks_are_named_and_those_that_are_not(make_model: Callable[[], Any]) -> None:
    tested = "tested networks: rail 0 10.0.0.0/24 (eth0), rail 1 10.1.0.0/24 (eth1)"
    ssh = "not tested, as SSH uses it: 192.0.2.0/24 (eno1) (NCCL_SOCKET_IFNAME=eno1 in the nodes' login environment"
    idle = "no CPU rank sends over rail 1: --ranks-per-node 2"
    assert session(make_model, 2, True) == [tested, idle, f"{ssh} makes fabtui test it)"]
    assert session(make_model, 2, False, measured=False) == [tested]
    assert session(make_model, 1, False) == []
    assert session(make_model, 1, True)[0] == "tested networks: rail 0 10.0.0.0/24 (eth0)"
    assert session(make_model, 0, True) == []
    assert "and 2 more" in session(make_model, 10, False)[0]


def test_hostile_inventories_are_no_harm(make_model: Callable[[], Any]) -> None:
    maker = make_model().start(["a"])
    nics = [nic(EVIL, EVIL, login=True), {"addresses": [{}, 3]}, nic("eth0", "10.0.0.1")]
    data = [{"address": EVIL, "rail": EVIL}, {"address": "10.0.0.1", "rail": 1}]
    maker.add("inventory", node="a", value={"nics": nics, "data_addresses": data})
    assert all(clean(line) == line and "\n" not in line for line in networks(maker.model()))
