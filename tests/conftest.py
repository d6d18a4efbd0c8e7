"""Shared fixtures, models built from events, and the rule that CI skips nothing it should run."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import itertools
import os
import re
import shutil
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from fabtui.model.endpoints import Endpoint
from fabtui.model.events import EndpointsAdded, Event, Measured, SessionStart, event_from_json
from fabtui.model.measurement import Measurement
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model

from .effort import EXAMPLES, PROFILE
from .forks import pytest_addoption as pytest_addoption
from .forks import pytest_runtestloop as pytest_runtestloop

# The time of one example depends on the load of the machine. Machines with GPUs lack hypothesis.
with contextlib.suppress(ImportError):
    from hypothesis import HealthCheck, settings

    for _profile, _count in EXAMPLES.items():
        settings.register_profile(
            _profile,
            max_examples=_count,
            deadline=None,
            # A commit passes or fails each time; new inputs are for the other profiles.
            derandomize=_profile == "ci",
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile(PROFILE)

# The same width, colours and time zone for everyone, also in the commands that tests start.
for _name in ("COLUMNS", "LINES", "NO_COLOR"):
    os.environ.pop(_name, None)
os.environ["TZ"] = "UTC"
time.tzset()

#: Skips that are right on a machine of CI, by their reason; any other skip means that CI tests less than it should.
ALLOWED_SKIPS = re.compile(
    r"\b(GPUs?|CUDA|NCCL|real samples?|Python 3\.8|Chromium|only root|namespaces cannot be made|no package index)\b"
)

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

#: Characters of a parameter's text that may be in the name of a test.
_LONGEST_ID = 200


def _strict() -> bool:
    return os.environ.get("FABTUI_CI") == "1"


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    return str(report.longrepr)


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure where everything has to run."""
    if _strict() and report.skipped and not hasattr(report, "wasxfail") and not ALLOWED_SKIPS.search(_reason(report)):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where it has to run: {_reason(report)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a long text by its length: pytest would put all of it into the name of the test."""
    return f"{argname}-of-{len(val)}-characters" if isinstance(val, str) and len(val) > _LONGEST_ID else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from walking thousands of tests, as they are made and ever after."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # Apps of tests leave megabytes each: to look for garbage as often as Python does took a sixth of their time.
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for folder in ("wire", "lab"):
            if item.nodeid.startswith(f"tests/{folder}/"):
                item.add_marker(folder)


@pytest.fixture(autouse=True)
def _own_state_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the state folder and the settings of the user out of the tests, and the history of other tests."""
    state = tmp_path_factory.getbasetemp() / "state"
    shutil.rmtree(state / "fabtui" / "history", ignore_errors=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "config"))
    monkeypatch.delenv("FABTUI_CONFIG", raising=False)


class ModelMaker:
    """Makes models of events, the way a session does."""

    START = 1_700_000_000.0

    def __init__(self) -> None:
        self.events: list[Event] = []

    @property
    def now(self) -> float:
        return self.START + len(self.events) * 0.5

    def add(self, kind: str, **fields: Any) -> ModelMaker:
        value = {"kind": kind, "seq": len(self.events), "time": self.now, **fields}
        self.events.append(event_from_json(value))
        return self

    def start(self, nodes: Iterable[str], **fields: Any) -> ModelMaker:
        options = {"probes": ["ping", "p2p", "all_reduce"], **fields.pop("options", {})}
        return self.add("start", format=1, version="0.1.0", nodes=list(nodes), options=options, **fields)

    def endpoints(self, counts: dict[str, int], **fields: Any) -> ModelMaker:
        """Add endpoints and the state of their nodes; a node of 0 endpoints gets the row that shows it."""
        ends: list[dict[str, Any]] = []
        for node, count in counts.items():
            for index in range(max(count, 1)):
                kind = "cpu" if count else "none"
                ends.append({"number": len(ends), "node": node, "index": index, "kind": kind, "name": "CPU rank"})
            self.add("node", node=node, state="ready" if count else "failed", text="" if count else "refused")
        return self.add("endpoints", endpoints=ends, **fields)

    def measured(self, layer: str, src: str, dst: str, verdict: str = "ok", **fields: Any) -> ModelMaker:
        time = self.START + len(self.events)
        value = {"layer": layer, "src": src, "dst": dst, "verdict": verdict, "time": time, **fields}
        # Not validated: what the model does with hostile text is tested with this.
        measured = Measured([Measurement.from_json(value)], seq=len(self.events), time=self.now)
        self.events.append(measured)
        return self

    def pairs(self, names: list[str], value: float = 2.0) -> ModelMaker:
        """Add a good p2p measurement for each ordered pair."""
        for src in names:
            for dst in names:
                if src != dst:
                    self.measured("p2p", src, dst, value=value, unit="GB/s", bytes=4 << 20, transport="gloo/tcp")
        return self

    def model(self) -> Model:
        model = Model()
        for event in self.events:
            model.apply(event)
        return model


def session_of(
    nodes: Iterable[str], each: int = 1, *, rails: bool = False, time: float = 1.0, options: Any = None, **texts: Any
) -> Model:
    """Return a session of nodes with endpoints, whose texts have places for ``{index}``, and ``{host}`` from 1."""
    model, names = Model(), list(nodes)
    model.apply(SessionStart(nodes=names, options=options or {}, time=time))
    ends: list[Endpoint] = []
    for host, index in itertools.product(range(len(names)), range(each)):
        fields = {name: text and text.format(index=index, host=host + 1) for name, text in texts.items()}
        ends.append(Endpoint(len(ends), names[host], index, rail=index if rails else None, **fields))
    model.apply(EndpointsAdded(endpoints=ends, time=time))
    return model


def replayed(path: Path) -> Model:
    model = Model()
    for event in read_events(path):
        model.apply(event)
    return model


@pytest.fixture
def make_model() -> Callable[[], ModelMaker]:
    return ModelMaker
