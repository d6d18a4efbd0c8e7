"""Programs that run a command on a node: OpenSSH, srun, kubectl and others; their command lines, pipes and errors.

The options of srun were tried with Slurm 22.05 (docs/slurm.md). ``--overlap`` starts beside a step that holds all CPUs
and GPUs. ``--input=0`` gives standard input to the task. ``--immediate`` bounds the wait for the step.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fabtui.sanitize import clean, one_line
from fabtui.transport.byte_pipe import Ending, Explain, ProcessPipe, explain_end
from fabtui.transport.link import NodeUnreachable, UnreachableKind
from fabtui.transport.ssh_config import Policy

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
STEP_OPTIONS = ("--overlap", "--mem=0", "--mpi=none", "--kill-on-bad-exit=0", "--job-name=fabtui", "--chdir=/")
#: From this exit status on, a shell and srun mean a signal.
_FIRST_SIGNAL = 128
_STATUS_LINE = re.compile(r"srun: error: \S+: task \d+: |command terminated with exit code \d+")
_HOST_KEYS: dict[Policy, tuple[str, ...]] = {
    "strict": ("StrictHostKeyChecking=yes",),
    # Not "no": with that, OpenSSH continues after a changed key.
    "accept-new": ("StrictHostKeyChecking=accept-new",),
    "off": ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "GlobalKnownHostsFile=/dev/null"),
}
_SSH_ALWAYS = (
    "BatchMode=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "Tunnel=no",
    # Uses a shared connection, but does not become the master of others.
    "ControlMaster=no",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    # Errors are recognised from its output.
    "LogLevel=INFO",
)
#: What ``ssh`` and its helpers (agents, ProxyCommand, askpass, Kerberos) read; SendEnv can send nothing else.
_SSH_READS = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|TZ|TERM|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|XDG_RUNTIME_DIR|KRB5[A-Z_0-9]*"
    r"|SSH_[A-Z_0-9]*|GSS[A-Z_0-9]*|GPG_TTY|LD_LIBRARY_PATH|PKCS11[A-Z_0-9]*"
)
DROPPED = "closed the connection before its SSH greeting: too many logins at once (MaxStartups), or a deny rule?"

# The first match anywhere in the output of ssh counts.
_OPENSSH: list[tuple[str, UnreachableKind, str | None]] = [
    (r"REVOKED HOST KEY|marked as revoked|Host key .*revoked", "revoked-host-key", "do not connect; ask who runs it"),
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED|DIFFERENT|HOST KEY CHANGED", "changed-host-key", None),
    (r"No \S+ host key is known|Host key verification failed", "unknown-host-key", None),
    (r"[Hh]ostname contains invalid characters|[Bb]ad configuration option|terminating, \d+ bad", "config", None),
    (r"Can't open user config file|[Bb]ad owner or permissions on|extra arguments at end of line", "config", None),
    (r"keyword \S+ .*argument|line \d+: .*(argument|[Mm]issing|[Uu]nsupported|[Bb]ad|quote)", "config", None),
    (r"Could not resolve hostname|Name or service not known", "dns", None),
    (r"Connection timed out during banner exchange", "banner", None),
    (r"Permission denied|Too many authentication failures|No more authentication methods", "auth", None),
    (r"[Kk]ex_exchange_identification|Exceeded MaxStartups|ssh_exchange_identification", "busy", None),
    (r"banner line contains invalid|Protocol major versions differ|no matching .* found", "protocol", None),
    (r"Connection refused", "refused", "is sshd running there, on this port?"),
    (r"No route to host|Network is unreachable|Cannot assign requested address", "no-route", None),
    (r"administratively prohibited|open failed", "refused", None),
    (r"Connection timed out|Operation timed out|Timeout, server", "timeout", None),
    (r"Connection reset by|Connection closed by|Broken pipe", "closed", None),
]


def srun_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for srun: without variables that contradict its options."""
    given = os.environ if environ is None else environ
    return {name: value for name, value in given.items() if not _CONTRADICT.fullmatch(name)}


def srun_words(placement: Sequence[str], command: Sequence[str], wait: float) -> list[str]:
    """Return the command line of a step on one node, which may take ``wait`` seconds to start.

    ``placement`` selects job and node: ``("--jobid=12", "--nodelist=n060")``.
    """
    task = ("--nodes=1", "--ntasks=1", "--input=0", "--quiet")
    return ["srun", *placement, *task, *STEP_OPTIONS, f"--immediate={max(1, round(wait))}", "--", *command]


class LauncherPipe(ProcessPipe):
    """The byte pipe of a launcher."""

    async def ending(self) -> Ending:
        """Wait for the launcher. Its end without an error, unasked, means a lost connection."""
        ending = await super().ending()
        if ending.status is not None and ending.status >= _FIRST_SIGNAL:
            return Ending(reason=f"the launched command was killed (signal {ending.status - _FIRST_SIGNAL})")
        if ending.status == 0:
            return Ending(reason="the launcher ended without an error")
        return ending


def via_words(template: str, node: str) -> list[str]:
    return [word.replace("{node}", node) for word in shlex.split(template)]


class LauncherError(NamedTuple):
    """Meaning of a line of a launcher; the first rule that matches counts."""

    pattern: str
    kind: UnreachableKind
    text: str
    hint: str | None = None


