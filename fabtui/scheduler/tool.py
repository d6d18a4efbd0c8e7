"""Commands of schedulers, run on this machine with a deadline."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

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
