"""The judge of a running job: evidence of all sources in, one verdict out. Pure."""

from __future__ import annotations

from fabtui.diagnosis.running_job.job_verdict import JobState, JobVerdict
from fabtui.model.session_model import Model


def job_verdict(model: Model) -> JobVerdict | None:
    """Return the verdict about the job that runs on the nodes of a session; None without evidence about one."""
    log = model.job
    if not log:
        return None
    latest = [sample for node in log.nodes if (sample := log.latest(node)) is not None]
    now = max((sample.time for sample in latest), default=model.now)
    return JobVerdict(JobState.UNKNOWN, now, now, "", tuple(log.nodes), ())
