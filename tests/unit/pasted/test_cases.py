"""Texts that people paste: the right answer to each case of ``tests/samples/pasted``, at each door that reads it."""

import io
import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from fabtui.cli import main as entry

from ..probes.places import SAMPLES

PASTED = SAMPLES / "pasted"
EARLY = "28-nccl-tests-1.txt"
Out = pytest.CaptureFixture[str]


class Case(NamedTuple):
    """A command on a pasted text, and the answer; all words are patterns without case, across line ends."""

    command: str  #: ``explain``, ``read`` or ``job``.
    given: str  #: A file of the samples, or words.
    code: int  #: The exit code.
    first: tuple[str, ...]  #: Patterns of the first paragraph: the cause.
    next: tuple[str, ...] = ()  #: Patterns anywhere in the answer: what to do, what else.
    never: tuple[str, ...] = ()  #: Patterns that the answer must not have.
    judged: bool = True  #: Whether ``read --json`` has findings.

    @property
    def name(self) -> str:
        return f"{self.command} {self.given}"


FABRIC_MANAGER = (r"grep -A3 Fabric", r"reset", r"NCCL_NVLS_ENABLE=0")
NVLS = (r"NVLS|NVLink SHARP", r"Fabric Manager")
NO_PEER = (r"nvidia-smi topo -p2p r", r"NCCL_P2P_DISABLE=1", r"CUDA_VISIBLE_DEVICES")
RUN_AGAIN = r"run again with NCCL_DEBUG"
#: Statements about pairs and nodes that nobody measured.
BLAME = (r"to drain", r"State=DRAIN", r"--exclude", r"healthy", r"same-node", r"scontrol", r"pairs? fail", r" > \S+:\d")
P2P_LEVEL = (r"NCCL_P2P_LEVEL", r"LOC", r"host memory|SHM", r"unset")
GPU2 = (r"GPU ?2", r"NVLink", r"nvlink -s", r"Fabric")
FABRIC_STATE = (r"1B:00\.0", r"In Progress", r"Fabric Manager|fabricmanager")
GEN3 = (r"12 GB/s", r"25 GB/s", r"PCIe", r"NET/0|NIC/5000|603cb0003723f04")
PEERMEM = (r"modprobe nvidia[-_]peermem", r"use_cuda_dmabuf")
STUCK = (r"J04", r"got stuck|watchdog", r"rank1\.log")

