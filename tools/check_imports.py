"""Count import cycles and function-level imports.

Usage: python tools/check_imports.py [--list]

A cycle is a strongly connected group of modules; imports under TYPE_CHECKING and within functions count. A
function-level import has to be listed in ``tools/lazy_imports.toml`` with the reason why it cannot be at the top of
its module. An entry that matches no import is an error too.
"""

from __future__ import annotations

import ast
import gc
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
#: Folder and import name of each package that is checked.
PACKAGES = {"fabtui": ROOT / "fabtui", "fabtui_node": ROOT / "probes" / "fabtui_node"}
LISTING = ROOT / "tools" / "lazy_imports.toml"
#: Maximum number of function-level imports in both packages.
MAXIMUM_LAZY = 25


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected groups of more than one module (Tarjan's algorithm).

    Args:
        edges: The modules that each module imports.

    Returns:
        The groups, the largest first, each sorted by name.
    """
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for imported in edges.get(module, ()):
            if imported not in order:
                visit(imported)
                low[module] = min(low[module], low[imported])
            elif imported in stack:
                low[module] = min(low[module], order[imported])
        if low[module] == order[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                groups.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for module in sorted(edges):
        if module not in order:
            visit(module)
    return sorted(groups, key=len, reverse=True)


def import_edges() -> dict[str, set[str]]:
    """Return the imports between the modules of both packages, of every kind."""
    sys.path[:0] = [str(folder.parent) for folder in PACKAGES.values()]
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=False, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def statements(block: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements within a module or a statement, nested ones too; expressions, the most nodes, hold none."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(block, name, ()):
            if isinstance(inner, ast.stmt):
                yield inner
            yield from statements(inner)


def lazy_imports(module: str, tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the module and the line of each import within a function.

    Args:
        module: The dotted name of the module; unused names of a package count as the package.
        tree: Its source.
    """
    seen: set[int] = set()
    for function in statements(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in statements(function):
            if not isinstance(node, (ast.Import, ast.ImportFrom)) or node.lineno in seen:
                continue
            seen.add(node.lineno)
            if isinstance(node, ast.ImportFrom):
                yield node.module or module, node.lineno
            else:
                yield from ((alias.name, node.lineno) for alias in node.names)


def all_lazy_imports() -> list[tuple[str, str, int]]:
    """Return importer, imported module and line of every function-level import."""
    found = []
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found += [(module, *one) for one in lazy_imports(module, ast.parse(path.read_text()))]
    return found


def problems(lazy: list[tuple[str, str, int]]) -> Iterator[str]:
    for group in cycles(import_edges()):
        yield f"import cycle of {len(group)} modules: {', '.join(group)}"
    listed = tomllib.loads(LISTING.read_text()).get("lazy", [])
    reasons = {(entry["importer"], entry["imported"]): entry["reason"] for entry in listed}
    for importer, imported, line in lazy:
        if not reasons.get((importer, imported), "").strip():
            yield f"{importer}:{line}: function-level import of {imported} is not listed in {LISTING.name}"
    for importer, imported in reasons.keys() - {(importer, imported) for importer, imported, _ in lazy}:
        yield f"{LISTING.name}: {importer} does not import {imported} within a function"
    if len(lazy) > MAXIMUM_LAZY:
        yield f"{len(lazy)} function-level imports; the maximum is {MAXIMUM_LAZY}"


def main() -> int:
    """Print the violations and the two counts; return 1 if there are any violations."""
    gc.disable()  # It would look through each tree again and again.
    lazy = all_lazy_imports()
    if "--list" in sys.argv[1:]:
        for importer, imported, line in lazy:
            print(f"{importer}:{line} {imported}")
        return 0
    found = list(problems(lazy))
    for text in found:
        print(text)
    count = sum(text.startswith("import cycle") for text in found)
    print(f"import cycles: {count}, function-level imports: {len(lazy)} (maximum {MAXIMUM_LAZY})")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
