"""``fabtui job`` on a real Slurm: planted faults are found while the job runs and after it, and nothing else."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.slurm_cluster import FABTUI, SlurmCluster, missing, short_folder

pytestmark = [pytest.mark.slurm, pytest.mark.skipif(missing() is not None, reason=f"no Slurm: {missing()}")]
DEADLINE = 100.0

#: A task of a training: settings, a sample of the GPUs each second (and 40 of before), iterations by the last rank.
TASK = """\
D=$1 N=$SLURMD_NODENAME R=$SLURM_PROCID FAULTY=$2
G=64 K=$R MASTER=MASTER_NODE BUSY="97 % | 14020 / 22731 MB | me(13980M)"
if [ $FAULTY = yes ]; then
  MASTER=MASTER_WRONG
  [ $N = n3 ] && G=32
  [ $N = n2 ] && K=1 BUSY=" 0 % |     0 / 22731 MB |"
fi
sample() { echo "$N  $(LC_ALL=C date -d "-$1 seconds" '+%a %b %e %H:%M:%S %Y')  535.54"
  for g in 0 1 2 3; do echo "[$g] NVIDIA A10       | 61'C, $BUSY"; done; }
for s in $(seq 40 -1 1); do sample $s; done > $D/$N.gpu
( while [ ! -e $D/stop ]; do sample 0; sleep 1; done >> $D/$N.gpu ) &
printf '%s\\n' "NODE_RANK: $K" "MASTER_ADDR: $MASTER" "NNODES: 4" "WORLD_SIZE: 16" "GLOBAL_BATCH_SIZE: $G" \\
  "TENSOR_MP_SIZE: 1" "DP_SIZE: 4" "PIPELINE_MP_SIZE: 4" "PARTITION: 12-12-12-12" "NUM_LAYERS: 48" "MODEL: xl"
echo "  warnings.warn(" >&2
if [ $R = 3 ]; then for i in 10 20 30; do
  echo " iteration $i/ 50 | elapsed time per iteration (ms): $((i == 10 ? 454 : 140 + i)).6 | lm loss: 9.1E+00 |"
done; fi
if [ $FAULTY = yes ] && [ $N = n1 ]; then
  echo "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution" >&2
  kill -KILL $$
fi
while [ ! -e $D/stop ]; do sleep 0.2; done
wait
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    folder = short_folder("sjob")
    with SlurmCluster(folder) as started:
        yield started
    shutil.rmtree(folder, ignore_errors=True)


def start(cluster: SlurmCluster, *, faulty: bool) -> tuple[str, Path]:
    """Start a training on all nodes; return the job and the folder of its logs."""
    first = cluster.network.login_address(cluster.names[0])
    wrong = first.rpartition(".")[0] + ".200"
    task = cluster.folder / f"task-{faulty}.sh"
    task.write_text(TASK.replace("MASTER_NODE", first).replace("MASTER_WRONG", wrong))
    logs = f"{cluster.folder}/$SLURM_JOB_ID"
    command = f"mkdir {logs}; srun -o {logs}/%N.out -e {logs}/%N.err bash {task} {logs} {'yes' if faulty else 'no'}"
    job = cluster.job("-N4", "--ntasks-per-node=1", script=command)
    return job, cluster.folder / job


