import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fabtui_node
from fabtui_node import registry

ROOT = Path(fabtui_node.__path__[0]).parents[1]


def test_the_names() -> None:
    assert {"inventory", "ping", "udp", "ibstat", "nvlink", "counters", "host", "clock", "firewall"} <= set(
        registry.PROBES
    )
    assert list(registry.TESTS) == ["p2p", "all_reduce"]
    assert set(registry.PREFLIGHT) <= set(registry.DEFAULT)
    assert registry.OPTIONAL == ("hostlink", "iperf3", "perftest", "storage")


@pytest.mark.parametrize("entry", [*registry.PROBES.values(), *registry.TESTS.values()], ids=lambda entry: entry.name)
def test_each_entry_is_one_line_for_users(entry: Any) -> None:
    for text in (entry.title, entry.needs, entry.gives):
        assert text
        assert "\n" not in text


@pytest.mark.parametrize("name", registry.PROBES)
def test_the_declaration_in_the_source_is_the_one_in_the_module(name: str) -> None:
    read: Any = registry.PROBES[name]
    if read.parse is not None:
        # Its function ``run`` is wrapped.
        read = read._replace(run=read.run.args[0])
    module = importlib.import_module(read.run.args[0])
    specs = [value for value in vars(module).values() if isinstance(value, registry.ProbeSpec)]
    (imported,) = (spec for spec in specs if spec.name == name)
    functions = ("run", "parse", "judge")
    for field in registry.ProbeSpec._fields:
        if field not in functions:
            assert getattr(read, field) == getattr(imported, field)
    for field in functions:
        assert (getattr(read, field) is None) == (getattr(imported, field) is None)
        assert getattr(imported, field) is None or callable(getattr(module, getattr(read, field).args[1]))


def test_run_hands_the_arguments_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from fabtui_node.probes.network import ping

    def emit(value: dict[str, Any]) -> None:
        raise AssertionError(value)

    monkeypatch.setattr(ping, "run", lambda *given: {"given": given})
    assert registry.PROBES["ping"].run({"count": 1}, emit, 2.0) == {"given": ({"count": 1}, emit, 2.0)}


@pytest.mark.parametrize("fields", ["", 'phase="never",', 'phase="load", title=1 + x,'])
def test_a_wrong_declaration_is_an_error(fields: str) -> None:
    source = f'PROBE = ProbeSpec(\n    name="x", needs="", gives="", run=run, {fields}\n)\n'
    with pytest.raises((ValueError, TypeError)):
        registry.collect({"fabtui_node.probes.x": source})


def test_two_probes_with_one_name_are_an_error() -> None:
    source = 'PROBE = ProbeSpec(\n    name="x", title="x", phase="load", needs="", gives="", run=run\n)\n'
    assert list(registry.collect({"a": source})) == ["x"]
    with pytest.raises(ValueError, match="same name"):
        registry.collect({"a": source, "b": source})


#: Values that no probe gives, and a broken or changed node side may.
ODD: list[dict[str, Any]] = [
    *({}, {"ports": None, "fabric": None}, {"ports": [{}], "fabric": {}}, {"gpus": 3}, {"gpus": [1, None, {}]}),
    {"gpus": [{"pcie": 3, "errors": [], "rows": "x", "fabric": {"state": 7}, "reasons": [1]}], "on_pci": [None]},
    {"gpus": [{"index": "x", "pcie": {"width": "a", "width_max": []}, "ecc": {"next": 3}, "mig": {"next": "x"}}]},
    {"fabric_manager": {"switches": 1, "version": 3}, "driver": [], "problems": 5, "disagreements": {}},
    {"gpus": [None, {"links": 3}, {"links": [{}, None, {"state": "active", "speed": "x"}]}]},
    {"matrix": None, "p2p": None},
    {"matrix": {"columns": ["GPU0", 3], "rows": ["GPU0", None], "cells": [["X"], 5, None]}},
    {"matrix": {"columns": ["GPU0", "GPU1"], "rows": ["GPU0", "GPU1"], "cells": [[[], {}], ["NV1", 1]]}},
    {"p2p": {"read": {"bad": [["GPU0", "GPU1", None], 3], "columns": 4}}},
    {"counts": [1, {}, {"kind": "xid", "code": "x"}, {"kind": ["x"], "count": "3", "age": "y"}]},
    {"counts": [{"kind": "aer", "code": None}, {"kind": "link_down", "count": True}]},
]


