"""``fabtui lab`` without root: SSH servers on loopback addresses that stand until they are taken down."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import pytest

from fabtui.cli.main import main
from fabtui.lab.lab import StandingLab, labs_folder

pytestmark = pytest.mark.slow


def lab(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """Run the command; return what it printed, or the problem."""
    assert main(["lab", *words]) == code
    printed = capsys.readouterr()
    if code:
        assert printed.out == ""
        assert re.fullmatch(r"fabtui: error: [^\n]*\n", printed.err)
    return printed.err if code else printed.out


@pytest.fixture
def up(capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    yield lab(capsys, "up", "--loopback", "--nodes", "2", "--endpoints", "1")
    for path in labs_folder().glob("*.lock"):
        StandingLab(path.stem).down()


def keeper() -> int:
    return int((labs_folder() / "lab.lock").read_text())


def ssh(node: str) -> subprocess.CompletedProcess[str]:
    argv = ["ssh", "-F", str(StandingLab("lab").ssh_config), "-o", "ConnectTimeout=3", node, "echo", "there"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_a_lab_stands_is_broken_healed_and_taken_down(up: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = StandingLab("lab").ssh_config
    assert up.startswith("lab: 2 nodes n[000-001], loopback addresses, made in ")
    assert f"fabtui --nodes 'n[000-001]' --ssh-config {quote(str(config))}\n" in up
    assert config.parent.stat().st_mode & 0o777 == 0o700
    assert os.getsid(keeper()) == keeper(), "it survives the shell"
    assert ssh("n001").stdout == "there\n"
    assert lab(capsys, "fault", "n001=down", "n000=stop") == "planted: n001=down, n000=stop\n"
    assert "Connection refused" in ssh("n001").stderr
    assert "timed out during banner exchange" in ssh("n000").stderr
    assert "  planted: n001=down, n000=stop\n" in lab(capsys, "status")
    assert lab(capsys, "heal", "n001") == "planted: n000=stop\n"
    assert lab(capsys, "heal") == "planted: nothing\n"
    assert [ssh(name).stdout for name in ("n000", "n001")] == ["there\n", "there\n"]
    pid = keeper()
    assert lab(capsys, "down") == "lab: removed\n"
    assert not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    assert list(labs_folder().iterdir()) == []
    assert "no lab is up" in lab(capsys, "status")


@pytest.mark.usefixtures("up")
def test_a_second_lab_of_the_same_name_is_refused_and_one_of_another_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert "a lab named lab is up already" in lab(capsys, "up", "--loopback", code=2)
    assert lab(capsys, "up", "--loopback", "--nodes", "1", "--name", "b").startswith("b: 1 node n000, ")
    assert re.findall(r"^\w+", lab(capsys, "status"), re.M) == ["b", "lab"]
    assert lab(capsys, "fault", "--name", "b", "n000=stop") == "planted: n000=stop\n", "options may come first"
    assert lab(capsys, "down", "--name", "b") == "b: removed\n"
    assert ssh("n000").stdout == "there\n"


@pytest.mark.usefixtures("up")
def test_what_is_left_of_a_killed_lab_is_removed(capsys: pytest.CaptureFixture[str]) -> None:
    pid = keeper()
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 20
    while StandingLab("lab").stands and time.monotonic() < end:
        time.sleep(0.02)
    assert "its process is gone; fabtui lab down --name lab removes what is left" in lab(capsys, "status")
    assert "there is no lab named lab" in lab(capsys, "fault", "n000=stop", code=2)
    assert lab(capsys, "up", "--loopback", "--nodes", "1").startswith("lab: 1 node n000, "), "in its place"
    os.kill(keeper(), signal.SIGKILL)
    assert lab(capsys, "down") == "lab: removed\n"
    assert list(labs_folder().iterdir()) == []


@pytest.mark.usefixtures("up")
def test_a_stopped_process_of_a_lab_is_killed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabtui.lab.lab._ENDED", 0.5)
    os.kill(keeper(), signal.SIGSTOP)
    assert lab(capsys, "down") == "lab: removed\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["down"], "there is no lab named lab"),
        (["heal"], "there is no lab named lab; fabtui lab up makes it"),
        (["fault"], "no fault given; fabtui lab fault --list"),
        (["status", "--name", "x"], "there is no lab named x"),
        (["up", "--name", "../x"], "--name: '../x' is not a name"),
        (["up", "--nodes", "0"], "--nodes: '0' is not a whole number from 1 to 64"),
        (["up", "--loopback", "--rails", "2"], "--rails needs network namespaces"),
        (["up", "n001"], "fabtui lab up takes no 'n001'"),
        (["down", "--nodes", "3"], "--nodes belongs to fabtui lab up"),
        (["heal", "--list"], "--list belongs to fabtui lab fault"),
    ],
)
def test_bad_usage_is_one_line(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert problem in lab(capsys, *words, code=2)
    assert not labs_folder().exists() or list(labs_folder().iterdir()) == []


def test_all_kinds_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    printed = lab(capsys, "fault", "--list")
    assert "  n003.eth1=slow-in:6MB     what the node receives is limited to this rate" in printed
    assert "  n000:1>n001:2=slow:10MB   the pair is limited to this rate" in printed
    assert [line.split()[0] for line in printed.splitlines() if "loopback" in line] == ["n002=stop", "n002=down"]
    table = [line.split("|") for line in Path("docs/lab.md").read_text().splitlines() if line.startswith("| `")]
    listed = [" ".join(line.split()) for line in printed.splitlines()[1:]]
    assert [" ".join(f"{row[1]} {row[2]} {row[3]}".replace("`", "").split()) for row in table] == listed
