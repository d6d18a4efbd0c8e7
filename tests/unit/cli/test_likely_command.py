"""Words that begin with no command: files, jobs of Slurm and nodes."""

import shutil
from pathlib import Path

import pytest

from fabtui.cli.likely_command import likely_command
from fabtui.cli.main import main
from fabtui.config.options import DEMO
from fabtui.errors import InputError
from fabtui.nodeset import group_names
from fabtui.paths import shipped_recordings_folder
from fabtui.transport.ssh_hosts import host_patterns

RECORDING = shipped_recordings_folder() / f"{DEMO}.jsonl.gz"
LOG = "n060:1:1 [0] NCCL INFO cudaDriverVersion 12080\nn060:1:1 [0] NCCL WARN Call to connect failed: timed out\n" * 3
SSH_CONFIG = "Host n0* gpu7\n  HostName 127.0.0.1\nInclude more\nHost !bad *\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with files of several kinds, which is the home folder too, and a Slurm that knows job 4711."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copy(RECORDING, tmp_path / "session.jsonl.gz")
    (tmp_path / "logs").mkdir()
    for name in ("nccl.log", "logs/rank0.log"):
        (tmp_path / name).write_text(LOG)
    main(["replay", "session.jsonl.gz", "--text", "--csv", "pairs.csv"])
    capsys.readouterr()
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text(SSH_CONFIG)
    (tmp_path / ".ssh/more").write_text('Host "login"\nhost=x9\n')
    squeue = tmp_path / "bin" / "squeue"
    squeue.parent.mkdir()
    squeue.write_text('#!/bin/sh\ncase "$*" in *4711*) echo "4711|RUNNING|None|n060|2:14|1:00:00|me|train" ;; esac\n')
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{squeue.parent}:/usr/bin:/bin")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected", "asks"),
    [
        (["session.jsonl.gz", "--speed", "max"], ["replay", "session.jsonl.gz", "--speed", "max"], False),
        (["nccl.log"], ["explain", "nccl.log"], False),
        (["nccl.log", "logs"], ["explain", "nccl.log", "logs"], False),
        (["logs"], ["explain", "logs"], False),
        (["-"], ["explain", "-"], False),
        (["pairs.csv"], ["read", "pairs.csv"], False),
        (["4711"], ["job", "4711"], False),
        (["n060,n061", "--mode", "quick"], ["--nodes", "n060,n061", "--mode", "quick"], True),
        (["n060", "gpu7"], ["--nodes", "n060,gpu7"], True),
        (["n[060-067]"], ["--nodes", "n[060-067]"], True),
    ],
)
def test_words_lead_to_what_is_likely(place: Path, words: list[str], expected: list[str], asks: bool) -> None:
    found = likely_command(words, 0)
    assert (found.words, found.asks) == (expected, asks)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["4712"], "4712"),
        (["session.jsonl.gz", "session.jsonl.gz"], "did you mean fabtui diff session.jsonl.gz session.jsonl.gz?"),
        (["session.jsonl.gz", "nccl.log"], "did you mean fabtui replay session.jsonl.gz?"),
        (["nccl.log", "no.log"], "cannot read no.log"),
        (["replya"], "did you mean replay?"),
        (["FT012"], "did you mean fabtui explain FT012?"),
        (["x.invalid"], "no host x.invalid is known here"),
    ],
)
def test_other_words_are_one_line(place: Path, words: list[str], text: str) -> None:
    with pytest.raises(InputError) as raised:
        likely_command(words, 0)
    assert text in str(raised.value)


def test_hosts_are_those_of_the_ssh_configuration_and_what_it_includes(place: Path) -> None:
    assert host_patterns() == ["n0*", "gpu7", "login", "x9"]
    assert host_patterns(place / "none") == []
    assert isinstance(group_names(), list)
