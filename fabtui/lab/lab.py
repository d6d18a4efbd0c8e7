"""A lab: simulated nodes on this machine, used like any other set of nodes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fabtui.lab.spec import Fault, LabSpec, NodeFault

__all__ = ["Lab", "LabError", "LabSpec"]

START_TIMEOUT = 60.0
END_TIMEOUT = 9.0
_KEPT_STDERR = 8192


class LabError(Exception):
    """The lab could not be started; the message is one line."""


class Lab:
    """SSH servers on loopback addresses of this machine, in a separate process.

    Faults of nodes are created here; the rank hosts create faults of pairs.
    """

    def __init__(self, spec: LabSpec, faults: Sequence[Fault] = ()) -> None:
        texts = [fault.text for fault in faults if isinstance(fault, NodeFault)]
        self._order = json.dumps({"endpoints": spec.endpoints, "faults": texts})
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._stderr = bytearray()
        self._folder: Path | None = None
        self.ssh_config = Path()  #: SSH configuration of the nodes.
        self.nodes: list[str] = []
        self.note: str | None = None  #: A note for the user, or None.
        #: Each node's name, address, port, endpoints and gpus, as reported by the lab process.
        self.places: list[dict[str, Any]] = []

    async def __aenter__(self) -> Lab:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        # -P: files in the working directory must not shadow the standard library. A ^C in the terminal goes to the
        # controller, which ends the lab in order.
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "fabtui.lab.server"),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            limit=1 << 20,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._listening = asyncio.create_task(self._listen())
        process.stdin.write(self._order.encode() + b"\n")
        try:
            async with asyncio.timeout(START_TIMEOUT):
                line = await process.stdout.readline()
        except TimeoutError:
            raise LabError(f"the lab did not start within {START_TIMEOUT:g} s") from None
        try:
            found = json.loads(line)
        except ValueError:
            raise LabError(f"the lab did not start: {await self._last_line()}") from None
        self._folder = Path(found["dir"])
        self.ssh_config = Path(found["ssh_config"])
        self.places = found["nodes"]
        self.nodes = [place["name"] for place in self.places]
        self.note = found["note"]

    async def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(65536):
            self._stderr += data
            del self._stderr[:-_KEPT_STDERR]

    async def _last_line(self) -> str:
        assert self._listening is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await asyncio.shield(self._listening)
        lines = self._stderr.decode("utf-8", "backslashreplace").strip().split("\n")
        return lines[-1].strip() or "it printed nothing"

    async def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(END_TIMEOUT):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        finally:
            if self._listening is not None:
                self._listening.cancel()
            if self._folder is not None:
                # The lab process removes the folder itself, unless it was killed.
                await asyncio.to_thread(shutil.rmtree, self._folder, True)
