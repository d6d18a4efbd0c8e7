"""Rules about a running or ended job, registered with all others. Each is one row at the end."""

from __future__ import annotations

import ipaddress
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from fabtui.diagnosis.diagnosis import Evidence, diagnose
from fabtui.diagnosis.finding import Domain, Finding, Rule, Severity, register_family
from fabtui.diagnosis.job.job_verdict import clock
from fabtui.diagnosis.job.logs.error_lines import ErrorLine, ErrorLines, is_of_ending
from fabtui.diagnosis.job.logs.gpu_history import GpuHistory, idle_among
from fabtui.diagnosis.job.logs.iteration_times import iteration_of
from fabtui.diagnosis.job.logs.job_logs import LogFile
from fabtui.diagnosis.job.logs.report import JobFacts, JobReport, NodeRow
from fabtui.diagnosis.job.logs.settings import is_of_devices, is_shared
from fabtui.nodeset import count, fold

#: How long (s), and in how many samples, the GPUs of a node are idle before that counts.
IDLE_SECONDS, IDLE_SAMPLES = 30.0, 3
#: How long (s) a rank has no process until it counts as gone.
GONE = 10.0
#: Time (s) after the start of a job in which a launcher starts its ranks.
START = 60.0
#: Age (s) from which a sample of GPUs shows the past.
STALE = 60.0
#: Time (s) after the start of a job in which it may load and compile without output and without work for the GPUs.
WARM_UP = 900.0
#: Samples without a clock that are as long as `IDLE_SECONDS`: gpustat takes one a second.
_UNTIMED_SAMPLES = 30
#: Maximum number of nodes or values that a text names, and of lines as evidence.
_MOST = 4
_ENDS = {
    **{"CANCELLED": "was cancelled", "TIMEOUT": "reached its time limit", "NODE_FAIL": "lost a node"},
    "OUT_OF_MEMORY": "ran out of memory: the kernel killed one of its processes at its memory limit",
}

Found = Iterator[Finding]
#: Rule whose finding may be the cause of all others.
_FULL = "J14"
_CONF_NEXT = "compare the scripts on these nodes, and the variables that sbatch and srun export (--export)"


class JobRule(Rule[JobFacts]):
    """Base of the rules about jobs."""

    domain = Domain.JOBS
    message = "{text}"
    evidence = ("{evidence:lines}",)

    def found(
        self,
        text: str,
        nodes: Sequence[str] = (),
        evidence: Sequence[str] = (),
        command: str = "",
        *,
        severity: Severity | None = None,
        hangs: bool = False,
    ) -> Finding:
        """Return a finding; its evidence is lines of logs and values, and the job makes no progress if it ``hangs``."""
        facts = {"text": text, "evidence": tuple(evidence) or None, "hangs": hangs or None}
        return self.finding(severity=severity, nodes=nodes, facts=facts, commands=[command] if command else [])


def _ended(rule: JobRule, facts: JobFacts) -> Found:
    status = facts.status
    if status.restarts and status.stage in ("waiting", "running"):
        yield _requeued(rule, facts)
    elif status.stage == "waiting":
        why = f" ({status.reason})" if status.reason else ""
        command = f"squeue --start --jobs={status.job}"
        yield rule.found(f"it has not started: {status.state}{why}", command=command, severity=Severity.NOTE)
    if status.stage != "ended" or status.state == "COMPLETED":
        return
    how = _ENDS.get(status.state, f"has ended: {status.state}")
    number, _, signal = status.exit_code.partition(":")
    code = f", exit code {number}" if number not in ("", "0") else ""
    code += f", signal {signal}" if signal not in ("", "0") else ""
    if status.state in ("CANCELLED", "OUT_OF_MEMORY"):
        # Slurm ended it by a signal; whether the shell returned that as its exit code is chance.
        code = ""
    reason = f" ({status.reason})" if status.reason not in ("", status.state) else ""
    down = tuple(f"{node} is {state}" for node, state in list(status.down.items())[:_MOST])
    severity = Severity.WARN if status.state == "CANCELLED" else Severity.BAD
    command = f"sacct --jobs={status.job} --format=JobID,State,ExitCode,DerivedExitCode,NodeList"
    yield rule.found(f"it {how}{reason}{code}", tuple(status.down), down, command, severity=severity)


