from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from fabtui_node.probes import counters
from fabtui_node.probes.nvidia import nvlink_counters, nvml
from fabtui_node.probes.nvidia.nvlink_counters import NvlinkCounts
from fabtui_node.system.ethtool import Ethtool

from .places import Tree


@pytest.fixture(autouse=True)
def no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> Any:
        raise nvml.Unavailable("NVML: not here")

    monkeypatch.setattr(nvml, "open_library", unavailable)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("FABTUI_LAB_ADDRESS", raising=False)


def run(tree: Tree, deadline: float = 20.0, **args: Any) -> dict[str, Any]:
    def emit(value: dict[str, Any]) -> None:
        raise AssertionError(value)

    return counters.run(args, emit, deadline, str(tree.root))


def port(tree: Tree, name: str, **counts: object) -> None:
    tree.files(f"class/infiniband/{name}", **counts)


def interface(tree: Tree, name: str, **counts: object) -> None:
    tree.nic(name)
    tree.files(f"class/net/{name}/statistics", **counts)


def test_a_node_with_nothing_has_nothing(tree: Tree) -> None:
    value = run(tree, nics=[])
    assert value.pop("time") == pytest.approx(time.time(), abs=60)
    assert value == {"hca": {}, "net": {}, "nvlink": {}}


def test_the_counters_of_each_port(tree: Tree) -> None:
    port(
        tree, "mlx5_0/ports/1", counters__port_xmit_data=1000, counters__symbol_error=0, hw_counters__out_of_sequence=3
    )
    port(tree, "mlx5_10/ports/1", counters__port_xmit_data=18446744073709551615)
    port(tree, "mlx5_10/ports/2", hw_counters__local_ack_timeout_err="7")
    assert run(tree, nics=[])["hca"] == {
        "mlx5_0/1": {"port_xmit_data": 1000, "symbol_error": 0, "out_of_sequence": 3},
        "mlx5_10/1": {"port_xmit_data": 18446744073709551615},
        "mlx5_10/2": {"local_ack_timeout_err": 7},
    }


def test_what_is_no_count_or_cannot_be_read_is_absent(tree: Tree) -> None:
    port(
        tree,
        "mlx5_0/ports/1",
        hw_counters__lifespan=10,
        hw_counters__active_qps=4,
        hw_counters__a="N/A (no PMA)",
        hw_counters__b="",
        hw_counters__c=-1,
        hw_counters__d=5,
        counters__e__f=1,
    )
    port(tree, "mlx5_0/ports/x", counters__symbol_error=1)
    port(tree, "mlx5_1/ports/1", state="4: ACTIVE")
    assert run(tree, nics=[])["hca"] == {"mlx5_0/1": {"d": 5}}


def test_interfaces_that_are_asked_for_and_what_lies_below_them(tree: Tree) -> None:
    interface(tree, "bond0", rx_bytes=10, tx_bytes=20, rx_errors=0, collisions=9)
    interface(tree, "eth0", rx_bytes=4, rx_crc_errors=2, tx_dropped="?")
    interface(tree, "eth9", rx_bytes=1)
    tree.files("class/net/eth0", carrier_changes=3)
    tree.link("class/net/bond0/lower_eth0", "class/net/eth0")
    assert run(tree, nics=["bond0", "../infiniband", "", 7, "gone"])["net"] == {
        "bond0": {"rx_bytes": 10, "tx_bytes": 20, "rx_errors": 0},
        "eth0": {"rx_bytes": 4, "rx_crc_errors": 2, "carrier_changes": 3},
    }


