"""Errors of launchers: what srun, kubectl and others print, and what it means for a node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from fabtui.sanitize import one_line
from fabtui.transport.byte_pipe import Ending, Explain, explain_end
from fabtui.transport.link import NodeUnreachable, UnreachableKind


class Rule(NamedTuple):
    """Meaning of a line of a launcher; the first rule that matches counts."""

    pattern: str
    kind: UnreachableKind
    text: str
    hint: str | None = None


_STATUS_LINE = re.compile(r"srun: error: \S+: task \d+: |command terminated with exit code \d+")
SRUN = (
    Rule(
        r"Requested nodes are busy|step creation temporarily disabled",
        "busy",
        "Slurm did not start a step: another step of the job holds the node",
        "squeue --steps --jobs={job}",
    ),
    Rule(
        r"Invalid job id|Unable to confirm allocation|Expired or invalid job|[Jj]ob \S+ (has )?expired",
        "job",
        "the job has ended",
        "squeue --jobs={job} --states=all",
    ),
    Rule(
        r"Requested node configuration is not available|Invalid node name|not (part of|in) (this |the )?job",
        "config",
        "it is not a node of the job",
        "scontrol show job {job}",
    ),
    Rule(
        r"launch for \S+ failed on node",
        "refused",
        "Slurm cannot start a step there, for its slurmd does not answer",
        "sinfo --Node --long",
    ),
    Rule(r"DUE TO TIME LIMIT", "job", "the job reached its time limit", "squeue --jobs={job} --states=all"),
    Rule(r"[Nn]ode failure|NODE_FAIL|Node fail", "job", "Slurm reports that the node failed", "sinfo --list-reasons"),
    Rule(
        r"CANCELLED|Force Terminated|[Jj]ob has been cancelled",
        "job",
        "the job or the step was cancelled",
        "squeue --jobs={job} --states=all",
    ),
    Rule(
        r"Unable to contact slurm controller|Communication connection failure|Socket timed out",
        "timeout",
        "the Slurm controller does not answer",
        "scontrol ping",
    ),
    Rule(r"[Mm]unge|Invalid credential|Access.* denied|authentication", "auth", "Slurm refused the request"),
)
VIA = (
    Rule(r"NotFound|No such (container|pod|object)|not found in namespace|no container with name", "dns", "unknown"),
    Rule(r"[Ff]orbidden|[Uu]nauthorized|permission denied", "auth", "the launcher may not run commands there"),
    Rule(r"is not running|not in running state|container not found", "closed", "the container does not run"),
    Rule(r"executable file not found|/bin/sh: no such file", "no-python", "the container has no /bin/sh"),
    Rule(
        r"[Cc]onnection refused|connect to the (Docker|Podman) daemon|was refused",
        "refused",
        "the launcher does not reach its server",
    ),
    Rule(r"i/o timeout|timed out|deadline exceeded", "timeout", "the launcher got no answer"),
)


def explain_with(rules: Sequence[Rule], job: str) -> Explain:
    """Return the function that converts an early end of a launcher to an error."""

    def explain(ending: Ending, banner: str, stderr: str) -> NodeUnreachable:
        printed = f"{stderr}\n{banner}"
        for rule in rules:
            if re.search(rule.pattern, printed):
                line = next((line for line in printed.splitlines() if re.search(rule.pattern, line)), "")
                hint = None if rule.hint is None else rule.hint.format(job=job)
                return NodeUnreachable(rule.kind, f"{rule.text}: {one_line(line, 300)}", hint, printed.strip())
        # The line of the launcher about the exit status follows the reason and would hide it.
        own = "\n".join(line for line in stderr.splitlines() if not _STATUS_LINE.match(line))
        return explain_end(ending, banner, own)

    return explain
