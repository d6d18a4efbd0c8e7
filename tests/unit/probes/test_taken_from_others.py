"""Programs, files, libraries and connections of the node side: each is in the list of SECURITY.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NODE = ROOT / "probes" / "fabtui_node"
HEADING = "## What the node side runs, opens and loads"
#: What starts a program, opens or lists a path, loads code, or connects, as the code names it.
CALLS = re.compile(
    r"(?:run_command\.(?:run|run_into)|subprocess\.\w+|os\.(?:exec\w*|spawn\w*|posix_spawn\w*|system|popen|fdopen|open"
    r"|scandir|listdir|walk|fwalk)|io\.open|open|glob\.\w+|ctypes\.\w*DLL|importlib\.import_module|runpy\.\w+"
    r"|(?:\w+\.)*create_connection|exec|eval|__import__|pathlib\.\w+)"
)
#: Names that only look so: escapes for patterns, constants and types.
NOT_CALLS = {"glob.escape", "glob.has_magic", "subprocess.DEVNULL", "subprocess.PIPE", "subprocess.STDOUT"}
NOT_CALLS |= {"subprocess.TimeoutExpired", "subprocess.SubprocessError"}


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return node.id if isinstance(node, ast.Name) else ""


def places(node: ast.AST, name: str) -> Iterator[str]:
    """Yield the functions that start, open, load or connect; also where they only pass on what does."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None:
        node.returns = None
    for inner in ast.iter_child_nodes(node):
        defines = isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if isinstance(inner, (ast.Name, ast.Attribute)) and isinstance(inner.ctx, ast.Load):
            text = _dotted(inner)
            if CALLS.fullmatch(text) and text not in NOT_CALLS:
                yield name
        if isinstance(inner, ast.arg):
            continue
        yield from places(inner, f"{name}.{inner.name}" if defines else name)  # type: ignore[attr-defined]


def in_code() -> set[str]:
    found = set()
    for path in NODE.rglob("*.py"):
        module = ".".join(path.relative_to(NODE).with_suffix("").parts)
        found |= set(places(ast.parse(path.read_text()), module))
    return found


def in_list() -> list[str]:
    section = (ROOT / "SECURITY.md").read_text().split(HEADING)[1].split("\n## ")[0]
    return [
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([\w.]+)`", line.split("|")[1])
    ]


def test_the_list_is_complete_and_names_nothing_else() -> None:
    listed = in_list()
    assert len(listed) == len(set(listed))
    assert in_code() == set(listed)


def test_a_new_call_is_found() -> None:
    code = "def probe():\n    def inner(x: subprocess.Popen):\n        pass\n    pool.submit(run_command.run, [x])\n"
    assert list(places(ast.parse(code), "a")) == ["a.probe"]
    assert list(places(ast.parse("with open(named) as file: pass"), "a")) == ["a"]