def _requeued(rule: JobRule, facts: JobFacts) -> Finding:
    status, latest = facts.status, facts.logs.iterations.latest
    when = "" if status.requeued is None else f" at {time.strftime('%H:%M:%S', time.localtime(status.requeued))}"
    reasons = {file.path: file.errors.cancelled for file in facts.logs.files.values() if file.errors.cancelled}
    why = f": {next(iter(reasons.values())).lower()}" if reasons else ""
    waits, after, now = status.stage == "waiting", "", "it is running again"
    if waits:
        # A job that runs again has counted on.
        after = f" after iteration {latest.number}" if latest is not None else ""
        now = f"it waits: {status.state}" + (f" ({status.reason})" if status.reason else "")
        now += "" if status.begins is None else f" until {time.strftime('%H:%M:%S', time.localtime(status.begins))}"
    text = f"it was requeued{when}{after} (restart {status.restarts}){why}; {now}"
    severity = Severity.WARN if any("NODE FAIL" in one.upper() for one in reasons.values()) else Severity.NOTE
    evidence = [f"{path}: due to {one}" for path, one in list(reasons.items())[:_MOST]]
    command = f"squeue --start --jobs={status.job}" if waits else f"scontrol show job {status.job}"
    return rule.found(text, (), evidence, command, severity=severity)


def _dead_ranks(rule: JobRule, facts: JobFacts) -> Found:
    empty = [node for node in facts.logs.nodes if _is_empty(facts, node) and not facts.nodes[node].most_ranks]
    for file, errors in _with_errors(facts):
        for task in errors.tasks[:1]:
            # srun does not name the node of a task that it could not start. It is the only node without ranks.
            alone = empty[0] if len(empty) == 1 and not task.started else ""
            node = task.nodes or file.node or alone
            empty = [one for one in empty if one not in node.split(",")]
            more = f"; {count(len(errors.tasks) - 1, 'more line')} of this kind" if len(errors.tasks) > 1 else ""
            text = f"{f'task {task.task}' if task.task else 'a task'}{f' on {node}' if node else ''} {task.text}{more}"
            known = (node,) if node in facts.logs.nodes else ()
            explain = f"fabtui explain {file.path}"
            kernel = f"ssh {node} dmesg -T | tail" if known else explain
            command = _look(facts, node, kernel) if task.started else explain
            yield rule.found(text, known, (file.path,), command)
    if facts.status.stage != "running":
        return
    for node, reported in facts.nodes.items():
        since = reported.fewer_since
        # Between two commands of a shell script there is no process for a moment.
        if reported.ranks is not None and since is not None and facts.when - since >= GONE:
            gone = reported.most_ranks - len(reported.ranks)
            text = f"{count(gone, 'rank')} of {reported.most_ranks} on {node} {'is' if gone == 1 else 'are'} gone"
            yield rule.found(text, (node,), (), f"ssh {node} dmesg -T | tail")
    if (facts.status.elapsed or 0.0) >= START and empty:
        most = max(one.most_ranks for one in facts.nodes.values())
        text = f"no rank runs on {fold(empty)}; other nodes have {'one' if most == 1 else f'up to {most}'}"
        command = f"scontrol show job {facts.status.job} names the batch script's output: did srun start all tasks?"
        yield rule.found(text, tuple(empty), (), command, severity=Severity.WARN)


def _look(facts: JobFacts, node: str, otherwise: str) -> str:
    """Return the command that explains the errors of a node's log, else ``otherwise``."""
    path = next((file.path for file in facts.logs.of(node, "err") if node and file.size), "")
    return f"fabtui explain {path}" if path else otherwise


