"""The probes host, clock and firewall, over folders that look like the kernel's."""

import os
import pwd
import socket
import struct
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabtui_node.parsers.lines import bytes_text
from fabtui_node.probes import clock, firewall, host
from fabtui_node.system import cgroups, drivers, machine, pci, sessions

from .places import Tree

MIB = 1 << 20
_BRIDGE = "pci0000:00/0000:00:01.0"


def config(control: int | None, size: int = 4096) -> bytes:
    """Return a configuration space with AER, then ACS with a control word."""
    data = bytearray(4096)
    struct.pack_into("<I", data, 0x100, 0x14820001 if control is not None else 0x00020001)
    if control is not None:
        struct.pack_into("<IHH", data, 0x148, 0x0001000D, 0x5F, control)
    return bytes(data[:size])


def test_acs_flags_are_read_from_the_configuration_space() -> None:
    assert pci.parse_acs(config(0x1D)) == ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"]
    assert pci.parse_acs(config(0)) == []
    assert pci.parse_acs(config(None)) is None
    with pytest.raises(ValueError, match="only the first 64 bytes"):
        pci.parse_acs(config(0x1D, 64))


def test_a_capability_list_that_goes_in_circles_ends() -> None:
    data = bytearray(4096)
    struct.pack_into("<I", data, 0x100, 0x10010001)
    assert pci.parse_acs(bytes(data)) is None


@pytest.mark.parametrize(
    ("data", "state"), [(config(0x1D), "on"), (config(0x01), "off"), (config(None), "none"), (b"x" * 64, "unknown")]
)
def test_the_bridges_above_devices_are_read(tree: Tree, data: bytes, state: str) -> None:
    tree.pci(_BRIDGE)
    gpu = tree.pci(f"{_BRIDGE}/0000:01:00.0")
    tree.pci("pci0000:00/0000:00:02.0")
    (tree.root / f"devices/{_BRIDGE}/config").write_bytes(data)
    found = pci.read_acs([Path(gpu).name], str(tree.root))
    assert (found["state"], found["bridges"]) == (state, 1)
    assert [entry["bus"] for entry in found["on"]] == (["0000:00:01.0"] if state == "on" else [])


def test_a_virtual_machine_has_no_bridge(tree: Tree) -> None:
    gpu = tree.pci("pci0000:00/0000:00:05.0")
    assert pci.read_acs([Path(gpu).name], str(tree.root))["state"] == "none"


@pytest.mark.parametrize(
    ("kind", "words", "state"),
    [(None, "quiet", "off"), ("identity", "", "passthrough"), ("DMA-FQ", "intel_iommu=on", "translating")],
)
def test_the_iommu(tree: Tree, kind: str | None, words: str, state: str) -> None:
    tree.pci("pci0000:00/0000:01:00.0")
    tree.files("proc", cmdline=f"BOOT_IMAGE=/x {words} ro")
    if kind:
        tree.files("kernel/iommu_groups/7", type=kind)
        tree.link("devices/pci0000:00/0000:01:00.0/iommu_group", "kernel/iommu_groups/7")
    found = drivers.iommu(["0000:01:00.0"], str(tree.root), str(tree.root / "proc"))
    assert found["state"] == state
    assert found["cmdline"] == ([words] if words.startswith("intel") else [])


def test_gpudirect_by_module_and_by_dma_buf(tree: Tree) -> None:
    tree.files("proc", sys__kernel__osrelease="5.15.0-105-generic")
    tree.files("proc/driver/nvidia", version="NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15")
    folders = str(tree.root), str(tree.root / "proc")
    assert drivers.gpudirect(["nvidia", "nvidia_peermem"], *folders) == {
        "peermem": "nvidia_peermem",
        "registered": None,
        "open_driver": True,
        "dma_buf": True,
    }
    tree.files("kernel/mm/memory_peers/rubbish", x=1)
    tree.files("proc/driver/nvidia", version="NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05")
    found = drivers.gpudirect([], *folders)
    assert (found["peermem"], found["registered"], found["dma_buf"]) == (None, False, False)


def test_modules_are_those_that_matter() -> None:
    text = "nvidia_uvm 1 0 - Live 0x0\nnvidia 2 1 nvidia_uvm, Live 0x0\nsnd 1 0 - Live 0x0\n"
    assert drivers.parse_modules(text) == ["nvidia", "nvidia_uvm"]


