"""Commands of schedulers, run on this machine with a deadline, and the nodes of a job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from fabtui.nodeset import fold
from fabtui.sanitize import clean, last_line

#: Deadline (s) of a command: an overloaded controller of Slurm answers late.
DEADLINE = 10.0
#: Bytes of output that are read.
_MOST = 16 << 20


class ToolOutput(NamedTuple):
    """Output of a command."""

    lines: list[str]  #: Lines of standard output, cleaned; none if it failed.
    problem: str = ""  #: Why it failed, in one line, or "".
    missing: bool = False  #: Whether there is no such program.


def ask(words: Sequence[str], deadline: float = DEADLINE) -> ToolOutput:
    """Run a command and return its answer; never raises for what the command does. Blocks: call it in a thread."""
    environment = {**os.environ, "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}
    try:
        done = subprocess.run(
            list(words), stdin=subprocess.DEVNULL, capture_output=True, timeout=deadline, env=environment, check=False
        )
    except FileNotFoundError:
        return ToolOutput([], f"{words[0]} is not installed here", missing=True)
    except subprocess.TimeoutExpired:
        return ToolOutput([], f"{words[0]} did not answer within {deadline:g} s")
    except OSError as error:
        return ToolOutput([], f"{words[0]} cannot be run: {error.strerror}")
    if done.returncode:
        printed = last_line(clean(done.stderr[-4096:]), 200) or last_line(clean(done.stdout[-4096:]), 200)
        return ToolOutput([], printed or f"{words[0]} ended with status {done.returncode}")
    return ToolOutput([line for line in clean(done.stdout[:_MOST]).splitlines() if line.strip()])


class Allocation(NamedTuple):
    """Nodes of a job or of several, of a step, or of pods."""

    title: str  #: What they belong to: ``job 12``, ``step 12.0``.
    nodes: tuple[str, ...]  #: Their names, in order.
    source: str  #: Where that is from: ``squeue``, a variable.
    job: str = ""  #: The job or jobs as the scheduler names them, with commas.
    #: Options of srun that select the job and the node, by node; none outside Slurm.
    placements: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    groups: Mapping[str, str] = MappingProxyType({})  #: Group within a heterogeneous job, by node.

    def describe(self) -> str:
        """Return one line with the nodes and where they are from."""
        names = fold(self.nodes)
        if len(set(self.groups.values())) > 1:
            by_group: dict[str, list[str]] = {}
            for node in self.nodes:
                by_group.setdefault(self.groups.get(node, ""), []).append(node)
            names = ", ".join(f"{fold(nodes)} (group {group})" for group, nodes in by_group.items())
        return f"nodes of {self.title}: {names} ({self.source})"
