"""Command lines, environment and errors of srun and other launchers."""

import re
import shlex
from pathlib import Path

import pytest

from fabtui.config import values
from fabtui.errors import InputError
from fabtui.nodeset import check_name
from fabtui.transport.byte_pipe import Ending
from fabtui.transport.connector import Connector, ConnectorOptions
from fabtui.transport.launcher import SRUN, VIA, explain_with, srun_environment, srun_words, via_words
from fabtui.transport.registry import command_on_node
from fabtui.transport.starters import STARTERS, StartCall


def test_srun_gets_placement_options_and_command() -> None:
    words = srun_words(("--jobid=12", "--nodelist=n060"), ["/bin/sh", "-c", "true"], 9.6)
    assert words[:3] == ["srun", "--jobid=12", "--nodelist=n060"]
    assert {"--overlap", "--input=0", "--mpi=none", "--immediate=10"} <= set(words)
    assert words[-4:] == ["--", "/bin/sh", "-c", "true"]


CALL = StartCall(["n1", "n3"], ["/bin/sh", "-c", 'exec "x"'], "secret 1 2 a", "00ff00ff", 9.6, ("--jobid=12",))


@pytest.mark.parametrize(
    ("name", "call", "words"),
    [
        ("srun", CALL, "srun --jobid=12 --nodelist=n[1,3] --nodes=2 --ntasks=2 --ntasks-per-node=1 --input=none"),
        ("flux", CALL._replace(brokers={"n1": 4, "n3": 2}), "flux exec --rank=2,4 --noinput --label-io --dir=/"),
        ("flux", CALL, "flux run --nodes=2 --ntasks=2 --requires=hosts:n[1,3] --label-io --setopt=exit-timeout=none"),
        ("mpirun", CALL, "mpirun --host n1,n3 --map-by ppr:1:node --bind-to none -x FABTUI_CALL_BACK"),
        ("kubernetes", CALL, "kubectl create --filename=-"),
    ],
)
def test_one_call_starts_a_process_on_each_node(name: str, call: StartCall, words: str) -> None:
    given = STARTERS[name].words(call)
    assert given[: len(words.split())] == words.split()
    assert name == "kubernetes" or given[-3:] == CALL.command
    # Neither the list of processes nor a log of commands has the secret.
    assert "secret" not in str(given)


def test_a_manifest_of_kubernetes_is_filled_in() -> None:
    path = Path(__file__).parents[3] / "docs" / "kubernetes-job.yaml"
    text = STARTERS["kubernetes"].text(CALL._replace(manifest=values.manifest(str(path), "--manifest")))
    for line in ("completions: 2", 'values: ["n1", "n3"]', 'value: "secret 1 2 a"', 'name: "fabtui-00ff00ff"'):
        assert line in text
    assert """command: ["/bin/sh", "-c", "(exec \\"x\\") || exit 0"]""" in text
    assert not re.search(r"\{\w+\}", text)


def test_variables_that_contradict_are_dropped() -> None:
    kept = {"SLURM_CONF": "/etc/slurm.conf", "SLURM_JOB_ID": "12", "SLURM_CLUSTERS": "a", "PATH": "/bin"}
    dropped = ("SLURM_LABELIO", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NNODES", "SLURM_STEP_ID", "PMI_RANK")
    assert srun_environment({**kept, **dict.fromkeys(dropped, "1")}) == kept


@pytest.mark.parametrize(
    ("stderr", "kind", "text"),
    [
        ("srun: error: Unable to create step for job 1: Requested nodes are busy", "busy", "another step"),
        ("srun: error: Unable to confirm allocation for job 9: Invalid job id specified", "job", "has ended"),
        ("slurmstepd: error: *** STEP 1.0 ON n060 CANCELLED AT 1 DUE TO TIME LIMIT ***", "job", "time limit"),
        ("srun: error: Unable to contact slurm controller (connect failure)", "timeout", "does not answer"),
        ("srun: error: Unable to create step: Requested node configuration is not available", "config", "not a node"),
        ("sh: 1: nothing known\nsrun: error: n060: task 0: Exited with exit code 3", "closed", "nothing known"),
    ],
)
def test_errors_of_srun_are_explained(stderr: str, kind: str, text: str) -> None:
    error = explain_with(SRUN, "12")(Ending(status=1), "", stderr)
    assert error.kind == kind
    assert text in error.text
    assert "Exited with exit code" not in error.text


def test_errors_of_kubectl_are_explained() -> None:
    explain = explain_with(VIA, "")
    error = explain(Ending(status=1), "", 'Error from server (NotFound): pods "nopod" not found')
    assert (error.kind, "nopod" in error.text) == ("dns", True)
    assert explain(Ending(status=1), "", 'pods "a" is forbidden: cannot create "pods/exec"').kind == "auth"
    assert explain(Ending(status=126), "", "OCI runtime exec failed: executable file not found").kind == "no-python"


def test_the_node_stands_for_itself_in_a_template() -> None:
    assert via_words("kubectl exec -i {node} -c 'my app' --", "a b") == [
        *("kubectl", "exec", "-i", "a b", "-c", "my app", "--"),
    ]


@pytest.mark.parametrize("name", [*";&|$`><(){}*?~!#'\"\\ \n", "-oX", "--", "{node}", "é", ""])
def test_no_name_of_a_node_is_an_option_or_shell_text(name: str) -> None:
    """Launchers, wrappers and shells get names as words; those that a shell would read otherwise are refused before."""
    with pytest.raises(InputError):
        check_name(name, "--nodes")
    if len(name) == 1:
        with pytest.raises(InputError):
            check_name(f"n{name}touch", "--nodes")


@pytest.mark.parametrize("name", ["pod-0.ns_1", "fe80::1%eth0"])
def test_a_name_that_is_accepted_is_one_word_of_a_launcher_and_of_a_shell(name: str) -> None:
    assert check_name(name, "--nodes") == name == shlex.quote(name)
    assert via_words("sh -c 'run {node} \"$1\"' {node}", name) == ["sh", "-c", f'run {name} "$1"', name]
    connector = Connector(ConnectorOptions(wrap="docker exec -i '{node} x'"), print)
    words = connector.command(name)
    assert words[:5] == ["docker", "exec", "-i", f"{name} x", "/bin/sh"]
    assert shlex.split(connector._typed_command(name)) == words


def test_commands_by_hand_follow_the_transport() -> None:
    assert command_on_node({"transport": "ssh"}, "n060", "uptime") == "ssh n060 uptime"
    assert command_on_node({"transport": "ssh", "ssh_config": "/a b"}, "n060", "uptime") == "ssh -F '/a b' n060 uptime"
    job = {"transport": "ssh", "placements": {"n060": ["--jobid=12", "--nodelist=n060"]}}
    assert command_on_node(job, "n060", "uptime", "srun") == "srun --overlap --jobid=12 --nodelist=n060 uptime"
    assert command_on_node({"transport": "via", "via": "kubectl exec -i {node} --"}, "p-0", "uptime") == (
        "kubectl exec -i p-0 -- uptime"
    )
    assert command_on_node({"transport": "local"}, "n060", "uptime") == "uptime"