SRUN = (
    LauncherError(
        r"Requested nodes are busy|step creation temporarily disabled",
        "busy",
        "Slurm did not start a step: another step of the job holds the node",
        "squeue --steps --jobs={job}",
    ),
    LauncherError(
        r"Invalid job id|Unable to confirm allocation|Expired or invalid job|[Jj]ob \S+ (has )?expired",
        "job",
        "the job has ended",
        "squeue --jobs={job} --states=all",
    ),
    LauncherError(
        r"Requested node configuration is not available|Invalid node name|not (part of|in) (this |the )?job",
        "config",
        "it is not a node of the job",
        "scontrol show job {job}",
    ),
    LauncherError(
        r"launch for \S+ failed on node",
        "refused",
        "Slurm cannot start a step there, for its slurmd does not answer",
        "sinfo --Node --long",
    ),
    LauncherError(r"DUE TO TIME LIMIT", "job", "the job reached its time limit", "squeue --jobs={job} --states=all"),
    LauncherError(
        r"[Nn]ode failure|NODE_FAIL|Node fail", "job", "Slurm reports that the node failed", "sinfo --list-reasons"
    ),
    LauncherError(
        r"CANCELLED|Force Terminated|[Jj]ob has been cancelled",
        "job",
        "the job or the step was cancelled",
        "squeue --jobs={job} --states=all",
    ),
    LauncherError(
        r"Unable to contact slurm controller|Communication connection failure|Socket timed out",
        "timeout",
        "the Slurm controller does not answer",
        "scontrol ping",
    ),
    LauncherError(r"[Mm]unge|Invalid credential|Access.* denied|authentication", "auth", "Slurm refused the request"),
)
VIA = (
    LauncherError(
        r"NotFound|No such (container|pod|object)|not found in namespace|no container with name", "dns", "unknown"
    ),
    LauncherError(r"[Ff]orbidden|[Uu]nauthorized|permission denied", "auth", "the launcher may not run commands there"),
    LauncherError(r"is not running|not in running state|container not found", "closed", "the container is not running"),
    LauncherError(r"executable file not found|/bin/sh: no such file", "no-python", "the container has no /bin/sh"),
    LauncherError(
        r"[Cc]onnection refused|connect to the (Docker|Podman) daemon|was refused",
        "refused",
        "the launcher does not reach its server",
    ),
    LauncherError(r"i/o timeout|timed out|deadline exceeded", "timeout", "the launcher got no answer"),
)


def explain_with(rules: Sequence[LauncherError], job: str) -> Explain:
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


def ssh_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for ``ssh``.

    ``SendEnv`` of the user's configuration cannot be undone on the command line; it sends what the process has.
    """
    return {name: value for name, value in (environ or os.environ).items() if _SSH_READS.fullmatch(name)}


def ssh_argv(
    ssh: str, ssh_config: Path | None, host: str, command: str, policy: Policy, within: float, more: Sequence[str] = ()
) -> list[str]:
    """Return the command line of the program ``ssh`` that runs a command on a host; ``within`` (s) to connect."""
    options = [*_SSH_ALWAYS, f"ConnectTimeout={max(1, round(within))}", *_HOST_KEYS[policy], *more]
    words = [ssh, "-T", "-x", "-a", "-e", "none"]
    if ssh_config is not None:
        words += ["-F", str(ssh_config)]
    for option in options:
        words += ["-o", option]
    return [*words, "--", host, command]


class SshPipe(ProcessPipe):
    """The byte pipe of an ``ssh``."""

    async def ending(self) -> Ending:
        """Wait for ssh. It ends with 255 when the connection breaks and when a signal ends the command."""
        ending = await super().ending()
        if ending.status == 255:
            return Ending(reason="ssh lost the connection, or the command was killed")
        return ending


def classify_openssh(node: str, output: str) -> NodeUnreachable | None:
    """Return the error for the output of an ``ssh`` that ended before the command ran; None if unknown."""
    text = clean(output)
    for pattern, kind, hint in _OPENSSH:
        match = re.search(pattern, text)
        if match is None:
            continue
        line = next((line for line in text.splitlines() if re.search(pattern, line)), match[0])
        line = line.strip("@ \t") or match[0]
        if kind == "changed-host-key":
            offending = re.search(r"Offending \S+ key in (\S+)", text)
            where = f" ({offending[1]})" if offending else ""
            line = (
                f"HOST KEY CHANGED: {node} does not present the known key{where}: it was reinstalled, or someone"
                " is intercepting the connection"
            )
            removal = re.search(r"ssh-keygen -f .*", text)
            hint = f"if it was reinstalled: {removal[0].strip()}" if removal else f"ssh-keygen -R {node}"
        elif kind == "unknown-host-key":
            line = f"the host key of {node} is not known: {line}"
            hint = "compare the fingerprint, then add it (ssh-keyscan), or: --host-key-policy accept-new"
        elif kind == "auth":
            hint = f"ssh -v {node} true"
        elif kind == "busy":
            line = f"{node} {DROPPED} ({line})"
        return NodeUnreachable(kind, line, hint, text)
    return None


def openssh_explainer(node: str) -> Explain:
    def explain(ending: Ending, banner: str, stderr: str) -> NodeUnreachable:
        if ending.lost and (known := classify_openssh(node, stderr)) is not None:
            return known
        return explain_end(ending, banner, stderr)

    return explain