def test_without_names_those_that_have_an_address_for_data(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    interface(tree, "eth0", rx_bytes=4)
    interface(tree, "docker0", rx_bytes=5)
    address = [{"address": "10.0.0.1", "prefix": 24, "family": 4, "flags": []}]
    known = {name: {"addresses": address, "link_kind": None} for name in ("eth0", "docker0")}
    monkeypatch.setattr("fabtui_node.probes.network.interfaces.by_kernel", lambda: known)
    assert list(run(tree)["net"]) == ["eth0"]


def test_an_adapter_that_hangs_is_left_out_and_not_waited_for_again(tree: Tree) -> None:
    port(tree, "mlx5_0/ports/1", counters__symbol_error=1)
    port(tree, "mlx5_1/ports/1", counters__symbol_error=1)
    pipe = tree.root / "class/infiniband/mlx5_1/ports/1/counters/stuck"
    os.mkfifo(pipe)
    assert list(run(tree, 0.3, nics=[])["hca"]) == ["mlx5_0/1"]
    began = time.monotonic()
    assert list(run(tree, 60.0, nics=[])["hca"]) == ["mlx5_0/1"]
    assert time.monotonic() - began < 30
    end = os.open(pipe, os.O_WRONLY)
    pipe.unlink()
    os.close(end)
    until = time.monotonic() + 30
    while "mlx5_1/1" not in run(tree, 0.3, nics=[])["hca"] and time.monotonic() < until:
        time.sleep(0.01)
    assert sorted(run(tree, nics=[])["hca"]) == ["mlx5_0/1", "mlx5_1/1"], "it came back"


def test_a_driver_that_hangs_costs_the_links_only(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()

    def hang() -> Any:
        never.wait(60)
        raise RuntimeError("too late")

    monkeypatch.setattr(nvml, "open_library", hang)
    interface(tree, "eth0", rx_bytes=4)
    value = run(tree, 0.2, nics=["eth0"])
    never.set()
    assert (value["net"], value["nvlink"]) == ({"eth0": {"rx_bytes": 4}}, {})


# -- NVLinks ----------------------------------------------------------------------------------------------------------


class Library:
    """An NVML with three GPUs: two links each, the last GPU without NVLink."""

    NVML_NVLINK_MAX_LINKS = 4
    NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY = 161
    NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY = 162
    NVML_FI_DEV_NVLINK_ERROR_DL_CRC = 163
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 138
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 139
    NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES = 202
    NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS = 208
    NVML_NVLINK_ERROR_DL_REPLAY = 0
    NVML_NVLINK_ERROR_DL_RECOVERY = 1
    NVML_NVLINK_ERROR_DL_CRC_FLIT = 2

    def __init__(self, known: Iterator[int] | Any = (161, 162, 163, 138, 139)) -> None:
        self.known = set(known)
        self.opened = 0
        self.asked: list[list[tuple[int, int]]] = []

    def open(self) -> Library:
        self.opened += 1
        return self

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:  # noqa: N802
        if handle == 2 or link > 1:
            raise RuntimeError("not supported")
        return 1

    def nvmlDeviceGetNvLinkErrorCounter(self, handle: int, link: int, counter: int) -> int:  # noqa: N802
        if counter == 1:
            raise RuntimeError("not supported")
        return 1000 + counter

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[tuple[int, int]]) -> list[Any]:  # noqa: N802
        self.asked.append(fields)
        return [self._value(handle, *field) for field in fields]

    def _value(self, handle: int, field: int, scope: int) -> Any:
        good = field in self.known and not (handle == 1 and scope == 1)
        value = SimpleNamespace(uiVal=handle + scope, ullVal=field, dVal=0.5)
        kind = 1 if scope != nvlink_counters.ALL_LINKS else 3
        return SimpleNamespace(nvmlReturn=0 if good else 3, valueType=kind, value=value)


@pytest.fixture
def using(monkeypatch: pytest.MonkeyPatch) -> Callable[[Library], Library]:
    def use(library: Library) -> Library:
        monkeypatch.setattr(nvml, "open_library", library.open)
        return library

    return use


def test_links_by_field_values(using: Callable[[Library], Library]) -> None:
    library = using(Library())
    counts = NvlinkCounts(None, clock=lambda: 0.0)
    traffic = {"tx_bytes": 138 * 1024, "rx_bytes": 139 * 1024}
    expected = {
        "0": {"0": {"replay": 0, "recovery": 0, "crc": 0}, "1": {"replay": 1, "recovery": 1, "crc": 1}, "all": traffic},
        "1": {"0": {"replay": 1, "recovery": 1, "crc": 1}, "all": traffic},
    }
    assert counts.read() == expected
    library.asked.clear()
    assert counts.read() == expected
    assert library.opened == 1, "it stays open"
    assert [len(fields) for fields in library.asked] == [8, 5], "one call per GPU, and only for what answers"


def test_links_of_newer_gpus(using: Callable[[Library], Library]) -> None:
    using(Library({202, 208}))
    counts = NvlinkCounts(None, clock=lambda: 0.0).read()
    assert counts["0"] == {"0": {"rcv_errors": 0}, "1": {"rcv_errors": 1}, "all": {"tx_bytes": 202}}


def test_links_of_older_gpus(using: Callable[[Library], Library]) -> None:
    using(Library(()))
    older = {"replay": 1000, "crc": 1002}
    assert NvlinkCounts(None).read() == {str(gpu): {"0": older, "1": older} for gpu in range(2)}


def test_links_of_the_gpus_that_are_visible(using: Callable[[Library], Library]) -> None:
    using(Library())
    counts = NvlinkCounts("1,2", clock=lambda: 0.0).read()
    assert list(counts) == ["0"]
    assert list(counts["0"]) == ["0", "all"]
    assert NvlinkCounts("MIG-1").read() == {}


def test_traffic_is_left_out_where_it_costs_too_much(using: Callable[[Library], Library]) -> None:
    using(Library())
    times = iter([0.0, 1.0, 2.0, 3.0])
    counts = NvlinkCounts("0", clock=lambda: next(times))
    assert "all" in counts.read()["0"]
    assert list(counts.read()["0"]) == ["0", "1"]


def test_values_that_are_no_counts(using: Callable[[Library], Library], monkeypatch: pytest.MonkeyPatch) -> None:
    library = using(Library())
    odd = [
        SimpleNamespace(nvmlReturn=0, valueType=0, value=SimpleNamespace(dVal=0.5)),
        SimpleNamespace(nvmlReturn=0, valueType=77, value=SimpleNamespace()),
        SimpleNamespace(nvmlReturn=0, valueType=4, value=SimpleNamespace(sllVal=-1)),
        SimpleNamespace(nvmlReturn=0, valueType=3, value=SimpleNamespace(ullVal=0xFFFFFFFFFFFFFFFF)),
        SimpleNamespace(),
    ]
    monkeypatch.setattr(library, "nvmlDeviceGetFieldValues", lambda handle, fields: (odd * 9)[: len(fields)])
    monkeypatch.setattr(library, "nvmlDeviceGetNvLinkErrorCounter", None)
    assert NvlinkCounts(None).read() == {}


def test_drivers_of_roce_ports_are_asked_for_what_shows_congestion(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Driver:
        def __init__(self, name: str, wanted: Callable[[str], bool]) -> None:
            self.name, self.wanted = name, wanted

        def read(self) -> dict[str, int]:
            asked.append(self.name)
            if self.name == "bond0":
                raise OSError("no such operation")
            known = {"rx_prio3_pause": 7, "rx_prio3_discards": 1, "rx_prio3_bytes": 9, "rx_prio3_pause_duration": 5}
            return {name: count for name, count in known.items() if self.wanted(name)}

    monkeypatch.setattr(counters, "DriverCounters", Driver)
    tree.ca("mlx5_0", netdev="bond0", link_layer="Ethernet")
    tree.ca("mlx5_1", netdev="ib0", link_layer="InfiniBand")
    interface(tree, "bond0", rx_bytes=10)
    interface(tree, "eth0", rx_bytes=4)
    tree.link("class/net/bond0/lower_eth0", "class/net/eth0")
    assert run(tree, nics=["bond0"])["net"] == {
        "bond0": {"rx_bytes": 10},
        "eth0": {"rx_bytes": 4, "rx_prio3_pause": 7, "rx_prio3_discards": 1},
    }
    assert asked == ["bond0", "eth0"]
    assert run(tree, nics=[])["net"] == {"eth0": {"rx_prio3_pause": 7, "rx_prio3_discards": 1}}


def test_the_kernel_is_asked_for_counters_of_a_driver() -> None:
    # Any interface will do; in a namespace there may be none with a driver that counts.
    names = [name for name in os.listdir("/sys/class/net") if name != "lo"]
    for name in names:
        try:
            found = counters.DriverCounters(name, lambda one: "rx" in one).read()
            again = counters.DriverCounters(name, lambda one: False).read()
        except OSError:
            continue
        assert all("rx" in one and count >= 0 for one, count in found.items())
        assert again == {}
    assert counters.DriverCounters("lo", lambda one: True).read() == {}
    assert counters.DriverCounters("nosuchinterface0", lambda one: True).read() == {}


def test_a_driver_whose_number_of_counters_changes_is_asked_for_their_names_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names, asked = ["rx0", "x", "rx1"], list[int]()

    def listed(self: Ethtool) -> list[str]:
        asked.append(len(names))
        return list(names)

    monkeypatch.setattr(Ethtool, "count", lambda self: len(names))
    monkeypatch.setattr(Ethtool, "names", listed)
    monkeypatch.setattr(Ethtool, "values", lambda self, number: tuple(range(10, 10 + number)))
    driver = counters.DriverCounters("eth0", lambda name: name.startswith("rx"))
    assert driver.read() == driver.read() == {"rx0": 10, "rx1": 12}
    names.insert(0, "rx2")
    assert driver.read() == {"rx2": 10, "rx0": 11, "rx1": 13}
    assert asked == [3, 4]
