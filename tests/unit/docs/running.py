"""Commands of the documentation run in a shell, and their output compared with the documented one."""

import os
import re
import subprocess
import sys
from pathlib import Path

#: Variables of jobs and prologs.
VARIABLES = {"SLURM_JOB_NODELIST": "n[060-063]", "SLURMD_NODENAME": "n060", "SECRET": "salt"}


def run_in_shell(statement: str) -> tuple[int, str, str]:
    """Run a statement; return the exit code, and what it printed as output and as errors."""
    env = {**os.environ, **VARIABLES, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", statement], env=env, capture_output=True, text=True, timeout=110, check=False)
    return done.returncode, done.stdout, done.stderr


def check_transcript(expected: str, printed: str) -> None:
    """Check that an output is the expected one, in which a line of three dots stands for any lines."""
    lines = (line.rstrip() for line in expected.strip().splitlines())
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line) + r"\n" for line in lines)
    printed = "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())
    assert re.fullmatch(pattern, printed), f"printed:\n{printed}"
