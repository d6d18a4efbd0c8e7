"""Mutation test: make small mistakes in the code that judges, one at a time, and count those that no test notices.

Usage: nice python tools/mutate.py [--seed N] [--count N] [--jobs N] [--seconds N] [PATH[:LINE]...]

To be run by hand when rules or thresholds change; 150 mutants take a quarter of an hour. Without paths, it samples
``fabtui/diagnosis`` and the files of ``fabtui/model`` that compute classes, references and verdicts. With a line, it
tries all mutants of that line.

The tests of `ROOMS` run once to learn which of them reach which line; ``build/mutate.json`` keeps that per test file
until it or what it reaches changes. Each mutant lives in a process of its own, where it is imported in place of the
module, and meets the tests that reach its line, the shortest first. Nothing is written to the working tree.

Changes that cannot matter to results are not tried: `LEFT_OUT` lists them, and the total counts them separately.

Exit code: 0 if `LEAST_KILLED` of the tried mutants are killed, by a failing test or by the time limit.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "mutate.json"
MODEL = "reference class_statistics structure endpoints pair_table pair_results measurement baseline facts/link_limits"
FILES = ["fabtui/diagnosis", *(f"fabtui/model/{name}.py" for name in MODEL.split())]
ROOMS = ["diagnosis", "model", "presentation", "report", "export", "session"]
LEAST_KILLED = 0.8
#: Changes on which no result depends: pattern of a line, and of a change in it.
LEFT_OUT = (
    # After how many rounds a loop yields, so that the screen does not wait.
    (r"if number % _[A-Z_]+ == 0:", r"number % |0  ->"),
    # Maximum length of a text from a node.
    (r"one_line\(.*, (\d{2,3})\)", r"\1  ->"),
)
#: Packages that tests import, which are imported once for all mutants.
WARM = ("numpy", "hypothesis", "asyncssh", "pytest_asyncio", "pytest_timeout")

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
    **{ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Mod: ast.Mult},
}
#: Per test file: digest, and per test: seconds, and lines reached by file.
Reach = dict[str, dict[str, Any]]


class Mutant(NamedTuple):
    """A changed module.

    Attributes:
        path: The file.
        number: Number of the change in the file.
        line: The line with the change.
        lines: Lines whose tests concern the change.
        change: What it was and what it is, as text.
    """

    path: str
    number: int
    line: int
    lines: set[int]
    change: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.change}"

    @property
    def left_out(self) -> bool:
        """Return True if no result depends on it, according to `LEFT_OUT`."""
        line = (ROOT / self.path).read_text("utf-8").splitlines()[self.line - 1]
        known = ((re.search(text, line), change) for text, change in LEFT_OUT)
        return any(found is not None and re.match(found.expand(change), self.change) for found, change in known)

    def tree(self) -> ast.Module:
        """Return the changed syntax tree."""
        return next(tree for number, (tree, _) in enumerate(changes(self.path)) if number == self.number)


def replacements(node: Any) -> Iterator[ast.AST]:
    """Yield what may be in place of a node."""
    match node:
        case ast.Compare(ops=ops):
            for at, operator in enumerate(ops):
                yield _with(node, ops=[*ops[:at], SWAPS[type(operator)](), *ops[at + 1 :]])
        case ast.BoolOp() | ast.BinOp() | ast.AugAssign() if type(node.op) in SWAPS:
            parts = list(ast.iter_child_nodes(node))
            if not any(isinstance(part, ast.JoinedStr) or isinstance(getattr(part, "value", 0), str) for part in parts):
                yield _with(node, op=SWAPS[type(node.op)]())
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() as value):
            yield from map(ast.Constant, (value + 1, value - 1) if value < 16 else (value * 5 // 4, value * 4 // 5))
        case ast.Constant(value=float() as value):
            yield from map(ast.Constant, (value * 1.25, value * 0.8) if value else (1.0,))
        case ast.If() | ast.IfExp() if ast.unparse(node.test) != "TYPE_CHECKING":
            yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
        case ast.Return(value=ast.AST()) if not isinstance(node.value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.Continue():
            yield ast.Pass()


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def changes(path: str) -> Iterator[tuple[ast.Module, Mutant]]:
    """Yield the syntax tree of a file while it holds a change; annotations, decorators and texts stay as they are."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    numbers = count()

    def visit(node: Any, statement: Any, inside: bool, put: Callable[[ast.AST], None]) -> Iterator[tuple[Any, Mutant]]:
        statement = node if isinstance(node, ast.stmt) else statement
        for now in replacements(node):
            shown = (getattr(each, "test", each) if isinstance(node, ast.If) else each for each in (node, now))
            change = "  ->  ".join(" ".join(ast.unparse(each).split())[:150] for each in shown)
            lines = _lines(tree, statement, node.end_lineno if inside else 0)
            put(ast.fix_missing_locations(ast.copy_location(now, node)))
            yield tree, Mutant(path, next(numbers), node.lineno, lines, change)
            put(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            within = inside or (name == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
            if isinstance(value, list):
                for at, child in enumerate(value):
                    if isinstance(child, ast.AST):
                        yield from visit(child, statement, within, partial(value.__setitem__, at))
            elif isinstance(value, ast.AST):
                yield from visit(value, statement, within, partial(setattr, node, name))

    yield from visit(tree, tree, False, lambda _: None)


def _lines(tree: ast.Module, statement: Any, end: int) -> set[int]:
    """Return the lines that a change in a statement concerns; what is not within a function may concern the file."""
    if end:
        return set(range(statement.lineno, max(statement.lineno, end) + 1))
    if isinstance(statement, ast.FunctionDef):
        return set(range(statement.lineno, (statement.end_lineno or 0) + 1))
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id.startswith("_")]
    set_here = {name.id for name in names if isinstance(name.ctx, ast.Store) and name in ast.walk(statement)}
    uses = {name.lineno for name in names if isinstance(name.ctx, ast.Load) and name.id in set_here}
    return uses or set(range(1, 10_000))


class Recorder:
    """Plugin of pytest that records the time and the reached lines of each test that passes."""

    def __init__(self) -> None:
        folders = [f"{ROOT}/fabtui/{room}/*" for room in ("diagnosis", "model")]
        self._coverage = coverage.Coverage(data_file=None, include=folders, config_file=False)
        self._coverage.start()
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Record a test."""
        self._coverage.switch_context(item.nodeid)
        began = time.monotonic()
        found = yield
        self._seconds[item.nodeid] = time.monotonic() - began
        self._coverage.switch_context("")
        return found

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a test that does not pass."""
        if not report.passed:
            self._failed.add(report.nodeid)

    def reach(self) -> Reach:
        """Return what each test file reached."""
        self._coverage.stop()
        data = self._coverage.get_data()
        found: Reach = {}
        for test, seconds in self._seconds.items():
            if test not in self._failed:
                found.setdefault(test.split("::")[0], {"tests": {}})["tests"][test] = [seconds, {}]
        for path in data.measured_files():
            for line, contexts in data.contexts_by_lineno(path).items():
                for test in contexts:
                    if test and test not in self._failed:
                        lines = found[test.split("::")[0]]["tests"][test][1]
                        lines.setdefault(str(Path(path).relative_to(ROOT)), []).append(line)
        return found


def _digest(test_file: str, entry: dict[str, Any]) -> str:
    reached = {path for _, lines in entry["tests"].values() for path in lines}
    contents = [(ROOT / path).read_bytes() for path in (test_file, *sorted(reached)) if (ROOT / path).exists()]
    return hashlib.sha256(b"".join(contents)).hexdigest()


def reach_of_tests() -> Reach:
    """Return what the tests of `ROOMS` reach; only test files run whose record is not current."""
    kept: Reach = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for room in ROOMS:
        files = sorted(str(each.relative_to(ROOT)) for each in ROOT.glob(f"tests/unit/{room}/test_*.py"))
        missing = [test for test in files if test not in kept or kept[test]["digest"] != _digest(test, kept[test])]
        if missing:
            print(f"learning which lines {len(missing)} files of tests/unit/{room} reach", flush=True)
            os.waitpid(_forked(partial(_record, missing, kept)), 0)
            kept = json.loads(KEPT.read_text())
    return {test: entry for test, entry in kept.items() if (ROOT / test).exists()}


def _record(files: list[str], kept: Reach) -> int:
    recorder = Recorder()
    pytest.main(["-q", "-p", "no:cacheprovider", *files], plugins=[recorder])
    found = recorder.reach()
    for test in files:
        entry = found.get(test, {"tests": {}})
        kept[test] = {**entry, "digest": _digest(test, entry)}
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps(kept))
    return 0


