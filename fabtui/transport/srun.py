"""Command line and environment of srun for a step on one node of a running job.

The options were tried with Slurm 22.05 (docs/slurm.md). ``--overlap`` starts beside a step that holds all CPUs and
GPUs. ``--input=0`` gives standard input to the task. ``--immediate`` bounds the wait for the step.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

#: Variables from which srun takes options that contradict those of `srun_words`, and those of MPI launchers.
_CONTRADICT = re.compile(
    r"SLURM_(?:NTASKS\w*|NPROCS|TASKS_PER_NODE|NNODES|JOB_NUM_NODES|NODELIST|STEP_\w+|STEPID|CPUS_PER_\w+|MEM_PER_\w+"
    r"|CPU_BIND\w*|MEM_BIND\w*|GPUS?\w*|GRES\w*|TRES\w*|DISTRIBUTION|HET_\w+|PACK_\w+|HINT|EXCLUSIVE|LABELIO"
    r"|UNBUFFEREDIO|STD\w+MODE|THREADS_PER_CORE|WHOLE|OVERLAP|EXACT|THREADS|MPI_TYPE|EXPORT_ENV|SRUN_\w+|TIMELIMIT"
    r"|IMMEDIATE|KILL_BAD_EXIT|WAIT|PROLOG|EPILOG|TASK_PROLOG|TASK_EPILOG|RESV_PORTS|NETWORK|OPEN_MODE|DEBUG"
    r"|SPREAD_JOB|CORE_SPEC|CLUSTER_CONSTRAINT|CONSTRAINT|MULTI_PROG|WORKING_DIR|ARRAY_\w+)"
    r"|SLURMD_\w+|(?:PMI|PMIX|OMPI|MPI|HYDRA|I_MPI)_?\w*"
)
#: Options of each step: sharing what the job has, without output of its own.
_ALWAYS = ("--overlap", "--mem=0", "--mpi=none", "--kill-on-bad-exit=0", "--job-name=fabtui", "--chdir=/")


def srun_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for srun: without variables that contradict its options."""
    given = os.environ if environ is None else environ
    return {name: value for name, value in given.items() if not _CONTRADICT.fullmatch(name)}


def srun_words(placement: Sequence[str], command: Sequence[str], wait: float) -> list[str]:
    """Return the command line of a step on one node.

    Args:
        placement: Job and node, ``("--jobid=12", "--nodelist=n060")``.
        command: The command in words.
        wait: Time (s) for the step to start.
    """
    return _words([*placement, "--nodes=1", "--ntasks=1", "--input=0", "--quiet"], command, wait)


def tree_words(placement: Sequence[str], nodes: Sequence[str], command: Sequence[str], wait: float) -> list[str]:
    """Return the command line of a step with a task on each of several nodes; lines of errors have labels.

    Args:
        placement: Options that select the job, ``("--jobid=12",)``.
        nodes: The nodes.
        command: The command in words.
        wait: Time (s) for the step to start.
    """
    number = len(nodes)
    tasks = [f"--nodes={number}", f"--ntasks={number}", "--ntasks-per-node=1", "--input=none"]
    # --no-kill: the end of one node is not that of the step. --verbose: srun reports each task that it launched.
    tasks += ["--label", "--no-kill", "--verbose"]
    return _words([*placement, f"--nodelist={','.join(nodes)}", *tasks], command, wait)


def _words(options: Sequence[str], command: Sequence[str], wait: float) -> list[str]:
    return ["srun", *options, *_ALWAYS, f"--immediate={max(1, round(wait))}", "--", *command]
