"""Reading is judging: the facts in an output have the findings that a probe gives for the same facts."""

import itertools
import json
import re
from pathlib import Path

import pytest

from fabtui.cli import main as entry
from fabtui.importers.catalogue import formats
from fabtui.importers.result import Result, read
from fabtui.importers.sources import Source
from fabtui.importers.to_model.dispatch import convertible, examined
from fabtui.presentation.findings import title

from ..importers.places import SAMPLES, start_of

DEVINFO = """\
hca_id:\tmlx5_0
\ttransport:\t\t\tInfiniBand (0)
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_INIT (2)
\t\t\tsm_lid:\t\t\t0
\t\t\tport_lid:\t\t65535
\t\t\tlink_layer:\t\tInfiniBand
"""
STATUS = """\
Infiniband device 'mlx5_0' port 1 status:
\tdefault gid:\t fe80:0000:0000:0000:a088:c203:00e3:12f2
\tbase lid:\t 0xffff
\tsm lid:\t\t 0x0
\tstate:\t\t 2: INIT
\tphys state:\t 5: LinkUp
\trate:\t\t 400 Gb/sec (4X NDR)
\tlink_layer:\t InfiniBand
"""
COUNTERS = """\
# Port counters: Lid 13 port 1 (CapMask: 0x5A00)
PortSelect:......................1
SymbolErrorCounter:..............812
LinkDownedCounter:...............0
"""
GIDS = """\
DEV     PORT    INDEX   GID                                     IPv4            VER     DEV
---     ----    -----   ---                                     ------------    ---     ---
mlx5_0  1       0       fe80:0000:0000:0000:0e42:a1ff:fe5c:0f20                 v1      ens1f0np0
mlx5_0  1       1       fe80:0000:0000:0000:0e42:a1ff:fe5c:0f20                 v2      ens1f0np0
n_gids_found=2
"""
LSPCI = """\
00:01.0 PCI bridge: Intel Corporation Device 352a (rev 04)
\tBus: primary=00, secondary=01, subordinate=05, sec-latency=0
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
01:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16
02:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 32GT/s, Width x8 (downgraded)
80:01.0 PCI bridge: Intel Corporation Device 352a (rev 04)
\tBus: primary=80, secondary=81, subordinate=81, sec-latency=0
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
"""
ACS_ALONE = "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir{} CmpltRedir{} UpstreamFwd+ EgressCtrl- DirectTrans-\n"
PORT_STATE = "".join(
    f"{of} PortInfo:\n# Port info: Lid {lid} port {port}\nLinkState:.......................Active\n"
    "PhysLinkState:...................LinkUp\nLid:.............................0\n"
    "LinkWidthSupported:..............1X or 4X\nLinkWidthEnabled:................1X or 4X\n"
    "LinkWidthActive:.................1X\nLinkSpeedSupported:..............2.5 Gbps or 5.0 Gbps or 10.0 Gbps\n"
    "LinkSpeedEnabled:................2.5 Gbps or 5.0 Gbps or 10.0 Gbps\nLinkSpeedActive:.................10.0 Gbps\n"
    "LinkSpeedExtSupported:...........14.0625 Gbps or 25.78125 Gbps\n"
    "LinkSpeedExtEnabled:.............14.0625 Gbps or 25.78125 Gbps\n"
    "LinkSpeedExtActive:..............25.78125 Gbps\n"
    for of, lid, port in (("Switch", 2, 16), ("Peer", 6, 1))
)
DCGM = """\
+----------------------+
|  NvLink Link Status  |
+----------------------+
GPUs:
    gpuId 0:
        U U U U U U U U U U U U
    gpuId 1:
        U U U D U U U U U U U U
"""
TOPOLOGY = """\
<system version="1">
  <cpu numaid="0" arch="x86_64">
    <pci busid="0000:c1:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
      <nic><net name="mlx5_0" dev="0" speed="{}" port="1" guid="0x1" maxconn="131072" gdr="1"/></nic>
    </pci>
  </cpu>
</system>
"""
GRAPH = """\
n060:100:120 [0] NCCL INFO === System : maxBw 24.0 totalBw 24.0 ===
n060:100:120 [0] NCCL INFO + PCI[24.0] - NIC/0-C1000
n060:100:120 [0] NCCL INFO               + NET[{}] - NET/0-0 (0/1/25.000000)
"""

