from typing import Any

import pytest

from fabtui.model.facts.network import candidates, chosen


def nic(name: str, address: str | None = "10.0.0.1", **more: Any) -> dict[str, Any]:
    addresses = [{"address": address, "family": 4}] if address else []
    return {"name": name, "state": "up", "addresses": addresses, **more}


def test_those_with_an_address_in_the_order_of_the_kernel() -> None:
    nics = [nic("eth0"), nic("eth1", None), nic("ib0", state="down"), nic("eth2"), nic("lo", "::1"), "rubbish"]
    assert candidates(nics, {"eth2": 2, "eth0": 3}) == ["eth2", "eth0"]
    assert candidates(None) == []


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        (None, ["ib0", "ib1"]),
        ("", ["ib0", "ib1"]),
        ("eth", ["eth0", "eth10"]),
        ("=eth1", []),
        ("=eth10,ib0", ["ib0", "eth10"]),
        ("^ib,lo", ["docker0", "eth0", "eth10"]),
        ("^=eth0,ib0,ib1,lo,docker0", ["eth10"]),
    ],
)
def test_the_setting_counts(setting: str | None, found: list[str]) -> None:
    assert chosen(["lo", "docker0", "ib0", "ib1", "eth0", "eth10"], setting) == found


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["lo", "docker0", "eno1"], ["eno1"]),
        (["lo", "docker0", "virbr0"], ["docker0"]),
        (["lo"], ["lo"]),
        ([], []),
    ],
)
def test_without_a_setting_what_leads_nowhere_comes_last(names: list[str], found: list[str]) -> None:
    assert chosen(names) == found
