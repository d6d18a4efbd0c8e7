"""Nodes of jobs from the environment and from the commands of schedulers."""

from pathlib import Path

import pytest

from fabtui.errors import InputError
from fabtui.scheduler import slurm
from fabtui.scheduler.base import ask
from fabtui.scheduler.current_job import current_job, pods
from fabtui.scheduler.slurm import node_values

from .conftest import Fake


def test_no_job_gives_no_nodes(fake: Fake) -> None:
    assert current_job({}) is None
    # A batch system that is not Slurm may use this name.
    assert current_job({"SLURM_JOB_ID": "interactive"}) is None


def test_the_job_is_asked_of_slurm(fake: Fake) -> None:
    fake("squeue", "echo '12|RUNNING|None|n[060-061]'")
    found = current_job({"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n060"})
    assert found is not None
    assert found.nodes == ("n060", "n061")
    assert found.placements["n061"] == ("--jobid=12", "--nodelist=n061")
    assert found.describe() == "nodes of job 12: n[060-061] (squeue)"


def test_the_environment_is_used_where_slurm_does_not_answer(fake: Fake) -> None:
    found = current_job({"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[060-061]"})
    assert found is not None
    assert found.nodes == ("n060", "n061")
    assert "squeue does not answer" in found.describe()


def test_a_step_on_several_nodes_works_on_these(fake: Fake) -> None:
    fake("squeue", "echo '12|RUNNING|None|n[060-063]'")
    step = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3", "SLURM_STEP_NODELIST": "n[061-062]"}
    found = current_job(step)
    assert found is not None
    assert found.nodes == ("n061", "n062")
    assert found.title == "step 12.3"
    # A shell on one node of the job is not a choice of nodes.
    alone = current_job({**step, "SLURM_STEP_NODELIST": "n061"})
    assert alone is not None
    assert len(alone.nodes) == 4


def test_a_heterogeneous_job_has_groups(fake: Fake) -> None:
    fake("squeue", "echo '12+0|RUNNING|None|n060'; echo '12+1|RUNNING|None|n[062-063]'")
    found = slurm.allocation_of(["12"], "--jobid")
    assert found.nodes == ("n060", "n062", "n063")
    assert found.placements["n063"] == ("--jobid=12", "--het-group=1", "--relative=1")
    assert found.describe() == "nodes of job 12: n060 (group 0), n[062-063] (group 1) (squeue)"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("9|PENDING|Resources|", "job 9 waits (Resources); it has no nodes yet"),
        ("9|COMPLETED|None|n060", "job 9 has ended (COMPLETED); to test its nodes without it: --no-job --nodes 'n060'"),
        ("9|TIMEOUT|TimeLimit|", "job 9 has ended (TIMEOUT)"),
        ("slurm_load_jobs error: nonsense", "Slurm knows no job 9"),
    ],
)
def test_jobs_without_nodes_have_a_reason(fake: Fake, line: str, expected: str) -> None:
    fake("squeue", f"echo '{line}'")
    with pytest.raises(InputError) as raised:
        slurm.allocation_of(["9"], "--jobid")
    assert expected in str(raised.value)


