"""Growth of all counters of a node between two readings."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabtui_node.probes import growth
from fabtui_node.probes.counters import DriverCounters
from fabtui_node.probes.nvidia import nvml
from fabtui_node.system import kernel_counters, netlink

from .places import Tree


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> Any:
        raise nvml.Unavailable("NVML: not here")

    def nothing(kind: int) -> Iterator[Any]:
        raise OSError("not here")

    monkeypatch.setattr(nvml, "open_library", unavailable)
    monkeypatch.setattr(netlink, "dump", nothing)


@pytest.fixture
def proc(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("proc"))


def write(proc: Tree, retransmits: int, kills: int = 0, sockets: int = 5) -> None:
    proc.files(
        "net",
        snmp=f"Tcp: MaxConn RetransSegs InCsumErrors\nTcp: -1 {retransmits} 7",
        netstat=f"TcpExt: ListenDrops\nTcpExt: {2 * retransmits}",
        snmp6="Ip6InReceives 3\nIp6InDiscards 0",
        sockstat=f"sockets: used {sockets}\nTCP: inuse {sockets} orphan 0",
        softnet_stat=f"0000000a {retransmits:08x} 00000001\n00000001 00000001 00000000",
        stat__nf_conntrack=f"entries drop\n00000002 0000000{kills}\n00000002 00000001",
    )
    proc.files("pressure", cpu=f"some avg10=0.00 total={1000 * retransmits}\nfull avg10=0.00 total=0")
    proc.files("", vmstat=f"nr_free_pages 5\noom_kill {kills}")


def test_what_the_kernel_counts_has_flat_names(tree: Tree, proc: Tree) -> None:
    write(proc, 4, 2)
    tree.nic("eth0")
    tree.nic("lo")
    tree.files("class/net/eth0", statistics__rx_bytes=9, statistics__rx_dropped="?", carrier_changes=3)
    tree.files("bus/pci/devices/0000:3b:00.0", aer_dev_correctable="BadTLP 5\nTOTAL_ERR_COR 5")
    assert kernel_counters.read(str(tree.root), str(proc.root)) == {
        "TcpRetransSegs": 4,
        "TcpInCsumErrors": 7,
        "TcpExtListenDrops": 8,
        "Ip6InReceives": 3,
        "Ip6InDiscards": 0,
        "sockstat:sockets.used": 5,
        "sockstat:TCP.inuse": 5,
        "sockstat:TCP.orphan": 0,
        "softnet:processed": 11,
        "softnet:dropped": 5,
        "softnet:time_squeeze": 1,
        "nf_conntrack:entries": 4,
        "nf_conntrack:drop": 3,
        "pressure:cpu.some_us": 4000,
        "pressure:cpu.full_us": 0,
        "vmstat:oom_kill": 2,
        "eth0:rx_bytes": 9,
        "eth0:carrier_changes": 3,
        "0000:3b:00.0:aer.correctable.BadTLP": 5,
    }


@pytest.mark.parametrize("version", [1, 2])
def test_control_groups_and_those_above_them_are_summed(tree: Tree, proc: Tree, version: int) -> None:
    top = tree.root / "fs/cgroup"
    kind, options = ("cgroup", "rw,cpu") if version == 1 else ("cgroup2", "rw")
    proc.files("self", mountinfo=f"30 1 0:1 / {top} rw - {kind} {kind} {options}")
    proc.files("self", cgroup="3:cpu:/job/step" if version == 1 else "0::/job/step")
    stat = "nr_periods 10\nnr_throttled {}\n" + ("throttled_time 7" if version == 1 else "usage_usec 9")
    tree.files("fs/cgroup/job/step", **{"cpu.stat": stat.format(4), "memory.failcnt": 3})
    tree.files("fs/cgroup/job", **{"cpu.stat": stat.format(1), "memory.events": "max 2\noom_kill 1\nlow 5"})
    counts = kernel_counters.read(str(tree.root), str(proc.root))
    own = {name: count for name, count in counts.items() if name.startswith("cgroup")}
    first = {"cgroup:cpu.nr_throttled": 5}
    if version == 1:
        assert own == {**first, "cgroup:cpu.throttled_time": 14}
    else:
        assert own == {**first, "cgroup:memory.failcnt": 3, "cgroup:memory.max": 2, "cgroup:memory.oom_kill": 1}


def test_queues_have_the_names_of_their_interfaces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def entry(interface: int, values: dict[int, bytes]) -> tuple[bytes, dict[int, bytes]]:
        return bytes(4) + interface.to_bytes(4, "little") + bytes(12), values

    counts = b"".join(number.to_bytes(4, "little") for number in (1, 2, 30, 4, 5))
    stats = (len(counts) + 4).to_bytes(2, "little") + b"\3\0" + counts
    dumps = {
        netlink.LINKS: [entry(2, {3: b"eth1\0"}), entry(1, {3: b"lo\0"})],
        netlink.QUEUES: [entry(2, {1: b"tbf\0", 7: stats}), entry(1, {1: b"noqueue\0", 7: stats})],
    }
    monkeypatch.setattr(netlink, "dump", lambda kind: iter(dumps[kind]))
    counted = kernel_counters.read(str(tmp_path), str(tmp_path))
    assert counted == {"eth1:qdisc.tbf.drops": 30, "eth1:qdisc.tbf.requeues": 4, "eth1:qdisc.tbf.overlimits": 5}


def test_a_file_that_reads_like_nothing_known_costs_itself(tree: Tree, proc: Tree) -> None:
    write(proc, 4)
    proc.files("net", softnet_stat="what is this", snmp="Tcp: A B\nTcp: 1 x")
    counts = kernel_counters.read(str(tree.root), str(proc.root))
    assert counts["TcpA"] == 1
    assert "pressure:cpu.some_us" not in counts
    tree.nic("eth0")
    tree.files("class/net/eth0/statistics", rx_bytes=1)
    assert kernel_counters.read(str(tree.root), str(proc.root))["eth0:rx_bytes"] == 1


def read(tree: Tree, proc: Tree) -> dict[str, Any]:
    value = growth.run({}, None, 20.0, str(tree.root), str(proc.root))
    assert len(json.dumps(value)) < 16_000
    return value


def test_what_grew_since_the_last_reading_is_sent_and_gauges_are_not(tree: Tree, proc: Tree) -> None:
    write(proc, 4)
    tree.files("class/infiniband/mlx5_0/ports/1", counters__symbol_error=1)
    first = read(tree, proc)
    assert first == {"grew": {}, "fell": [], "seconds": 0.0}
    write(proc, 6, kills=1, sockets=9)
    tree.files("class/infiniband/mlx5_0/ports/1", counters__symbol_error=4, hw_counters__new=100)
    second = read(tree, proc)
    assert second["seconds"] >= 0
    assert second["grew"] == {
        "TcpRetransSegs": 2,
        "TcpExtListenDrops": 4,
        "softnet:dropped": 2,
        "nf_conntrack:drop": 1,
        "pressure:cpu.some_us": 2000,
        "vmstat:oom_kill": 1,
        "sockstat:sockets.used": 4,
        "sockstat:TCP.inuse": 4,
        "mlx5_0/1:symbol_error": 3,
    }
    write(proc, 6, kills=1, sockets=3)
    assert read(tree, proc)["fell"] == ["sockstat:TCP.inuse", "sockstat:sockets.used"]
    write(proc, 6, kills=1, sockets=7)
    third = read(tree, proc)
    assert (third["grew"], third["fell"]) == ({}, []), "what fell once is a gauge"


def test_counters_of_drivers_are_summed_over_their_queues(
    tree: Tree, proc: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.nic("eth0")
    counts = {"rx_queue_0_drops": 1, "rx_queue_1_drops": 2, "rx0_bytes": 1, "rx12_bytes": 1, "tx_prio3_pause": 4}
    monkeypatch.setattr(DriverCounters, "read", lambda self: dict(counts))
    read(tree, proc)
    counts.update(rx_queue_0_drops=5, rx_queue_1_drops=3, rx0_bytes=3, rx12_bytes=2, tx_prio3_pause=6)
    assert read(tree, proc)["grew"] == {
        "eth0:ethtool.rx_queue_N_drops": 5,
        "eth0:ethtool.rxN_bytes": 3,
        "eth0:ethtool.tx_prioN_pause": 2,
    }


def test_this_machine_is_read_cheaply() -> None:
    read_once = kernel_counters.read()
    assert len(read_once) > 50
    assert all(type(count) is int and count >= 0 for count in read_once.values())
