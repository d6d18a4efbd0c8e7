"""Measure the size of a checkout, its files and names, and the work of one replay.

Usage: python tools/measure_house.py [--check] [CHECKOUT]

Without a checkout, this one. The replay runs with the interpreter of the checkout's virtual environment if it has one,
else with this one. With ``--check`` nothing is replayed, and what exceeds a limit is printed.
"""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from check_imports import cycles, statements

ROOT = Path(__file__).resolve().parents[1]
#: Folder of each package, relative to the checkout.
PACKAGES = {"fabtui": "fabtui", "fabtui_node": "probes/fabtui_node"}
MAXIMUM_FUNCTION = 60
RECORDING = "tests/samples/sessions/h200x8-lab-2x4-faults.jsonl.gz"
#: Counts the searches for causes (each has one context) and the tables of pairs of one replay: those that are read from
#: the results, and all, with those made of others: parts, unions, other orders.
COUNTING = """
import sys
from importlib import import_module
def counted(found, counts={}):
    def wrap(*args, _inner=found.__init__, **kwargs):
        made = sys._getframe(1).f_code.co_name in ("joined", "replace", "where")
        for name in ("all", *(() if made else ("read",))):
            counts[found.__name__, name] = counts.get((found.__name__, name), 0) + 1
        return _inner(*args, **kwargs)
    found.__init__ = wrap
    return counts
for name in ("PairContext", "PairTable"):
    counts = counted(getattr(import_module(MODULES[name]), name))
from fabtui.cli.main import main
main(sys.argv[1:])
wanted = ("PairContext", "read"), ("PairTable", "read"), ("PairTable", "all")
print("counts", *(counts.get(one, 0) for one in wanted), file=sys.stderr)
"""


class Module(NamedTuple):
    """A module: its dotted name, its file relative to the checkout, and its source."""

    name: str
    path: str
    text: str
    tree: ast.Module