def test_the_machine(tree: Tree) -> None:
    text = "processor\t: 0\nmodel name\t: Intel(R)  Xeon(R)\nphysical id\t: 0\nflags\t\t: fpu hypervisor\n\n"
    tree.files("proc", cpuinfo=text + text.replace(": 0", ": 1"), loadavg="1.50 1.0 0.9 1/2 3")
    tree.files("proc/sys/kernel", numa_balancing=1)
    for node in ("node0", "node1", "power"):
        tree.files(f"devices/system/node/{node}", x=1)
    tree.files("devices/system/cpu", present="0-3", online="0-1,3")
    tree.files("devices/system/cpu/smt", control="on")
    tree.files("devices/system/cpu/cpufreq/policy0", scaling_governor="powersave")
    found = machine.processors(str(tree.root), str(tree.root / "proc"))
    assert found == {
        "model": "Intel(R) Xeon(R)",
        "sockets": 2,
        "threads": 2,
        "virtual": True,
        "governors": {"powersave": 1},
        "numa_nodes": 2,
        "numa_balancing": True,
        "load": 1.5,
        "smt": "on",
        "cpus_present": [0, 1, 2, 3],
        "cpus_online": [0, 1, 3],
        "nodes_with_cpus": None,
        "nodes_with_memory": None,
    }


def test_memory_and_the_tightest_limit_of_the_control_groups(tree: Tree) -> None:
    tree.files("proc", meminfo="MemAvailable:  1024 kB\nHugePages_Total:  3\nHugepagesize:  2048 kB\nBad line")
    tree.files("proc/self", cgroup="0::/system.slice/ssh")
    tree.files("fs/cgroup/system.slice", **{"cpu.max": "200000 100000", "memory.max": "max"})
    tree.files("fs/cgroup/system.slice/ssh", **{"cpu.max": "max 100000", "memory.max": 4096, "pids.max": 100})
    folders = str(tree.root), str(tree.root / "proc")
    found = machine.memory(*folders, shm=str(tree.root))
    assert (found["available"], found["huge_total"], found["huge_size"]) == (1 << 20, 3, 2 << 20)
    assert found["swap"] is found["shm_size"] is None
    limits = cgroups.read(*folders)
    assert [limits[name] for name in ("cpus", "memory", "tasks")] == [2.0, 4096, 100]
    assert limits["files"]["cpus"] == str(tree.root / "fs/cgroup/system.slice/cpu.max")


MOUNTS = """30 1 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 /pod /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
"""


def test_limits_of_control_groups_of_version_1(tree: Tree) -> None:
    tree.files("proc/self", cgroup="4:cpu,cpuacct:/user/s1\n3:memory:/pod/s1\n0::/\n5:pids:/../x", mountinfo=MOUNTS)
    tree.files("fs/cgroup/cpu,cpuacct/user", **{"cpu.cfs_quota_us": -1, "cpu.cfs_period_us": 100000})
    tree.files("fs/cgroup/cpu,cpuacct/user/s1", **{"cpu.cfs_quota_us": 10000, "cpu.cfs_period_us": 100000})
    tree.files("fs/cgroup/cpu,cpuacct/user/s1", **{"cpu.stat": "nr_periods 40\nnr_throttled 36\nthrottled_time 9"})
    # A container sees its own part of the hierarchy.
    tree.files("fs/cgroup/memory", **{"memory.limit_in_bytes": 9223372036854771712})
    tree.files("fs/cgroup/memory/s1", **{"memory.limit_in_bytes": 160 * MIB, "memory.oom_control": "oom_kill 1"})
    found = cgroups.read(str(tree.root), str(tree.root / "proc"))
    assert (found["cpus"], found["memory"], found["tasks"]) == (0.1, 160 * MIB, None)
    assert (found["oom_kills"], found["throttled"]) == (1, 0.9)
    texts = [one["text"] for one in host.judge({"cgroup": found, "devices": {}})]
    assert texts == [
        "CPU limited to 0.1 of a core (cgroup cpu.cfs_quota_us); it waited in 90 % of its periods",
        "memory limited to 160 MiB (cgroup memory.limit_in_bytes): ranks are killed when they need more",
        "the kernel killed 1 processes of this control group for lack of memory (oom_kill)",
    ]


