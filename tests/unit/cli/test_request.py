import os
import shlex
import stat
from pathlib import Path
from shlex import quote

import pytest

from fabtui.cli.options_from_args import Request, request_from
from fabtui.cli.parser import build_parser
from fabtui.errors import InputError
from fabtui.paths import history_file, recording_name, user_probe_folder
from fabtui.session.acknowledgement_file import AcknowledgementFile
from fabtui.session.options import SessionOptions
from fabtui_node.registry import DEFAULT
from tests.unit.mistakes import mistakes


def asked(*argv: str) -> Request:
    return request_from(build_parser(argv).parse_args(argv))


def test_without_options_everything_is_as_the_session_has_it(tmp_path: Path) -> None:
    request = asked("--nodes", "n1,n2", "--no-record")
    assert request == Request(SessionOptions(hosts=("n1", "n2"), probe_folder=user_probe_folder()), {})


def test_all_options_reach_the_session(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.touch()
    record, csv = tmp_path / "r.jsonl.gz", tmp_path / "s.csv"
    table = tmp_path / "t.csv"
    words = "--nodes n[1-3] --exclude n2 --probes p2p,ping,all_reduce --bytes 64M --timeout 5 --iters 3 --warmup 0 \
        --lease 4 --force --transport openssh --host-key-policy strict --remote-python /opt/py --ranks-per-node 2 \
        --connect-timeout 7 --env NCCL_DEBUG=INFO --env A= --layers p2p --mode sampled --isolated --bidirectional \
        --collectives alltoall,all_reduce --sizes 1M-4M --ab NCCL_ALGO=Ring,Tree --engine nccl --keep-warm"
    files = {"--ssh-config": config, "--record": record, "--csv": csv, "--table": table}
    request = asked("run", *words.split(), *(str(word) for pair in files.items() for word in pair))
    options = request.options
    assert request.outputs == {"csv": csv, "table": table}
    assert options == SessionOptions(
        hosts=("n1", "n3"),
        probes=("ping", "p2p", "all_reduce"),
        bytes=64 << 20,
        timeout=5,
        iters=3,
        warmup=0,
        lease=4,
        force=True,
        transport="openssh",
        ssh_config=config,
        host_key_policy="strict",
        remote_python="/opt/py",
        ranks_per_node=2,
        connect_timeout=7,
        env={"NCCL_DEBUG": "INFO", "A": ""},
        record=record,
        history=history_file(),
        layers=("p2p",),
        mode="sampled",
        isolated=True,
        both=True,
        collectives=("all_reduce", "alltoall"),
        collective_sizes=(1 << 20, 2 << 20, 4 << 20),
        compare=("NCCL_ALGO", ("Ring", "Tree")),
        engine="nccl",
        keep_warm=True,
        probe_folder=user_probe_folder(),
    )
    assert list(tmp_path.iterdir()) == [config], "nothing but the check may touch the folder"


def test_the_recording_goes_into_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    record = asked("--nodes", "n1,n2,n3").options.record
    assert record is not None
    assert record.parent == tmp_path / "state" / "fabtui" / "recordings"
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
    assert record.name.endswith("-n1-n2-and-1-more.jsonl.gz")
    second = asked("--nodes", "n1,n2,n3").options.record
    assert second not in (None, record), "the first one has its name already"
    assert [path.stat().st_size for path in (record, second) if path] == [0, 0]


@pytest.mark.parametrize("planted", ["open", "owner", "link"])
def test_a_state_folder_that_others_can_change_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], planted: str
) -> None:
    """Others could plant notes in it that hide findings, and remove recordings."""
    if planted != "open" and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    state, folder, elsewhere = tmp_path / "state", tmp_path / "state" / "fabtui", tmp_path / "elsewhere"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    elsewhere.mkdir(mode=0o755)
    state.mkdir()
    folder.symlink_to(elsewhere) if planted == "link" else folder.mkdir()
    notes = folder / "acknowledged" / "lab.json"
    notes.parent.mkdir(mode=0o700)
    notes.write_text('{"format": 1, "notes": {"FT001": {"note": "known"}}}')
    assert [event.finding for event in AcknowledgementFile(notes).read()[0]] == ["FT001"]
    if planted == "open":
        state.chmod(0o777)
        mend = f"others may write to {state}; chmod go-w {quote(str(state))}"
    else:
        os.chown(folder, 65534, -1, follow_symlinks=False)
        command = "rm" if planted == "link" else "chown 0"
        mend = f"{folder} belongs to another user (uid 65534); {command} {quote(str(folder))}"
    assert asked("--nodes", "n1").options.record is None
    assert capsys.readouterr().err == f"fabtui: this session is not recorded: {mend}, or use --record FILE\n"
    found, problem = AcknowledgementFile(notes).read()
    # A line about a long path is cut.
    assert problem is not None
    assert f"notes about known findings cannot be read from {notes}: {mend}".startswith(problem.rstrip("…"))
    assert found == []
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755
    assert asked("--nodes", "n1", "--record", str(tmp_path / "r.jsonl.gz")).options.record


