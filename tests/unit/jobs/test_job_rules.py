from pathlib import Path
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import Evidence, diagnose
from fabtui.diagnosis.finding import Domain, Finding, rules_of
from fabtui.diagnosis.job.logs.job_rules import report_of
from fabtui.diagnosis.job.logs.report import JobFacts, NodeFacts
from fabtui.presentation.findings import as_json
from fabtui.scheduler.slurm import JobStatus

from .job_texts import NODES, facts_of, gpustat, healthy, iteration, logs_of, part, settings


def findings(facts: JobFacts) -> list[Finding]:
    return list(report_of(facts).findings)


def test_every_rule_is_in_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "jobs.md").read_text()
    assert [rule.id for rule in rules_of(Domain.JOBS) if rule.id not in text] == []


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_nothing_is_wrong_with_a_healthy_job(state: str) -> None:
    report = report_of(facts_of(healthy(), state))
    assert report.findings == ()
    assert (report.verdict, report.exit_code) == ("healthy" if state == "RUNNING" else "ended", 0)
    assert [(row.state, row.iteration, row.sample.busy if row.sample else None) for row in report.rows] == [
        ("ok", "", 4), ("ok", "", 4), ("ok", "", 4), ("ok", "40/50", 4)
    ]  # fmt: skip


CUDA = "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution\n"
TIMEOUT = (
    "[rank0]:[E ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)\n"
)
KILLED = "srun: error: n061: task 1: Killed\nsrun: Job step aborted\nsrun: error: n[060,062-063]: tasks 0,2-3: Killed\n"

FAULTS = [
    ({"n062_gpu": gpustat("n062", 40, busy=False)}, "J03", "n062: 0 of 4 GPUs are busy for 0:", ("n062",)),
    ({"n061_err": CUDA, "n060_err": TIMEOUT}, "J04", f"n061: {CUDA.strip()}; n060 also has errors", ("n061",)),
    ({"12.sbatch.out": KILLED}, "J02", "task 1 on n061 has ended: Killed", ("n061",)),
    ({"12.sbatch.out": "srun: error: task 2 launch failed: Slurmd could not connect IO\n"}, "J02",
     "task 2 has not started: Slurmd could not connect IO", ()),
    ({"12.sbatch.out": "srun: error: Task launch for StepId=12.0 failed on node n061: Invalid job credential\n"}, "J02",
     "a task on n061 has not started: Invalid job credential", ("n061",)),
    ({"n063_out": settings(3) + iteration(10, 900, "nan", 2)}, "J05", "iteration 10: loss nan", ()),
    ({"n062_out": settings(2, GLOBAL_BATCH_SIZE="32")}, "J06",
     "GLOBAL_BATCH_SIZE differs between nodes: 32 on n062, 64 on n[060-061,063]", ("n062",)),
    ({"n062_out": settings(1)}, "J08", "NODE_RANK 1 is given to 2 nodes: n[061-062]", ("n061", "n062")),
    ({f"{node}_out": settings(rank + 1) for rank, node in enumerate(NODES)}, "J08",
     "NODE_RANK 0 of 4 is given to no node", ()),
    ({f"{node}_out": settings(rank, MASTER_ADDR="192.0.2.70") for rank, node in enumerate(NODES)}, "J11",
     "MASTER_ADDR 192.0.2.70 is n070, which is not in the job", ()),
    ({f"{node}_out": settings(rank, MASTER_ADDR="192.0.2.9") for rank, node in enumerate(NODES)}, "J11",
     "MASTER_ADDR 192.0.2.9 is not an address of the job's nodes", ()),
]  # fmt: skip


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
@pytest.mark.parametrize(("files", "rule", "text", "nodes"), FAULTS)
def test_each_fault_is_found_alone_while_the_job_runs_and_after_it(
    files: dict[str, str], rule: str, text: str, nodes: tuple[str, ...], state: str
) -> None:
    report = report_of(facts_of(healthy(**files), state))
    (found,) = report.findings
    assert found.rule.id == rule in {one.id for one in rules_of(Domain.JOBS)}
    assert found.facts["text"].startswith(text[: text.find("0:") if rule == "J03" else None])
    assert found.nodes == nodes
    assert (report.verdict, report.exit_code) == ("suspect", 1)
    assert found.next


