"""Choices of the start screen: nodes, jobs, recordings, history, films and labs of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from fabtui.cli.commands.demo import FILMS
from fabtui.errors import InputError
from fabtui.screen.context import StartChoice, StartSection

#: Maximum number of lines of a section.
_NODES, _JOBS, _RECORDINGS = 3, 4, 5
#: Maximum number of bytes of a recording whose bad pairs are counted.
_WHOLE = 256 << 10


def start_sections(recordings: Path, ssh_config: Path | None) -> list[StartSection]:
    return [
        StartSection("n", "nodes", partial(_nodes, ssh_config)),
        StartSection("j", "jobs", _jobs),
        StartSection("r", "recordings", partial(_recordings, recordings)),
        StartSection("h", "history", _history),
        StartSection("d", "demo", lambda: [StartChoice(name, text, ("demo", name)) for name, text in FILMS.items()]),
        StartSection("l", "lab", _labs),
    ]


def _module(name: str) -> Any:
    # By name: the first frame does without all of them.
    return import_module(f"fabtui.{name}")


def _nodes(ssh_config: Path | None) -> Sequence[StartChoice] | str:
    nodeset = _module("nodeset")
    groups = [f"@{name}" for name in nodeset.group_names()]
    patterns = _module("transport.ssh_hosts").host_patterns(ssh_config)
    hosts = [name for name in patterns if not set(name) & set("*?")]
    sets = nodeset.fold(hosts).replace("],", "],\n").split("\n") if hosts else []
    found = [StartChoice(name, "group", fill=name) for name in groups[:_NODES]]
    found += [StartChoice(text, "ssh configuration", fill=text) for text in sets[:_NODES]]
    return found or "type them above: no group and no host of an ssh configuration is known here"


def _jobs() -> Sequence[StartChoice] | str:
    jobs, problem = _module("scheduler.slurm").own_jobs()
    rows = [
        StartChoice(f"{one.job} {one.name}", f"{one.nodes}  {one.state} {one.elapsed}", ("job", one.job))
        for one in jobs[:_JOBS]
    ]
    return rows or (f"Slurm does not answer: {problem}" if problem else "") or "you have no job that waits or runs"


def _recordings(folder: Path) -> Sequence[StartChoice] | str:
    module, found = _module("report.recordings"), list[StartChoice]()
    for path in module.recordings_in(folder):
        if len(found) == _RECORDINGS:
            break
        with contextlib.suppress(InputError, OSError):
            started, duration, bad, nodes, _ = module.recording_row(path, whole=path.stat().st_size <= _WHOLE)
            tested = bad if bad in ("-", "none tested") else f"{bad} bad"
            found.append(StartChoice(f"{started}  {duration}", f"{nodes}  {tested}", ("replay", str(path))))
    return found or "none yet: each session makes one"


def _history() -> Sequence[StartChoice] | str:
    query = _module("history.query")
    overview = query.read_overview(_module("paths").history_file(), query.usual_start(""))
    if not overview.total:
        return "no session is in it yet"
    text = _module("presentation.component_history").overview_sentence(overview)
    return [StartChoice("", text, ("history",))]


def _labs() -> Sequence[StartChoice]:
    lab, faults, fold = _module("lab.lab"), _module("lab.faults"), _module("nodeset").fold
    found = []
    for one in lab.standing():
        with contextlib.suppress(InputError):
            names = fold(faults.LabSpec((1,) * one.ask("status")["nodes"]).names)
            words = ("--nodes", names, "--ssh-config", str(one.ssh_config))
            found.append(StartChoice(f"{one.name} is up", f"test {names}", words))
    return [*found, StartChoice("--lab 2x4", "two nodes on this machine, four CPU ranks each", ("--lab", "2x4"))]