#: Outputs of a kind, and words of each finding, the first one first; no words: nothing is wrong.
JUDGED = [
    ("ibv_devinfo", DEVINFO, ["no subnet manager has configured it (Initializing, LID 65535, SM LID 0)"]),
    ("ibstatus", STATUS, ["no subnet manager has configured it (Initializing, LID 65535, SM LID 0)"]),
    ("ibstatus", STATUS.replace("2: INIT", "4: ACTIVE"), []),
    ("rdma-link", "link mlx5_1/1 state DOWN physical_state POLLING netdev ens1\n", ["no signal from the other end"]),
    ("rdma-link", "link mlx5_1/1 state ACTIVE physical_state LINK_UP netdev ens1\n", []),
    ("perfquery", COUNTERS, ["LID 13 port 1: errors of the link: symbol_error 812"]),
    ("perfquery", COUNTERS.replace("812", ".0"), []),
    ("ibportstate", PORT_STATE, ["LID 2/16: link below what both ends can do: width 1X of 4X, 25 Gb/s"]),
    ("ibportstate", PORT_STATE.replace("Active:.................1X", "Active:.................4X"), []),
    ("ibportstate", PORT_STATE.partition("Peer")[0], []),
    ("smpquery", PORT_STATE.partition("\n")[2].partition("Peer")[0].replace("Active\n", "Down\n", 1), ["LID 2/16: "]),
    ("smpquery", "Node Description:...................spine1\n", []),
    ("show_gids", GIDS, ["mlx5_0/1: no RoCE v2 GID of an IPv4 address"]),
    ("lspci", LSPCI, ["PCI ACS redirects between devices (0000:00:01.0)", "pcie limited at 0000:02:00.0"]),
    ("lspci", LSPCI.replace("ReqRedir+ CmpltRedir+", "ReqRedir- CmpltRedir-").replace("x8 (downgraded)", "x16"), []),
    ("lspci", ACS_ALONE.format("-", "-") + ACS_ALONE.format("+", "+"), ["PCI ACS redirects between devices"]),
    ("lspci", ACS_ALONE.format("-", "-"), []),
    ("sysctl", "net.ipv4.ip_local_port_range = 60000\t60500\nvm.swappiness = 60\n", ["only 501 ephemeral ports"]),
    ("sysctl", "net.ipv4.ip_local_port_range = 32768\t60999\nvm.swappiness = 60\n", []),
    ("dcgmi-nvlink", DCGM, ["GPU 1: 11 of the 12 NVLinks that other GPUs have are active: 3 inactive"]),
    ("dcgmi-nvlink", DCGM.replace("D", "U"), []),
    # What a card without a bridge shows.
    ("dcgmi-nvlink", DCGM.replace("U", "D"), []),
    ("nccl-log", GRAPH.format("50.0"), ["NET/0-0 of 50 GB/s is limited to 24 GB/s by its PCIe link"]),
    ("nccl-log", GRAPH.format("25.0"), []),
    ("nccl-topology", TOPOLOGY.format("400000"), ["mlx5_0 of 400 Gb/s is limited to 252 Gb/s by its PCIe link"]),
    ("nccl-topology", TOPOLOGY.format("200000"), []),
]


def of(kind: str, text: str) -> Result:
    result = read(Source("pasted.txt", text))
    assert result.kind == kind, (result.kind, result.others)
    return result


@pytest.mark.parametrize(("kind", "text", "words"), JUDGED)
def test_an_output_is_judged(kind: str, text: str, words: list[str]) -> None:
    found = [title(one) for one in examined(of(kind, text)).all_findings]
    assert len(found) == len(words), found
    for one, part in zip(found, words, strict=True):
        assert part in one


def test_a_part_of_the_gpus_has_no_numbers() -> None:
    """``nvidia-smi -q -i 3`` shows one GPU, which is not GPU 0; its address is in the text."""
    text = (SAMPLES / "h200x8/nvidia-smi-q.txt").read_text()
    head, _, rest = text.partition("\nGPU 0000")
    one = "\nGPU 0000".join([head, rest.split("\nGPU 0000")[3]]).replace(": Completed", ": In Progress")
    (found,) = examined(of("nvidia-smi-q", one)).all_findings
    assert title(found).startswith("GPU 0000:00:09.0: the NVLink fabric is in progress")
    whole = text.replace(": Completed", ": In Progress", 1)
    assert title(examined(of("nvidia-smi-q", whole)).all_findings[0]).startswith("GPU 0 (0000:00:06.0): ")


