"""Links over a launcher: a program that runs a command on a node, as srun and ``kubectl exec`` do."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from fabtui.sanitize import one_line
from fabtui.transport.byte_pipe import Ending, Explain, explain_end
from fabtui.transport.connector import Connector
from fabtui.transport.link import Link, NodeUnreachable, UnreachableKind
from fabtui.transport.local import ProcessPipe
from fabtui.transport.srun import srun_environment, srun_words

#: From this exit status on, a shell and srun mean a signal.
_SIGNALS = 128


class _Rule(NamedTuple):
    """Meaning of a line of a launcher; the first rule that matches counts."""

    pattern: str
    kind: UnreachableKind
    text: str
    hint: str | None = None


_STATUS_LINE = re.compile(r"srun: error: \S+: task \d+: |command terminated with exit code \d+")
_SRUN = (
    _Rule(
        r"Requested nodes are busy|step creation temporarily disabled",
        "busy",
        "Slurm did not start a step: another step of the job holds the node",
        "squeue --steps --jobs={job}",
    ),
    _Rule(
        r"Invalid job id|Unable to confirm allocation|Expired or invalid job|[Jj]ob \S+ (has )?expired",
        "job",
        "the job has ended",
        "squeue --jobs={job} --states=all",
    ),
    _Rule(
        r"Requested node configuration is not available|Invalid node name|not (part of|in) (this |the )?job",
        "config",
        "it is not a node of the job",
        "scontrol show job {job}",
    ),
    _Rule(r"DUE TO TIME LIMIT", "job", "the job reached its time limit", "squeue --jobs={job} --states=all"),
    _Rule(r"[Nn]ode failure|NODE_FAIL|Node fail", "job", "Slurm reports that the node failed", "sinfo --list-reasons"),
    _Rule(
        r"CANCELLED|Force Terminated|[Jj]ob has been cancelled",
        "job",
        "the job or the step was cancelled",
        "squeue --jobs={job} --states=all",
    ),
    _Rule(
        r"Unable to contact slurm controller|Communication connection failure|Socket timed out",
        "timeout",
        "the Slurm controller does not answer",
        "scontrol ping",
    ),
    _Rule(r"[Mm]unge|Invalid credential|Access.* denied|authentication", "auth", "Slurm refused the request"),
)
_VIA = (
    _Rule(r"NotFound|No such (container|pod|object)|not found in namespace|no container with name", "dns", "unknown"),
    _Rule(r"[Ff]orbidden|[Uu]nauthorized|permission denied", "auth", "the launcher may not run commands there"),
    _Rule(r"is not running|not in running state|container not found", "closed", "the container does not run"),
    _Rule(r"executable file not found|/bin/sh: no such file", "no-python", "the container has no /bin/sh"),
    _Rule(
        r"[Cc]onnection refused|connect to the (Docker|Podman) daemon|was refused",
        "refused",
        "the launcher does not reach its server",
    ),
    _Rule(r"i/o timeout|timed out|deadline exceeded", "timeout", "the launcher got no answer"),
)


class LauncherPipe(ProcessPipe):
    """The byte pipe of a launcher."""

    async def ending(self) -> Ending:
        """Wait for the launcher. Its end without an error, unasked, means a lost connection."""
        ending = await super().ending()
        if ending.status is not None and ending.status >= _SIGNALS:
            return Ending(reason=f"the launched command was killed (signal {ending.status - _SIGNALS})")
        if ending.status == 0:
            return Ending(reason="the launcher ended without an error")
        return ending


async def open_srun(connector: Connector, host: str) -> Link:
    """Open a link over a step of the user's Slurm job.

    Raises:
        NodeUnreachable: The node is not one of the job, or no step started there.
    """
    options = connector.options
    placement = options.placements.get(host)
    if placement is None:
        job = f"job {options.job}" if options.job else "a job of yours"
        text = f"{one_line(host, 100)} is not a node of {job}, and srun starts steps on nodes of a job only"
        raise NodeUnreachable("config", text, "name the job with --jobid, or use --transport ssh")
    words = srun_words(placement, connector.command(host), options.connect_timeout)
    # The controller creates steps one after the other; how far it is, is unknown.
    async with connector.gates.login("srun", lambda: False):
        pipe = await LauncherPipe.run(words, srun_environment())
        return await connector.start(pipe, host, "srun", explain_with(_SRUN, options.job), "")


async def open_via(connector: Connector, host: str) -> Link:
    """Open a link over the command line of ``--via``.

    Raises:
        NodeUnreachable: The launcher failed, or the node side did not start.
    """
    words = via_words(connector.options.via, host)
    async with connector.gates.login("via", lambda: False):
        pipe = await LauncherPipe.run([*words, *connector.command(host)])
        return await connector.start(pipe, host, "via", explain_with(_VIA, ""), "")


def via_words(template: str, node: str) -> list[str]:
    """Return the words of a launcher's command line for a node."""
    return [word.replace("{node}", node) for word in shlex.split(template)]


def explain_with(rules: Sequence[_Rule], job: str) -> Explain:
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
