import os
from pathlib import Path
from typing import Any

import pytest

from fabtui_node.probes.rdma import ibstat, port_counters
from fabtui_node.probes.rdma import ports as rdmaports
from tests.unit.importers.places import output_of

from .places import Tree

MAPPED = "0000:0000:0000:0000:0000:ffff:0a00:{:04x}"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that comes first on PATH, with tools that print nothing unless set up."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for name in ("ibv_devinfo", "rdma", "ethtool", "mlnx_qos", "dcb"):
        say(folder, name, "")
    for name in ("NCCL_IB_GID_INDEX", "NCCL_IB_HCA"):
        monkeypatch.delenv(name, raising=False)
    return folder


def say(folder: Path, tool: str, text: str, code: int = 0) -> None:
    (folder / tool).write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
    (folder / tool).chmod(0o755)


def roce(tree: Tree, name: str, netdev: str, index: int = 3, mtu: int = 9000, **values: object) -> None:
    """Make a RoCE port whose RoCE v2 GID of an IPv4 address has an index."""
    tree.nic(netdev, mtu=mtu)
    types: dict[str, object] = {f"gid_attrs__types__{n}": "IB/RoCE v1" if n % 2 == 0 else "RoCE v2" for n in range(8)}
    table: dict[str, object] = {
        "gids__0": "fe80:0000:0000:0000:0e42:a1ff:fe5d:4db8",
        "gids__1": "fe80:0000:0000:0000:0e42:a1ff:fe5d:4db8",
        f"gids__{index - 1}": MAPPED.format(1),
        f"gids__{index}": MAPPED.format(1),
        "gids__7": "0000:0000:0000:0000:0000:0000:0000:0000",
    }
    tree.ca(name, None, netdev, **{"link_layer": "Ethernet", "pkeys__0": "0xffff", **types, **table, **values})


def run(tree: Tree, **args: Any) -> dict[str, Any]:
    return rdmaports.run(args, None, 20.0, str(tree.root))


def judged(value: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["subject"], one["verdict"], one["text"]) for one in rdmaports.judge(value)]


def test_a_roce_port(tree: Tree, tools: Path) -> None:
    roce(tree, "mlx5_0", "eth7", index=5)
    value = run(tree, nics=[])
    (port,) = value["ports"]
    assert (port["gid_index"], port["ipv4"], port["pkeys"]) == (5, "10.0.0.1", ["0xffff"])
    assert (port["active_mtu"], port["mtu_from"], port["netdev_mtu"]) == (4096, "interface", 9000)
    assert [(gid["index"], gid["type"], gid["ipv4"]) for gid in port["gids"]] == [
        (0, "RoCE v1", None),
        (1, "RoCE v2", None),
        (4, "RoCE v1", "10.0.0.1"),
        (5, "RoCE v2", "10.0.0.1"),
    ]
    assert [nic["interface"] for nic in value["nics"]] == ["eth7"]
    assert judged(value) == []


def test_of_many_gids_the_one_that_counts_is_kept(tree: Tree, tools: Path) -> None:
    many: dict[str, object] = {f"gids__{n}": f"fe80:0000:0000:0000:0000:0000:0000:{n + 1:04x}" for n in range(100)}
    many.update({f"gid_attrs__types__{n}": "RoCE v2" for n in range(100)})
    roce(tree, "mlx5_0", "eth0", 3, 9000, **{**many, "gids__90": MAPPED.format(9), "gids__2": "", "gids__3": ""})
    (port,) = run(tree, nics=[])["ports"]
    assert (port["gid_index"], port["roce_v2_ipv4"], port["gid_count"]) == (90, [90], 98)
    assert [gid["index"] for gid in port["gids"]][-2:] == [33, 90]


