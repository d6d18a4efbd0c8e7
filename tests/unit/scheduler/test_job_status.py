import time

import pytest

from fabtui.scheduler.slurm import JobStatus, node_addresses, status_of
from fabtui.scheduler.slurm_text import known_pairs, pairs

from .conftest import Fake

DETAILS = (
    "JobId=12 JobName=a b UserId=me(1000) JobState=FAILED Reason=NonZeroExitCode RunTime=00:01:02 TimeLimit=UNLIMITED"
    " EndTime=2026-11-22T02:00:00 NodeList=n[0-1] ExitCode=1:9 StdErr=/l/12.err StdIn=/dev/null StdOut=/l/12.out"
)


def test_a_running_job_is_asked_of_squeue_and_its_files_of_scontrol_once(fake: Fake) -> None:
    fake("squeue", "echo '12|RUNNING|None|n[0-1]|1-02:03:04|UNLIMITED|me|a|b'")
    fake("scontrol", f"echo '{DETAILS.replace('FAILED', 'RUNNING')}'")
    found = status_of("12")
    assert (found.stage, found.nodes, found.name, found.reason) == ("running", ("n0", "n1"), "a|b", "")
    assert (found.elapsed, found.limit) == (93784.0, None)
    assert found.outputs == ("/l/12.out", "/l/12.err")
    assert found.placements["n1"] == ("--jobid=12", "--nodelist=n1")
    assert found.number == "12"
    assert found.letters == {"j": "12", "A": "12", "u": "me", "x": "a|b"}
    fake("scontrol", "echo asked >&2; exit 1")
    assert status_of("12", found) == found


def test_a_heterogeneous_job_runs_while_one_of_its_components_does(fake: Fake) -> None:
    fake("squeue", "echo '12+0|COMPLETED|None|n0|1:00|2:00|me|x'; echo '12+1|RUNNING|None|n[1-2]|1:00|2:00|me|x'")
    found = status_of("12")
    assert (found.state, found.nodes) == ("RUNNING", ("n0", "n1", "n2"))
    assert found.placements["n2"] == ("--jobid=12", "--het-group=1", "--relative=1")


def test_an_ended_job_has_its_exit_code_and_the_nodes_that_are_down(fake: Fake) -> None:
    fake("squeue", "exit 1")
    fake("scontrol", f"[ $2 = show ] && [ $3 = job ] && echo '{DETAILS}'")
    fake("sinfo", "echo 'n0|idle|(null)|none'; echo 'n1|down*|(null)|gpu 3 fell off the bus'; echo 'n2|down|x|y'")
    found = status_of("12")
    assert (found.stage, found.state, found.exit_code, found.name) == ("ended", "FAILED", "1:9", "a b")
    assert found.down == {"n1": "down: gpu 3 fell off the bus"}
    assert found.ended == time.mktime((2026, 11, 22, 2, 0, 0, 0, 0, -1))


def test_a_job_that_scontrol_has_forgotten_is_asked_of_sacct(fake: Fake) -> None:
    fake("squeue", "exit 1")
    fake("scontrol", "exit 1")
    fake("sacct", "echo 'CANCELLED by 0|0:15|2026-11-22T02:00:00|n[0-1]|00:10:00|me|x|y'")
    found = status_of("12")
    assert (found.state, found.nodes, found.elapsed) == ("CANCELLED", ("n0", "n1"), 600.0)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", "Slurm knows no job 12"),
        ("echo 'Unable to contact slurm controller' >&2; exit 1", "Unable to contact slurm controller"),
        ("echo nonsense", "Slurm knows no job 12"),
    ],
)
def test_an_unknown_job_has_its_reason(fake: Fake, script: str, text: str) -> None:
    fake("squeue", script)
    fake("scontrol", "exit 1")
    found = status_of("12")
    assert found.stage == "unknown"
    assert found.problem.startswith(text)


def test_a_waiting_job_has_its_reason_and_addresses_come_from_sinfo(fake: Fake) -> None:
    fake("squeue", "echo '12|PENDING|Resources||0:00|1:00:00|me|x'")
    fake("scontrol", "exit 1")
    assert status_of("12") == JobStatus("12", "PENDING", "Resources", (), "", "x", "me", 0.0, 3600.0)
    fake("sinfo", "echo 'n0|192.0.2.1'; echo 'n1|'")
    assert node_addresses() == {"n0": "192.0.2.1"}


def test_the_file_names_of_an_array_task_have_its_own_number(fake: Fake) -> None:
    fake("squeue", "echo '12_3|RUNNING|None|n0|1:00|2:00|me|x'")
    fake("scontrol", "echo 'JobId=15 ArrayJobId=12 ArrayTaskId=3 StdOut=/l/12_3.out'")
    assert status_of("12_3").letters == {"j": "15", "A": "12", "a": "3", "u": "me", "x": "x"}


def test_a_requeued_job_has_the_time_and_the_number_of_its_restarts(fake: Fake) -> None:
    """Slurm 22.05 prints these fields after `scontrol requeue`."""
    fake("squeue", "echo '12|PENDING|BeginTime||0:00|1:00:00|me|x'")
    details = (
        "JobId=12 JobName=x UserId=me(1000) JobState=PENDING Reason=BeginTime Dependency=(null) Requeue=1 Restarts=1"
        " SubmitTime=2026-11-26T04:09:37 StartTime=2026-11-26T04:11:38 StdErr=/l/12.out StdOut=/l/12.out"
    )
    fake("scontrol", f"echo '{details}'")
    found = status_of("12")
    assert (found.restarts, found.requeued, found.begins) == (
        1, time.mktime((2026, 11, 26, 4, 9, 37, 0, 0, -1)), time.mktime((2026, 11, 26, 4, 11, 38, 0, 0, -1))
    )  # fmt: skip
    # It is asked again once it runs: a job may be requeued while it is watched.
    fake("squeue", "echo '12|RUNNING|None|n[0-1]|0:01|1:00:00|me|x'")
    fake("scontrol", f"echo '{details.replace('Restarts=1', 'Restarts=2').replace('PENDING', 'RUNNING')}'")
    found = status_of("12", found)
    assert (found.stage, found.restarts, found.begins) == ("running", 2, None)


def test_a_value_extends_to_the_next_name_which_begins_with_a_capital() -> None:
    line = "JobId=7 JobName=train lr=0.1 steps=9 NumNodes=2 TresPerNode=gres/gpu:8 MCS_label=N/A"
    assert pairs(line) == {
        "JobId": "7",
        "JobName": "train lr=0.1 steps=9",
        "NumNodes": "2",
        "TresPerNode": "gres/gpu:8",
        "MCS_label": "N/A",
    }


def test_what_is_free_text_is_the_rest_of_its_line() -> None:
    assert pairs("   Reason=Not responding State=x [root@2026-11-27T01:00:00]") == {
        "Reason": "Not responding State=x [root@2026-11-27T01:00:00]"
    }
    assert pairs("no pairs at all") == {}


def test_values_that_slurm_does_not_know_are_left_out() -> None:
    assert known_pairs("A=(null) B=N/A C=n/a D=n/s E=Unknown F= G=0") == {"G": "0"}