def modules(root: Path) -> Iterator[Module]:
    """Yield the modules of both packages."""
    for package, folder in PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = [package, *path.relative_to(root / folder).with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = path.read_text("utf-8")
            yield Module(name, str(path.relative_to(root)), text, ast.parse(text))


def import_edges(found: list[Module]) -> dict[str, set[str]]:
    """Return the modules that each module imports, at any place of it."""
    names = {module.name for module in found}
    edges: dict[str, set[str]] = {module.name: set() for module in found}
    for module in found:
        for node in statements(module.tree):
            wanted = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                wanted = [
                    inner if (inner := f"{node.module}.{alias.name}") in names else node.module for alias in node.names
                ]
            edges[module.name] |= {name for name in wanted if name in names and name != module.name}
    return edges


def neighbours_alone(edges: dict[str, set[str]]) -> list[str]:
    """Return the modules that only one module imports, which is in the same folder."""
    importers = defaultdict(set)
    for name, imported in edges.items():
        for one in imported:
            importers[one].add(name)
    packages = {name.rpartition(".")[0] for name in edges}
    return sorted(
        name
        for name, users in importers.items()
        if len(users) == 1 and name not in packages and next(iter(users)).rpartition(".")[0] == name.rpartition(".")[0]
    )


def import_share(found: list[Module]) -> float:
    """Return the share of the lines of fabtui that are imports."""
    own = [module for module in found if module.name.startswith("fabtui.") or module.name == "fabtui"]
    lines = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for module in own
        for node in statements(module.tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    )
    return lines / sum(module.text.count("\n") for module in own)


def shared_names(found: list[Module]) -> dict[str, list[str]]:
    """Return the public classes of which more than one file has one, with these files."""
    files = defaultdict(list)
    for module in found:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(module.path)
    return {name: paths for name, paths in sorted(files.items()) if len(paths) > 1}


def long_functions(found: list[Module]) -> list[str]:
    """Return the functions with more lines than allowed; a class within a function counts by its methods."""

    def lines_of(node: ast.stmt) -> int:
        inner = sum(lines_of(one) for one in statements(node) if isinstance(one, ast.ClassDef))
        return (node.end_lineno or node.lineno) - node.lineno + 1 - inner

    return [
        f"{module.path}:{node.lineno} {node.name} ({lines} lines)"
        for module in found
        for node in statements(module.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (lines := lines_of(node)) > MAXIMUM_FUNCTION
    ]


def replay_counts(root: Path, found: list[Module]) -> tuple[str, ...]:
    """Return the searches for causes and the tables of pairs, see `COUNTING`, of a replay with all outputs.

    Each is "?" if the replay fails.
    """
    homes = {
        name: module.name
        for name in ("PairContext", "PairTable")
        for module in found
        if any(isinstance(node, ast.ClassDef) and node.name == name for node in module.tree.body)
    }
    own = root / ".venv" / "bin" / "python"
    with tempfile.TemporaryDirectory() as folder:
        outputs = [("csv", "csv"), ("json", "json"), ("junit", "xml"), ("prom", "prom"), ("report", "html")]
        words = [word for name, end in outputs for word in (f"--{name}", f"{folder}/out.{end}")]
        done = subprocess.run(
            [
                *(own if own.exists() else sys.executable, "-c", f"MODULES = {homes!r}\n{COUNTING}"),
                *("replay", str(root / RECORDING), "--text", *words),
            ],
            cwd=root,
            capture_output=True,
            text=True,
        )
    counts = re.search(r"^counts (\d+) (\d+) (\d+)$", done.stderr, re.MULTILINE)
    return counts.groups() if counts else ("?", "?", "?")


def table(root: Path) -> list[tuple[str, str]]:
    """Return each measure with its value."""
    found = list(modules(root))
    edges = import_edges(found)
    names, functions = shared_names(found), long_functions(found)
    dictionaries = sum(m.text.count("dict[str, Any]") for m in found if m.path.startswith("fabtui/"))
    searches, tables, all_tables = replay_counts(root, found)
    return [
        ("lines", f"{sum(module.text.count(chr(10)) for module in found):,}"),
        ("files", str(len(found))),
        ("modules used by one neighbour alone", str(len(neighbours_alone(edges)))),
        *(("", f"  {name}") for name in neighbours_alone(edges)),
        ("import lines in fabtui", f"{import_share(found):.1%}"),
        ("dict[str, Any] in fabtui", str(dictionaries)),
        ("public class names in more than one file", str(len(names))),
        *(("", f"  {name}: {', '.join(paths)}") for name, paths in names.items()),
        (f"functions over {MAXIMUM_FUNCTION} lines", str(len(functions))),
        *(("", f"  {one}") for one in functions),
        ("import circles", str(len(cycles(edges)))),
        ("searches per replay with all outputs", searches),
        ("pair tables per replay with all outputs", tables),
        ("the same, with parts and unions of them", all_tables),
    ]


def problems(root: Path) -> Iterator[str]:
    """Yield what exceeds a limit."""
    found = list(modules(root))
    yield from (f"longer than {MAXIMUM_FUNCTION} lines: {one}" for one in long_functions(found))
    for name, paths in shared_names(found).items():
        yield f"the public class name {name} is in several files: {', '.join(paths)}"


def main() -> int:
    """Print the table or the problems; return 1 if there are problems."""
    gc.disable()  # It would look through all trees again and again.
    words = [word for word in sys.argv[1:] if word != "--check"]
    root = Path(words[0]).resolve() if words else ROOT
    if "--check" in sys.argv[1:]:
        found = list(problems(root))
        print("\n".join([*found, f"names and functions: {len(found)} problems"]))
        return 1 if found else 0
    for name, value in table(root):
        print(f"{name:<42}{value:>8}" if name else value)
    return 0


if __name__ == "__main__":
    sys.exit(main())
