"""The user's own command that is run when a job hangs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping

#: Timeout (s) of the command.
DEADLINE = 600.0


async def run_command(command: str, variables: Mapping[str, str], deadline: float = DEADLINE) -> str:
    """Run a command of the user's shell on this machine; return how it ended.

    It gets no input, writes to standard error, and is killed with its children after the deadline.
    """
    child = await asyncio.create_subprocess_shell(
        command,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=2,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(deadline):
            code = await child.wait()
    except (TimeoutError, asyncio.CancelledError) as ended:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
        if isinstance(ended, asyncio.CancelledError):
            raise
        return f"was ended after {deadline:.0f} s"
    return f"ended with exit code {code}" if code else "ended well"