def test_a_job_that_squeue_forgot_is_asked_of_the_accounting(fake: Fake) -> None:
    fake("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    fake("sacct", "echo 'COMPLETED|2026-11-22T03:04:05|n[060-061]'")
    with pytest.raises(InputError, match=r"job 9 has ended \(COMPLETED, 2026-11-22T03:04:05\).*n\[060-061\]"):
        slurm.allocation_of(["9"], "--jobid")


def test_a_controller_that_does_not_answer_is_named(fake: Fake) -> None:
    fake("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1")
    with pytest.raises(InputError, match=r"squeue does not report the nodes of job 9: .*Unable to contact"):
        slurm.allocation_of(["9"], "--jobid")


@pytest.mark.parametrize("text", ["", "9;reboot", "n060", "9,,10", "-9", "9" * 20])
def test_what_is_no_job_id_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a job id"):
        slurm.job_ids(text, "--jobid")


def test_the_end_of_a_job_is_worded(fake: Fake) -> None:
    fake("squeue", "echo '9|CANCELLED|None|n060'")
    assert slurm.ending_of("9") == "job 9 was cancelled"
    fake("squeue", "echo '9|RUNNING|None|n060'")
    assert slurm.ending_of("9") == ""


FLUX = """case "$*" in
"jobs --no-header --format={nodelist} f2kVqjbZ3") echo 'n[060-061]' ;;
"getattr hostlist") echo 'n[060-061]' ;;
*) echo "unexpected: $*" >&2; exit 1 ;;
esac"""
#: By source the environment as the scheduler sets it; FILE is a file with the text.
OTHERS: dict[str, tuple[dict[str, str], str]] = {
    # A line per slot, two processes on each chunk.
    "PBS_NODEFILE": (
        {"PBS_JOBID": "7[3].pbs.example", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_NODEFILE": "FILE"},
        "n060\nn060\nn061\nn061\n",
    ),
    "LSB_DJOB_HOSTFILE": (
        {
            "LSB_JOBID": "7",
            "LSB_DJOB_HOSTFILE": "FILE",
            "LSB_MCPU_HOSTS": "other 8",
            "LSB_HOSTS": "n060 n060 n061",
        },
        "n060\nn060\nn061\n",
    ),
    "LSB_MCPU_HOSTS": ({"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "n060 8 n061 8 "}, ""),
    "PE_HOSTFILE": (
        {"JOB_ID": "7", "NSLOTS": "16", "PE": "mpi", "PE_HOSTFILE": "FILE"},
        "n060 8 gpu.q@n060 UNDEFINED\nn061 8 gpu.q@n061 <NULL>\n",
    ),
    "FLUX_JOB_ID": ({"FLUX_JOB_ID": "f2kVqjbZ3", "FLUX_URI": "local:///run/flux/local"}, ""),
    "FLUX_URI": ({"FLUX_URI": "local:///tmp/flux-8Sk3Qz/local-0"}, ""),
    "COBALT_NODEFILE": ({"COBALT_JOBID": "7", "COBALT_NODEFILE": "FILE"}, "n060\nn061\n"),
}


@pytest.mark.parametrize("source", OTHERS)
def test_node_files_and_lists_of_other_schedulers(fake: Fake, tmp_path: Path, source: str) -> None:
    fake("flux", FLUX)
    given, text = OTHERS[source]
    (tmp_path / "nodes").write_text(text)
    found = current_job({name: value.replace("FILE", str(tmp_path / "nodes")) for name, value in given.items()})
    assert found is not None
    assert (found.nodes, found.source) == (("n060", "n061"), source)


def test_a_node_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the node file of the job cannot be read"):
        current_job({"PBS_NODEFILE": str(tmp_path / "gone")})


def test_names_that_are_options_or_files_are_refused(tmp_path: Path) -> None:
    hostile = tmp_path / "nodes"
    hostile.write_text("-oProxyCommand=reboot\n")
    with pytest.raises(InputError):
        current_job({"PBS_NODEFILE": str(hostile)})


def test_pods_that_run_are_nodes(fake: Fake) -> None:
    fake("kubectl", "echo 'llm-0|Running|n060'; echo 'llm-1|Running|n061'; echo 'llm-2|Pending|'")
    found = pods("train/job-name=llm", "--pods")
    assert found.allocation.nodes == ("llm-0", "llm-1")
    assert "llm-0 on n060" in found.allocation.describe()
    assert found.via == "kubectl exec -i --namespace=train {node} --"


def test_pods_that_do_not_run_are_named(fake: Fake) -> None:
    fake("kubectl", "echo 'llm-2|Pending|'")
    with pytest.raises(InputError, match=r"no pod runs in train with job-name=llm \(llm-2 is Pending\)"):
        pods("train/job-name=llm", "--pods")
    fake("kubectl", "echo 'Error from server (Forbidden): pods is forbidden' >&2; exit 1")
    with pytest.raises(InputError, match="kubectl does not list the pods: Error from server"):
        pods("train/job-name=llm", "--pods")
    with pytest.raises(InputError, match="expected NAMESPACE/SELECTOR"):
        pods("train", "--pods")


def test_a_command_that_hangs_has_a_deadline(fake: Fake) -> None:
    fake("squeue", "exec sleep 60")
    assert ask(["squeue"], deadline=0.2).problem == "squeue did not answer within 0.2 s"
    assert ask(["fabtui-no-such-tool"]).missing


def test_states_and_leaves_of_nodes(fake: Fake) -> None:
    fake("sinfo", "echo 'n060|idle|gpu:h200:8|none'; echo 'n061|drained*|gpu:h200:8|IB link flaps, ticket 4711 | a'")
    fake(
        "scontrol",
        "echo 'SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n060'\n"
        "echo 'SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n061'",
    )
    found = node_values(["n061.cluster.example", "n060", "n999"])
    assert found["n060"] == {"state": "idle", "responds": True, "gres": "gpu:h200:8", "leaf": "leaf1"}
    assert found["n061.cluster.example"]["state"] == "drained"
    assert found["n061.cluster.example"]["reason"] == "IB link flaps, ticket 4711 | a"
    assert not found["n061.cluster.example"]["responds"]
    assert "n999" not in found


def test_one_switch_for_all_is_no_leaf(fake: Fake) -> None:
    fake("sinfo", "echo 'n060|idle|(null)|none'; echo 'n061|idle|(null)|none'")
    fake("scontrol", "echo 'SwitchName=flat Level=0 LinkSpeed=1 Nodes=n[060-061]'")
    assert node_values(["n060"]) == {"n060": {"state": "idle", "responds": True}}
    fake("sinfo", "echo 'sinfo: error: no configuration' >&2; exit 1")
    assert node_values(["n060"]) == {}