def test_folders_where_programs_cannot_run_or_write(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {"/tmp": os.ST_NOEXEC | os.ST_NOSUID, "/var/tmp": 0, "/home/a": os.ST_RDONLY}

    def statvfs(path: str) -> Any:
        if path not in flags:
            raise FileNotFoundError(path)
        return SimpleNamespace(f_flag=flags[path])

    monkeypatch.setattr("os.statvfs", statvfs)
    found = machine.folders({"HOME": "/home/a/", "TMPDIR": "relative"})
    assert (found["noexec"], found["read_only"]) == (["/tmp"], ["/home/a"])


def test_file_systems_that_do_not_answer_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def statvfs(path: str) -> Any:
        time.sleep(1)
        raise FileNotFoundError(path)

    monkeypatch.setattr("os.statvfs", statvfs)
    assert machine.folders({}, within=0.01) == {"home": None, "noexec": None, "read_only": None}


@pytest.mark.parametrize(
    ("environ", "file", "kind"),
    [({"APPTAINER_CONTAINER": "/x.sif"}, None, "apptainer"), ({}, ".dockerenv", "docker"), ({}, None, None)],
)
def test_containers(tree: Tree, environ: dict[str, str], file: str | None, kind: str | None) -> None:
    if file:
        (tree.root / file).write_text("")
    assert machine.container(environ, str(tree.root / "proc"), str(tree.root)) == kind


def test_a_bare_root_gives_only_what_is_unknown(tree: Tree) -> None:
    found = host.run({}, None, 1.0, str(tree.root), str(tree.root / "proc"))
    assert found["devices"] == {"gpus": 0, "rdma": 0}
    assert found["processors"]["model"] is found["iommu"]["groups"] or found["iommu"]["state"] == "off"
    assert host.judge(found) == []


def value(**more: Any) -> dict[str, Any]:
    return {"devices": {"gpus": 8, "rdma": 8}, **more}


@pytest.mark.parametrize(
    ("found", "subject", "verdict"),
    [
        (value(limits={"memlock": {"soft": 65536, "hard": 65536}}), "memlock", "bad"),
        (value(limits={"nofile": {"soft": 1024, "hard": 4096}}), "nofile", "note"),
        (value(limits={"nofile": {"soft": 24, "hard": 4096}}), "nofile", "bad"),
        (value(limits={"as": {"soft": 1 << 33, "hard": -1}}), "as", "bad"),
        ({"limits": {"as": {"soft": 900000 << 10, "hard": -1}}}, "as", "bad"),
        ({"limits": {"cpu": {"soft": 3, "hard": 3}}}, "cpu", "bad"),
        ({"limits": {"nproc": {"soft": 100, "hard": 100}}}, "nproc", "bad"),
        (value(acs={"state": "on", "on": [{"bus": "0000:00:01.0"}]}), "acs", "bad"),
        (value(iommu={"state": "translating"}), "iommu", "warn"),
        (value(gpudirect={"peermem": None, "open_driver": False, "dma_buf": False}), "gpudirect", "bad"),
        (
            value(gpudirect={"peermem": "nv_peer_mem", "registered": False, "open_driver": False, "dma_buf": False}),
            "gpudirect",
            "bad",
        ),
        (value(memory={"shm_size": 64 * MIB}), "shm", "warn"),
        (value(processors={"numa_balancing": True}), "numa", "note"),
        (value(processors={"governors": {"powersave": 96}}), "governor", "note"),
        (value(network={"port_range": [32768, 33000]}), "ports", "warn"),
        (value(cgroup={"cpus": 4}), "cgroup_cpus", "warn"),
        (value(cgroup={"cpus": 0.5}), "cgroup_cpus", "bad"),
        (value(cgroup={"memory": 4 << 30}), "cgroup_memory", "warn"),
        (value(connections={"count": 240000, "max": 262144}), "conntrack", "warn"),
        (value(connections={"count": 262144, "max": 262144}), "conntrack", "bad"),
        (value(folders={"home": "/home/a", "noexec": ["/dev/shm"], "read_only": ["/home/a"]}), "read_only", "note"),
        (value(folders={"home": "/home/a", "noexec": ["/tmp"], "read_only": []}), "noexec", "note"),
    ],
)
def test_what_is_bad_alone(found: dict[str, Any], subject: str, verdict: str) -> None:
    (one,) = host.judge(found)
    assert (one["subject"], one["verdict"]) == (subject, verdict)
    assert one["text"]


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"devices": {"gpus": 0, "rdma": 0}, "limits": {"memlock": {"soft": 65536}}, "memory": {"shm_size": 1}},
        value(limits={"memlock": {"soft": -1, "hard": -1}}, acs={"state": "unknown", "on": []}),
        value(limits={"memlock": {"soft": None}}, gpudirect={"peermem": None, "open_driver": None, "dma_buf": None}),
        value(cgroup={"cpus": 64, "memory": 200 << 30, "oom_kills": 0}, connections={"count": 9, "max": 262144}),
        value(folders={"home": "/home/a", "noexec": ["/dev/shm"], "read_only": []}, connections={"count": 9, "max": 0}),
        value(limits=3, acs=[], iommu=None, network={"port_range": "x"}, processors={"governors": [1]}),
    ],
)
def test_what_is_unknown_or_of_no_matter_is_not_bad(found: dict[str, Any]) -> None:
    assert host.judge(found) == []


