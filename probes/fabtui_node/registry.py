"""Registry of probes and tests, collected from the declarations in ``fabtui_node.probes``.

To add a probe, write one file below ``fabtui_node/probes`` that ends with ``PROBE = ProbeSpec(...)``. Options, phases,
preflight facts, the node view, ``fabtui probes`` and the documentation are derived from it.

Declarations are read from the source texts: importing all probes takes 250 ms, and a node compiles every module that it
imports. Fields of a declaration are therefore literals; functions are given by name and imported at their first call.
"""

from __future__ import annotations

import ast
import functools
import importlib
import os
import re
from types import MappingProxyType
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, TypedDict

Value = Dict[str, Any]
Emit = Callable[[Value], None]
Run = Callable[[Value, Emit, float], Any]

#: When probes run, by the name of the phase. Probes are listed in this order, then by name.
PHASES = {
    "connect": "when a node connects",
    "inspect": "at the start of a session and in a preflight",
    "mesh": "between all data addresses, before the tests",
    "driver": "once the ranks have started, and in a preflight",
    "load": "while the GPUs work",
    "finish": "after the tests, and in a preflight",
    "request": "only when named in --probes",
    "sample": "before, between and after tests",
    "user": "after the built-in probes",
    "asked": "when you ask for it: a next step in the app, --master, --soak, gate",
    "job": "when a command asks about a running job",
}

_EMPTY: Mapping[str, Any] = MappingProxyType({})
_PACKAGE = "fabtui_node.probes"
#: Begins with its literal part: where a pattern begins with the name, each line of all probes is tried.
_DECLARATION = re.compile(r" = ProbeSpec\($", re.MULTILINE)


class Judgement(TypedDict, total=False):
    """Result of a ``judge`` function: ``verdict`` is ``bad``, ``warn`` or ``note``; ``devices``: GPUs and NICs.

    ``check``: its name in the catalogue of checks; ``action``: what the vendor recommends.
    """

    subject: str
    verdict: str
    text: str
    devices: List[str]
    check: str
    action: str


Judge = Callable[[Value], List[Judgement]]


class ProbeSpec(NamedTuple):
    """Declaration of a probe: harmless, needs no ranks, runs in a thread of the worker."""

    name: str  #: Name in options, messages and recordings.
    title: str  #: One line for users.
    phase: str  #: When it runs, one of `PHASES`.
    needs: str  #: What it needs on a node, for users.
    gives: str  #: What its values are, for users.
    #: ``run(args, emit, deadline)`` returns the value, or a text for ``parse``. It takes at most ``deadline`` seconds,
    #: and may call ``emit`` with partial values from any thread, one call at a time.
    run: Run
    parse: Optional[Callable[[str], Value]] = None  #: Turns the text that ``run`` returned into the value.
    #: ``judge(value)`` returns what is wrong on the node alone: a list of ``subject``, ``verdict`` (``bad``, ``warn``,
    #: ``note``) and ``text``.
    judge: Optional[Judge] = None
    requires: str = ""  #: Name of the inventory list that must not be empty on a node: ``gpus``, ``ib``, or "".
    units: Mapping[str, str] = _EMPTY  #: Unit of a value by its dotted path; ``B`` and ``s`` are scaled for display.
    #: How preflight compares a value, by its dotted path: ``kind`` (equal within a hardware kind), ``all``, ``near``,
    #: ``near-all`` or ``none``.
    compare: Mapping[str, str] = _EMPTY
    view: Tuple[Tuple[str, str], ...] = ()  #: Rows of the generic table in the node view: label and dotted path.
    #: Whether it only reads: no traffic between data addresses, no rank, no GPU memory, no port, no file.
    passive: bool = False
    next: str = ""  #: Next command for a finding of this probe; ``{node}`` stands for a node.
    watch: bool = False  #: Whether it runs again and again in watch mode.
    beside_tests: Mapping[str, Any] = _EMPTY  #: Arguments that keep it from disturbing tests that run at the same time.


class TestSpec(NamedTuple):
    """Declaration of a test between endpoints, run by the rank host and planned by the controller."""

    name: str
    title: str
    needs: str
    gives: str


