"""Rules of imports between modules, and of the modules that a command loads: checked in fresh interpreters."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fabtui
import fabtui_node
from fabtui.screen.app import VIEWS
from fabtui.screen.context import part

#: None of these before the first frame of the screen; torch never on the login node.
HEAVY = ("asyncssh", "cryptography", "numpy", "pandas", "pynvml", "torch", "shtab", "ClusterShell.NodeSet", "re2")
ROOT = Path(__file__).parents[2]
PROBES = Path(fabtui_node.__file__).parent
SOURCES = sorted(PROBES.rglob("*.py"))


def loaded_after(code: str) -> set[str]:
    script = f"import sys, json\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


PARSED = "from fabtui.cli.parser import build_parser; args = build_parser().parse_args(['--lab', '2x4', '--no-record'])"
#: Code, and what it does not load: the first two are measured against bars, torch is for nodes.
UNLOADED = {
    f"import fabtui, fabtui.cli.main; {PARSED}": (
        *HEAVY,
        "textual",
        "rich",
        "asyncio",
        "importlib.metadata",
        "subprocess",
    ),
    f"{PARSED}; from fabtui.cli.options_from_args import request_from; request_from(args)": (*HEAVY, "textual", "rich"),
    "import fabtui.screen.launch, fabtui.cli.commands.app": (*HEAVY, "textual", "rich", "fabtui.model.session_model"),
    "import fabtui.screen.app": (*HEAVY, "fabtui.model.session_model", "fabtui.diagnosis.finding"),
    "import fabtui.session.feeds.live, fabtui.transport.connector, fabtui.lab.lab": (
        "torch",
        "textual",
        "rich",
        "pandas",
    ),
}


@pytest.mark.parametrize("code", UNLOADED, ids=["arguments", "request", "first-frame", "screen", "session"])
def test_what_is_not_needed_is_not_loaded(code: str) -> None:
    assert not loaded_after(code) & {*UNLOADED[code]}


def test_names_of_parts_of_the_screen_name_something() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "fabtui" / "screen").rglob("*.py"))
    named = {*re.findall(r'part\("([^"]+)"\)', sources), *(f"screen.views.{name}" for name in VIEWS.values())}
    assert len(named) > 20
    assert all(map(callable, map(part, named)))


@pytest.mark.slow
def test_a_name_of_the_package_is_loaded_on_first_use() -> None:
    # What takes the place of pandas is not loaded in half a second, but at once.
    code = "from unittest import mock; sys.modules['pandas'] = mock.MagicMock(DataFrame=object); import fabtui\n"
    code += "assert 'fabtui.export.frames' not in sys.modules; fabtui.load_snapshot"
    assert "fabtui.export.frames" in loaded_after(code)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fabtui.nothing  # noqa: B018


@pytest.mark.slow
def test_what_runs_on_nodes_stands_on_the_standard_library_and_runs_no_annotation() -> None:
    """An old Python would stumble over ``int | None``; the future import keeps it from looking."""
    for path in SOURCES:
        tree = ast.parse(path.read_bytes(), feature_version=(3, 8))
        _check_imports(path, tree)
        annotated = any(
            isinstance(node, ast.AnnAssign)
            or (isinstance(node, ast.arg) and node.annotation)
            or (isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns)
            for node in ast.walk(tree)
        )
        future = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
        assert future or not annotated, path


def _check_imports(path: Path, tree: ast.Module) -> None:
    allowed = {*sys.stdlib_module_names, "fabtui_node", "pynvml", "torch"}
    top_level = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif not node.level:
            names = [node.module or ""]
        for name in names:
            root = name.partition(".")[0]
            assert root in allowed, f"{path.name} line {node.lineno} imports {name}"
            if id(node) in top_level and path.relative_to(PROBES).parts[0] != "ranks":
                assert root != "torch", f"{path.name} line {node.lineno} loads torch where no rank needs it"
