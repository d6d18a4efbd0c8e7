from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest

from fabtui_node import registry


def test_the_names() -> None:
    assert {"inventory", "ping", "udp", "ibstat", "nvlink", "counters", "host", "clock", "firewall"} <= set(
        registry.PROBES
    )
    assert list(registry.TESTS) == ["p2p", "all_reduce"]


@pytest.mark.parametrize("entry", [*registry.PROBES.values(), *registry.TESTS.values()], ids=lambda entry: entry.name)
def test_each_entry_is_one_line_for_users(entry: Any) -> None:
    for text in (entry.title, entry.needs, entry.gives):
        assert text
        assert "\n" not in text


@pytest.mark.parametrize("probe", registry.PROBES.values(), ids=lambda probe: probe.name)
def test_each_probe_can_be_run(probe: registry.Probe) -> None:
    assert callable(importlib.import_module(f"fabtui_node.{probe.module}").run)


def test_run_hands_the_arguments_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from fabtui_node.probes.network import ping

    def emit(value: dict[str, Any]) -> None:
        raise AssertionError(value)

    monkeypatch.setattr(ping, "run", lambda *given: {"given": given})
    assert registry.PROBES["ping"].run({"count": 1}, emit, 2.0) == {"given": ({"count": 1}, emit, 2.0)}


def test_the_table_is_cheap_to_import() -> None:
    code = "import sys, fabtui_node.registry; print([n for n in sys.modules if n.startswith('fabtui_node.')])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert printed.stdout.strip() == "['fabtui_node.registry']"
