"""`fabtui explain` as users meet it: what it prints, and what it exits with."""

import io
import re
from pathlib import Path

import pytest

from fabtui.cli import main as entry
from fabtui.diagnosis.finding import RULES
from fabtui.diagnosis.knowledge.error_catalogue import meanings

Out = pytest.CaptureFixture[str]
LOG = "n060:7:9 [3] init.cc:1 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory errno 12\n"


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize("name", ["FT010", "ft010", "rail-isolated"])
def test_a_rule_is_explained_by_code_and_name(name: str, capsys: Out) -> None:
    assert entry.main(["explain", name]) == 0
    out = capsys.readouterr().out
    assert out.startswith("FT010 rail-isolated (bad): Rails have no path to each other\n  means ")
    assert "\n  next " in out


def test_the_exit_code_of_a_lost_node_is_explained(capsys: Out) -> None:
    assert entry.main(["explain", "FT001"]) == 0
    assert "exit     3, or 1 if a result is bad as well" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["E13", "e13", "memlock"])
def test_an_error_is_explained_by_code_and_name(name: str, capsys: Out) -> None:
    assert entry.main(["explain", name]) == 0
    out = capsys.readouterr().out
    assert out.startswith("E13 memlock\n  prints ")
    assert "  command  ulimit -l  (on both nodes)\n" in out


@pytest.mark.parametrize("words", [["Xid 79"], ["xid", "79"], ["xid-79"]])
def test_an_xid_is_explained_by_its_number(words: list[str], capsys: Out) -> None:
    assert entry.main(["explain", *words]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Xid 79 ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS (bad)",
        "  means    GPU has fallen off the bus",
        "  part     pcie",
        "  action   RESTART_BM: drain the node and reboot it; if it recurs, have the GPU and its slot checked",
    ]


def test_an_xid_that_nvidia_does_not_list(capsys: Out) -> None:
    assert entry.main(["explain", "Xid 1000"]) == 2
    assert "Xid 1000 is not in NVIDIA's catalogue" in capsys.readouterr().err


def test_every_rule_and_every_error_is_explained(capsys: Out) -> None:
    codes = [*(rule.id for rule in RULES), *(one.code for one in meanings())]
    assert entry.main(["explain", *codes]) == 0
    assert not re.search(r"\{[a-z]{2,10}\}", capsys.readouterr().out)


