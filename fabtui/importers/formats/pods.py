"""Pods of Kubernetes by node: ``kubectl get pods -o wide``."""

from __future__ import annotations

import collections
import re
from itertools import pairwise

from fabtui.importers.tables import Values
from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import plain_lines

#: Maximum number of pods.
_MOST = 100_000
_COLUMN = re.compile(r"[A-Z]\S{0,30}(?: (?:NODE|GATES))?")
#: The beginning of a row: a name of a pod, or of its namespace.
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}\s")
#: What differs between the names of pods of one job.
_MEMBER = re.compile(r"(?:-(?:\d{1,5}|[a-z0-9]{5})){1,8}$")
_WELL = ("Running", "Completed", "Succeeded", "Pending", "ContainerCreating", "Terminating")
#: What the state of a pod that does not run means, by the beginning of its word.
_STATES = (
    ("CrashLoop", "it ends again and again: kubectl logs --previous POD"),
    ("OOMKilled", "its limit of memory is too low: kubectl describe pod POD"),
    ("ImagePull", "its image cannot be fetched: kubectl describe pod POD"),
    ("ErrImage", "its image cannot be fetched: kubectl describe pod POD"),
    ("Evicted", "its node ran short of memory or disk: kubectl describe pod POD"),
    ("Init:", "a container before it fails or waits: kubectl logs POD -c CONTAINER"),
    ("", "kubectl describe pod POD; kubectl logs POD"),
)


def _parse(text: str) -> Reading:
    """Return ``pods``, and what is wrong: ``answer``, ``next``, ``problem``."""
    notes, columns, rows = Notes(), dict[str, int](), list[Values]()
    for line in plain_lines(text):
        if re.match(r"(?:NAMESPACE\s+)?NAME\s+READY\s", line):
            columns = {found[0].lower(): found.start() for found in _COLUMN.finditer(line)}
        elif not line.strip() or not _NAME.match(line):
            columns = {}
        elif columns and len(rows) < _MOST:
            cells = [line[start:end].strip() for start, end in pairwise([*columns.values(), None])]
            rows.append({name: None if cell == "<none>" else cell for name, cell in zip(columns, cells, strict=True)})
    answer, steps, problem = list[str](), list[str](), ""
    groups = collections.Counter(
        (row["node"], _MEMBER.sub("", row["name"] or ""))
        for row in rows
        if row.get("node") and row.get("status") in ("Running", "Pending") and _MEMBER.search(row["name"] or "")
    )
    for (node, job), pods in groups.items():
        if pods > 1:
            problem = "pods of a job share a node"
            answer.append(f"{pods} pods of {job} are on the node {node}: they share its GPUs, NICs and bandwidth")
            steps = ["spread them (podAntiAffinity, topologySpreadConstraints), or ask for all GPUs of a node per pod"]
    for row in rows:
        status = row.get("status") or ""
        if not status.startswith(_WELL):
            problem = problem or "pods do not run"
            where = f" on {row['node']}" if row.get("node") else ""
            answer.append(f"{row['name']}: {status}{where}")
            steps.append(
                next(words for begins, words in _STATES if status.startswith(begins)).replace("POD", row["name"])
            )
    steps = [*dict.fromkeys(steps)]
    values = {"answer": answer, "next": steps[:8], "problem": problem, "pods": rows} if answer else {"pods": rows}
    return notes.reading(values)


FORMATS = [
    Format(
        "kubectl-pods",
        "pods of Kubernetes: those that do not run, and pods of a job on one node",
        first_of(
            (0.0, r"^Events:|^ {1,20}Type +Reason"), (0.95, r"^(?:NAMESPACE\s+)?NAME\s+READY\s+STATUS\s+RESTARTS\s+AGE")
        ),
        _parse,
        aliases="pods",
    )
]