DEVICES = "CUDA_VISIBLE_DEVICES"
PER_RANK = "".join(f"{DEVICES}={rank}\n" for rank in range(4))
FAULTS += [
    ({f"{node}_out": settings(rank, **{DEVICES: "0" if rank == 2 else "0,1"}) for rank, node in enumerate(NODES)},
     "J06", "CUDA_VISIBLE_DEVICES differs between nodes: 0 on n062, 0,1 on n[060-061,063]", ("n062",)),
    # Each rank has a GPU of its own, and on one node two have the same.
    ({f"{node}_out": settings(rank) + (PER_RANK if rank else PER_RANK.replace("=3", "=2"))
      for rank, node in enumerate(NODES)}, "J06",
     "CUDA_VISIBLE_DEVICES differs between nodes: 0 and 1 and 2 on n060, 0 and 1 and 2 and 3 on n[061-063]", ("n060",)),
    ({f"{node}_out": settings(rank) + f"NCCL_IB_HCA: {'mlx5_1' if rank == 1 else 'mlx5_0'}\n"
      for rank, node in enumerate(NODES)}, "J06",
     "NCCL_IB_HCA differs between nodes: mlx5_1 on n061, mlx5_0 on n[060,062-063]", ("n061",)),
]  # fmt: skip

HARMLESS = [
    {"n061_err": "  0%|    | 0/50\r 10%|█   | 5/50 [00:07<01:03,  1.41s/it]\rError rate 0\n0 errors, 3 warnings\n"},
    {"n061_err": "torch/x.py:3: FutureWarning: RuntimeError: will be raised\n***\nOMP_NUM_THREADS: error\n"},
    {"12.sbatch.out": "srun: Job step aborted: Waiting\nsrun: error: n[060-063]: tasks 0-3: Killed\n"},
    {"n061_err": "slurmstepd: error: *** STEP 12.0 ON n061 CANCELLED AT 2026-11-22T02:00:00 ***\nValueError: x\n"},
    # The samples of a node whose gpustat has died end before the others compute.
    {"n062_gpu": gpustat("n062", 5, busy=False)},
    # Another interface of a node than the one that Slurm knows.
    {f"{node}_out": settings(rank, MASTER_ADDR="198.51.100.7") for rank, node in enumerate(NODES)},
    {f"{node}_out": settings(rank, MASTER_PORT=str(rank)) + f"HOST_NAME: {node}\n" for rank, node in enumerate(NODES)},
    # What is of a rank or a node by intention.
    {f"{node}_out": settings(rank) + f"NCCL_DEBUG_FILE: /l/{node}\nNCCL_HOSTID={rank}\nRANK: {rank}\n" + PER_RANK
     for rank, node in enumerate(NODES)},
]  # fmt: skip


@pytest.mark.parametrize("files", HARMLESS)
def test_what_resembles_a_fault_is_none(files: dict[str, str]) -> None:
    assert findings(facts_of(healthy(**files))) == []


@pytest.mark.parametrize(
    ("state", "more", "text"),
    [
        ("RUNNING", {"idle": 0.5}, "no output from any node for 1 s (limit"),
        ("FAILED", {"idle": 100.0, "ended": 1400.0}, "the last output was 6:40 before the end (limit 1:40)"),
    ],
)
def test_silence_is_found_while_the_job_runs_and_after_it(state: str, more: dict[str, Any], text: str) -> None:
    files = healthy(n063_out=settings(3))
    found = [one for one in findings(facts_of(files, state, **more)) if one.rule.id == "J12"]
    assert [one.facts["text"][: len(text)] for one in found] == [text]
    assert found[0].facts.get("hangs") is (True if state == "RUNNING" else None)
    # Five printed iterations of 14 s each are waited for, even if --idle is shorter.
    assert state != "RUNNING" or not findings(facts_of(healthy(), idle=0.5))
    assert not findings(facts_of(files, "SUSPENDED", idle=0.5))


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: *** STEP 12.0 ON n061 CANCELLED AT 2026-11-22T02:00:00 ***\n",
        "srun: forcing job termination\n",
        "Terminated\n",
        "/home/ann/train.sh: line 31:  4711 Killed                  python train.py\n",
    ],
)
def test_what_slurm_and_shells_write_when_a_job_is_ended_is_no_output_of_it(line: str) -> None:
    facts = facts_of(healthy(n063_out=settings(3)), "CANCELLED", idle=100.0, ended=1400.0)
    assert {one.rule.id for one in findings(facts)} == {"J01", "J12"}
    facts.logs.take("", [part("/logs/n061.err2", line, modified=1400.0)], 1401.0)
    assert "J12" in {one.rule.id for one in findings(facts)}
    facts.logs.take("", [part("/logs/n062.err2", "iteration 50\n", modified=1400.0)], 1401.0)
    assert "J12" not in {one.rule.id for one in findings(facts)}