def test_a_text_is_explained(capsys: Out) -> None:
    assert entry.main(["explain", "Call to ibv_modify_qp failed with error Connection timed out"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("earliest cause: E9 gid-does-not-resolve\n")
    assert "ip route get RECEIVER_ADDRESS from SENDER_ADDRESS  (there)" in out


def test_words_of_a_text_need_no_quotes(capsys: Out) -> None:
    assert entry.main(["explain", "NET/IB", ":", "No", "device", "found"]) == 0
    assert "E15" in capsys.readouterr().out


def test_an_unknown_text_is_repeated(capsys: Out) -> None:
    assert entry.main(["explain", "the printer\x1b[2J is on fire"]) == 1
    assert capsys.readouterr().out == (
        "unknown: the printer[2J is on fire\n"
        "next: give the whole line as it was printed, or a log: fabtui explain FILE; fabtui explain --list has all\n"
    )


def test_a_number_alone_may_be_an_xid(capsys: Out) -> None:
    assert entry.main(["explain", "79"]) == 1
    assert capsys.readouterr().out == "unknown: 79; an Xid? fabtui explain xid 79\n"


def test_a_rule_about_jobs_is_explained(capsys: Out) -> None:
    assert entry.main(["explain", "j03"]) == 0
    assert capsys.readouterr().out.startswith("J03 gpus-idle (bad): The GPUs of a node, or of all nodes, are idle\n")


def test_logs_of_a_folder_are_explained(tmp_path: Path, capsys: Out) -> None:
    (tmp_path / "rank0.log").write_text(
        "n061:7:9 [0] NCCL WARN socketProgress: Connection closed by remote peer x<1>\n"
    )
    (tmp_path / "rank3.log").write_text(LOG + "n060:7:9 [3] NCCL WARN \x1b]0;x\x07 odd\n")
    assert entry.main(["explain", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("earliest cause: E13 memlock (n060 [3])\n")
    assert "  consequences:\n    1 x E20 peer-ended (n061 [0])" in " ".join(out.split(" "))
    assert "1 warning not in the catalogue:" in out
    assert "rank3.log:2: " in "".join(out.split("\n           "))
    assert "\x1b" not in out


def test_a_line_without_a_time_of_its_own_gets_none(tmp_path: Path, capsys: Out) -> None:
    path = tmp_path / "rank0.log"
    stamp = "2026-11-22 10:22:01.541"
    path.write_text(f"{LOG}{stamp} n060:7:9 [3] NCCL INFO hello\n")
    assert entry.main(["explain", str(path)]) == 0
    assert "10:22:01" not in capsys.readouterr().out
    path.write_text(f"{stamp} {LOG}")
    assert entry.main(["explain", str(path)]) == 0
    assert "  line     11-22 10:22:01.541" in capsys.readouterr().out


def test_standard_input_is_explained(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
    assert entry.main(["explain", "-"]) == 0
    assert "  line     stdin:1: n060:7:9 [3]" in capsys.readouterr().out


def test_a_folder_shows_what_came_first_as_its_files_do(tmp_path: Path, capsys: Out) -> None:
    kernel = "[Fri Nov 20 10:11:58 2026] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
    files = [tmp_path / "kernel.txt", tmp_path / "rank3.log"]
    for file, text in zip(files, (kernel, LOG), strict=True):
        file.write_text(text)
    assert entry.main(["explain", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("earliest cause: FT130 xid-79\n")
    assert entry.main(["explain", *map(str, files)]) == 0
    assert capsys.readouterr().out == out


def test_a_log_without_known_error_is_unknown(tmp_path: Path, capsys: Out) -> None:
    (tmp_path / "a.log").write_text("hello\nn060:7:9 [3] NCCL WARN odd\n")
    assert entry.main(["explain", str(tmp_path / "a.log")]) == 1
    out = capsys.readouterr().out
    assert out.startswith("unknown: no known error in 2 lines of 1 file\n")
    assert "NCCL WARN odd" in " ".join(out.split())


def test_a_transport_is_explained_by_its_name(capsys: Out) -> None:
    assert entry.main(["explain", "NET/IBext_v10/0/GDRDMA"]) == 0
    out = capsys.readouterr().out
    assert "HPC-X's plug-in IBext: InfiniBand or RoCE." in out
    assert "GPUDirect RDMA" in out
    for name in ("NET/AWS Libfabric/0", "UCX", "TCP", "NVLS", "P2P/MNNVL"):
        assert entry.main(["explain", name]) == 0, name
    assert entry.main(["explain", "NET/unheard-of"]) == 2
    capsys.readouterr()
    entry.main(["explain", "NET/IB is odd"])
    assert capsys.readouterr().out.startswith("unknown: NET/IB is odd")


def test_an_error_of_one_node_has_commands_for_that_node(capsys: Out) -> None:
    assert entry.main(["explain", "E44"]) == 0
    out = capsys.readouterr().out
    assert "sudo dmesg | grep -i xid  (on the node)" in out
    assert "both nodes" not in out


def test_all_rules_and_errors_are_listed(capsys: Out) -> None:
    assert entry.main(["explain", "--list"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {rule.id:<5}  {rule.name} " in out for rule in RULES)
    assert all(f"  {one.code:<4}  {one.id} " in out for one in meanings())


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "nothing to explain"),
        ([" "], "nothing to explain"),
        (["FT999"], "no rule or error has the code FT999"),
        (["E999"], "no rule or error has the code E999"),
        (["J99"], "no rule or error has the code J99"),
        (["rank0.log"], "cannot read rank0.log"),
        (["/nowhere/x"], "cannot read /nowhere/x"),
        (["E13", "hello"], "hello: no such rule or error"),
        (["-", "-"], "only once"),
    ],
)
def test_bad_input_is_one_line(argv: list[str], words: str, capsys: Out) -> None:
    assert entry.main(["explain", *argv]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
