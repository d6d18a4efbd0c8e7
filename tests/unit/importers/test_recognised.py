"""Every real output is recognised as what it is, and read without an exception, by the command as a whole."""

import json
from pathlib import Path

import pytest

from fabtui.importers import catalogue
from fabtui.importers.catalogue import formats, likelihoods, recognise
from fabtui.importers.formats.job_dumps import results_of
from fabtui.importers.result import read
from fabtui.importers.sources import sources
from fabtui.importers.to_model.dispatch import examined
from fabtui.report import imported_output
from fabtui.report.imported_output import text_of

from .places import SAMPLES, index, of_text, read_file

real = pytest.mark.skipif(not index(), reason="no real samples here (FABTUI_REAL_SAMPLES)")

#: The kind of each folder that is not called by it.
KINDS = {
    "dmesg-mlx5": "dmesg",
    "dmesg-pcie": "dmesg",
    "dmesg-xid": "dmesg",
    "nccl-debug-log": "nccl-log",
    "nvidia-smi-broken": "nvidia-smi",
    "nvidia-smi-nvlink-status": "nvidia-smi-nvlink-s",
    "slurm-scontrol": "scontrol",
    "slurm-sinfo": "sinfo",
    "slurm-squeue": "squeue",
    "torch-failure": "torch-log",
}
#: Folders of outputs that are not read.
NOT_READ = ("slurm-sacct", "slurmd-log")
#: Files whose contents do not identify them, and why.
UNTELLABLE = {
    "nvidia-smi-nvlink-status/a10-empty-output.txt": "the command printed nothing",
    "perfquery/empty-output-timeout.txt": "the command printed nothing",
}
#: Our own recordings: recognisable only with the command that was run, and why.
OURS_UNTELLABLE = {
    "h200x8/fabric.txt": "a complaint of nvidia-smi about its options",
    "ibsim/00_topology.net": "an input of the simulator",
    "ibsim/ibstat_l.txt": "bare names",
    "ibsim/ibstat_p.txt": "bare GUIDs",
    "ibsim/perfquery_clear.txt": "the command printed nothing",
    "pasted/22-imex-dcgm.txt": "one line of DCGM",
    "ping/fping-not-permitted.txt": "the command printed nothing",
    "pasted/21-srun-launch.txt": "errors of srun alone",
    "slurm/sacct.txt": "not read: sacct",
    "slurm/sacct_c_jobcomp.txt": "not read: sacct",
    "slurm/sbatch_too_many_nodes.txt": "the number of a job",
    "slurm/scontrol_listpids_n060.txt": "not read: processes",
    "slurm/scontrol_ping.txt": "not read: controllers",
    "slurm/scontrol_show_config_head.txt": "not read: the configuration",
    "slurm/scontrol_show_hostlist.txt": "bare names",
    "slurm/scontrol_show_hostnames.txt": "bare names",
    "slurm/sinfo.json": "not read: JSON",
    "slurm/squeue.json": "not read: JSON",
    "slurm/srun_fabtui_probe_in_job.txt": "output of the job",
    "slurm/srun_immediate_busy.txt": "output of the job",
    "slurm/srun_label.txt": "output of the job",
    "slurm/srun_no_overlap_busy.txt": "output of the job",
    "slurm/srun_overlap.txt": "output of the job",
    "slurm/srun_overlap_gres0.txt": "output of the job",
    "slurm/sstat.txt": "not read: sstat",
}


