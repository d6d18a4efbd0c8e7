"""One row of the option table reaches argparse, the settings file, the environment and the documentation."""

import argparse
import runpy
from pathlib import Path

import pytest

from fabtui.cli.parser import build_parser
from fabtui.config import options
from fabtui.config.file import ConfigFile, merged, read_config, read_environment, template
from fabtui.config.options import OPTIONS, OptionSpec, session_changes
from fabtui.config.values import count, number
from fabtui.transport import registry
from fabtui.transport.registry import TransportSpec

TOOLS = Path(__file__).parents[3] / "tools"
ADDED = OptionSpec(
    "port-base",
    "first port of the ranks",
    "ranks",
    ("", "run"),
    "number",
    "N",
    "4000",
    parse=number(count, 1024, 65535),
    field="port_base",
    table="session",
    example="5000",
)


@pytest.fixture
def _added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "OPTIONS", [*OPTIONS, ADDED])


@pytest.mark.usefixtures("_added")
def test_a_new_option_needs_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = build_parser()
    parser.complete = True
    assert "--port-base N" in parser.format_help()
    assert "first port of the ranks (default: 4000)" in " ".join(parser.format_help().split())
    assert session_changes(vars(parser.parse_args(["run", "--port-base", "4100"])))["port_base"] == 4100
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "fabtui").mkdir()
    path = tmp_path / "fabtui" / "config.toml"
    path.write_text("[session]\nport-base = 4200\n")
    assert session_changes(merged({}, read_config()))["port_base"] == 4200
    monkeypatch.setenv("FABTUI_PORT_BASE", "4300")
    assert session_changes(merged({}, read_config()))["port_base"] == 4300
    assert session_changes(merged({"port_base": "4400"}, read_config()))["port_base"] == 4400
    assert "# first port of the ranks (default: 4000)\n#port-base = 5000" in template([])
    rows = runpy.run_path(str(TOOLS / "man_page.py"))["option_rows"]()
    row = next(row for row in rows if row["option"] == "--port-base")
    assert row == {
        "option": "--port-base",
        "commands": "fabtui, run",
        "help": "first port of the ranks",
        "values": "N",
        "default": "4000",
        "setting": "session.port-base",
        "environment": "FABTUI_PORT_BASE",
        "group": "ranks",
    }


def test_a_new_transport_needs_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TransportSpec("pod", "kubectl exec", "tests.pods:open_pod", hint="kubectl exec {node} -- {command}")
    monkeypatch.setitem(registry.TRANSPORTS, "pod", spec)
    parser = build_parser()
    parser.complete = True
    assert ", ".join(registry.TRANSPORTS) in " ".join(parser.format_help().split())
    assert "# how to reach the nodes: ssh, openssh, srun, pod (default: ssh)" in template([])
    config = ConfigFile(Path("x"))
    read_environment(config, {"FABTUI_TRANSPORT": "pod"})
    assert session_changes(merged({}, config)) == {"transport": "pod"}
    assert registry.command_on_node({"transport": "pod"}, "n1", "uptime") == "kubectl exec n1 -- uptime"
    monkeypatch.syspath_prepend(TOOLS)
    page = runpy.run_path(str(TOOLS / "generate_docs.py"))["transports"]()
    assert "| `pod` | kubectl exec | `kubectl exec {node} -- {command}` |" in page


def test_every_transport_has_an_opener() -> None:
    for spec in registry.TRANSPORTS.values():
        assert callable(spec.open())


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("FABTUI_TIMEOUT", "soon", "FABTUI_TIMEOUT: the value is not a time from 0.5 to 3600 seconds"),
        (
            "FABTUI_MODE",
            "quik",
            "FABTUI_MODE: there is no such value; one of auto, quick, adaptive, sampled, full; did you mean",
        ),
        ("FABTUI_ASCII", "maybe", "FABTUI_ASCII: a string is neither true nor false"),
        ("FABTUI_TRANSPORT", "local", "FABTUI_TRANSPORT: there is no such value; one of ssh"),
    ],
)
def test_invalid_variables_are_reported_and_ignored(variable: str, value: str, problem: str) -> None:
    config = ConfigFile(Path("x"))
    read_environment(config, {variable: value})
    assert config.values == {}
    assert config.describe(config.problems[0]).startswith(problem)


def test_variables_name_switches_and_lists() -> None:
    config = ConfigFile(Path("x"))
    read_environment(config, {"FABTUI_ASCII": "1", "FABTUI_PROBES": "ping,p2p", "FABTUI_RECORDING_KEEP": "no"})
    found = {name: one.value for name, one in config.values.items()}
    assert found == {"screen.ascii": True, "session.probes": ["ping,p2p"], "recording.keep": False}


def test_every_option_has_a_place_and_names_are_unique_per_command() -> None:
    for spec in OPTIONS:
        assert spec.commands or spec.table, spec.name
        assert spec.help, spec.name
        assert bool(spec.table) == bool(spec.example), spec.name
    for command in {command for spec in OPTIONS for command in spec.commands}:
        names = [spec.name for spec in options.options_of(command)]
        assert len(names) == len(set(names)), command
    variables = [spec.variable for spec in OPTIONS if spec.variable]
    assert len(variables) == len(set(variables))


def test_a_namespace_without_options_changes_nothing() -> None:
    assert session_changes(vars(argparse.Namespace())) == {}