def _forked(work: Callable[[], int]) -> int:
    """Start a process group that works in silence; return its id."""
    sys.stdout.flush()
    if child := os.fork():
        return child
    os.setsid()
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    status = 99
    try:
        status = work()
    finally:
        os._exit(status)


class Imported(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Importer that gives a mutant in place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._name = mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Return a specification for the mutated module alone."""
        if name != self._name:
            return None
        return importlib.machinery.ModuleSpec(name, self, origin=str(ROOT / self._mutant.path))

    def exec_module(self, module: ModuleType) -> None:
        """Run the mutant."""
        module.__file__ = str(ROOT / self._mutant.path)
        # A module of this repository, with one mistake.
        code = compile(self._mutant.tree(), module.__file__, "exec")
        exec(code, module.__dict__)  # noqa: S102  # nosec B102


class Chosen:
    """Plugin of pytest that runs the chosen tests alone, in their order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._place = {test: at for at, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Choose and sort the tests."""
        items[:] = sorted(
            (each for each in items if each.nodeid in self._place), key=lambda each: self._place[each.nodeid]
        )


def tests_of(mutant: Mutant, reach: Reach, seconds: float) -> list[str]:
    """Return the tests that reach a mutant, the shortest first, of a total length."""
    tests = {
        test: took
        for entry in reach.values()
        for test, (took, lines) in entry["tests"].items()
        if not mutant.lines.isdisjoint(lines.get(mutant.path, ()))
    }
    total = 0.0
    chosen: list[str] = []
    for test in sorted(tests, key=tests.__getitem__):
        total += tests[test]
        if chosen and total > seconds:
            break
        chosen.append(test)
    return chosen


def fate(status: int) -> str:
    """Return what became of a mutant, by the status of its process."""
    if os.WIFSIGNALED(status):
        return "timed out"
    code = os.WEXITSTATUS(status)
    return {0: "survived", int(pytest.ExitCode.NO_TESTS_COLLECTED): "no test"}.get(code, "killed")


def _attempt(mutant: Mutant, tests: list[str]) -> int:
    if not tests:
        return int(pytest.ExitCode.NO_TESTS_COLLECTED)
    sys.meta_path.insert(0, Imported(mutant))
    files = {test.split("::")[0] for test in tests}
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *sorted(files)], plugins=[Chosen(tests)]))


def run(chosen: list[Mutant], reach: Reach, jobs: int, seconds: float) -> Counter[str]:
    """Try mutants; print and count what becomes of them."""
    waiting, fates = [one for one in reversed(chosen) if not one.left_out], Counter[str]()
    for mutant in chosen:
        if mutant.left_out:
            fates["left out"] += 1
            print(f"left out   {mutant}", flush=True)
    running: dict[int, tuple[Mutant, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            tests = tests_of(mutant, reach, seconds)
            running[_forked(partial(_attempt, mutant, tests))] = (mutant, time.monotonic() + 60 + 4 * seconds)
        time.sleep(0.05)
        for child, (mutant, deadline) in list(running.items()):
            if time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                del running[child]
                fates[fate(status)] += 1
                print(f"{fate(status):9}  {mutant}", flush=True)
    return fates


def sample(paths: list[str], number: int, seed: int) -> list[Mutant]:
    """Return mutants of files, by their number in each file, at least one; of a line, all."""
    chance = random.Random(seed)
    by_file: list[list[Mutant]] = []
    for given in paths:
        path, _, line = given.partition(":")
        files = sorted((ROOT / path).rglob("*.py")) if (ROOT / path).is_dir() else [ROOT / path]
        for each in files:
            found = changes(str(each.relative_to(ROOT)))
            by_file.append([mutant for _, mutant in found if not line or mutant.line == int(line)])
    total = sum(map(len, by_file))
    if any(":" in path for path in paths):
        number = total
    chosen: list[Mutant] = []
    for all_of_file in by_file:
        share = max(1, round(number * len(all_of_file) / total)) if number else 0
        chosen += chance.sample(all_of_file, min(len(all_of_file), share))
    # In any order, so that what an interrupted run has printed is a sample, too.
    chance.shuffle(chosen)
    return chosen


def main() -> int:
    """Try the mutants that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="*", default=FILES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=25, help="total length of the tests of a mutant")
    args = parser.parse_args()
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT), str(ROOT / "probes")]
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for package in WARM:
        importlib.import_module(package)
    reach = reach_of_tests()
    fates = run(sample(args.paths, args.count, args.seed), reach, args.jobs, args.seconds)
    killed = fates["killed"] + fates["timed out"]
    tried = fates.total() - fates["left out"]
    print(f"{killed} of {tried} mutants killed", dict(fates))
    return 0 if killed >= LEAST_KILLED * tried else 1


if __name__ == "__main__":
    sys.exit(main())