def test_folders_above_the_state_folder_are_private_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a" / "state"))
    before = os.umask(0)
    try:
        record = asked("--nodes", "n1").options.record
    finally:
        os.umask(before)
    assert record is not None
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in list(record.parents)[:4]} == {0o700}


def test_in_a_job_its_nodes_are_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-3]")
    options = asked("--exclude", "n2").options
    assert options.hosts == ("n0", "n1", "n3")
    assert options.origin.startswith("nodes of job 12: n[0-3]")
    assert (options.transport, options.fallback) == ("ssh", "srun")
    assert options.placements["n3"] == ("--jobid=12", "--nodelist=n3")
    assert asked("--transport", "srun").options.fallback == ""
    assert asked("--nodes", "n9").options.placements == {}, "a node of no job is reached by ssh alone"
    with pytest.raises(InputError, match="no nodes given; use --nodes"):
        asked("--no-job")


def test_recording_names_are_plain() -> None:
    assert recording_name(["../../etc/x y", "b"], 0.0) == "19700101T000000Z-.._.._etc_x_y-b.jsonl.gz"


def test_local_alone_means_this_host() -> None:
    options = asked("--transport", "local", "--no-record").options
    assert len(options.hosts) == 1


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        *mistakes("options"),
        (
            shlex.join(["--nodes", "a", "--bytes", ",".join(f"{n}M" for n in range(1, 20))]),
            "--bytes: more than 8 sizes",
        ),
        (
            shlex.join(["--nodes", "a", "--groups", ",".join(map(str, range(2, 40)))]),
            "--groups: 38 numbers; at most 32",
        ),
    ],
)
def test_mistakes_are_reported_in_one_line(argv: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        asked(*shlex.split(argv))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("lab", ["0x4", "2x0", "x", "2x4x", "9999x9999", ""])
def test_labs_that_cannot_be_are_reported(lab: str) -> None:
    with pytest.raises(InputError, match=r"^--lab: "):
        asked("--lab", lab)


@pytest.mark.parametrize("fault", ["n000:1", "n000:1>n001:2=explode", "n000:1>n009:2=drop", "n000:1>n001:9=drop", ""])
def test_faults_that_cannot_be_made_are_reported(fault: str) -> None:
    with pytest.raises(InputError, match=r"^--lab-fault: "):
        asked("--lab", "2x4", "--lab-fault", fault)


def test_a_secret_is_not_in_the_error() -> None:
    with pytest.raises(InputError) as caught:
        asked("--nodes", "a", "--env", "my-token=hunter2")
    assert "hunter2" not in str(caught.value)


def test_two_outputs_do_not_share_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    with pytest.raises(InputError, match="both name"):
        asked("--nodes", "a", "--csv", path, "--json", path)
    with pytest.raises(InputError, match="--csv and --table both name"):
        asked("--nodes", "a", "--csv", path, "--table", path)


def test_a_recording_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    path.write_text("precious")
    with pytest.raises(InputError, match="not overwritten"):
        asked("--nodes", "a", "--record", str(path))
    assert path.read_text() == "precious"


def test_probes_run_in_their_order() -> None:
    assert asked("--nodes", "a", "--no-record", "--probes", ",".join(reversed(DEFAULT))).options.probes == DEFAULT


def test_one_size_is_no_sweep_and_several_are_ascending() -> None:
    one = asked("--nodes", "a", "--no-record", "--bytes", "8M").options
    assert (one.bytes, one.sizes) == (8 << 20, ())
    several = asked("--nodes", "a", "--no-record", "--bytes", "256M,8M,64M").options
    assert (several.bytes, several.sizes) == (256 << 20, (8 << 20, 64 << 20, 256 << 20))


def test_all_collectives_are_all_there_are() -> None:
    options = asked("--nodes", "a", "--no-record", "--collectives", "all", "--sizes", "8-1G:4").options
    assert options.collectives == ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")
    assert options.collective_sizes == tuple(8 * 4**n for n in range(14))


@pytest.mark.parametrize("option", ["mode", "engine"])
def test_a_choice_that_is_none_is_one_line(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        asked("--nodes", "a", f"--{option}", "mpi")
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_options_of_perftest_begin_with_a_dash() -> None:
    for words in (["--perftest-args", "-q4 --mtu 4096 -F"], ["--perftest-args=-q4 --mtu=4096 -F"]):
        options = asked("--nodes", "a", "--probes", "perftest", *words).options
        assert options.perftest_options == ("-q", "4", "-m", "4096", "-F")