CASES = (
    Case("explain", "01-single-node-nvls.txt", 0, NVLS, FABRIC_MANAGER, (r"map /dev/infiniband", r"cause: E15")),
    Case("explain", "02-single-node-healthy.txt", 1, (r"no (failure|error)",), (), (r"cause:", r"\(bad\)")),
    Case("explain", "03-nvls-own-words.txt", 0, NVLS, FABRIC_MANAGER, (RUN_AGAIN, r"no cause found")),
    Case("explain", "04-last-error-217.txt", 0, (r"peer access",), NO_PEER, (RUN_AGAIN, r"no cause found")),
    Case(
        "explain",
        "05-mnnvl-imex.txt",
        0,
        (r"IMEX",),
        (r"ls -l /dev/nvidia-caps-imex-channels", r"NCCL_MNNVL_ENABLE=0"),
        (r"unknown",),
    ),
    Case("explain", "06-nvls-401.txt", 0, NVLS, FABRIC_MANAGER, (r"unknown",)),
    Case("explain", "07-ipc-217.txt", 0, (r"peer access",), NO_PEER, (RUN_AGAIN, r"unknown")),
    Case("explain", "08-connect-refused-old.txt", 0, (r"E18", r"refused"), (r"NCCL_SOCKET_IFNAME", r"\blo\b")),
    Case(
        "explain",
        "09-gloo-loopback.txt",
        0,
        (r"host ?name|own name", r"loopback|127\.0\.0\.1"),
        (r"GLOO_SOCKET_IFNAME", r"/etc/hosts"),
    ),
    Case(
        "explain", "10-c10d-client-timeout.txt", 0, (r"10\.0\.0\.1:29400",), (r"nc -vz 10\.0\.0\.1 29400", r"firewall")
    ),
    Case("explain", "11-c10d-in-use.txt", 0, (r"29500", r"taken|in use"), (r"MASTER_PORT",), (r"firewall",)),
    Case(
        "explain",
        "12-watchdog-stuck.txt",
        0,
        (r"hangs?", r"rank 2"),
        (r"EXPERT_MODEL_PARALLEL_GROUP", r"py-spy dump"),
        (r"unknown",),
    ),
    Case("read", "12-watchdog-stuck.txt", 0, (), (r"hangs?|stuck", r"py-spy dump", r"rank 2"), (r"no failure",)),
    Case("job", "12-watchdog-stuck.txt", 1, (), STUCK, (r"healthy",)),
    Case("explain", "13-dmabuf.txt", 0, (r"DMA-BUF",), (r"NCCL_DMABUF_ENABLE=0", r"nvidia[-_]peermem"), (r"unknown",)),
    Case("read", "13-dmabuf.txt", 0, (), (r"DMA-BUF", r"NCCL_DMABUF_ENABLE=0"), (r"no line of NCCL",)),
    Case(
        "explain",
        "14-ofi-mr.txt",
        0,
        (r"EFA|OFI|libfabric", r"memory"),
        (r"1\.29\.1", r"FI_EFA_SET_CUDA_SYNC_MEMOPS=0"),
    ),
    Case("explain", "15-perftest-peermem.txt", 0, (r"E37",), PEERMEM, BLAME),
    Case("read", "15-perftest-peermem.txt", 0, (), (r"E37", *PEERMEM), BLAME),
    Case(
        "explain",
        "16-perftest-status12.txt",
        0,
        (r"E1\b", r"retr"),
        (r"show_gids", r"(?<!\S)-x\b"),
        (r"unknown", *BLAME),
    ),
    Case("read", "16-perftest-status12.txt", 0, (), (r"perftest", r"E1\b", r"show_gids"), BLAME),
    Case(
        "explain",
        "17-mlx5-command.txt",
        0,
        (r"0000:61:00\.0", r"firmware"),
        (r"mlxfwreset -d 0000:61:00\.0 query", r"update"),
        (r"unknown",),
    ),
    Case("explain", "18-mlx5-tx-timeout.txt", 0, (r"TX timeout", r"driver|stuck"), (r"reboot",), (r"unknown",)),
    Case("read", "18-mlx5-tx-timeout.txt", 0, (), (r"dmesg|kernel", r"TX timeout", r"soft lockup"), (r"unknown",)),
    Case(
        "explain",
        "19-sxid.txt",
        0,
        (r"NVSwitch", r"12028", r"link 61"),
        (r"nvlink -e", r"0000:86:00\.0"),
        (r"unknown",),
    ),
    Case(
        "explain", "20-nccl-tests-remote.txt", 0, (r"another|remote",), (r"first WARN", r"NCCL_NET_GDR_LEVEL=0", r"ACS")
    ),
    Case("explain", "21-srun-launch.txt", 0, (r"n061", r"n062", r"start"), (r"6818", r"slurmd", r"container")),
    Case("explain", "22-imex-dcgm.txt", 0, (r"IMEX",), (r"GB200", r"false alarm|harmless"), (r"unknown",)),
    Case("explain", "23-p2p-level-loc.txt", 0, P2P_LEVEL, ()),
    Case("read", "23-p2p-level-loc.txt", 0, (), P2P_LEVEL),
    Case("read", "24-topo-gpu-without-nvlink.txt", 0, (), GPU2, BLAME),
    Case("explain", "24-topo-gpu-without-nvlink.txt", 0, (), GPU2, (r"unknown", *BLAME)),
    Case("read", "25-nvsmi-q-fabric.txt", 0, (), (*FABRIC_STATE, r"remap"), BLAME),
    Case("explain", "25-nvsmi-q-fabric.txt", 0, (), (*FABRIC_STATE, r"remap"), (r"unknown", *BLAME)),
    Case("read", "26-nvlink-s-cut.txt", 0, (), (r"cut off", r"GPU ?2", r"1 of 12"), (r"links total",), judged=False),
    Case("read", "27-nccl-graph-gen3.txt", 0, (), GEN3, (r"no line of NCCL",)),
    Case("explain", "27-nccl-graph-gen3.txt", 0, GEN3, (), (r"unknown",)),
    Case(
        "explain",
        "29-async-fatal-qp.txt",
        0,
        (r"queue pair", r"firmware"),
        (r"dmesg",),
        (r"cable", r"port-went-down", r"port went down"),
    ),
    Case(
        "read",
        "30-watchdog-wrapped-138.txt",
        0,
        (),
        (r"BROADCAST", r"rank 1", r"rank 6"),
        (r"no failure", r"class +unknown"),
    ),
    Case(
        "explain",
        "30-watchdog-wrapped-138.txt",
        0,
        (r"E35", r"rank 1.*rank 2.*rank 3.*rank 5.*rank 6"),
        (r"BROADCAST",),
    ),
    Case("explain", "31-commands-one-node.txt", 0, (r"E31", r"Fabric Manager"), (r"nvidia-smi",), (r"on the sender",)),
    Case("explain", "vendor err 129", 0, (r"E1\b",), (r"retr",), (r"unknown",)),
    Case("explain", "sxid 12028", 0, (r"E49", r"12028", r"NVSwitch"), (), (r"unknown",)),
    Case("explain", "CUDA error 401", 0, (r"401", r"present state|not permitted"), (r"Fabric Manager",), (r"unknown",)),
    Case("explain", "NCCL_P2P_LEVEL", 0, (r"NCCL_P2P_LEVEL",), (r"LOC", r"PIX", r"SYS"), (r"unknown",)),
    Case("job", "33-glog-july.txt", 1, (), STUCK, (r"healthy",)),
    Case("explain", "34-log.txt.xz", 0, (r"E\d",), (), (r"unknown", r"7zXZ")),
    Case("read", "34-log.txt.xz", 0, (), (r"nccl-log|torch-log",), (r"unknown", r"7zXZ")),
)