def test_more_findings_than_a_session_lists_are_all_there() -> None:
    text = start_of((SAMPLES / "h200x8/nvidia-smi-q.txt").read_text())
    for name, was, now in (
        ("State", "Completed", "In Progress"),
        ("HW Thermal Slowdown", "Not Active", "Active"),
        ("Persistence Mode", "Enabled", "Disabled"),
        ("Remapping Failure Occurred", "No", "Yes"),
        ("Pending", "No", "Yes"),
    ):
        text, changed = re.subn(rf"(\n +{name} +: ){was}\n", rf"\g<1>{now}\n", text, count=1)
        assert changed, name
    found = [one.rule.id for one in examined(of("nvidia-smi-q", text)).findings]
    assert found == ["FT114", "FT117", "FT123", "FT117", "FT118"]


MATRIX = """\
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1      2      3
     0 1502.40 275.07 275.07  11.00
     1 275.51 1521.42 275.07  11.00
     2 275.51 275.07 1521.42  11.00
     3  11.00  11.00  11.00 1521.42
"""


def launches(folder: Path, pairs: int) -> None:
    """Write the outputs of jobs that tested one pair each, of which rank 0 of n060 passes none."""
    for src, dst in list(itertools.permutations(range(3), 2))[:pairs]:
        text = "".join(f"n06{rank} [{rank}] : BEG send {src} -> {dst}\n" for rank in (src, dst))
        text += f"n06{src} [{src}] : OK {src} -> {dst}\n" if 0 not in (src, dst) else "unhandled system error\n"
        (folder / f"p2p-test-{src}-{dst}-4711.out").write_text(text)


def test_nodes_to_drain_are_named_in_the_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file's name is not a node's name, and a single pair blames neither of its nodes."""
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "n060.txt").write_text(MATRIX)
    assert entry.main(["read", str(tmp_path / "n060.txt")]) == 0
    out = capsys.readouterr().out
    assert "findings: " in out
    for word in ("what to do now", "to drain", "--exclude", "scontrol"):
        assert word not in out
    for pairs, named in ((2, False), (6, True)):
        folder = tmp_path / str(pairs)
        folder.mkdir()
        launches(folder, pairs)
        assert entry.main(["read", str(folder)]) == 0
        assert ("--exclude=n060" in capsys.readouterr().out) is named


#: Formats of facts that are in no rule: they are shown, and why nothing is judged.
NOT_JUDGED = {
    "nixlbench": "rates of one pair, without the names of its ends",
    "node-pairs": "its answer names the node that slow pairs share",
    "nvshmem-perftest": "rates of one pair, without the names of its ends",
    "ucx_perftest": "rates of one pair, without the names of its ends",
    "dcgmi-diag": "its own verdicts are its warnings",
    "ethtool-S": "counters since an unknown time; the live probe compares two readings",
    "ethtool-a": "pause frames may be off where priorities have them",
    "ethtool-i": "names",
    "ethtool-m": "the alarms of the module are its warnings",
    "fabricmanager-log": "a log, whose lines the catalogue explains",
    "fi_info": "names",
    "flight-recorder": "a running job's, judged by the rules about jobs",
    "fping": "between addresses that are not nodes",
    "ibaddr": "names",
    "ibdiagnet": "its own verdicts are its warnings",
    "ibnodes": "names",
    "ibping": "a round trip",
    "ibroute": "a table",
    "ibswinfo": "a switch",
    "ibtracert": "a way",
    "ibv_devices": "names",
    "imex-log": "a log, whose lines the catalogue explains",
    "job-monitor": "of another tool",
    "job-report": "a result of fabtui",
    "kubectl-pods": "its own answer",
    "nccl-inspector": "a running job's, judged by the rules about jobs",
    "nccl-ras": "a running job's, judged by the rules about jobs",
    "nvidia-smi-L": "names",
    "nvidia-smi-nvlink-R": "names",
    "nvidia-smi-nvlink-c": "what links can do",
    "ping": "between addresses that are not nodes",
    "qperf": "between addresses that are not nodes",
    "saquery": "records of a fabric",
    "slurm-topology": "names",
    "sminfo": "names",
    "squeue": "jobs",
}


def test_every_format_is_judged_or_there_is_a_reason() -> None:
    """A new format needs a conversion, facts, errors of the catalogue, or a reason here."""
    names = {name for name, form in formats().items() if not (convertible(name) or form.facts or form.errors)}
    logs = {name for name in NOT_JUDGED if formats().get(name) is not None and formats()[name].errors}
    assert names | logs == set(NOT_JUDGED) & set(formats())


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, text, words in JUDGED if words])
def test_findings_are_json(kind: str, text: str) -> None:
    found = of(kind, text)
    json.dumps(found.as_json(), allow_nan=False)
