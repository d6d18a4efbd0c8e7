"""The log of slurmd: what it complained of, and steps that did not end."""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import plain_lines

_LINE = re.compile(
    r"^(?:(?P<syslog>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?P<host>\S{1,253}) slurm\w{1,12}(?:\[\d+\])?: |slurm(?:d"
    r"|stepd)(?:-\S{1,60})?: )?"
    r"(?:\[(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?)\] )?"
    r"(?:\[(?P<job>\d{1,10})(?:\.(?P<step>[\w+.]{1,20}))?\] )?"
    r"(?:(?P<level>error|fatal|warning|debug\d?|info|verbose): )?(?P<text>.*)$"
)
_STEP = re.compile(
    r"\*\*\* (?:STEP|JOB) (?P<job>\d{1,10})(?:\.(?P<step>[\w+]{1,20}))?(?: ON (?P<before>\S{1,253}))?(?: STEPD)?"
    r" (?P<end>CANCELLED|TERMINATED|FAILED)(?: ON (?P<node>\S{1,253}))? AT (?P<at>\S{10,30})(?: DUE TO "
    r"(?P<why>.{1,100}?))? \*\*\*"
)
_MOST = 10_000


def parse(text: str) -> Reading:
    """Return ``steps`` that were ended (``job``, ``step``, ``node``, ``end``, ``why``), ``errors``, and ``lines``.

    ``why`` is None where the log gives no reason; one that was not ending with signals drains the node.
    """
    notes = Notes()
    steps: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    lines = 0
    for line in plain_lines(text):
        found = _LINE.match(line)
        if found is None or not (found["time"] or found["syslog"] or line.startswith("slurm")):
            notes.puzzled(line)
            continue
        lines += 1
        job = None if found["job"] is None else int(found["job"])
        entry = {"time": found["time"] or found["syslog"], "job": job, "step": found["step"], "host": found["host"]}
        ended = _STEP.search(found["text"])
        if ended and len(steps) < _MOST:
            why = None if ended["why"] is None else ended["why"].lower()
            where = ended["node"] or ended["before"]
            ending = {"job": int(ended["job"]), "step": ended["step"], "node": where, "end": ended["end"].lower()}
            steps.append({**entry, **ending, "why": why})
            if why and "not ending" in why:
                step = f" step {ended['step']}" if ended["step"] else ""
                notes.warn(f"job {ended['job']}{step} on {where}: {why}; such a node is drained")
        if found["level"] in ("error", "fatal") and len(errors) < _MOST:
            errors.append({**entry, "level": found["level"], "text": found["text"][:300]})
            if ended is None:
                notes.warn(found["text"])
    if not lines:
        notes.warn("no line of slurmd")
    return notes.reading({"lines": lines, "steps": steps, "errors": errors})


_LIKELY = first_of(
    (0.93, r"^\[\d{4}-\d\d-\d\dT[\d:.]+\] (?:\[\d+\.[\w+]+\] |launch task|task_p_|_run_prolog|slurmd |error: )"),
    (0.85, r"^(?:\S+ +\S+ \S+ \S+ )?slurmd(?:\[\d+\]|-\S+)?: "),
)
FORMATS = [Format("slurmd-log", "the log of slurmd: errors, and steps that did not end", _LIKELY, parse, log=True)]
