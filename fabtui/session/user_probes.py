"""User probes: Python files that are sent to the nodes, and never run here.

They are files in a folder of the user, or entry points of installed packages in the group ``fabtui.probes``.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.metadata
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fabtui.paths import UnsafeFileError, open_strictly
from fabtui.sanitize import one_line
from fabtui_node import registry

GROUP = "fabtui.probes"
#: The package that they are modules of on the nodes.
PACKAGE = "fabtui_own"
LARGEST = 256 * 1024
MOST = 50
_NAME = re.compile(r"[a-z][a-z0-9_]{0,29}")


class _UnfitError(Exception):
    """A file that is not a probe; the message is one line."""


class OwnProbe(NamedTuple):
    """A probe of the user's own: its ``NAME`` or the name of its file, its ``TITLE`` or "", its text and its file."""

    name: str
    title: str
    source: str
    where: Path


@dataclass(slots=True)
class OwnProbes:
    """All of the user's probes that can be run, by name, and a line for each that is left out."""

    probes: dict[str, OwnProbe] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def modules(self) -> tuple[tuple[str, str], ...]:
        """Return the modules to ship: dotted name and source."""
        return tuple((f"{PACKAGE}.{probe.name}", probe.source) for probe in self.probes.values())


def find(folder: Path | None) -> OwnProbes:
    """Return the probes of a folder, which may not exist, and of installed packages; nothing without a folder.

    Nothing of them is run.
    """
    own = OwnProbes()
    if folder is None:
        return own
    for path, problem in [*_files(folder, own), *_entry_points(own)]:
        if len(own.probes) == MOST:
            own.problems.append(f"more than {MOST} probes of your own; the rest of them is left out")
            break
        try:
            if problem:
                raise _UnfitError(problem)
            probe = read(path)
            if problem := name_problem(probe.name, own):
                raise _UnfitError(problem)
        except _UnfitError as error:
            own.problems.append(f"the probe {one_line(str(path), 300)} is left out: {one_line(str(error), 300)}")
        else:
            own.probes[probe.name] = probe
    return own


def _files(folder: Path, own: OwnProbes) -> Iterator[tuple[Path, str]]:
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".py" and path.name[0] not in "._")
    except FileNotFoundError:
        return
    except OSError as error:
        own.problems.append(f"the folder {folder} of your probes cannot be read: {error.strerror}")
        return
    for path in paths:
        yield path, ""


def _entry_points(own: OwnProbes) -> Iterator[tuple[Path, str]]:
    try:
        points = list(importlib.metadata.entry_points(group=GROUP))
    except Exception as error:
        own.problems.append(f"installed packages cannot be asked for probes: {one_line(str(error), 300)}")
        return
    for point in points:
        path = _file_of(point.module)
        yield (path, "") if path else (Path(point.value), f"entry point {point.name}: there is no such module")


def _file_of(module: str) -> Path | None:
    path: list[str] | None = None
    origin: str | None = None
    for part in module.split("."):
        try:
            spec = importlib.machinery.PathFinder.find_spec(part, path)
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
        origin = spec.origin
    return Path(origin) if origin else None


def read(path: Path) -> OwnProbe:
    try:
        with open(open_strictly(path), "rb") as file:
            data = file.read(LARGEST + 1)
    except UnsafeFileError as error:
        raise _UnfitError(str(error)) from None
    except OSError as error:
        raise _UnfitError(error.strerror or "cannot be read") from None
    if len(data) > LARGEST:
        raise _UnfitError(f"is larger than {LARGEST >> 10} KiB")
    try:
        source = data.decode()
        tree = ast.parse(source)
    except SyntaxError as error:
        raise _UnfitError(f"line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise _UnfitError(f"is not Python: {error}") from None
    if "run" not in set(_bound(tree)):
        raise _UnfitError("has no function run(args, emit, deadline)")
    name = _constant(tree, "NAME") or path.stem
    return OwnProbe(name, one_line(_constant(tree, "TITLE") or "", 120), source, path)


def _bound(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in node.names)


def _constant(tree: ast.Module, name: str) -> str | None:
    for node in tree.body:
        match node:
            case ast.Assign(targets, ast.Constant(str(value))) if any(
                isinstance(target, ast.Name) and target.id == name for target in targets
            ):
                return value
    return None


def name_problem(name: str, own: OwnProbes) -> str:
    """Return why a further probe cannot have a name, or nothing."""
    if not _NAME.fullmatch(name):
        return f"its name {name[:60]!r} is not of small letters, digits and '_'"
    if name in registry.PROBES or name in registry.TESTS:
        return f"a probe of fabtui is called {name} already; give it another NAME"
    if name in own.probes:
        return f"{own.probes[name].where} is called {name} already; give it another NAME"
    return ""