def declared(module: str, source: str) -> Iterator[ProbeSpec]:
    """Yield the probes that the source text of a module declares; their functions import it at the first call.

    Raises:
        ValueError: A field is neither a literal nor the name of a function.
    """
    for match in _DECLARATION.finditer(source):
        begin = source.rfind("\n", 0, match.start()) + 1
        if not source[begin].isupper():
            continue
        call: Any = ast.parse(source[begin:]).body[0]
        fields: Dict[str, Any] = {}
        for keyword in call.value.keywords:
            if isinstance(keyword.value, ast.Name):
                fields[keyword.arg] = functools.partial(_call, module, keyword.value.id)
            else:
                fields[keyword.arg] = ast.literal_eval(keyword.value)
        spec = ProbeSpec(**fields)
        yield spec if spec.parse is None else spec._replace(run=functools.partial(_parsed, spec.run, spec.parse))


def _call(module: str, function: str, *args: Any) -> Any:
    return getattr(importlib.import_module(module), function)(*args)


def _parsed(run: Callable[..., Any], parse: Callable[[str], Value], *args: Any) -> Value:
    result = run(*args)
    return parse(result) if isinstance(result, str) else result


def _sources() -> Dict[str, str]:
    """Return the source text of every module below `_PACKAGE`: from memory on a node, else from its folder."""
    package: Any = importlib.import_module(_PACKAGE)
    loader = package.__spec__.loader
    sources: Dict[str, str] = {}
    if hasattr(loader, "sources"):
        sources.update(loader.sources(_PACKAGE + "."))
        return sources
    root = package.__path__[0]
    for folder, _, files in os.walk(root):
        below = os.path.relpath(folder, root).replace(os.sep, ".")
        prefix = _PACKAGE + ("." if below == "." else "." + below + ".")
        for name in files:
            if name.endswith(".py") and name != "__init__.py":
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    sources[prefix + name[:-3]] = file.read()
    return sources


def collect(sources: Dict[str, str]) -> Dict[str, ProbeSpec]:
    """Return the probes that modules declare in their source texts, by name, in the order of `PHASES`.

    Raises `ValueError`: a declaration is wrong, or two have the same name.
    """
    phases = list(PHASES)
    specs = [spec for module, source in sources.items() for spec in declared(module, source)]
    probes = {spec.name: spec for spec in sorted(specs, key=lambda spec: (phases.index(spec.phase), spec.name))}
    if len(probes) < len(specs):
        raise ValueError("two probes have the same name")
    return probes


#: Every built-in probe by name.
PROBES = collect(_sources())

#: Every test between endpoints by name.
TESTS = {
    test.name: test
    for test in (
        TestSpec(
            "p2p",
            "one-way transfers between all endpoints, each in a two-rank communicator",
            "NCCL for GPUs, PyTorch for CPU ranks",
            "bandwidth in GB/s, latency, transport; data verified",
        ),
        TestSpec(
            "all_reduce",
            "all_reduce over all endpoints and over each pair of nodes",
            "NCCL for GPUs, PyTorch for CPU ranks",
            "bus bandwidth in GB/s for each size; result verified",
        ),
    )
}


def module_of(probe: ProbeSpec) -> str:
    """Return the name of the module that declares a probe of `PROBES`."""
    run: Any = probe.run
    while run.func is not _call:
        run = run.args[0]
    return str(run.args[0])


def add(modules: Mapping[str, str]) -> None:
    """Add the probes of modules that arrived later."""
    PROBES.update(collect({name: source for name, source in modules.items() if name.startswith(_PACKAGE + ".")}))


def probes_in(*phases: str) -> Tuple[str, ...]:
    return tuple(spec.name for spec in PROBES.values() if spec.phase in phases)


#: Probes and tests of a session where ``--probes`` is not given, in the order they run.
DEFAULT = (*probes_in("inspect", "mesh", "driver", "load", "finish"), *TESTS)
#: Probes that run only when named: they take time and load that a session should not cost by default.
OPTIONAL = probes_in("request")
#: Probes of commands about running jobs.
JOB = probes_in("job")
#: Probes of a preflight; all of them are passive.
PREFLIGHT = probes_in("inspect", "driver", "finish")
