"""A rank of another user that names files, tools and an address of that user; only root can start it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fabtui_node.system import job_processes

NOBODY = 65534
TOOLS = ("py-spy", "pystack")


class Stranger(NamedTuple):
    """The process, and its folder; a tool that runs from there notes it in the file ``ran``."""

    pid: int
    folder: Path


@contextmanager
def started_stranger() -> Iterator[Stranger]:
    folder = Path(tempfile.mkdtemp(prefix="fabtui-test-"))
    os.chown(folder, NOBODY, NOBODY)
    folder.chmod(0o755)
    shutil.copy("/bin/sleep", folder / "python3")
    for tool in TOOLS:
        (folder / tool).write_text(f"#!/bin/sh\nid -u >> '{folder}/ran'\n")
        (folder / tool).chmod(0o755)
    os.mkfifo(folder / "fr0.pipe")
    variables = {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "NCCL_RAS_ADDR": "192.0.2.1:9",
        "NCCL_INSPECTOR_DUMP_DIR": str(folder),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{folder}/fr",
        "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/trace_",
        "PATH": str(folder),
    }
    drop = [shutil.which("setpriv") or "", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    with subprocess.Popen([*drop, str(folder / "python3"), "120"], env={**os.environ, **variables}) as process:
        comm = Path(f"/proc/{process.pid}/comm")
        while job_processes.owner(process.pid) != (NOBODY, NOBODY) or "python3" not in comm.read_text():
            assert process.poll() is None
        (folder / "trace_0").write_bytes(b"x")
        (folder / f"h-pid{process.pid}.log").write_text("{}\n{}\n")
        yield Stranger(process.pid, folder)
        process.kill()
    shutil.rmtree(folder)
