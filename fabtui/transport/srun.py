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
#: Options of each step: alone on one node, sharing what the job has, without output of its own.
_ALWAYS = (
    *("--overlap", "--nodes=1", "--ntasks=1", "--input=0", "--mem=0", "--mpi=none", "--kill-on-bad-exit=0"),
    *("--quiet", "--job-name=fabtui", "--chdir=/"),
)


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
    return ["srun", *placement, *_ALWAYS, f"--immediate={max(1, round(wait))}", "--", *command]