@pytest.mark.parametrize(
    ("number", "text"), [(65536, "64 KiB"), (-1, "unlimited"), (3 << 30, "3 GiB"), (1.5 * MIB, "1.5 MiB"), (12, "12 B")]
)
def test_sizes(number: float, text: str) -> None:
    assert bytes_text(number) == text


def test_the_clock_is_this_ones() -> None:
    found = clock.run({}, None, 1.0)
    assert abs(found["time"] - time.time()) < 60
    assert found["synchronised"] in (True, False, None)
    assert clock.judge({"synchronised": False})[0]["verdict"] == "note"
    assert clock.judge(found | {"synchronised": True}) == clock.judge({}) == []


NFT = """table inet filter {
	chain input {
		type filter hook input priority filter; policy %s;
		ct state established,related accept
		tcp dport 22 accept%s
	}

	chain forward {
		type filter hook forward priority filter; policy drop;
	}
}
"""


REJECTS = "counter packets 7 bytes 4711 reject with icmpx host-prohibited"


@pytest.mark.parametrize(
    ("text", "verdict", "rules", "drops"),
    [
        (NFT % ("accept", ""), "accept", 2, []),
        (NFT % ("drop", ""), "drop", 2, []),
        (NFT % ("accept", f"\n\t\t{REJECTS}"), "drop", 3, [REJECTS]),
        (NFT % ("accept", "\n\t\tip saddr 10.0.0.9 drop"), "accept", 3, ["ip saddr 10.0.0.9 drop"]),
        ("", "accept", 0, []),
    ],
)
def test_nft(text: str, verdict: str, rules: int, drops: list[str]) -> None:
    assert firewall.parse_nft(text) == {"input": verdict, "rules": rules, "drops": drops}


def test_rules_of_chains_that_are_jumped_to() -> None:
    text = """table inet firewalld {
	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept;
		ct state invalid drop
		jump zones
	}

	chain zones {
		iifname "eth0" goto zone_eth0
		goto filter_INPUT
	}

	chain zone_eth0 {
		tcp dport 30000-65535   reject with tcp reset
	}

	chain unused {
		drop
	}
}
table ip raw {
	chain zones {
		udp dport 5 drop
	}

	chain PREROUTING {
		type filter hook prerouting priority raw; policy accept;
		tcp dport 1-9 drop
	}
}
"""
    assert firewall.parse_nft(text) == {
        "input": "accept",
        "rules": 2,
        "drops": ["ct state invalid drop", "tcp dport 30000-65535 reject with tcp reset", "tcp dport 1-9 drop"],
    }
    many = NFT % ("accept", "\n\t\tip saddr 10.0.0.9 drop" * 99 + " " + "x" * 999)
    assert [len(rule) <= 200 for rule in firewall.parse_nft(many)["drops"]] == [True] * 24


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("-P INPUT ACCEPT\n", {"input": "accept", "rules": 0, "drops": []}),
        ("-P INPUT DROP\n-A INPUT -i lo -j ACCEPT\n", {"input": "drop", "rules": 1, "drops": []}),
        (
            "-P INPUT ACCEPT\n-A INPUT -j REJECT --reject-with icmp-host-prohibited\n",
            {"input": "drop", "rules": 1, "drops": ["-A INPUT -j REJECT --reject-with icmp-host-prohibited"]},
        ),
        (
            "-P INPUT ACCEPT\n-N mine\n-A FORWARD -j DROP\n-A INPUT -j mine\n-A mine -p tcp -j DROP\n",
            {"input": "accept", "rules": 1, "drops": ["-A mine -p tcp -j DROP"]},
        ),
        ("rubbish", None),
    ],
)
def test_iptables(text: str, found: dict[str, Any] | None) -> None:
    assert firewall.parse_iptables(text) == found


