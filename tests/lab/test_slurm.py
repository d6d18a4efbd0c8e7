"""Sessions inside and beside jobs of a real Slurm: nodes of jobs, srun as a transport, and what is left behind."""

import itertools
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.slurm_cluster import SlurmCluster, missing, read_json, short_folder

pytestmark = [pytest.mark.slurm, pytest.mark.skipif(missing() is not None, reason=f"no Slurm: {missing()}")]
QUICK = ("--probes", "p2p", "--layers", "world", "--bytes", "64k", "--iters", "4", "--warmup", "1")


@pytest.fixture(scope="module")
def started() -> Iterator[SlurmCluster]:
    folder = short_folder("slurm")
    with SlurmCluster(folder) as cluster:
        yield cluster
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cluster(started: SlurmCluster) -> Iterator[SlurmCluster]:
    yield started
    started.clear()


def first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""


def test_an_allocation_is_tested_without_any_option(cluster: SlurmCluster) -> None:
    ssh = ("--ssh-config", str(cluster.network.ssh_config))
    done = cluster.run("salloc", "-Q", "-N2", *cluster.fabtui("run", "--probes", "ping", *ssh), check=False)
    assert re.fullmatch(r"nodes of job \d+: n\[0-1\] \(squeue\)", first_line(done.stderr)), done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ping: 2 of 2 address pairs" in done.stdout


def test_a_batch_job_writes_a_clean_file(cluster: SlurmCluster) -> None:
    run = " ".join(cluster.fabtui("run", "--probes", "host", "--transport", "srun"))
    job = cluster.batch("-N2", script=run)
    cluster._until(lambda: cluster.state(job) not in ("PENDING", "RUNNING", "COMPLETING"), "the job")
    text = (cluster.folder / f"job-{job}.out").read_text()
    assert cluster.state(job) == "COMPLETED", text
    assert f"nodes of job {job}: n[0-1]" in text
    assert "\x1b" not in text


def test_a_heterogeneous_job_gives_the_nodes_of_all_groups(cluster: SlurmCluster) -> None:
    run = cluster.fabtui("run", "--probes", "host", "--transport", "srun")
    done = cluster.run("salloc", "-Q", "-N1", ":", "-N2", *run, check=False)
    assert re.match(r"nodes of job \d+: n0 \(group 0\), n\[\d-\d\] \(group 1\)", first_line(done.stderr)), done.stderr
    assert done.returncode == 0, done.stdout
    assert re.search(r"n\[0,\d-\d\]  ready|n\[0-2\]  ready", done.stdout), done.stdout


def nodes_of_steps(cluster: SlurmCluster) -> list[str]:
    lines = cluster.run("squeue", "--noheader", "--steps", "--format=%j %N", check=False).stdout.splitlines()
    return sorted(nodes for name, _, nodes in (line.partition(" ") for line in lines) if name == "fabtui")


