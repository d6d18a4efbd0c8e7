"""Conclusions of a live session: its diagnosis, its first experiments, and its place in the history of the site.

Importing this takes 0.2 s (diagnosis, numpy): a session does it after the first frame.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from fabtui.diagnosis.diagnosis import Diagnosis, diagnose
from fabtui.diagnosis.experiment import first_planned
from fabtui.errors import InputError
from fabtui.history.entry import entry_of
from fabtui.history.file import HistoryWriter
from fabtui.history.query import remembered
from fabtui.model.events import Experiment
from fabtui.model.session_model import Model
from fabtui.presentation.findings import title
from fabtui.presentation.verdict_line import sentence_of

#: Time (s) that reading and writing the history get; a session ends without it then.
PATIENCE = 5.0


class Conclusions:
    """Conclusions of a session.

    Args:
        model: Model of the session.
        history: File of the site's history; None: the session neither reads nor writes it.
    """

    def __init__(self, model: Model, history: Path | None) -> None:
        self._model = model
        self._history = history

    def diagnosis(self) -> Diagnosis:
        return diagnose(self._model)

    def experiments(self, found: Diagnosis) -> Sequence[Experiment]:
        return first_planned(self._model, found.findings)

    def sentence(self, found: Diagnosis) -> str:
        return sentence_of(found)

    async def read_past(self) -> str:
        """Give the model what earlier sessions found; return why that failed, or ""."""
        path = self._history
        if path is None:
            return ""
        return await _aside(lambda: self._read(path), "read")

    async def remember(self, found: Diagnosis, recording: Path | None) -> str:
        """Add the session to the history of the site, after its recording; return why that failed, or ""."""
        path, model = self._history, self._model
        if path is None or not any(record.inventory for record in model.nodes.values()):
            return ""
        name = "" if recording is None else recording.name
        return await _aside(lambda: self._write(path, found, name), "written")

    def _read(self, path: Path) -> None:
        self._model.past = remembered(path)

    def _write(self, path: Path, found: Diagnosis, recording: str) -> None:
        HistoryWriter(path).add([entry_of(found, recording, title)], patience=PATIENCE / 2)


async def _aside(work: Callable[[], None], done: str) -> str:
    """Run some work in a thread that nobody waits for at the end; return what was wrong with it or ""."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[str] = loop.create_future()

    def finish(problem: str) -> None:
        if not result.done():
            result.set_result(problem)

    def run() -> None:
        try:
            work()
            problem = ""
        except InputError as error:
            problem = str(error)
        except Exception as error:
            # A session must not fail with its memory.
            problem = f"the history is not {done}: {type(error).__name__}: {error}"
        # The session may have ended meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, problem)

    threading.Thread(target=run, name="history", daemon=True).start()
    try:
        return await asyncio.wait_for(result, PATIENCE)
    except TimeoutError:
        return f"the history is not {done}: its file did not answer within {PATIENCE:.0f} s"