def test_a_user_cannot_see_the_rules(monkeypatch: pytest.MonkeyPatch, tree: Tree) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    found = firewall.run({}, None, 1.0, str(tree.root))
    assert (found["input"], found["why"]) == ("unknown", "only root may read the rules")
    assert firewall.judge(found) == []
    tree.files("ufw", **{"ufw.conf": "# x\nENABLED=yes"})
    assert firewall.run({}, None, 1.0, str(tree.root))["input"] == "drop"


def test_libraries_are_searched_again_when_their_folder_changed(tree: Tree) -> None:
    lib = tree.root / "lib"
    lib.mkdir()
    (lib / "libibverbs.so.1.14.50.0").write_text("")
    (lib / "libibverbs.so.1").symlink_to("libibverbs.so.1.14.50.0")
    found = drivers.versions({}, str(tree.root), [str(lib)])
    assert found == {"ofed": None, "rdma_core": "50.0", "net_plugins": []}
    (lib / "libnccl-net.so").write_text("")
    tree.files("module/mlx5_core", version="24.10-1.1.4")
    found = drivers.versions({"LD_LIBRARY_PATH": f"{lib}:relative"}, str(tree.root), [str(lib)])
    assert found == {"ofed": "24.10-1.1.4", "rdma_core": "50.0", "net_plugins": [f"{lib}/libnccl-net.so"]}


def test_other_sessions_are_found_by_the_names_of_their_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FABTUI_LAB_NODE", raising=False)
    own_mark = "00000001"
    own = os.getuid()
    names = [
        f"@fabtui-00000001-{own}-10",
        f"@fabtui-00000002-{own}-30",
        f"@fabtui-00000002-{own}-9",
        "@fabtui-0000000g-0-31",
        "@fabtui-00000003-0-",
        "@other",
        "/run/x.sock",
        "",
        "@fabtui-00000005-4294967294-41",
        "@fabtui-00000006-9999999999-42",
    ]
    (tmp_path / "net").mkdir()
    head = "Num       RefCount Protocol Flags    Type St Inode Path\n"
    lines = (
        f"0000000000000000: 00000002 00000000 00000000 0002 01 {i} {name}".rstrip() for i, name in enumerate(names)
    )
    (tmp_path / "net" / "unix").write_text(head + "".join(f"{line}\n" for line in lines))
    found = sessions.others(own_mark, str(tmp_path))
    assert [one["pid"] for one in found] == [9, 41, 42]
    assert found[0]["user"] == pwd.getpwuid(own).pw_name
    assert found[2]["user"] == "9999999999", "the name of a socket is anything"
    assert host.judge({"sessions": found})[0]["verdict"] == "note"
    monkeypatch.setenv("FABTUI_LAB_NODE", "n000")
    assert sessions.others(own_mark, str(tmp_path)) == []


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names of sockets are Linux's")
def test_a_session_shows_itself_to_others_and_accepts_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FABTUI_LAB_NODE", raising=False)
    monkeypatch.setattr(sessions.Presence, "socket", None)
    monkeypatch.setattr(sessions.Presence, "mark", "0badcafe")
    sessions.announce()
    shown = sessions.Presence.socket
    assert shown is not None
    with shown:
        mine = {"user": pwd.getpwuid(os.getuid()).pw_name, "pid": os.getpid()}
        assert mine not in sessions.others("0badcafe"), "a session does not report itself"
        assert mine in sessions.others("0badcaff")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other, pytest.raises(ConnectionRefusedError):
            other.connect(shown.getsockname())
    assert mine not in sessions.others("0badcaff")


@pytest.mark.parametrize(
    ("words", "mark"),
    [
        (["/usr/bin/python3", "-IS", "-c", "exec(1)#fabtui 00000001", "x"], "00000001"),
        (["python3", "-IS", "-c", "exec(1)#fabtui 0000000g", "x"], None),
        (["ssh", "n1", "sh", "-c", "exec python3 -IS -c exec(1)#fabtui 00000003"], None),
        (["vim", "exec(1)#fabtui 00000004"], None),
        ([], None),
    ],
)
def test_a_process_knows_its_session_by_its_command_line(tmp_path: Path, words: list[str], mark: str | None) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cmdline").write_text("\0".join(words) + "\0")
    before = sessions.Presence.mark
    try:
        sessions.read_mark(str(tmp_path))
        assert sessions.Presence.mark == mark
        sessions.read_mark(str(tmp_path / "nothing"))
        assert sessions.Presence.mark is None
    finally:
        sessions.Presence.mark = before