def _idle_gpus(rule: JobRule, facts: JobFacts) -> Found:
    histories = {node: history for node, history in facts.logs.gpus.items() if history.latest is not None}
    idle = {
        node: seconds for node, history in histories.items() if (seconds := _idle_beside(node, histories)) is not None
    }
    running = facts.status.stage == "running"
    for node, seconds in idle.items():
        if running and (age := gpu_age(facts, node)) is not None and age > STALE:
            continue
        latest = histories[node].latest
        number = len(latest.gpus) if latest is not None else 0
        verb = "is" if number == 1 else "are"
        when = f"for {_time(seconds)}" if running else f"for {_time(seconds)} of what is recorded"
        text = f"{node}: 0 of {number} GPUs {verb} busy {when} while other nodes compute"
        yield rule.found(text, (node,), (), _hang(facts, node))
    if not idle and not facts.status.job:
        # The ends of files alone, without a clock: one sample of each node.
        latest_of = {node: history.latest for node, history in histories.items() if history.latest is not None}
        for node in idle_among(latest_of):
            text = f"{node}: 0 of {len(latest_of[node].gpus)} GPUs are busy in its last sample; all others are busy"
            yield rule.found(text, (node,), (), _hang(facts, node), severity=Severity.WARN)
    if not histories or idle or not running:
        return
    started = (facts.status.elapsed or 0.0) > WARM_UP or any(history.was_busy for history in histories.values())
    if started and all(_is_idle(facts, node, history) for node, history in histories.items()):
        text = f"no GPU of the job is busy on any of {count(len(histories), 'node')}"
        yield rule.found(text, command=_hang(facts), hangs=True)


def _hang(facts: JobFacts, node: str = "") -> str:
    """Return the command that shows which ranks of a node, or of the whole job, the others wait for."""
    job = f" {facts.status.job}" if facts.status.job else ""
    nodes = f" --nodes {node}" if node else "" if job else f" --nodes '{fold(facts.logs.nodes)}'"
    return f"fabtui hang{job}{nodes}"


def gpu_age(facts: JobFacts, node: str) -> float | None:
    """Return how old (s) the values of a node's GPUs are; None if that is unknown."""
    reported = facts.nodes.get(node)
    files = facts.logs.of(node, "gpu")
    latest = history.latest if (history := facts.logs.gpus.get(node)) is not None else None
    if (
        reported is not None
        and reported.ranks is not None
        and not files
        and latest is not None
        and latest.when is not None
    ):
        return max(0.0, facts.when - latest.when)
    return facts.logs.age(files[-1]) if files else None


def _is_idle(facts: JobFacts, node: str, history: GpuHistory) -> bool:
    age = gpu_age(facts, node)
    since, samples = history.idle_since, history.idle_samples
    latest = history.latest.when if history.latest is not None else None
    timed = since is not None and latest is not None
    long = latest - since >= IDLE_SECONDS if timed and since and latest else samples >= _UNTIMED_SAMPLES
    return long and samples >= IDLE_SAMPLES and (age is None or age <= STALE)


def _idle_beside(node: str, histories: dict[str, GpuHistory]) -> float | None:
    """Return how long (s) a node has been idle at the end of its samples while another was busy; None if it was not."""
    own = histories[node]
    if own.idle_samples < IDLE_SAMPLES or own.latest is None:
        return None
    if own.idle_since is None or own.latest.when is None:
        others = any(other.latest is not None and other.latest.busy for other in histories.values())
        return float(own.idle_samples) if others and own.idle_samples >= _UNTIMED_SAMPLES else None
    both = [
        min(own.latest.when, other.last_busy) - max(own.idle_since, other.first_busy)
        for name, other in histories.items()
        if name != node and other.first_busy is not None and other.last_busy is not None
    ]
    seconds = max(both, default=0.0)
    return seconds if seconds >= IDLE_SECONDS else None


