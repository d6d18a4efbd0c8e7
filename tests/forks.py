"""``--forks N``: tests in several processes, forked once all of them are collected.

Separate processes would each start, import and collect, and report every step of every test to a main process. That
takes a fifth of the time of the fast tests.
"""

import mmap
import multiprocessing
import os
import struct
import time
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any

import pytest

#: A share of the tests: the numbers of its first test and of the one after its last.
_SHARE = struct.Struct("<II")
#: Maximum number of tests in a share, and how many shares each process would get of what is left.
_MOST_TESTS, _SHARES = 64, 8
#: The number of the test that a process runs.
_RUNNING = struct.Struct("<I")
#: Seconds after which a process sends its reports, and from which on a setup or teardown that passed is reported.
_SEND_AFTER, _WORTH_REPORTING = 0.25, 0.005


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, metavar="N", help="run the tests in N processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in processes; return None where pytest has to run them."""
    option = session.config.option
    alone = option.collectonly or option.usepdb or getattr(option, "update_snapshots", False)
    if option.forks < 2 or alone or session.testsfailed or not session.items:
        return None
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        # Tests of several files run at the same time.
        terminal.showfspath = False
    _Parent(session).run(option.forks)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    return True


def _shares(tests: int, processes: int) -> Iterator[bytes]:
    """Divide the tests: many at first, as neighbours share fixtures, and few in the end."""
    begin = 0
    while begin < tests:
        end = begin + min(_MOST_TESTS, (tests - begin) // (_SHARES * processes) + 1)
        yield _SHARE.pack(begin, end)
        begin = end


class _Parent:
    def __init__(self, session: pytest.Session) -> None:
        self._session, self._hook = session, session.config.hook
        self._processes: dict[Connection, tuple[ForkProcess, mmap.mmap]] = {}

    def run(self, count: int) -> None:
        queue, end = os.pipe()
        os.write(end, b"".join(_shares(len(self._session.items), count)))
        os.close(end)
        # What all of them need is made before.
        self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        try:
            for number in range(count):
                self._start(f"fork{number}", queue)
            while self._processes:
                for ready in wait(list(self._processes)):
                    assert isinstance(ready, Connection)
                    self._receive(ready)
                if self._session.shouldfail:
                    # Nothing is left for the others.
                    os.read(queue, len(self._session.items) * _SHARE.size)
        finally:
            os.close(queue)
            for process, _ in self._processes.values():
                process.terminate()
                process.join()

    def _start(self, name: str, queue: int) -> None:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        running = mmap.mmap(-1, _RUNNING.size)
        child = _Child(self._session, queue, theirs, running)
        process = multiprocessing.get_context("fork").Process(target=child.run, args=(name,))
        process.start()
        theirs.close()
        self._processes[ours] = process, running

    def _receive(self, connection: Connection) -> None:
        try:
            reports: list[dict[str, Any]] = connection.recv()
        except EOFError:
            process, running = self._processes.pop(connection)
            process.join()
            if process.exitcode:
                test = self._session.items[_RUNNING.unpack(running)[0]]
                raise RuntimeError(f"exit code {process.exitcode} of a process that ran {test.nodeid}") from None
            return
        for data in reports:
            if "warning" in data:
                warning, when, nodeid, location = data["warning"]
                fields = {"warning_message": warnings.WarningMessage(*warning), "when": when}
                self._hook.pytest_warning_recorded.call_historic(
                    kwargs={**fields, "nodeid": nodeid, "location": location}
                )
                continue
            report = self._hook.pytest_report_from_serializable(config=self._session.config, data=data)
            self._hook.pytest_runtest_logreport(report=report)
            self._hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)


class _Child:
    def __init__(self, session: pytest.Session, queue: int, out: Connection, running: mmap.mmap) -> None:
        self._session, self._config = session, session.config
        self._queue, self._out, self._running = queue, out, running
        self._reports: list[dict[str, Any]] = []
        self._sent = time.monotonic()

    def run(self, name: str) -> None:
        """Run shares of the tests until none is left."""
        plugins, items = self._config.pluginmanager, self._session.items
        # In its place: what explains a failed assertion asks it how to write.
        terminal = plugins.unregister(name="terminalreporter")
        self._tw = terminal._tw  # type: ignore[union-attr]
        plugins.register(self, "terminalreporter")
        factory = self._config._tmp_path_factory  # type: ignore[attr-defined]
        factory._basetemp = factory.getbasetemp() / name
        factory._basetemp.mkdir()
        numbers = self._numbers()
        at = next(numbers, None)
        while at is not None:
            following = next(numbers, None)
            _RUNNING.pack_into(self._running, 0, at)
            nextitem = None if following is None else items[following]
            self._config.hook.pytest_runtest_protocol(item=items[at], nextitem=nextitem)
            at = following
            if self._session.shouldfail:
                self._session._setupstate.teardown_exact(None)
                break
        self._send()

    def _numbers(self) -> Iterator[int]:
        while share := os.read(self._queue, _SHARE.size):
            yield from range(*_SHARE.unpack(share))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed or report.sections or report.duration > _WORTH_REPORTING:
            serialize = self._config.hook.pytest_report_to_serializable
            self._reports.append(serialize(config=self._config, report=report))
        if report.failed or time.monotonic() > self._sent + _SEND_AFTER:
            self._send()

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: object
    ) -> None:
        found = (str(warning_message.message), warning_message.category, warning_message.filename)
        self._reports.append({"warning": ((*found, warning_message.lineno), when, nodeid, location)})

    def _send(self) -> None:
        if self._reports:
            self._out.send(self._reports)
            self._reports.clear()
        self._sent = time.monotonic()