def test_idle_gpus_on_all_nodes_count_after_the_warm_up() -> None:
    files = healthy(**{f"{node}_gpu": gpustat(node, 40, busy=False) for node in NODES})
    assert not findings(facts_of(files, elapsed=300.0))
    report = report_of(facts_of(files))
    assert [one.facts["text"] for one in report.findings] == ["no GPU of the job is busy on any of 4 nodes"]
    assert report.verdict == "hangs"


def test_the_last_sample_of_a_node_counts_without_slurm() -> None:
    """The ends of the files, as a monitor of a job prints them, have one sample of each node and no clock."""
    files = {f"{node}.gpu": gpustat(node, 1, busy=node != "n062", dated=False) for node in NODES}
    facts = JobFacts(JobStatus(""), logs_of(files), when=1001.0)
    (found,) = findings(facts)
    assert (found.rule.id, found.nodes) == ("J03", ("n062",))
    assert found.facts["text"] == "n062: 0 of 4 GPUs are busy in its last sample; all others are busy"
    # One GPU of another node is idle too: between two iterations that is so for moments.
    files["n061.gpu"] = files["n061.gpu"].replace("97 % | 14020 / 22731 MB | me(13980M)", "0 % |     0 / 22731 MB |", 1)
    assert not findings(JobFacts(JobStatus(""), logs_of(files), when=1001.0))
    # A scheduler's job is watched for longer than a moment.
    files = {f"{node}.gpu": gpustat(node, 1, busy=node != "n062", dated=False) for node in NODES}
    assert "J03" not in {one.rule.id for one in findings(facts_of(files))}


def test_files_that_show_nothing_of_a_job_are_not_healthy() -> None:
    report = report_of(JobFacts(JobStatus(""), logs_of({"dpkg.log": "2026-09-01 status installed\n"}), when=1001.0))
    assert (report.verdict, report.exit_code) == ("unknown", 3)
    assert report.unread == ("the state of the job: its logs have no iteration, no sample of GPUs and no error",)
    report = report_of(JobFacts(JobStatus(""), logs_of(healthy()), when=1001.0))
    assert (report.verdict, report.unread) == ("healthy", ())


def test_a_node_without_a_rank_is_found_once_the_others_have_some() -> None:
    nodes = {node: NodeFacts(((rank, "S"),), 1) for rank, node in enumerate(NODES)}
    nodes["n062"] = NodeFacts((), 0)
    (found,) = findings(facts_of(healthy(), nodes=nodes))
    assert (found.rule.id, found.facts["text"]) == ("J02", "no rank runs on n062; other nodes have one")
    # The line of srun about it has more.
    killed = {"12.sbatch.out": "srun: error: n062: task 2: Exited with exit code 1\n"}
    (found,) = findings(facts_of(healthy(**killed), nodes=nodes))
    assert found.facts["text"] == "task 2 on n062 has ended: Exited with exit code 1"
    # srun does not name the node of a task that it could not start.
    unstarted = {"12.sbatch.out": "srun: error: task 2 launch failed: Slurmd could not connect IO\n"}
    (found,) = findings(facts_of(healthy(**unstarted), nodes=nodes))
    assert (found.nodes, found.next) == (("n062",), ("fabtui explain /logs/12.sbatch.out",))
    assert not findings(facts_of(healthy(), nodes=nodes, elapsed=30.0))
    assert not findings(facts_of(healthy(), nodes={node: NodeFacts((), 0) for node in NODES}))
    rows = report_of(facts_of(healthy(), nodes=nodes, elapsed=30.0)).rows
    assert [row.state for row in rows] == ["ok", "ok", "no ranks", "ok"]


def test_a_rank_that_is_gone_is_found_by_its_node() -> None:
    nodes = {node: NodeFacts(((rank, "S"),), 1) for rank, node in enumerate(NODES)}
    nodes["n061"] = NodeFacts(((1, "S"),), 2, fewer_since=995.0)
    assert not findings(facts_of(healthy(), nodes=nodes))
    nodes["n061"] = NodeFacts(((1, "S"),), 2, fewer_since=990.0)
    (found,) = findings(facts_of(healthy(), nodes=nodes))
    assert (found.rule.id, found.facts["text"]) == ("J02", "1 rank of 2 on n061 is gone")