def _error_lines(rule: JobRule, facts: JobFacts) -> Found:
    logs = [(file, errors, errors.first) for file, errors in _with_errors(facts)]
    failed = [(file, errors, first) for file, errors, first in logs if first is not None]
    if not failed:
        return
    failed.sort(key=lambda one: _order(one[2]))
    file, errors, first = failed[0]
    where = file.node or file.path.rpartition("/")[2]
    known = first.meaning
    severity = Severity.BAD if first.cause else Severity.WARN
    rest = [other.node or other.path.rpartition("/")[2] for other, _, _ in failed[1:]]
    more = f" ({count(errors.count, 'line')} with errors)" if errors.count > 1 else ""
    evidence = [f"{other.path}: {one.text}" for other, _, one in failed[:_MOST]]
    text = f"{where}: {first.text}{more}"
    if rest:
        what = "also has errors" if len(rest) == 1 else "also have errors"
        later = all(
            first.when is not None and one.when is not None and one.when > first.when for _, _, one in failed[1:]
        )
        names = fold(dict.fromkeys(rest)) if len(rest) <= _MOST else count(len(rest), "other log")
        text += f"; {names} {what}" + (", later: probably a consequence" if later else "")
    node = (file.node,) if file.node else ()
    evidence = [*([] if known is None else [f"means: {known.sentence}"]), *evidence]
    one = rule.found(text, node, tuple(evidence), f"fabtui explain {file.path}", severity=severity)
    yield one if known is None else one.replace(facts={**one.facts, "code": known.code})


def _order(error: ErrorLine) -> tuple[bool, bool, float]:
    """Return the position of an error: causes first, then by time; those without one last, as in ``fabtui explain``."""
    return not error.cause, error.when is None, error.when or 0.0


def _with_errors(facts: JobFacts) -> list[tuple[LogFile, ErrorLines]]:
    files = facts.logs.files.values()
    return [(file, file.errors) for file in files if file.errors.kept or file.errors.tasks]


def _bad_losses(rule: JobRule, facts: JobFacts) -> Found:
    printed = facts.logs.iterations.all
    # The scaler of mixed precision skips steps at the start; NaN is counted apart.
    bad = [one for one in printed if one.nan or one.loss.lower().lstrip("-") in ("nan", "inf")]
    if bad:
        what = f"loss {bad[0].loss}" if bad[0].loss.lower().lstrip("-") in ("nan", "inf") else f"{bad[0].nan} with NaN"
        text = f"iteration {bad[0].number}: {what}" + (f", and {len(bad) - 1} more" if len(bad) > 1 else "")
        step = "look at the data and the learning rate; memory errors of GPUs: fabtui preflight"
        yield rule.found(text, command=step)


def _different_settings(rule: JobRule, facts: JobFacts) -> Found:
    settings = facts.logs.settings
    for name in settings.names():
        values = settings.values(name)
        if not is_shared(name) or len(values) < 2:
            continue
        tasks = not any(who in facts.logs.nodes for sources in values.values() for who in sources)
        if tasks and is_of_devices(name) and len({len(sources) for sources in values.values()}) == 1:
            # Each rank of a node has GPUs of its own, and as many nodes have each.
            continue
        parts = sorted(values.items(), key=lambda one: len(one[1]))
        text = ", ".join(f"{_value(value)} on {_sources(who)}" for value, who in parts[:_MOST])
        nodes = tuple(who for who in parts[0][1] if who in facts.logs.nodes)
        where = "ranks" if tasks and is_of_devices(name) else "nodes"
        yield rule.found(f"{name} differs between {where}: {text}", nodes, (), _CONF_NEXT)


