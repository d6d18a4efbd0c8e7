"""A film that is made while it is watched: a cable of a lab is pulled, found and plugged in again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fabtui.diagnosis.finding import Severity
from fabtui.errors import InputError
from fabtui.lab.faults import LabSpec
from fabtui.lab.lab import Lab
from fabtui.sanitize import one_line
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import SessionOptions
from fabtui.session.watch import PHASE

#: Four nodes with two rails, and the cable.
LAB = LabSpec((2,) * 4, 2)
NODE, PORT = "n003", "eth1"
#: Time (s) of healthy watching, and from the verdict until the cable is plugged in again.
_HEALTHY, _STANDS = 5.0, 8.0
#: Time (s) within which the fault is found or gone, and the interval of checks.
_PATIENCE, _LOOK = 60.0, 0.25


class CableFilm(LiveFeed):
    """A session on a lab of its own, which ends with it, however it ends."""

    def __init__(self, record: Path | None = None) -> None:
        options = SessionOptions(
            hosts=LAB.names,
            # No ranks: they would need PyTorch, and seconds to start.
            probes=("ping",),
            record=record,
            origin="a lab on this machine: four nodes, two rails",
        )
        super().__init__(options)
        self._lab = contextlib.AsyncExitStack()
        self._story: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Make the lab and sweep; then watch, while the cable is pulled and plugged in again."""
        lab = await self._lab.enter_async_context(Lab(LAB))
        self._options = replace(self._options, ssh_config=lab.ssh_config)
        await super().run()
        self._story = asyncio.create_task(self._play(lab))

    async def close(self) -> None:
        if self._story is not None:
            self._story.cancel()
            await asyncio.gather(self._story, return_exceptions=True)
        try:
            await super().close()
        finally:
            await self._lab.aclose()

    async def _play(self, lab: Lab) -> None:
        loop = asyncio.get_running_loop()
        cable = f"{NODE}.{PORT}"
        try:
            self.watch(True)
            await asyncio.sleep(_HEALTHY)
            self._say(f"the cable of {cable} is pulled")
            await lab.ask("fault", f"{cable}=pull")
            pulled = loop.time()
            await self._until(self._blamed)
            self._say(f"found {loop.time() - pulled:.0f} s after the cable was pulled")
            await asyncio.sleep(_STANDS)
            await lab.ask("heal")
            healed = loop.time()
            self._say(f"the cable of {cable} is plugged in again")
            await self._until(self._clean)
            self._say(f"all pairs are ok again, {loop.time() - healed:.0f} s later; q ends the film and its lab")
        except (InputError, TimeoutError) as error:
            self._say(f"the film stops: {one_line(str(error), 200) or 'what was expected did not happen'}")

    def _say(self, text: str) -> None:
        self.badges[:] = [f"DEMO: {text}"]
        self._pump.log("notice", f"demo: {text}")

    async def _until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE):
            while not reached():  # noqa: ASYNC110
                await asyncio.sleep(_LOOK)

    def _blamed(self) -> bool:
        if self.model.phase.name != PHASE:
            # The test that found it has not ended.
            return False
        bad = (one for one in self.diagnosis().findings if one.severity is Severity.BAD)
        return any(getattr(step, "node", "") == NODE for one in bad for step in one.next[:1])

    def _clean(self) -> bool:
        return not any(self.model.verdict(one).bad for one in self.model.addresses.everything())