def test_what_verbs_say_comes_first(tree: Tree, tools: Path) -> None:
    tree.ca("mlx5_0")
    text = "hca_id:\tmlx5_0\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tmax_mtu:\t\t4096 (5)\n"
    say(tools, "ibv_devinfo", text + "\t\t\tactive_mtu:\t\t2048 (4)\n", code=255)
    value = run(tree)
    (port,) = value["ports"]
    assert (port["max_mtu"], port["active_mtu"], port["mtu_from"]) == (4096, 2048, "ibv_devinfo")
    ((subject, verdict, text),) = judged(value)
    assert (subject, verdict) == ("mlx5_0/1", "slow")
    assert "2048 B of 4096 B" in text


def test_without_tools_little_is_known_and_nothing_judged(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui_node.system.run_command.environment", lambda extra=None: {"PATH": "/nowhere"})
    tree.ca("mlx5_0")
    value = run(tree)
    assert (value["ports"][0]["active_mtu"], value["ports"][0]["mtu_from"]) == (None, None)
    assert judged(value) == []


def test_a_small_mtu_counts_on_fast_roce_only(tree: Tree, tools: Path) -> None:
    roce(tree, "mlx5_0", "eth0", mtu=1500, rate="400 Gb/sec (4X NDR)")
    roce(tree, "mlx5_1", "eth1", mtu=1500, rate="25 Gb/sec (1X EDR)")
    value = run(tree, nics=[])
    assert [port["active_mtu"] for port in value["ports"]] == [1024, 1024]
    assert [(subject, verdict) for subject, verdict, _ in judged(value)] == [("mlx5_0/1", "slow")]


def test_an_index_from_the_environment_that_is_wrong(tree: Tree, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roce(tree, "mlx5_0", "eth0", index=5)
    monkeypatch.setenv("NCCL_IB_GID_INDEX", "3")
    ((subject, verdict, text),) = judged(run(tree, nics=[]))
    assert (subject, verdict) == ("mlx5_0/1", "failed")
    assert "NCCL_IB_GID_INDEX=3" in text
    assert "5 is" in text
    monkeypatch.setenv("NCCL_IB_GID_INDEX", "5")
    assert judged(run(tree, nics=[])) == []


def test_limited_members_and_ports_without_ipv4(tree: Tree, tools: Path) -> None:
    roce(tree, "mlx5_0", "eth0", pkeys__0="0x7fff", gids__2="", gids__3="")
    verdicts = [(verdict, text.partition(":")[0]) for _, verdict, text in judged(run(tree, nics=[]))]
    assert verdicts == [
        ("inconclusive", "no RoCE v2 GID of an IPv4 address"),
        ("inconclusive", "only a limited member of its partitions"),
    ]


def test_counters(tree: Tree, tools: Path) -> None:
    counts = {"counters__symbol_error": 65535, "counters__link_downed": 2, "counters__port_xmit_wait": 7}
    tree.ca(
        "mlx5_0",
        None,
        None,
        **counts,
        hw_counters__lifespan=10,
        hw_counters__out_of_sequence=4,
        counters__port_rcv_errors=0,
    )
    value = run(tree)
    (port,) = value["ports"]
    assert port["errors"] == {"symbol_error": 65535, "link_downed": 2, "port_xmit_wait": 7, "out_of_sequence": 4}
    assert (port["saturated"], port["refresh"]) == (["symbol_error"], 10)
    assert [(verdict, text) for _, verdict, text in judged(value)] == [
        ("slow", "errors of the link: symbol_error 65535 or more (it is at its limit)"),
        ("inconclusive", "the link went down: link_downed 2"),
    ]


def test_few_errors_are_worth_a_note() -> None:
    assert [verdict for verdict, _ in port_counters.judge_counts({"errors": {"symbol_error": 3}})] == ["note"]
    assert [verdict for verdict, _ in port_counters.judge_counts({"errors": {"port_rcv_errors": 11}})] == ["slow"]
    assert port_counters.judge_counts({"errors": {"port_xmit_wait": 1 << 30}}) == []
    assert port_counters.judge_counts({"errors": None, "saturated": None}) == []


def test_interfaces(tree: Tree, tools: Path) -> None:
    # Vital product data: an id string, and the part and serial numbers, with their lengths.
    vpd = "\x82\x04\x00ACME\x90\x14\x00PN\x06QX-100SN\x0bMT2334X0123RV\x01\x00"
    tree.nic("eth0", speed=25000, operstate="up", device__vpd=vpd)
    (tools / "ethtool").write_text(
        "#!/bin/sh\ncase $1 in\n"
        "-i) echo 'driver: mlx5_core'; echo 'firmware-version: 28.39' ;;\n"
        "-a) echo 'Pause parameters for eth0:'; printf 'RX:\\ton\\nTX:\\toff\\n' ;;\n"
        "-m) printf '\\tVendor name : ACME\\n\\tVendor PN : QX-100\\n\\tVendor SN : 4711AB\\n' ;;\n"
        "-S) printf 'NIC statistics:\\n     rx_packets: 9\\n     rx_discards_phy: 4\\n     rx_prio3_pause: 6\\n' ;;\n"
        "*) printf 'Settings for eth0:\\n\\tSupported link modes:   100000baseCR4/Full\\n\\tSpeed: 10000Mb/s\\n"
        "\\tLink detected: yes\\n' ;;\nesac\n"
    )
    value = run(tree, nics=["eth0", "gone", 7])
    (nic,) = value["nics"]
    assert nic == {
        "interface": "eth0",
        "speed": 10000,
        "fastest": 100000,
        "link": "yes",
        "pause": {"rx": "on", "tx": "off"},
        "driver": "mlx5_core",
        "firmware": "28.39",
        "serial": "MT2334X0123",
        "module": {"vendor": "ACME", "part": "QX-100", "serial": "4711AB"},
        "discards": {"rx_discards_phy": 4, "rx_prio3_pause": 6},
        "error": None,
    }
    assert judged(value) == [("eth0", "slow", "runs at 10 Gb/s, can do 100")]


def port(ca: str, **values: Any) -> dict[str, Any]:
    start = {"ca": ca, "port": 1, "state": "Active", "link_layer": "Ethernet", "rate": 400.0, "gid_index": 3}
    return {**start, **values}


@pytest.mark.parametrize(
    ("ports", "index", "hca", "words"),
    [
        ([], None, None, "no RoCE port is active"),
        ([port("a"), port("b")], 3, None, "NCCL older than 2.21 needs NCCL_IB_GID_INDEX=3"),
        ([port("a"), port("b", gid_index=5)], None, None, "the index differs (a/1: 3, b/1: 5)"),
        ([port("a", gid_index=None)], None, None, "no port has a RoCE v2 GID"),
        ([port("a", link_layer="InfiniBand")], None, None, "leave NCCL_IB_GID_INDEX unset"),
        ([port("a"), port("b", rate=100.0)], 3, "=a:1", "NCCL older"),
        ([port("a"), port("b", rate=None)], 3, None, "NCCL older"),
        ([port("a"), port("b", state="Down", gid_index=9, rate=100.0)], 3, None, "NCCL older"),
    ],
)
def test_nccl_settings(ports: list[dict[str, Any]], index: int | None, hca: str | None, words: str) -> None:
    advice = rdmaports.nccl_advice(ports)
    assert (advice["gid_index"], advice["hca"]) == (index, hca)
    assert words in advice["gid_why"]


def test_addresses_in_gids() -> None:
    assert rdmaports.ipv4("0000:0000:0000:0000:0000:ffff:ac13:003c") == "172.19.0.60"
    assert rdmaports.ipv4("fe80:0000:0000:0000:0e42:a1ff:fe5d:4db8") is None
    assert rdmaports.ipv4(None) is None


def cas(*ports: dict[str, Any]) -> dict[str, Any]:
    start = {"port": 1, "state": "Active", "physical_state": "LinkUp", "link_layer": "Ethernet", "rate": 400.0}
    return {"cas": [{"ca": f"m{n}", "type": "MT4129", "ports": [{**start, **port}]} for n, port in enumerate(ports)]}


@pytest.mark.parametrize(
    ("ports", "wanted"),
    [
        ([{}, {}], []),
        ([{}, {"rate": 200.0}], [("m1/1", "slow")]),
        ([{}, {}, {"state": "Down", "physical_state": "Disabled", "rate": 40.0}], [("m2/1", "failed")]),
        ([{}, {"state": "Down", "physical_state": "Disabled", "rate": 40.0}], [("m1/1", "inconclusive")]),
        ([{}, {"state": "Down", "physical_state": "Polling", "rate": 40.0}], [("m1/1", "inconclusive")]),
        ([{"state": "Down", "physical_state": "Disabled"}], [("m0/1", "inconclusive")]),
        ([{"state": "Down", "physical_state": "Polling", "link_layer": "InfiniBand"}], [("m0/1", "failed")]),
        ([{"state": "Initializing"}], [("m0/1", "failed")]),
        ([{"state": "unknown", "rate": None}], []),
        ([{"rate": None}, {}], []),
    ],
)
def test_states_and_rates_are_judged_by_ibstat(ports: list[dict[str, Any]], wanted: list[tuple[str, str]]) -> None:
    assert [(one["subject"], one["verdict"]) for one in ibstat.judge(cas(*ports))] == wanted


def qos_of(tree: Tree) -> dict[str, Any]:
    value = run(tree, nics=[])
    (found,) = value["qos"]
    kept: dict[str, Any] = found
    return kept


def test_the_classes_of_a_roce_port_by_mlnx_qos_and_sysfs(tree: Tree, tools: Path) -> None:
    roce(tree, "mlx5_0", "eth7")
    say(tools, "mlnx_qos", output_of("mlnx-qos"))
    for way in ("roce_np", "roce_rp"):
        tree.files(f"class/net/eth7/ecn/{way}/enable", **{str(one): int(one in (0, 3)) for one in range(8)})
    tree.files("class/infiniband/mlx5_0/tc/1", traffic_class="Global tclass=106")
    tree.files("kernel/config/rdma_cm/mlx5_0/ports/1", default_roce_tos=104)
    found = qos_of(tree)
    assert (found["ca"], found["port"], found["interface"], found["from"]) == ("mlx5_0", 1, "eth7", ["mlnx_qos"])
    assert (found["trust"], found["pfc"], found["dscp"]["3"]) == ("dscp", [3], list(range(24, 32)))
    assert (found["ecn_np"], found["ecn_rp"], found["class"], found["cma_tos"]) == ([0, 3], [0, 3], 106, 104)


def test_without_mlnx_qos_dcb_and_sysfs_are_asked(tree: Tree, tools: Path) -> None:
    roce(tree, "mlx5_0", "eth7")
    (tools / "dcb").write_text(
        f"#!/bin/sh\n[ $2 = pfc ] && echo '{output_of('dcb-pfc').strip()}' || echo '{output_of('dcb-app').strip()}'\n"
    )
    found = qos_of(tree)
    assert (found["trust"], found["pfc"], found["dscp"]) == ("dscp", [3, 5], {"3": [24, 26], "6": [48]})
    assert found["from"] == ["dcb"]
    say(tools, "dcb", "Attribute read: Operation not supported", code=1)
    assert [qos_of(tree)[name] for name in ("trust", "dscp", "pfc", "ecn_np", "class", "from")] == [None] * 5 + [[]]
    rows = "".join(f"\t{dscp}\t{dscp // 8}\n" for dscp in range(64))
    tree.files("class/net/eth7/qos", trust="dscp", dscp2prio=f"dscp\tprio\n{rows}")
    found = qos_of(tree)
    assert (found["trust"], found["dscp"]["7"], found["pfc"]) == ("dscp", list(range(56, 64)), None)


def test_infiniband_and_ports_that_are_down_cost_no_command(tree: Tree, tools: Path) -> None:
    tree.ca("mlx5_0", netdev="ib0")
    roce(tree, "mlx5_1", "eth1", state="1: DOWN")
    for tool in ("mlnx_qos", "dcb"):
        (tools / tool).write_text(f"#!/bin/sh\ntouch {tools}/asked\n")
    value = run(tree, nics=[])
    assert "qos" not in value
    assert "conf" not in value
    assert not (tools / "asked").exists()


def test_the_class_in_the_files_of_nccl(tmp_path: Path) -> None:
    (tmp_path / "nccl.conf").write_text("# site\nNCCL_IB_TC=106\nNCCL_IB_SL = 3\nNCCL_DEBUG=INFO\n")
    assert rdmaports.conf_variables(None, str(tmp_path)) == {"NCCL_IB_TC": "106"}
    (tmp_path / ".nccl.conf").write_text("NCCL_IB_TC=104\nNCCL_IB_FIFO_TC=192\n")
    assert rdmaports.conf_variables(str(tmp_path), "/nowhere") == {"NCCL_IB_TC": "104", "NCCL_IB_FIFO_TC": "192"}


def efa(tree: Tree, name: str, **counts: int) -> None:
    """Make an Elastic Fabric Adapter, whose driver names no type."""
    device = f"pci0000:00/0000:0{name[5]}:00.0"
    tree.ca(name, tree.pci(device), None, link_layer="Unknown", rate="100 Gb/sec (4X EDR)", pkeys__0="0xffff")
    (tree.root / f"class/infiniband/{name}/hca_type").unlink()
    tree.link(f"devices/{device}/driver", "bus/pci/drivers/efa")
    tree.files(f"class/infiniband/{name}/ports/1/hw_counters", **counts)


def test_adapters_of_aws_that_libfabric_finds(tree: Tree, tools: Path) -> None:
    for name in ("rdmap1s0", "rdmap2s0"):
        efa(tree, name, rx_drops=4, retrans_timeout_events=7, unresponsive_remote_events=2, lifespan=10)
    found = output_of("fi-info").replace("rdmap16s27", "rdmap1s0")
    say(tools, "fi_info", found + found.replace("rdmap1s0", "rdmap2s0"))
    value = run(tree, nics=[])
    assert value["efa"] == {"domains": ["rdmap1s0", "rdmap2s0"], "error": None}
    assert value["ports"][0]["errors"] == {"rx_drops": 4, "retrans_timeout_events": 7, "unresponsive_remote_events": 2}
    assert "qos" not in value
    assert judged(value) == [], "jobs that ended and paths that changed are not faults"


def test_adapters_of_aws_that_libfabric_does_not_find_or_that_refused(tree: Tree, tools: Path) -> None:
    efa(tree, "rdmap1s0", reg_mr_err=3, impaired_remote_conn_events=2)
    efa(tree, "rdmap2s0")
    say(tools, "fi_info", output_of("fi-info").replace("rdmap16s27", "rdmap1s0"))
    assert judged(run(tree, nics=[])) == [
        ("rdmap1s0/1", "note", "refused to register memory 3 times: its limit (max_mr) or locked memory was used up"),
        ("rdmap1s0/1", "note", "connections were impaired and slowed down 2 times (impaired_remote_conn_events)"),
        ("efa", "warn", "libfabric finds 1 of 2 adapters, not rdmap2s0"),
    ]
    say(tools, "fi_info", "fi_getinfo: -61 (No data available)", code=61)
    last = judged(run(tree, nics=[]))[-1]
    assert last == ("efa", "warn", "libfabric finds none of the 2 adapters: fi_getinfo: -61 (No data available)")
    (tools / "fi_info").unlink()
    assert "efa" not in run(tree, nics=[])