def _node_ranks(rule: JobRule, facts: JobFacts) -> Found:
    by_rank = facts.logs.settings.values("NODE_RANK")
    turns = any(who.startswith("print ") for sources in by_rank.values() for who in sources)
    number = next(
        (int(text) for text in facts.logs.settings.values("NNODES") if text.isascii() and text.isdecimal()), None
    )
    givers = [who for sources in by_rank.values() for who in sources]
    if turns and len(givers) != number:
        # A restart prints them again, and nothing shows which lines belong together.
        return
    for rank, who in by_rank.items():
        if len(who) > 1:
            text = f"NODE_RANK {_value(rank)} is given to {count(len(who), 'node')}: {_sources(who)}"
            nodes = tuple(node for node in who if node in facts.logs.nodes)
            yield rule.found(text, nodes, (), "each node needs its own NODE_RANK, such as $SLURM_NODEID")
            return
    numbers = {int(rank) for rank in by_rank if rank.isascii() and rank.isdecimal()}
    if number is not None and len(givers) == number and numbers and numbers != set(range(number)):
        missing = sorted(set(range(number)) - numbers)[:_MOST]
        text = f"NODE_RANK {', '.join(map(str, missing))} of {number} is given to no node"
        yield rule.found(text, command="NODE_RANK counts from 0 to NNODES - 1")


def _master_address(rule: JobRule, facts: JobFacts) -> Found:
    nodes = facts.status.nodes or tuple(facts.logs.nodes)
    own: dict[str, frozenset[str]] = {
        node: facts.addresses.get(node, frozenset())
        | {node, node.partition(".")[0]}
        | frozenset(facts.nodes[node].addresses if node in facts.nodes else ())
        for node in nodes
    }
    for master, who in facts.logs.settings.values("MASTER_ADDR").items():
        if not nodes or any(master in names or master.partition(".")[0] in names for names in own.values()):
            continue
        stranger = next((node for node, names in facts.addresses.items() if master in {node, *names}), "")
        # Every address of every node is known, or the address is in a network of theirs.
        complete = all(node in facts.nodes and facts.nodes[node].addresses for node in nodes)
        if not (stranger or complete or _beside(master, own)):
            continue
        what = f"is {stranger}, which is not in the job" if stranger else "is not an address of the job's nodes"
        text = f"MASTER_ADDR {_value(master)} {what}"
        evidence = tuple(f"{node}: {', '.join(sorted(names))}" for node, names in list(own.items())[:_MOST])
        setters = tuple(node for node in who if node in nodes) if len(who) < len(nodes) else ()
        command = 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)'
        yield rule.found(text, setters, evidence, command)


def _beside(master: str, own: dict[str, frozenset[str]]) -> bool:
    """Return whether an address is in the same network (/24, /64) as those of the nodes: a node has one in each."""
    network = _network(master)
    return network is not None and all(any(_network(name) == network for name in names) for names in own.values())


def _network(text: str) -> object:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return ipaddress.ip_network(f"{address}/{24 if address.version == 4 else 64}", strict=False)


def _silence(rule: JobRule, facts: JobFacts) -> Found:
    status, quiet, limit = facts.status, facts.logs.quiet(), facts.silence_limit
    command = _hang(facts)
    if status.stage == "running" and status.state != "SUSPENDED":
        started = status.elapsed or 0.0
        if quiet is not None and quiet > limit:
            text = f"no output from any node for {_time(quiet)} (limit {_time(limit)})"
            yield rule.found(text, command=command, hangs=True)
        elif quiet is None and facts.logs.files and started > max(limit, WARM_UP):
            text = f"no output at all since the start {_time(started)} ago"
            yield rule.found(text, command=command, hangs=True)
    elif status.stage == "ended" and status.state != "COMPLETED" and status.ended is not None:
        files = [file for file in facts.logs.files.values() if file.size and file.stream != "gpu"]
        # Slurm and shells add lines when a job is ended.
        written = [file.modified for file in files if not is_of_ending((file.tail(1) or [""])[0])]
        silent = status.ended - max((at for at in written if at is not None), default=status.ended)
        if silent > limit:
            text = f"the last output was {_time(silent)} before the end (limit {_time(limit)})"
            yield rule.found(text, command="fabtui read shows flight recorder dumps, if there are any")


def _full_folders(rule: JobRule, facts: JobFacts) -> Found:
    for folder in facts.full[:_MOST]:
        text = f"no space is left for logs in {folder}: what ranks print is lost, and some may end by that"
        yield rule.found(text, command=f"df -h {shlex.quote(folder)}")


