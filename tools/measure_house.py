"""Print the functions that are too long, and the names of public classes that several files have."""

import ast
import gc
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from check_imports import statements

ROOT = Path(__file__).resolve().parents[1]
#: Folder of each package, relative to the checkout.
PACKAGES = {"fabtui": "fabtui", "fabtui_node": "probes/fabtui_node"}
MAXIMUM_FUNCTION = 60


class Module(NamedTuple):
    """A module: its dotted name, its file relative to the checkout, and its source."""

    name: str
    path: str
    text: str
    tree: ast.Module


def modules(root: Path) -> Iterator[Module]:
    for package, folder in PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = [package, *path.relative_to(root / folder).with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = path.read_text("utf-8")
            yield Module(name, str(path.relative_to(root)), text, ast.parse(text))


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


def problems(root: Path) -> Iterator[str]:
    found = list(modules(root))
    yield from (f"longer than {MAXIMUM_FUNCTION} lines: {one}" for one in long_functions(found))
    for name, paths in shared_names(found).items():
        yield f"the public class name {name} is in several files: {', '.join(paths)}"


def main() -> int:
    """Print the problems; return 1 if there are any."""
    gc.disable()  # It would look through all trees again and again.
    found = list(problems(ROOT))
    print("\n".join([*found, f"names and functions: {len(found)} problems"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
