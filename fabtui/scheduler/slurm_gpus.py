"""GPUs of nodes that jobs hold, from ``scontrol show job -d``: GPUs of other users are not tested.

Slurm counts the device files of ``gres.conf``, which follow the order of the driver: index 2 is /dev/nvidia2.
"""

from __future__ import annotations

import getpass
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from fabtui.nodeset import expand_listed
from fabtui.scheduler.base import ask
from fabtui.scheduler.slurm import known_name

_HELD = re.compile(r"\bNodes=(\S+) .*\bGRES=(\S+)")
_INDEXES = re.compile(r"\bgpu[^(,]*\((?:[^()]*,)?IDX:([\d,-]+)\)")
#: Jobs of others on the nodes that are asked about, and questions at once.
_MOST_JOBS, _AT_ONCE = 256, 8
#: Largest index of a GPU in a node.
_MOST_GPUS = 64


class GpuUse(NamedTuple):
    """GPUs of nodes by index, as far as jobs hold some."""

    own: Mapping[str, tuple[int, ...]]  #: Those of the user's jobs in question, by node; only these are tested.
    others: Mapping[str, tuple[int, ...]]  #: GPUs of other users' jobs, by node; these are not tested.
    constrained: bool = False  #: Whether the cgroup of a job shows its GPUs only, renumbered.
    problem: str = ""  #: Why this is unknown, or "".

    def setting(self, node: str) -> dict[str, object] | None:
        """Return what the node gets to know; None if all of its GPUs may be tested."""
        for kind, held in (("only", self.own), ("without", self.others)):
            if (name := known_name(node, held)) is not None:
                return {kind: list(held[name]), "constrained": self.constrained}
        return None


NOTHING_HELD = GpuUse({}, {})


def gpu_use(nodes: Sequence[str], job: str) -> GpuUse:
    """Return which GPUs of some nodes are those of a job (or several, with commas), or of other users without a job.

    Blocks. Nothing is held where Slurm is not installed.
    """
    if shutil.which("squeue") is None:
        return NOTHING_HELD
    if job:
        return GpuUse(_held(job.split(",")), {}, _is_constrained())
    names = ",".join(dict.fromkeys(node.partition(".")[0] for node in nodes))
    answer = ask(["squeue", "--noheader", "--states=RUNNING,SUSPENDED", f"--nodelist={names}", "--format=%A|%u|%b"])
    if answer.problem:
        # Nodes that Slurm does not know hold no jobs.
        unknown = "nvalid node" in answer.problem or "onfiguration source" in answer.problem
        return NOTHING_HELD if unknown else GpuUse({}, {}, problem=answer.problem)
    rows = [line.split("|", 2) for line in answer.lines]
    jobs = [row[0].strip() for row in rows if len(row) == 3 and "gpu" in row[2] and row[1].strip() != getpass.getuser()]
    if len(jobs) > _MOST_JOBS:
        return GpuUse({}, {}, problem=f"{len(jobs)} other jobs run on the nodes")
    return GpuUse({}, _held(jobs), _is_constrained()) if jobs else NOTHING_HELD


def _held(jobs: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the GPUs of jobs by node; without nodes on which they hold none."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda job: ask(["scontrol", "show", "job", "-d", job]), jobs))
    held: dict[str, set[int]] = {}
    for line in (line for answer in answers for line in answer.lines):
        if (match := _HELD.search(line)) is None:
            continue
        indexes = [index for text in _INDEXES.findall(match[2]) for index in _numbers(text)]
        for node in expand_listed(match[1]) or () if indexes else ():
            held.setdefault(node, set()).update(indexes)
    return {node: tuple(sorted(indexes)) for node, indexes in held.items()}


def _numbers(text: str) -> list[int]:
    """Return the numbers of ``0-1,5``; a part that is not a range has none."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if first.isdecimal() and last.isdecimal() and int(last) < _MOST_GPUS:
            numbers += range(int(first), int(last) + 1)
    return numbers


def _is_constrained() -> bool:
    lines = ask(["scontrol", "show", "config"]).lines
    return any(re.match(r"ConstrainDevices\s*=\s*yes", line) for line in lines)