def test_one_srun_starts_the_nodes_of_each_group_of_a_heterogeneous_job(cluster: SlurmCluster) -> None:
    run = (sys.executable, "-m", "tests.lab.job_steps", "--tree=on", "--hold=25", "current")
    with subprocess.Popen(
        cluster.words("salloc", "-Q", "-N2", ":", "-N2", *run),
        env=cluster.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        cluster._until(lambda: nodes_of_steps(cluster) == ["n[0-1]", "n[2-3]"], "the steps")
        cluster._until(lambda: all(cluster.processes(name) for name in cluster.names), "the node sides")
        cluster.run("scancel", "--user=root")
        process.wait(60)
    cluster._until(lambda: not any(cluster.processes(name) for name in cluster.names), "the end of the processes")


def test_nodes_behind_a_wrapper_have_a_step_each(cluster: SlurmCluster) -> None:
    job = cluster.job("-N2")
    run = cluster.fabtui("run", "--jobid", job, "--transport", "srun", "--probes", "host")
    done = cluster.run(*run, "--wrap", "env WRAPPED={node}", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "n[0-1]  ready" in done.stdout


def test_three_wrong_jobs_have_three_different_lines(cluster: SlurmCluster) -> None:
    held = cluster.job("-N4", "--exclusive")
    waiting = cluster.batch("-N4", "--exclusive")
    ended = cluster.batch("-N1")
    cluster.run("scancel", ended)
    expected = {
        waiting: rf"--jobid: job {waiting} waits \(\w+\); it has no nodes yet",
        ended: rf"--jobid: job {ended} has ended \(CANCELLED\)",
        "99999": "--jobid: Slurm knows no job 99999",
        "four": "--jobid: 'four' is not a job id",
    }
    for job, line in expected.items():
        done = cluster.run(*cluster.fabtui("run", "--jobid", job), check=False)
        assert done.returncode == 2
        assert re.search(line, done.stderr), done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert cluster.state(held) == "RUNNING"


def test_other_tasks_of_a_step_end_silently(cluster: SlurmCluster) -> None:
    run = cluster.fabtui("run", "--probes", "host", "--transport", "srun", "--quiet")
    done = cluster.run("srun", "-N2", "--ntasks=4", "--quiet", *run, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("nodes\n") == 1
    assert "n[0-1]  ready" in done.stdout


def test_a_full_session_runs_beside_a_step_that_holds_everything(cluster: SlurmCluster) -> None:
    job = cluster.job("-N4", "--exclusive", "--gres=gpu:4", script="srun --gres=gpu:4 sleep 600")
    cluster._until(lambda: cluster.steps(job) == ["sleep"], "the step of the job")
    path = cluster.folder / "full.json"
    run = cluster.fabtui("run", "--jobid", job, "--transport", "srun", "--json", str(path), *QUICK)
    done = cluster.run(*run, check=False)
    saved = read_json(path)
    assert {node["backend"] for node in saved["nodes"]} == {"srun"}, done.stdout + done.stderr
    cells = [m for m in saved["measurements"] if m["layer"] == "world"]
    assert len(cells) == 12
    assert all(m.get("error") is None for m in cells), cells
    assert cluster.steps(job) == ["sleep"]


def test_variables_of_srun_change_nothing(cluster: SlurmCluster) -> None:
    """Each of them alone would change what srun starts or prints."""
    variables = {"SLURM_LABELIO": "1", "SLURM_UNBUFFEREDIO": "1", "SLURM_NTASKS": "16"}
    variables |= {"SLURM_CPU_BIND": "none", "SLURM_NNODES": "3"}
    job = cluster.job("-N2")
    run = cluster.fabtui("run", "--jobid", job, "--transport", "srun", "--probes", "host")
    done = cluster.run(*run, check=False, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "n[0-1]  ready" in done.stdout


def test_nothing_is_left_after_a_kill(cluster: SlurmCluster) -> None:
    job = cluster.job("-N4")
    run = cluster.fabtui("run", "--jobid", job, "--transport", "srun", "--watch", "300", *QUICK)
    with subprocess.Popen(
        cluster.words(*run), env=cluster.environment(), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        cluster._until(lambda: cluster.steps(job).count("fabtui") == 4, "the steps")
        process.send_signal(signal.SIGKILL)
        process.wait()
    cluster._until(lambda: not cluster.steps(job), "the end of the steps")
    cluster._until(lambda: not any(cluster.processes(name) for name in cluster.names), "the end of the processes")


def test_a_cancelled_job_ends_the_session(cluster: SlurmCluster) -> None:
    job = cluster.job("-N2")
    run = cluster.fabtui("run", "--jobid", job, "--transport", "srun", "--watch", "300", *QUICK)
    with subprocess.Popen(
        cluster.words(*run),
        env=cluster.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        # In the middle of the sweep its pairs would be bad too.
        before = list(itertools.takewhile(lambda line: line != "watch\n", process.stdout))
        assert cluster.steps(job).count("fabtui") == 2
        cluster.run("scancel", job)
        output = "".join([*before, process.stdout.read()])
        process.wait(60)
    assert process.returncode == 3, output
    assert f"all nodes are lost: job {job} was cancelled" in output


def test_ssh_that_is_refused_falls_back_to_srun_with_one_notice(cluster: SlurmCluster) -> None:
    config = cluster.folder / "no_ssh"
    config.write_text("Host *\n HostName 127.0.0.1\n Port 9\n User nobody\n")
    job = cluster.job("-N3")
    run = cluster.fabtui("run", "--jobid", job, "--ssh-config", str(config), "--probes", "host")
    done = cluster.run(*run, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("srun is used for nodes that ssh does not reach") == 1, done.stderr
    assert "n[0-2]  ready" in done.stdout


def test_a_node_outside_the_job_is_refused(cluster: SlurmCluster) -> None:
    job = cluster.job("-N2")
    done = cluster.run(*cluster.fabtui("run", "--jobid", job, "--nodes", "n0,n3"), check=False)
    assert done.returncode == 2
    assert f"not of job {job}: n3; its nodes are n[0-1]" in done.stderr


async def test_an_assistant_names_a_job_in_place_of_nodes(cluster: SlurmCluster) -> None:
    assistant = pytest.importorskip("tests.wire.assistant")
    home = str(cluster.folder / "assistant")
    environ = cluster.environment(XDG_STATE_HOME=home, XDG_CONFIG_HOME=home)
    ended = cluster.batch("-N1", script="echo it; exit 3")
    line = " iteration 30/ 50 | elapsed time per iteration (ms): 140.6 | lm loss: 9.1E+00 |"
    job = cluster.job("-N2", "--nodelist=n[0-1]", script=f"echo '{line}'; sleep 600")
    other = cluster.job("-N1", "--nodelist=n3")
    options = ["--nodes", "n[0-2]", "--ssh-config", str(cluster.network.ssh_config), "--allow-tests"]
    options += ["--remote-python", sys.executable]
    short = {"probes": ["p2p"], "layers": ["p2p"], "bytes": "64K"}
    async with assistant.connected_to(cluster.words(*assistant.command(*options)), environ) as client:

        async def ask(tool: str, **arguments: Any) -> tuple[bool, dict[str, Any], str]:
            found = await client.call_tool(tool, arguments)
            return found.is_error, found.structured_content or {}, found.content[0].text

        _, found, text = await ask("job", jobid=job)
        assert (found["answer"], found["exit"]) == (f"Job {job} (RUNNING): healthy", 0), text
        assert found["examined"] == [f"log {cluster.folder}/job-{job}.out", "node n0", "node n1"]
        _, found, text = await ask("preflight", jobid=job)
        assert found["examined"][0].startswith("fabtui 0.2.0: 2 nodes, "), text
        _, found, text = await ask("run", jobid=job, **short)
        assert "p2p: 2 pairs: 2 ok" in found["examined"], text
        cluster._until(lambda: cluster.state(ended) == "FAILED", "the end of the job")
        _, found, text = await ask("job", jobid=ended)
        assert (found["exit"], "FAILED (NonZeroExitCode), exit code 3" in found["answer"]) == (1, True), text
        assert found["not_examined"] == ["its nodes: none was asked, as only those of a running job are"]
        for tool in ("job", "preflight", "run", "hang"):
            refused, _, text = await ask(tool, jobid=other)
            assert refused
            assert "'n3' not allowed" in text, (tool, text)
        refused, _, text = await ask("preflight", jobid=ended)
        assert refused
        assert f"jobid: job {ended} has ended (FAILED); to test its nodes without it: nodes 'n" in text
    cluster._until(lambda: not any(cluster.processes(name) for name in cluster.names), "the end of the node sides")


def test_states_reasons_and_leaves_of_slurm_are_in_the_session(cluster: SlurmCluster) -> None:
    job = cluster.job("-N4")
    reason = "IB link flaps, ticket 4711, seen three times this week"
    cluster.run("scontrol", "update", "NodeName=n2", "State=DRAIN", f"Reason={reason}")
    try:
        path = cluster.folder / "states.json"
        run = cluster.fabtui("run", "--jobid", job, "--transport", "srun", "--probes", "host", "--json", str(path))
        done = cluster.run(*run, check=False)
    finally:
        cluster.run("scontrol", "update", "NodeName=n2", "State=RESUME")
    assert f"draining in Slurm: {reason}  FT330\n      on n2\n" in done.stdout, done.stdout
    values = {node["name"]: node["looks"]["slurm"] for node in read_json(path)["nodes"]}
    assert [values[name]["leaf"] for name in cluster.names] == ["leaf1", "leaf1", "leaf2", "leaf2"]
    assert values["n2"]["reason"] == reason


@pytest.mark.parametrize(("more", "visible"), [((), "1,2"), (("--all-gpus",), None)])
def test_only_the_gpus_of_the_job_are_used_over_ssh(
    cluster: SlurmCluster, more: tuple[str, ...], visible: str | None
) -> None:
    # The first job takes GPU 0.
    cluster.job("-N1", "--nodelist=n0", "--gres=gpu:1")
    job = cluster.job("-N1", "--nodelist=n0", "--gres=gpu:2")
    path = cluster.folder / f"gpus-{len(more)}.json"
    ssh = ("--ssh-config", str(cluster.network.ssh_config), "--transport", "ssh")
    run = cluster.fabtui("run", "--jobid", job, *ssh, "--probes", "host,p2p", "--json", str(path), *more)
    cluster.run(*run, check=False)
    (node,) = read_json(path)["nodes"]
    assert node["backend"] == "asyncssh"
    assert node["inventory"]["env"].get("CUDA_VISIBLE_DEVICES") == visible


def steps(cluster: SlurmCluster, count: int, total: int) -> dict[str, Any]:
    """Open links over steps of a job, and have bytes echoed over the first."""
    job = cluster.job("-N4")
    options = (f"--steps={count}", f"--bytes={total}")
    words = (sys.executable, "-m", "tests.lab.job_steps", *options, job, *cluster.names)
    found: dict[str, Any] = json.loads(cluster.run(*words).stdout)
    return found


def test_large_frames_come_back_behind_a_long_prolog(cluster: SlurmCluster) -> None:
    banner = cluster.folder / "banner"
    banner.write_text("print a line of fifty-two bytes, as modules of a prolog do.\n" * 19_000)
    try:
        found = steps(cluster, 1, 20_000_000)
    finally:
        banner.unlink()
    assert (found["links"], found["refused"], found["wrong"]) == (1, [], [])
    assert re.search(r"\d{6} bytes left out", found["banner"]), found["banner"][:200]


def test_many_steps_start_at_once(cluster: SlurmCluster) -> None:
    found = steps(cluster, 32, 0)
    assert (found["links"], found["refused"]) == (32, [])