@real
@pytest.mark.parametrize("row", [row for row in index() if row["command"] not in NOT_READ], ids=lambda row: row["file"])
def test_a_real_output(row: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    result = read_file(row["file"])
    wanted = KINDS.get(row["command"], row["command"])
    assert wanted in formats()
    if row["file"] in UNTELLABLE:
        assert not result.known
        # The format can be named.
        assert read_file(row["file"], wanted).kind == wanted
    else:
        assert result.kind == wanted
    json.dumps(result.as_json(), allow_nan=False)
    # What is found does not depend on the width.
    found = examined(result)
    monkeypatch.setattr(imported_output, "examined", lambda _: found)
    for width in (40, 100, 10_000):
        text = text_of(result, width)
        assert text.endswith("\n")
        assert "\x1b" not in text


@real
def test_files_that_cannot_be_recognised_exist() -> None:
    assert set(UNTELLABLE) <= {row["file"] for row in index()}


#: Samples of a running job that a script of ours took (`.jsonl.gz`) are not the output of a tool.
OURS = sorted(
    str(path.relative_to(SAMPLES))
    for path in SAMPLES.rglob("*.*")
    # Reports are lines that people paste, and few of them outputs of a command.
    if path.suffix != ".md" and path.suffixes[-2:] != [".jsonl", ".gz"] and path.parent.name != "reports"
)


@pytest.mark.parametrize("name", OURS)
def test_an_output_of_ours(name: str) -> None:
    (source,) = sources([str(SAMPLES / name)])
    result = read(source._replace(name=name))
    assert result.known == (name not in OURS_UNTELLABLE), (result.kind, result.others)
    json.dumps(result.as_json(), allow_nan=False)
    assert text_of(result, 100).endswith("\n")


def test_what_is_wrong_with_a_recording_is_in_its_text() -> None:
    (source,) = sources([str(SAMPLES / "sessions" / "h200x4-lab-2x2.jsonl.gz")])
    result = read(source._replace(text=source.text[:-40]))
    assert text_of(result, 100).endswith("\n  the recording is cut off\n")
    (source,) = sources([str(SAMPLES / "sessions" / "job-h100x2-stopped.jsonl.gz")])
    assert "warnings" not in text_of(read(source), 100), "no measurement is what a job has"


def test_no_kind_is_listed_twice() -> None:
    assert len({name.lower() for name in formats()}) == len(formats())


RPM = "Name        : make\nEpoch       : 1\nVersion     : 3.82\nSize        : 1160684\n"


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n\n", "hello\n", "a,b,c\n1,2,3\n", "{}", "[]", "0 1 2\n3 4 5\n", "#!/bin/sh\nls\n", RPM),
        *("n060\nn061\n", "all work and no play\n" * 20, "rank 0: hello\n" * 8, "job 12 is done\n"),
    ],
)
def test_foreign_text_is_of_no_kind(text: str) -> None:
    result = of_text(text)
    assert not result.known
    assert result.values == {}
    assert result.as_json()["raw"] == text


def test_a_tie_is_no_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    both = formats()["ping"]._replace(name="gnip")
    monkeypatch.setattr("fabtui.importers.catalogue.formats", lambda: {"ping": formats()["ping"], "gnip": both})
    monkeypatch.setattr("fabtui.importers.catalogue._possible", catalogue._possible.__wrapped__)
    guess = recognise("PING a (192.0.2.1) 56(84) bytes of data.\n")
    assert guess.format is None
    assert guess.others == ["ping", "gnip"]


def test_formats_that_are_not_asked_would_say_no() -> None:
    """A text is shown only to the formats of which it may have a pattern."""
    for path in sorted(SAMPLES.rglob("*.txt"))[::8]:
        text = path.read_text(errors="replace")[:8000]
        every = {name: form.likely(text) for name, form in formats().items()}
        assert likelihoods(text) == {name: likely for name, likely in every.items() if likely}, path


def test_outputs_of_several_commands_in_one_paste(tmp_path: Path) -> None:
    """Each is read as what it is; two outputs of one kind stay one text."""
    topology = (SAMPLES / "h200x8/topo-m.txt").read_text()
    links = (SAMPLES / "h200x8/nvlink-s.txt").read_text()
    text = f"alice@n060:~$ nvidia-smi topo -m\n{topology}alice@n060:~$ nvidia-smi nvlink -s\n{links}"
    paste = tmp_path / "both.txt"
    paste.write_text(text)
    results = list(results_of([str(paste)]))
    assert [(one.kind, one.source.name) for one in results] == [
        ("nvidia-smi-topo-m", f"{paste} (1 of 2)"),
        ("nvidia-smi-nvlink-s", f"{paste} (2 of 2)"),
    ]
    assert results[1].values["links_total"] == 144
    paste.write_text(f"$ nvidia-smi nvlink -s\n{links}$ nvidia-smi nvlink -s\n{links}")
    assert [one.kind for one in results_of([str(paste)])] == ["nvidia-smi-nvlink-s"]
