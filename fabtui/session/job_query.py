"""Question about a job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class JobQuery:
    """Question about a job: where its logs are, and what counts as silence.

    Attributes:
        job: The job's id; "" for logs without a scheduler.
        logs: Where the logs are (`fabtui.jobs.monitor.log_names.pattern_of`); "" for where Slurm puts them.
        conf: The configuration file, or None.
        idle: Time (s) without output after which the job counts as silent.
        nodes: Names of the nodes; empty for those that Slurm or the logs name.
    """

    job: str
    logs: str = ""
    conf: Path | None = None
    idle: float = 180.0
    nodes: tuple[str, ...] = ()