@pytest.mark.parametrize(
    ("status", "verdict", "code", "text"),
    [
        (JobStatus("12", "PENDING", "Resources"), "waiting", 0, "it has not started: PENDING (Resources)"),
        (JobStatus("12", "FAILED", "NonZeroExitCode", exit_code="1:0"), "failed", 1,
         "it has ended: FAILED (NonZeroExitCode), exit code 1"),
        (JobStatus("12", "NODE_FAIL", down={"n061": "down*: gpu 3 fell off the bus"}), "failed", 1, "it lost a node"),
        (JobStatus("12", "OUT_OF_MEMORY", "OutOfMemory", exit_code="0:125"), "failed", 1,
         "it ran out of memory: the kernel killed one of its processes at its memory limit (OutOfMemory)"),
        (JobStatus("12", "TIMEOUT"), "failed", 1, "it reached its time limit"),
        (JobStatus("12", "CANCELLED"), "failed", 1, "it was cancelled"),
        (JobStatus("12", "CANCELLED", exit_code="143:0"), "failed", 1, "it was cancelled"),
        (JobStatus("12", "CANCELLED", exit_code="0:15"), "failed", 1, "it was cancelled"),
        (JobStatus("12", problem="Slurm knows no job 12"), "unknown", 3, ""),
    ],
)  # fmt: skip
def test_the_state_of_the_job_is_a_finding(status: JobStatus, verdict: str, code: int, text: str) -> None:
    facts = facts_of({})
    report = report_of(facts.__class__(status, logs_of({})), [status.problem] if status.problem else [])
    assert (report.verdict, report.exit_code) == (verdict, code)
    assert [one.facts["text"] for one in report.findings] == ([text] if text else [])


def test_the_cause_comes_before_an_earlier_consequence_and_by_time() -> None:
    late = "2026-11-22 12:00:09 ValueError: first\n"
    early = "2026-11-22 12:00:05,120 CUDA error: device kernel image is invalid\n"
    (found,) = findings(facts_of(healthy(n061_err=late, n062_err=early)))
    assert found.nodes == ("n062",)
    assert found.facts["text"].endswith("; n061 also has errors, later: probably a consequence")
    # Without a time nothing is claimed about the order.
    (found,) = findings(facts_of(healthy(n060_err=TIMEOUT, n061_err=late, n062_err=early)))
    assert found.facts["text"].endswith("; n[060-061] also have errors")


def test_stamps_of_pytorch_order_the_errors_of_nodes() -> None:
    """PyTorch prints the month without a leading zero: three digits until September."""
    early = "[rank2]:[E704 12:00:05.5 ProcessGroupNCCL.cpp:1] CUDA error: device kernel image is invalid\n"
    late = "[rank1]:[E704 12:00:09.5 ProcessGroupNCCL.cpp:1] CUDA error: invalid argument\n"
    (found,) = findings(facts_of(healthy(n061_err=late, n062_err=early)))
    assert found.nodes == ("n062",)
    assert found.facts["text"].endswith("; n061 also has errors, later: probably a consequence")


def test_lines_of_one_log_for_all_nodes_are_separated() -> None:
    labelled = "".join(f"{rank}: {line}\n" for rank in range(4) for line in settings(rank).splitlines())
    plain = [settings(rank).splitlines() for rank in range(4)]
    interleaved = "".join(f"{line}\n" for lines in zip(*plain, strict=True) for line in lines)
    for text in (labelled, interleaved):
        assert findings(facts_of({"slurm-12.out": text})) == []
        (found,) = findings(facts_of({"slurm-12.out": text.replace("NODE_RANK: 2", "NODE_RANK: 1")}))
        assert found.rule.id == "J08"
    logs = logs_of({})
    logs.take("", [part("/logs/slurm-12.out", interleaved)], 1.0)
    assert logs.files["", "/logs/slurm-12.out"].node == ""


def test_gpus_of_ranks_in_one_log_for_all_nodes() -> None:
    """Each task of a node has a GPU of its own, and as many tasks have each."""
    tasks = [f"{task}: {DEVICES}={task % 4}\n" for task in range(8)]
    assert findings(facts_of({"slurm-12.out": "".join(tasks)})) == []
    tasks[7] = f"7: {DEVICES}=2\n"
    (found,) = findings(facts_of({"slurm-12.out": "".join(tasks)}))
    assert found.facts["text"].startswith(
        "CUDA_VISIBLE_DEVICES differs between ranks: 3 on task 3, 0 on task 0, task 4"
    )


def test_findings_about_jobs_are_diagnosed_like_all_others() -> None:
    facts = facts_of(healthy(n061_err=CUDA))
    (found,) = diagnose(Evidence(job=facts)).findings
    written = as_json(found)
    assert (written["id"], written["rule"], written["severity"]) == ("J04", "log-errors", "bad")
    assert written["title"] == f"n061: {CUDA.strip()}"
    assert written["evidence"][0].startswith("means: E113, an access to the memory of another GPU over NVLink failed")
    assert written["evidence"][1:] == [f"/logs/n061.err: {CUDA.strip()}"]
    assert written["next"] == ["fabtui explain /logs/n061.err"]