@pytest.mark.parametrize("name", [name for name, probe in registry.PROBES.items() if probe.judge is not None])
def test_any_value_is_judged(name: str) -> None:
    judge = registry.PROBES[name].judge
    assert judge is not None
    for value in ODD:
        for judgement in judge(value):
            assert set(judgement) - {"devices", "check"} == {"subject", "verdict", "text"}, value


# -- one declaration adds a probe -------------------------------------------------------------------------------------

SCRATCH = '''
"""Scratch file system."""

from fabtui_node.registry import ProbeSpec
from fabtui_node.system import run_command


def run(args, emit, deadline):
    return run_command.run(["echo", "xfs 1048576 93"], deadline).stdout


def parse(text):
    kind, size, used = text.split()
    return {"disk": {"type": kind, "size": int(size)}, "used": int(used)}


def judge(value):
    return [{"subject": "scratch", "verdict": "warn", "text": "the scratch file system is %d %% full" % value["used"]}]


PROBE = ProbeSpec(
    name="scratch",
    title="the scratch file system",
    phase="inspect",
    needs="nothing",
    gives="type, size and use",
    run=run,
    parse=parse,
    judge=judge,
    units={"disk.size": "B", "used": "%"},
    compare={"disk.type": "kind"},
    view=(("file system", "disk.type"), ("size", "disk.size"), ("used", "used")),
    next="ssh {node} df -h /scratch",
)
'''

NODE_VIEW = """
import gzip, json, sys
from fabtui.screen.views.node import declared_lines
results = {}
for line in gzip.open(sys.argv[1], "rt"):
    event = json.loads(line)
    if "probe" in event and "value" in event:
        results[event["probe"]] = event["value"]
for line in declared_lines(results):
    print("".join(text for text, _ in line))
"""


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of an installation whose node side has one file more."""
    folder = tmp_path_factory.mktemp("added")
    shutil.copytree(ROOT / "probes/fabtui_node", folder / "fabtui_node", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "fabtui_node/probes/scratch.py").write_text(SCRATCH)
    state = {name: str(folder / "home") for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    return {**os.environ, **state, "PYTHONPATH": f"{folder}:{ROOT}", "COLUMNS": "120"}


def fabtui(env: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fabtui", *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_one_file_adds_a_probe_to_preflight_and_the_node_view(added: dict[str, str], tmp_path: Path) -> None:
    recording = tmp_path / "r.jsonl.gz"
    node = ("--nodes", "here", "--transport", "local", "--all", "--quiet")
    done = fabtui(added, "preflight", *node, "--json", str(tmp_path / "p.json"), "--record", str(recording))
    assert "the scratch file system is 93 % full" in done.stdout, done.stderr
    # The node is this machine: what is copied and run there has no ssh.
    assert "next: ssh here df -h /scratch (local: runs here)\n" in done.stdout
    found = json.loads((tmp_path / "p.json").read_text())
    (fact,) = (fact for fact in found["facts"] if fact["name"] == "scratch.disk.type")
    assert (fact["title"], fact["compare"]) == ("scratch: file system", "kind")
    assert found["nodes"][0]["facts"]["scratch.disk.type"] == "xfs"
    shown = subprocess.run(
        [sys.executable, "-c", NODE_VIEW, str(recording)], env=added, capture_output=True, text=True, timeout=60
    )
    assert "file system  xfs" in shown.stdout, shown.stderr
    assert "size         1 MiB" in shown.stdout
    assert "used         93 %" in shown.stdout