def _slow_iterations(rule: JobRule, facts: JobFacts) -> Found:
    times = facts.logs.iterations
    slow, usual = times.slow, times.median
    if slow and usual is not None:
        worst = max(slow, key=lambda one: one.seconds or 0.0)
        more = f"; {len(slow)} in all" if len(slow) > 1 else ""
        text = f"iteration {worst.number} took {worst.seconds:.4g} s, the median is {usual:.4g} s{more}"
        yield rule.found(text)


def _sources(who: list[str]) -> str:
    """Return who printed a value: nodes folded, or how many."""
    if len(who) > _MOST:
        return count(len(who), "other node" if len(who) > 1 else "node")
    return fold(who) if all(" " not in one for one in who) else ", ".join(who)


def _value(text: str) -> str:
    return text[:80] or '""'


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else clock(round(seconds))


#: Check of each rule by its id, in the order of their findings; the rest is in `knowledge/rules.toml`.
_CHECKS: Mapping[str, Callable[[JobRule, JobFacts], Found]] = {
    "J01": _ended,
    "J02": _dead_ranks,
    "J03": _idle_gpus,
    "J04": _error_lines,
    "J05": _bad_losses,
    "J06": _different_settings,
    "J08": _node_ranks,
    "J11": _master_address,
    "J12": _silence,
    "J13": _slow_iterations,
    _FULL: _full_folders,
}
register_family(JobRule, {rule_id: {"check": check} for rule_id, check in _CHECKS.items()})


def report_of(facts: JobFacts, unread: Sequence[str] = ()) -> JobReport:
    """Return the report of a job: the most severe findings first, and what hangs before others."""
    # What is observed on its nodes has findings of its own, with other facts.
    findings = [one for one in diagnose(Evidence(job=facts)).all_findings if one.rule.domain is Domain.JOBS]
    findings.sort(key=lambda one: (one.severity.rank, one.rule.id != _FULL, not one.facts.get("hangs")))
    suspects = {node for one in findings if one.severity is not Severity.NOTE for node in one.nodes}
    rows = tuple(_row(facts, node, node in suspects) for node in facts.logs.nodes)
    if not facts.status.job and facts.logs.files and not facts.shows_work and not findings:
        unread = [*unread, "the state of the job: its logs have no iteration, no sample of GPUs and no error"]
    return JobReport(facts, rows, tuple(findings), tuple(unread))


def _row(facts: JobFacts, node: str, suspect: bool) -> NodeRow:
    logs = facts.logs
    files = logs.of(node, "out", "err")
    written = [file for file in files if file.size]
    reported = facts.nodes.get(node)
    history = logs.gpus.get(node)
    ranks = None if reported is None or reported.ranks is None else len(reported.ranks)
    # A log of the whole job speaks for a node only where no node has one of its own.
    common = not any(file.node for file in logs.files.values() if file.stream != "gpu") and logs.of("", "out", "err")
    state = "suspect" if suspect else "no ranks" if _is_empty(facts, node) else "ok" if files or common else "no logs"
    return NodeRow(
        node,
        state,
        logs.quiet(node),
        written[-1].stream if written else None,
        _iteration(files),
        history.latest if history is not None else None,
        gpu_age(facts, node),
        sum(file.errors.count for file in files),
        ranks,
    )


def _is_empty(facts: JobFacts, node: str) -> bool:
    """Return True if a running job has no rank on a node, and ranks on others."""
    counts = {name: len(one.ranks) for name, one in facts.nodes.items() if one.ranks is not None}
    return facts.status.stage == "running" and counts.get(node) == 0 and any(counts.values())


def _iteration(files: Sequence[LogFile]) -> str:
    """Return the last iteration that a node has printed, such as ``30/50``."""
    for file in reversed(files):
        for line in reversed(file.tail()):
            if (found := iteration_of(line)) is not None:
                return f"{found.number}/{found.total}"
    return ""