def report(cluster: SlurmCluster, job: str, *more: str) -> tuple[int, dict[str, Any]]:
    words = [word for word in cluster.fabtui("job", job, "--json", *more) if word != "--no-record"]
    done = cluster.run(*words, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def until(cluster: SlurmCluster, job: str, rules: set[str], *more: str) -> dict[str, Any]:
    end = time.monotonic() + DEADLINE
    while True:
        code, found = report(cluster, job, *more)
        if {one["rule"] for one in found["findings"]} >= rules:
            assert code == 1
            return found
        assert time.monotonic() < end, rules - {one["rule"] for one in found["findings"]}
        time.sleep(1)


def test_nothing_is_wrong_with_a_healthy_job_while_it_runs_and_after_it(cluster: SlurmCluster) -> None:
    job, logs = start(cluster, faulty=False)
    # %N is the name of the host, which ends in that of the node.
    cluster._until(lambda: any("30/" in path.read_text() for path in logs.glob("*n3.out")), "the logs")
    code, found = report(cluster, job)
    assert (code, found["verdict"], found["findings"], found["unread"]) == (0, "healthy", [], [])
    assert [(node["node"], len(node["gpus"]), node["iteration"]) for node in found["by_node"]] == [
        ("n0", 4, None), ("n1", 4, None), ("n2", 4, None), ("n3", 4, "30/50")
    ]  # fmt: skip
    assert found["iterations"]["median"] == pytest.approx(0.1656)
    assert found["iterations"]["warm_up"]["iteration"] == 10
    # Without files of the GPUs the nodes are asked; they have none of NVIDIA's, and a rank each.
    code, asked = report(cluster, job, "--transport", "srun", "--logs", f"{logs}/{{node}}.out")
    assert (code, asked["findings"], [node["ranks"] for node in asked["by_node"]]) == (0, [], [1, 1, 1, 1]), asked
    (logs / "stop").touch()
    cluster._until(lambda: cluster.state(job) == "COMPLETED", "the end of the job")
    code, found = report(cluster, job)
    assert (code, found["verdict"], found["findings"]) == (0, "ended", [])


def test_each_planted_fault_is_found_while_the_job_runs_and_after_it(cluster: SlurmCluster) -> None:
    job, _ = start(cluster, faulty=True)
    faults = {"J02", "J03", "J04", "J06", "J08", "J11", "J12"}
    found = until(cluster, job, faults, "--idle", "2")
    assert found["verdict"] == "hangs"
    texts = {one["rule"]: one["text"] for one in found["findings"]}
    assert {one["rule"] for one in found["findings"]} == faults
    assert texts["J02"] == "task 1 on n1 has ended: Killed"
    assert texts["J03"].startswith("n2: 0 of 4 GPUs are busy for ")
    assert texts["J04"].startswith("n1: RuntimeError: CUDA error: uncorrectable NVLink error")
    assert texts["J06"] == "GLOBAL_BATCH_SIZE differs between nodes: 32 on n3, 64 on n[0-2]"
    assert texts["J08"] == "NODE_RANK 1 is given to 2 nodes: n[1-2]"
    assert texts["J11"].endswith(".200 is not an address of the job's nodes")
    assert texts["J12"].startswith("no output from any node for ")
    # The same files without Slurm, as a shell expands them.
    files = sorted(str(path) for path in (cluster.folder / job).iterdir())
    argv = [sys.executable, "-m", "fabtui", "job", "--once", "--no-links", "--json", "--logs", *files]
    environ = {**os.environ, "PATH": "/nonexistent"}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False)
    alone = {one["rule"]: one["text"] for one in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1
    assert re.match(r"n2: 0 of 4 GPUs are busy for .* while other nodes compute", alone["J03"]), alone
    # Slurm has the end of a job in whole seconds: the silence before it is to be longer than its limit by more.
    time.sleep(2)
    cluster.run("scancel", job)
    cluster._until(lambda: cluster.state(job) == "CANCELLED", "the end of the job")
    found = until(cluster, job, {"J01", *faults}, "--idle", "2")
    ended = {one["rule"]: one["text"] for one in found["findings"]}
    assert found["verdict"] == "failed"
    assert ended.keys() == {"J01", *faults}
    assert [ended[rule] for rule in ("J02", "J04", "J06", "J08", "J11")] == [
        texts[rule] for rule in ("J02", "J04", "J06", "J08", "J11")
    ]
    assert ended["J01"] == "it was cancelled"
    assert "before the end" in ended["J12"]


#: Tasks of a job with several faults: one has no log, one other GPUs, and two have failed in July.
TRIAL = """\
D=$1 R=$SLURM_PROCID
CUDA_VISIBLE_DEVICES=0,1,2,3
[ $R = 1 ] && CUDA_VISIBLE_DEVICES=0,1
echo "CUDA_VISIBLE_DEVICES: $CUDA_VISIBLE_DEVICES"
[ $R = 3 ] && for i in 61 62 63 64 65 66; do
  echo " iteration $i/ 500 | elapsed time per iteration (ms): 3140.6 | lm loss: 9.1E+00 |"
done
[ $R = 0 ] && echo "[rank0]:[E704 12:00:09.5 ProcessGroupNCCL.cpp:616] CUDA error: invalid argument" >&2
[ $R = 3 ] && echo "[rank3]:[E704 12:00:05.5 ProcessGroupNCCL.cpp:616] CUDA error: invalid device" >&2
# A shell that starts one short program after the other has no process of a rank between two of them.
exec python3 -c "import os, time
while not os.path.exists('$D/stop'): time.sleep(0.1)"
"""


def has(cluster: SlurmCluster, path: Path, text: str) -> None:
    cluster._until(lambda: path.exists() and text in path.read_text(), f"{text} in {path}")


def text_of(cluster: SlurmCluster, *words: str) -> tuple[int, str]:
    """Return the exit code of ``fabtui job`` and its text with single blanks."""
    done = cluster.run(*(word for word in cluster.fabtui("job", *words) if word != "--no-record"), check=False)
    return done.returncode, " ".join(f"{done.stdout} {done.stderr}".split())


def test_a_task_without_a_log_other_gpus_stamps_of_july_and_a_requeue(cluster: SlurmCluster) -> None:
    """Several faults of one job, each of which a field trial had missed."""
    (cluster.folder / "trial.sh").write_text(TRIAL)
    logs = f"{cluster.folder}/$SLURM_JOB_ID"
    # A folder has the name of the log of task 2, which cannot be opened.
    script = f"mkdir -p {logs}/n2.out"
    script += f"; srun -o {logs}/%N.out -e {logs}/%N.err bash {cluster.folder}/trial.sh {logs}"
    job = cluster.job("-N4", "--ntasks-per-node=1", "--requeue", script=script)
    folder = cluster.folder / job
    batch = cluster.folder / f"job-{job}.out"
    has(cluster, batch, "launch failed")
    has(cluster, folder / "n3.out", " 66/")
    # The logs as a shell expands them; what srun printed is in the output of the batch script.
    files = [str(path) for path in sorted(folder.iterdir())]
    code, found = report(cluster, job, "--transport", "srun", "--logs", *files)
    texts = {one["rule"]: one["text"] for one in found["findings"]}
    assert (code, found["verdict"]) == (1, "suspect"), found
    assert texts == {
        "J02": "task 2 on n2 has not started: Slurmd could not connect IO",
        "J04": "n3: [E704 12:00:05.5 ProcessGroupNCCL.cpp:616] CUDA error: invalid device; n0 also has errors, later:"
        " probably a consequence",
        "J06": "CUDA_VISIBLE_DEVICES differs between nodes: 0,1 on n1, 0,1,2,3 on n[0,3]",
    }
    assert [(node["node"], node["state"], node["ranks"]) for node in found["by_node"]] == [
        ("n0", "ok", 1), ("n1", "suspect", 1), ("n2", "suspect", 0), ("n3", "suspect", 1)
    ]  # fmt: skip
    cluster.run("scontrol", "requeue", job)
    cluster._until(lambda: cluster.state(job) == "PENDING", "the requeue")
    code, found = report(cluster, job, "--logs", str(folder), str(batch))
    (requeued,) = [one["text"] for one in found["findings"] if one["rule"] == "J01"]
    assert (code, found["verdict"]) == (0, "waiting")
    when = r"it was requeued at \d\d:\d\d:\d\d after iteration 66 \(restart 1\): job requeue; it waits: PENDING"
    assert re.match(when, requeued), requeued
    # The output of the batch script is of no node.
    assert [node["node"] for node in found["by_node"]] == ["n0", "n1", "n3"]
    assert next(log["node"] for log in found["logs"] if log["path"] == str(batch)) is None
    cluster.run("scancel", job)


def test_a_job_that_ends_while_it_is_watched_leaves_nothing_unread(cluster: SlurmCluster) -> None:
    """The node side is a step of the job, which Slurm kills with it; a killed task is explained by its log."""
    logs = f"{cluster.folder}/$SLURM_JOB_ID"
    task = f"echo it; [ $SLURM_PROCID = 1 ] && kill -KILL $$; while [ ! -e {logs}/stop ]; do sleep 0.2; done"
    script = f"mkdir {logs}; srun -o {logs}/%N.out -e {logs}/%N.err bash -c '{task}'; sleep 1"
    job = cluster.job("-N4", "--ntasks-per-node=1", script=script)
    batch = cluster.folder / f"job-{job}.out"
    has(cluster, batch, "task 1: Killed")
    words = [word for word in cluster.fabtui("job", job, "--follow", "--transport", "srun") if word != "--no-record"]
    output = cluster.folder / "follow.txt"
    with output.open("w") as file:
        watching = subprocess.Popen(cluster.words(*words), env=cluster.environment(), stdout=file, stderr=file)
    try:
        has(cluster, output, "stderr  ")
        (cluster.folder / job / "stop").touch()
        assert watching.wait(DEADLINE) == 1
    finally:
        watching.kill()
    text = output.read_text()
    assert text.startswith(f"job {job}  suspect  RUNNING")
    assert "J02 task 1 on n1 has ended: Killed" in text
    assert "COMPLETED: " in text.splitlines()[-1]
    assert "could not be read" not in text
    assert "signal 9" not in text
    done = cluster.run(*FABTUI, "explain", str(batch), check=False)
    assert (done.returncode, "E38 ranks-killed" in done.stdout) == (0, True), done.stdout


def test_a_task_that_takes_more_memory_than_the_job_may(cluster: SlurmCluster) -> None:
    """Slurm kills it, and the step with it. The state OUT_OF_MEMORY needs a kernel that limits memory by cgroups."""
    logs = f"{cluster.folder}/$SLURM_JOB_ID"
    code = "x = bytes([1]) * (600 << 20); import time; time.sleep(60)"
    task = f'[ $SLURM_PROCID = 1 ] && exec {sys.executable} -c "{code}"; sleep 60'
    (cluster.folder / "memory.sh").write_text(task)
    script = f"mkdir {logs}; srun -o {logs}/%N.out -e {logs}/%N.err bash {cluster.folder}/memory.sh"
    job = cluster.job("-N2", "--ntasks-per-node=1", "--mem=200M", script=script)
    cluster._until(lambda: cluster.state(job) in ("FAILED", "OUT_OF_MEMORY"), "the end of the job")
    code_, found = report(cluster, job, "--logs", *(str(path) for path in sorted((cluster.folder / job).iterdir())))
    texts = {one["rule"]: one["text"] for one in found["findings"]}
    assert (code_, found["verdict"]) == (1, "failed")
    assert re.match(r"n1: slurmstepd-\S*n1: error: StepId=\S+ exceeded memory limit \(\d+ > 209715200\)", texts["J04"])
    path = next((cluster.folder / job).glob("*n1.err"))
    done = cluster.run(*FABTUI, "explain", str(path), check=False)
    assert (done.returncode, "E51 host-out-of-memory" in done.stdout) == (0, True), done.stdout


#: A rank that works for as long as its first argument; all wait for the slowest.
RANK = """\
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
at, numbers = 0, torch.ones(1024)
while not os.path.exists(sys.argv[2]):
    began = time.monotonic()
    while time.monotonic() < began + float(sys.argv[1]):
        sum(range(2000))
    dist.all_reduce(numbers)
    at += 1
    if dist.get_rank() == 0:
        spent = (time.monotonic() - began) * 1000
        print(f" iteration {at:8d}/ 100000 | elapsed time per iteration (ms): {spent:.1f} | lm loss: 1.0 |", flush=True)
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_rank_that_is_slow_since_the_start_is_named_by_what_the_ranks_do(cluster: SlurmCluster) -> None:
    """Logs have nothing to compare with; processor time does. The end of the job leaves nothing unread."""
    (cluster.folder / "rank.py").write_text(RANK)
    stop, logs = cluster.folder / "stop-ranks", f"{cluster.folder}/$SLURM_JOB_ID"
    (cluster.folder / "rank.sh").write_text(
        # Ranks whose peer has left first may abort.
        "ulimit -c 0\n"
        "export RANK=$SLURM_PROCID WORLD_SIZE=4 MASTER_PORT=29511 GLOO_SOCKET_IFNAME=mgmt0 OMP_NUM_THREADS=1"
        f" MASTER_ADDR={cluster.network.login_address('n0')}\n"
        f"exec {sys.executable} {cluster.folder}/rank.py $([ $RANK = 2 ] && echo 0.6 || echo 0.02) {stop}\n"
    )
    script = f"mkdir {logs}; srun -o {logs}/%N.out -e {logs}/%N.err bash {cluster.folder}/rank.sh"
    job = cluster.job("-N4", "--ntasks-per-node=1", script=script)
    cluster._until(
        lambda: " iteration " in "".join(p.read_text() for p in cluster.folder.glob(f"{job}/n0.out")), "ranks"
    )
    output = cluster.folder / "hang.txt"
    words = cluster.fabtui("hang", job, "--wait", "--transport", "srun")
    with output.open("w") as file:
        argv = cluster.words(*(word for word in words if word != "--no-record"))
        waiting = subprocess.Popen(argv, env=cluster.environment(), stdout=file, stderr=file)
    try:
        has(cluster, output, f"job {job} on n[0-3] (4 ranks) is slow: rank 2 on n2:0 makes the others wait")
        # The report has it as well.
        code, text = text_of(cluster, job, "--once", "--transport", "srun")
        assert (code, "is slow: rank 2 on n2:0 makes the others wait" in text) == (1, True), text
        stop.touch()
        waiting.wait(DEADLINE)
    finally:
        waiting.kill()
    assert "could not be read" not in output.read_text()
