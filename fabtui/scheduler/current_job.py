"""Nodes of the job that this process belongs to, of any scheduler, and of pods of Kubernetes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from fabtui.errors import InputError
from fabtui.nodeset import check_name, expand, expand_listed
from fabtui.scheduler import slurm
from fabtui.scheduler.base import Allocation, ask

#: Pods for which a kubectl each is good enough.
_FEW_PODS = 32
#: Bytes of a node file that are read.
_MOST = 8 << 20
_PATH = "jsonpath={range .items[*]}{.metadata.name}|{.status.phase}|{.spec.nodeName}{'\\n'}{end}"


class _Scheduler(NamedTuple):
    """A scheduler whose jobs are recognised."""

    name: str  #: Its name.
    job: str  #: Variable with the id of the job.
    variable: str  #: Variable that names the nodes.
    names: Callable[[str], list[str]]  #: Function from the value of that variable to names, in order, with repetitions.


def _lines(path: str) -> list[str]:
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MOST).decode("utf-8", "backslashreplace")
    except OSError as error:
        raise InputError(f"the node file of the job cannot be read: {path}: {error.strerror}") from None
    # A line per slot, or host, slots, queue and processors.
    return [line.split()[0] for line in text.splitlines() if line.strip()]


def _flux(words: list[str], what: str) -> list[str]:
    answer = ask(["flux", *words])
    if answer.problem:
        raise InputError(f"flux does not report the nodes of {what}: {answer.problem}")
    return [node for line in answer.lines for node in expand_listed(line) or ()]


def _flux_job(job: str) -> list[str]:
    return _flux(["jobs", "--no-header", "--format={nodelist}", job], f"job {job}")


_SCHEDULERS = (
    _Scheduler("PBS", "PBS_JOBID", "PBS_NODEFILE", _lines),
    _Scheduler("LSF", "LSB_JOBID", "LSB_DJOB_HOSTFILE", _lines),
    # The names of ``n1 8 n2 8``.
    _Scheduler("LSF", "LSB_JOBID", "LSB_MCPU_HOSTS", lambda value: value.split()[::2]),
    _Scheduler("Grid Engine", "JOB_ID", "PE_HOSTFILE", _lines),
    _Scheduler("Flux", "FLUX_JOB_ID", "FLUX_JOB_ID", _flux_job),
    # What `flux alloc` starts belongs to an instance of its own, and to no job there.
    _Scheduler("Flux", "", "FLUX_URI", lambda _: _flux(["getattr", "hostlist"], "the instance at FLUX_URI")),
    _Scheduler("Cobalt", "COBALT_JOBID", "COBALT_NODEFILE", _lines),
)


def current_job(environ: Mapping[str, str] = os.environ) -> Allocation | None:
    """Return the nodes of the job that this process belongs to; None outside of a job.

    Raises:
        InputError: There is a job whose nodes cannot be found.
    """
    if (found := slurm.from_environment(environ)) is not None:
        return found
    for scheduler in _SCHEDULERS:
        value = environ.get(scheduler.variable, "").strip()
        if not value:
            continue
        names = dict.fromkeys(scheduler.names(value))
        nodes = [node for name in names for node in expand(name, scheduler.variable, depth=1)]
        if nodes:
            job = environ.get(scheduler.job, "").strip()
            title = f"{scheduler.name} job {job}".strip()
            return Allocation(title, tuple(dict.fromkeys(nodes)), scheduler.variable)
    return None


class Pods(NamedTuple):
    """Pods that run, and the command line that reaches each."""

    allocation: Allocation
    via: str


def pods(text: str, option: str) -> Pods:
    """Return the running pods of ``NAMESPACE/SELECTOR``.

    Raises:
        InputError: There are none, or kubectl failed.
    """
    namespace, slash, selector = text.partition("/")
    if not slash or not selector or not namespace:
        hint = "expected NAMESPACE/SELECTOR, such as train/training.kubeflow.org/job-name=llm"
        raise InputError(f"{option}: {text[:80]!r}; {hint}")
    words = ["kubectl", "get", "pods", f"--namespace={namespace}", f"--selector={selector}", f"--output={_PATH}"]
    answer = ask(words)
    if answer.problem:
        raise InputError(f"{option}: kubectl does not list the pods: {answer.problem}")
    rows = [line.split("|") for line in answer.lines if line.count("|") == 2]
    running = [(name, host) for name, phase, host in rows if phase == "Running"]
    if not running:
        waiting = ", ".join(f"{name} is {phase}" for name, phase, _ in rows[:3])
        raise InputError(f"{option}: no pod runs in {namespace} with {selector}" + (f" ({waiting})" if waiting else ""))
    names = tuple(check_name(name, option) for name, _ in running)
    hosts = ", ".join(f"{name} on {host}" for name, host in running[:4]) + (", ..." if len(running) > 4 else "")
    costly = "; each pod takes 45 MB here: --transport kubernetes takes none" if len(names) > _FEW_PODS else ""
    allocation = Allocation(f"pods {text}", names, f"kubectl; {hosts}{costly}")
    return Pods(allocation, f"kubectl exec -i --namespace={shlex.quote(namespace)} {{node}} --")