def put(given: str) -> str:
    """Copy a sample into the current folder under a neutral name; return words as they are."""
    if not (PASTED / given).is_file():
        return given
    shutil.copy(PASTED / given, name := "rank1.log" + "".join(Path(given).suffixes[1:]))
    return name


def answer(capsys: Out, *args: str) -> tuple[int, str]:
    code = entry.main([*args])
    out, err = capsys.readouterr()
    return code, out + err


def what_is_wrong(case: Case, capsys: Out) -> list[str]:
    """Return what is wrong with an answer, and the answer."""
    name = put(case.given)
    code, text = answer(capsys, *(("job", "--logs", ".", "--once") if case.command == "job" else (case.command, name)))
    first = " ".join(text.partition("\n\n")[0].split())
    every = " ".join(text.split())
    wrong = [] if code == case.code else [f"exit code {code}"]
    wrong += [f"not first: {words}" for words in case.first if not re.search(words, first, re.IGNORECASE)]
    wrong += [f"not said: {words}" for words in case.next if not re.search(words, every, re.IGNORECASE)]
    wrong += [f"said: {words}" for words in case.never if re.search(words, every, re.IGNORECASE)]
    if case.command == "job":
        code, line = answer(capsys, "job", "--logs", ".", "--json")
        rules = [one["rule"] for one in json.loads(line)["findings"]]
        wrong += [] if (code, "J04" in rules) == (case.code, True) else [f"exit code {code} with --json: {rules}"]
    if case.command == "read":
        code, line = answer(capsys, "read", "--json", name)
        found = json.loads(line)["findings"]
        wrong += [] if code == case.code else [f"exit code {code} with --json"]
        wrong += [] if bool(found) is case.judged else [f"{len(found)} findings in JSON"]
    return [*wrong, text] if wrong else []


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_answer(case: Case, capsys: Out) -> None:
    """Each case is answered right."""
    wrong = what_is_wrong(case, capsys)
    assert not wrong, "\n".join(wrong)


def test_milliseconds_and_largest_errors_of_early_nccl_tests(capsys: Out) -> None:
    """Tables of 2017 to 2019 are in ms, and ``res`` is the largest error, not a number of elements."""
    code, out = answer(capsys, "read", "--json", put(EARLY))
    read = json.loads(out)
    row = read["values"]["tables"][0]["rows"][0]["out_of_place"]
    seconds = row["time"] * {"us": 1e-6, "ms": 1e-3}[read["units"]["time"]]
    right = seconds == pytest.approx(0.320e-3) and not row.get("wrong") and "30 elements" not in out
    assert (code, row["algbw"], "FAILED" in out) == (0, 104.76, True)
    assert right, out


def test_every_sample_is_a_case() -> None:
    """No file of the folder is without an answer."""
    files = {path.name for path in PASTED.iterdir()} - {EARLY}
    assert files <= {case.given for case in CASES}


def test_standard_input_is_read_as_a_file(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    """A paste into a pipe has the answer of the file."""
    name = put("29-async-fatal-qp.txt")
    _, text = answer(capsys, "explain", name)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path(name).read_bytes())))
    assert answer(capsys, "explain", "-")[1].replace("stdin", name).split() == text.split()
